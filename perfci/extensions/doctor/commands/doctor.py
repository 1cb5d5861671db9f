"""`perfci doctor`: this machine examined, or perfci tried out on it."""

from typing import Annotated

from rich.cells import set_cell_size
from rich.text import Text

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import STYLES, print_found
from perfci.cli.parsing import flag
from perfci.cli.progress import Progress
from perfci.core.errors import require
from perfci.core.model import Gate
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.doctor import machine
from perfci.report.text import plain
from perfci.runs.plan import Request


@options.takes("", {"selftest": "ops case device budget seed timer"})
def doctor(
    ops: options.Ops = [],  # noqa: B006
    selftest: Annotated[
        bool, flag("--selftest", "Try perfci: unchanged kernels pass, planted slow-downs and errors are found.")
    ] = False,
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    budget: options.Budget = 1.0,
    seed: options.Seed = None,
    timer: options.Timer = "auto",
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Look at this machine: what is installed, the device, its timer and state, and known traps."""
    where, json = language.load(project), output == "json"
    if not selftest:
        return _examine(where, json=json)
    try_out = require("selftest", "lab", "--selftest")
    return Exit(try_out(where, Request(tuple(ops), case, device, budget, seed, timer), json=json))


COMMANDS = {"doctor": doctor}


def _examine(where: Settings, *, json: bool) -> int:
    """Findings about this machine; 3 if any is a problem, 1 if no kernel can run."""
    with Progress() as progress:
        findings = machine.examine(machine.gather(where, "auto", progress))
    words = {"problem": say("problem"), "note": say("note"), "ok": say("ok")}
    styles = {"problem": STYLES[Gate.FAILS], "note": STYLES[Gate.WARNS], "ok": STYLES[Gate.OK]}
    shown = (
        Text.assemble((set_cell_size(words[one.level], 8), styles[one.level]), "  ", plain(sentence(one.reason)))
        for one in sorted(findings, key=lambda finding: list(words).index(finding.level))
    )
    print_found(findings, shown, json=json)
    if any(one.reason.kind in machine.NOTHING_RUNS for one in findings):
        return Exit.PERFCI_FAILED
    return Exit.WARNINGS if any(one.level is machine.Level.PROBLEM for one in findings) else Exit.OK
