"""`perfci doctor`: this machine examined, or perfci tried out on it."""

from __future__ import annotations

from typing import Annotated

from perfci.cli import language, options, selftests, tables
from perfci.cli.exits import Exit
from perfci.cli.output import get_command, print_json, print_parts
from perfci.cli.progress import Progress
from perfci.core.errors import UsageError
from perfci.core.settings import Settings, are_devices
from perfci.core.wording import sentence
from perfci.runs import doctor as examination
from perfci.runs.plan import Request
from perfci.runs.selftest import selftest as try_itself


@options.takes("", {"selftest": "op case device budget seed timer devices"})
def doctor(
    selftest: Annotated[
        bool,
        options.flag(
            "--selftest", "Try perfci: unchanged kernels pass, a planted slow-down and a planted error are found."
        ),
    ] = False,
    op: options.Ops = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    budget: options.Budget = 1.0,
    seed: options.Seed = None,
    timer: options.Timer = "auto",
    devices: options.Devices = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Look at this machine: what is installed, the device, its timer and state, and known traps."""
    if devices is not None and not are_devices(devices):
        raise UsageError("devices_malformed", devices=devices)
    where, json = language.load(project), output == "json"
    if not selftest:
        return _examine(where, json=json)
    request = Request(tuple(op), case, device, budget, seed, timer, devices=devices)
    with Progress() as progress:
        found = try_itself(where, request, get_command(), progress)
    if json:
        print_json(found)
    else:
        print_parts(selftests.trials(found))
    return Exit.OK if found.passed else Exit.GATE_FAILED


COMMANDS = {"doctor": doctor}


def _examine(where: Settings, *, json: bool) -> int:
    """Findings about this machine; 3 if any is a problem."""
    with Progress() as progress:
        facts = examination.look_at(where, "auto", progress)
    findings = examination.examine(facts)
    if json:
        print_json([{"level": one.level, "reason": one.reason, "sentence": sentence(one.reason)} for one in findings])
    else:
        print_parts(tables.findings(findings))
    return Exit.WARNINGS if any(one.level is examination.Level.PROBLEM for one in findings) else Exit.OK
