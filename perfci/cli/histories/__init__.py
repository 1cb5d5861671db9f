"""`perfci history`: the accepted runs of ops on a device.

kept      what is asked for, and what there is of it
tables    for people
data      for programs
plot      drawn
"""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from perfci.cli import answers, language
from perfci.cli.exits import Exit
from perfci.cli.histories.data import as_data
from perfci.cli.histories.kept import Wishes, told
from perfci.cli.histories.plot import draw
from perfci.cli.histories.tables import shown
from perfci.core.codec import encode


def history(wishes: Wishes, project: Path, *, json: bool) -> int:
    """Print, and draw, what is kept of accepted runs; exit 3 where a file of it is to be mended."""
    where = language.load(project)
    found = told(wishes, where)
    if wishes.plot:
        draw(wishes.plot, found, wishes)
    if json:
        answers.write_json(encode([as_data(one, wishes) for one in found]).decode())
    else:
        console = Console(highlight=False)
        for part in shown(found, wishes):
            console.print(part, soft_wrap=not console.is_terminal)
    return Exit.WARNINGS if any(one.history.problems for one in found) else Exit.OK
