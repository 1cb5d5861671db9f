"""Commands that look back over accepted runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfci.cli.options import HERE, Case, Format, Lang, Ops, Output, Project, Strict


def history(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="KEY", show_default="all", help="Folder of the device: nvidia-h200."),
    ] = None,
    last: Annotated[
        int | None,
        typer.Option("--last", metavar="N", min=1, show_default="20", help="Newest runs of each case that are shown."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE.png", show_default="none", help="Draw the cases of one op, too."),
    ] = None,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Show what accepted runs left behind: each case over time, with epochs and changes of the environment."""
    from perfci.cli import histories
    from perfci.cli.histories.kept import Wishes

    wishes = Wishes(tuple(op), case, device, last, plot)
    return histories.history(wishes, project, json=output is Format.JSON)


def drift(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="KEY", show_default="all", help="Folder of the device: nvidia-h200."),
    ] = None,
    release: Annotated[
        str | None,
        typer.Option(
            "--release",
            metavar="REV",
            show_default="the newest tag before HEAD with runs enough, else the first runs",
            help="What the last runs are held against: a tag, branch or commit.",
        ),
    ] = None,
    strict: Strict = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Say where accepted runs crept or stepped, between which commits, and what explains it."""
    from perfci.cli import drifting

    return drifting.drift(op, case, device, release, project, strict=strict, json=output is Format.JSON)


def boards(
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="KEY", show_default="all", help="Folder of the device: nvidia-h200."),
    ] = None,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Hold the boards of a device against each other, from what accepted runs left behind."""
    from perfci.cli import drifting

    return drifting.boards(device, project, json=output is Format.JSON)
