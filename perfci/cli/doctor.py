"""`perfci doctor`: this machine examined, or perfci tried out on it."""

from __future__ import annotations

from typing import Annotated

import typer

from perfci.cli import language, selftests, tables
from perfci.cli.exits import Exit
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
    takes,
)
from perfci.cli.output import get_command, print_json, print_parts
from perfci.cli.progress import Progress
from perfci.core.errors import UsageError
from perfci.core.settings import Settings, are_devices
from perfci.core.wording import sentence
from perfci.runs import doctor as examination
from perfci.runs import flow
from perfci.runs.plan import Request


@takes("", {"selftest": "op case device budget seed timer devices"})
def doctor(
    selftest: Annotated[
        bool,
        typer.Option(
            "--selftest",
            show_default="off",
            help="Try perfci: unchanged kernels pass, a planted slow-down and a planted error are found.",
        ),
    ] = False,
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
    """Look at this machine: what is installed, the device, its timer and state, and known traps."""
    if devices is not None and not are_devices(devices):
        raise UsageError("devices_malformed", devices=devices)
    where, json = language.load(project), output is Format.JSON
    if not selftest:
        return _examine(where, json=json)
    request = Request(tuple(op), case, str(device), budget, seed, str(timer), devices=devices)
    with Progress() as progress:
        found = flow.selftest(where, request, get_command(), progress)
    if json:
        print_json(found)
    else:
        print_parts(selftests.trials(found))
    return Exit.OK if found.passed else Exit.GATE_FAILED


COMMANDS = {"doctor": doctor}


def _examine(where: Settings, *, json: bool) -> int:
    """Findings about this machine; 3 if any is a problem."""
    with Progress() as progress:
        facts = flow.examine(where, "auto", progress)
    findings = examination.examine(facts)
    if json:
        print_json([{"level": one.level, "reason": one.reason, "sentence": sentence(one.reason)} for one in findings])
    else:
        print_parts(tables.findings(findings))
    return Exit.WARNINGS if any(one.level is examination.Level.PROBLEM for one in findings) else Exit.OK
