"""The command that searches an op's configurations."""

from __future__ import annotations

from typing import Annotated

import typer

from perfci.cli.options import (
    HERE,
    Case,
    DeviceKind,
    DeviceOption,
    Format,
    Lang,
    Output,
    Project,
    Seed,
    Timer,
    TimerKind,
)


def tune(
    op: Annotated[str, typer.Argument(metavar="OP", help="The op whose configurations are searched.")],
    case: Case = None,
    device: DeviceOption = DeviceKind.AUTO,
    budget: Annotated[
        float,
        typer.Option(
            "--budget",
            metavar="S",
            min=0.01,
            max=7 * 24 * 3600,
            help="Seconds that this call searches; the next goes on.",
        ),
    ] = 600.0,
    device_spec: Annotated[
        str | None,
        typer.Option(
            "--device-spec",
            metavar="NAME",
            show_default="the device at hand",
            help="Tune by a static model for a device that is not here: a file of kernels/_devices, such as low-bw.",
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", show_default="off", help="Write the tuned file instead of showing the diff.")
    ] = False,
    seed: Seed = None,
    timer: Timer = TimerKind.AUTO,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Search an op's configurations: a coarse grid, then steps around the best; checking never tunes."""
    from perfci.cli import tuning
    from perfci.runs.tuning import TuneOptions

    wishes = TuneOptions(op, case, str(device), budget, seed, str(timer), device_spec, write)
    return tuning.tuned(wishes, project, json=output is Format.JSON)
