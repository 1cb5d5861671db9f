"""`perfci doctor`: this machine examined, or perfci tried out on it."""

from collections.abc import Iterator
from typing import Annotated

from rich.cells import set_cell_size
from rich.console import RenderableType
from rich.text import Text

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.options import flag
from perfci.cli.output import STYLES, Grid, Paragraph, get_command, print_found
from perfci.cli.progress import Progress
from perfci.core import units
from perfci.core.model import Gate
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.report.text import plain
from perfci.report.view import make_table
from perfci.runs import doctor as examination
from perfci.runs.plan import Request
from perfci.runs.selftest import SelfTest
from perfci.runs.selftest import selftest as try_itself

MISSED = 5  # most cases of a try that are named if they came out wrong


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
    request = Request(tuple(ops), case, device, budget, seed, timer)
    with Progress() as progress:
        found = try_itself(where, request, get_command(), progress)
    print_found(found, show_trials(found), json=json)
    return Exit.OK if found.passed else Exit.GATE_FAILED


COMMANDS = {"doctor": doctor}


def _examine(where: Settings, *, json: bool) -> int:
    """Findings about this machine; 3 if any is a problem, 1 if no kernel can run."""
    with Progress() as progress:
        findings = examination.examine(examination.gather(where, "auto", progress))
    words = {"problem": say("problem"), "note": say("note"), "ok": say("ok")}
    styles = {"problem": STYLES[Gate.FAILS], "note": STYLES[Gate.WARNS], "ok": STYLES[Gate.OK]}
    shown = (
        Text.assemble((set_cell_size(words[one.level], 8), styles[one.level]), "  ", plain(sentence(one.reason)))
        for one in sorted(findings, key=lambda each: list(words).index(each.level))
    )
    print_found(findings, shown, json=json)
    if any(one.reason.kind in examination.NOTHING_RUNS for one in findings):
        return Exit.PERFCI_FAILED
    return Exit.WARNINGS if any(one.level is examination.Level.PROBLEM for one in findings) else Exit.OK


def show_trials(found: SelfTest) -> Iterator[RenderableType]:
    """Lines for a terminal or a log."""
    for trial in found.trials:
        facts = {"seen": trial.seen, "checked": trial.checked}
        titles = {
            "unchanged": say("every op against itself: {seen} false alarms in {checked} cases", **facts),
            "slower": say("twice the allowed slow-down planted: found in {seen} of {checked} cases", **facts),
            "wrong": say("a wrong element planted: found in {seen} of {checked} ops", **facts),
        }
        word, style = ("ok", "green") if trial.passed else ("FAIL", "bold red")
        yield Paragraph(f"{word}: {titles.get(trial.name, titles['wrong'])}", style=style)
        yield from (Paragraph(name, 6) for name in trial.missed[:MISSED])
        if len(trial.missed) > MISSED:
            yield Paragraph(say("and {count} more", count=len(trial.missed) - MISSED), 6)
    if found.noise:
        yield ""
        lines = [
            (
                f"{line.op} {line.case}",
                units.percent(line.noise.spread),
                units.percent(line.tau),
                units.percent(line.noise.smallest) if line.noise.smallest is not None else say("over 12 x"),
                units.time(line.base_us),
            )
            for line in found.noise
        ]
        head = say("Noise on {device}: spread of the shift between two equal arms, block by block", device=found.device)
        yield Grid(make_table("op and case | spread: | allowed: | seen at 95 %: | kernel:", lines), head)
    if found.passed:
        text = say("perfci can be trusted on this machine: nothing false was said, and what was planted was found.")
        yield Paragraph(text, style="green")
    else:
        text = say("Something did not come out as it should: run `perfci doctor`, quiet the device, and try again.")
        yield Paragraph(text, style="bold red")
