"""`perfci brief`: what somebody who is to make an op faster has to know."""

from __future__ import annotations

from typing import Annotated

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.options import argument
from perfci.cli.output import print_json, print_lines
from perfci.cli.progress import Progress
from perfci.report.brief import write_markdown
from perfci.runs import brief as briefs


def brief(
    op: Annotated[str, argument("OP", "The op.")],
    device: options.DeviceOption = "auto",
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Say what an op is, where it stands, what holds it back, what was tried, and what may be changed, as Markdown."""
    where = language.load(project)
    with Progress() as progress:
        found = briefs.brief(where, op, device, progress)
    if output == "json":
        print_json(found)
    else:
        print_lines(write_markdown(found))
    return Exit.OK


COMMANDS = {"brief": brief}
