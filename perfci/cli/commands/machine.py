"""Commands that try out this machine."""

from __future__ import annotations

from perfci.cli.options import (
    HERE,
    Budget,
    Case,
    DeviceKind,
    DeviceOption,
    Devices,
    Format,
    Lang,
    Ops,
    Output,
    Project,
    Seed,
    Timer,
    TimerKind,
)


def doctor(output: Output = Format.TEXT, project: Project = HERE, lang: Lang = None) -> int:
    """Look at this machine: what is installed, the device, its timer and state, and known traps."""
    from perfci.cli import answers

    return answers.doctor(project, json=output is Format.JSON)


def selftest(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    device: DeviceOption = DeviceKind.AUTO,
    budget: Budget = 1.0,
    seed: Seed = None,
    timer: Timer = TimerKind.AUTO,
    devices: Devices = None,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Try perfci on this machine: unchanged kernels pass, a planted slow-down and a planted error are found."""
    from perfci.cli import answers

    request = answers.request(op, case, device, budget, seed, "both", timer)
    request = answers.within(request, devices)
    return answers.selftest(request, project, json=output is Format.JSON)
