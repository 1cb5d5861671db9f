"""`perfci doctor --selftest`: perfci tried out on this machine, and the noise of its cases."""

from collections.abc import Iterator

from rich.console import RenderableType

from perfci.cli.exits import Exit
from perfci.cli.output import Grid, Paragraph, get_command, print_found
from perfci.cli.progress import Progress
from perfci.core import units
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.extensions.lab.selftest import SelfTest, selftest
from perfci.report.view import make_table
from perfci.runs.plan import Request

MISSED = 5  # most cases of a try that are named if they came out wrong


def try_out(where: Settings, request: Request, *, json: bool) -> int:
    """Try perfci on the project's ops, and show what came of it; exit 2 if anything came out wrong."""
    with Progress() as progress:
        outcome = selftest(where, request, get_command(), progress)
    print_found(outcome, show_trials(outcome), json=json)
    return Exit.OK if outcome.passed else Exit.GATE_FAILED


def show_trials(outcome: SelfTest) -> Iterator[RenderableType]:
    """Lines for a terminal or a log."""
    for trial in outcome.trials:
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
    if outcome.noise:
        yield ""
        lines = [
            (
                f"{line.op} {line.case}",
                units.percent(line.noise.spread),
                units.percent(line.tau),
                units.percent(line.noise.smallest) if line.noise.smallest is not None else say("over 12 x"),
                units.time(line.base_us),
            )
            for line in outcome.noise
        ]
        head = say(
            "Noise on {device}: spread of the shift between two equal arms, block by block", device=outcome.device
        )
        yield Grid(make_table("op and case | spread: | allowed: | seen at 95 %: | kernel:", lines), head)
    if outcome.passed:
        text = say("perfci can be trusted on this machine: nothing false was said, and what was planted was found.")
        yield Paragraph(text, style="green")
    else:
        text = say("Something did not come out as it should: run `perfci doctor`, quiet the device, and try again.")
        yield Paragraph(text, style="bold red")
