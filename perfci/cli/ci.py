"""`perfci ci`: what pipelines call. Its commands are those of extensions."""

from perfci.cli.parsing import make_group
from perfci.core import extensions

ci = make_group(
    "ci", "What pipelines call: a plan for several runners, their runs merged, and the note of a merge request."
)

for add_commands in extensions.provided("ci"):
    add_commands(ci)

COMMANDS = {"ci": ci}
