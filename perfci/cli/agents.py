"""`perfci brief` and `perfci mcp`: what somebody, or an agent, needs who is to make an op faster."""

from __future__ import annotations

from typing import Annotated

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.options import argument, option
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
        print_lines(*write_markdown(found))
    return Exit.OK


def mcp(
    device: options.DeviceOption = "auto",
    device_time: Annotated[
        float, option("--device-time", "Seconds that rounds and profiles may take in all.", metavar="S", min=0)
    ] = 3600.0,
    project: options.Project = options.HERE,
) -> int:
    """Serve brief, try, profile, static, compare and history to an agent, by MCP over standard input and output."""
    from perfci.mcp import serve

    with Progress() as progress:
        serve(language.load(project), device, device_time, progress)
    return Exit.OK


COMMANDS = {"brief": brief, "mcp": mcp}
