"""What `perfci doctor --selftest` shows: the three tries, and how small a slow-down each case would show."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType

from perfci.cli.output import Grid, Paragraph
from perfci.core import units
from perfci.core.wording import say
from perfci.report.view import make_table
from perfci.runs.selftest import SelfTest

_MISSED = 5


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
        yield from (Paragraph(name, 6) for name in trial.missed[:_MISSED])
        if len(trial.missed) > _MISSED:
            yield Paragraph(say("and {count} more", count=len(trial.missed) - _MISSED), 6)
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
        title = say(
            "Noise on {device}: spread of the shift between two equal arms, block by block", device=found.device
        )
        yield Grid(make_table("op and case | spread: | allowed: | seen at 95 %: | kernel:", lines), title)
    if found.passed:
        text = say("perfci can be trusted on this machine: nothing false was said, and what was planted was found.")
        yield Paragraph(text, style="green")
    else:
        text = say("Something did not come out as it should: run perfci doctor, quiet the device, and try again.")
        yield Paragraph(text, style="bold red")
