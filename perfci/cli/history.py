"""`perfci history`: accepted runs over time, where they drifted, and the boards that they ran on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from perfci.cli import drifting, language, options
from perfci.cli.exits import Exit
from perfci.cli.histories.data import as_data
from perfci.cli.histories.kept import HistoryOptions, told
from perfci.cli.histories.plot import draw
from perfci.cli.histories.tables import shown
from perfci.cli.output import print_json, print_parts


@options.takes("op case device last plot", {"drift": "op case device release strict", "boards": "device"})
def history(
    op: options.Ops = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceKey = None,
    last: Annotated[
        int | None, options.option("--last", "Newest runs of each case that are shown.", "20", "N", min=1)
    ] = None,
    plot: Annotated[Path | None, options.option("--plot", "Draw the cases of one op, too.", "none", "FILE.png")] = None,
    drift: Annotated[
        bool, options.flag("--drift", "Cases that crept or stepped, between which commits, and why.")
    ] = False,
    release: options.Release = None,
    boards: Annotated[bool, options.flag("--boards", "Compare the boards of a device with each other.")] = False,
    strict: options.Strict = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Show accepted runs: each case over time, with epochs and changes of the environment."""
    where, json = language.load(project), output == "json"
    wanted = HistoryOptions(tuple(op), case, device, last, plot)
    if drift:
        return drifting.drift(wanted, release, where, strict=strict, json=json)
    if boards:
        return drifting.boards(wanted, where, json=json)
    found = told(wanted, where)
    if plot:
        draw(plot, found, wanted)
    if json:
        print_json([as_data(one, wanted) for one in found])
    else:
        print_parts(shown(found, wanted))
    return Exit.WARNINGS if any(one.history.problems for one in found) else Exit.OK


COMMANDS = {"history": history}
