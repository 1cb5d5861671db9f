"""`perfci history`: accepted runs over time, where they drifted, and the boards that they ran on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfci.cli import drifting, language
from perfci.cli.exits import Exit
from perfci.cli.histories.data import as_data
from perfci.cli.histories.kept import HistoryOptions, told
from perfci.cli.histories.plot import draw
from perfci.cli.histories.tables import shown
from perfci.cli.options import HERE, Case, DeviceKey, Format, Lang, Ops, Output, Project, Release, Strict, takes
from perfci.cli.output import print_json, print_parts


@takes("op case device last plot", {"drift": "op case device release strict", "boards": "device"})
def history(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    device: DeviceKey = None,
    last: Annotated[
        int | None,
        typer.Option("--last", metavar="N", min=1, show_default="20", help="Newest runs of each case that are shown."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", show_default="none", help="Draw the cases of one op, too."),
    ] = None,
    drift: Annotated[
        bool,
        typer.Option(
            "--drift", show_default="off", help="Cases that crept or stepped, between which commits, and why."
        ),
    ] = False,
    release: Release = None,
    boards: Annotated[
        bool, typer.Option("--boards", show_default="off", help="Compare the boards of a device with each other.")
    ] = False,
    strict: Strict = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Show accepted runs: each case over time, with epochs and changes of the environment."""
    where, json = language.load(project), output is Format.JSON
    options = HistoryOptions(tuple(op), case, device, last, plot)
    if drift:
        return drifting.drift(options, release, where, strict=strict, json=json)
    if boards:
        return drifting.boards(options, where, json=json)
    found = told(options, where)
    if plot:
        draw(plot, found, options)
    if json:
        print_json([as_data(one, options) for one in found])
    else:
        print_parts(shown(found, options))
    return Exit.WARNINGS if any(one.history.problems for one in found) else Exit.OK


COMMANDS = {"history": history}
