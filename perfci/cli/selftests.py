"""What `perfci doctor --selftest` shows: the three tries, and how small a slow-down each case would show."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from rich.text import Text

from perfci.core import units
from perfci.core.wording import say
from perfci.report.text import plain
from perfci.runs.selftest import CaseNoise, SelfTest, Trial

_MISSED = 5


def trials(found: SelfTest) -> Iterator[Text]:
    """Lines for a terminal or a log."""
    for trial in found.trials:
        yield from _trial(trial)
    if found.noise:
        yield Text()
        device = plain(found.device)
        yield Text(say("Noise on {device}: spread of the shift between two equal arms, block by block", device=device))
        yield Text(
            _line(say("spread"), say("allowed"), say("seen at 95 %"), say("kernel"), say("op and case")), style="dim"
        )
        yield from (Text(_noise(line)) for line in found.noise)
    yield Text(_verdict(found), style="green" if found.passed else "bold red")


def _trial(trial: Trial) -> Iterator[Text]:
    word = "ok  " if trial.passed else "FAIL"
    yield Text(f"{word}  {_title(trial)}", style="green" if trial.passed else "bold red")
    for name in trial.missed[:_MISSED]:
        yield Text(f"      {plain(name)}")
    if len(trial.missed) > _MISSED:
        yield Text("      " + say("and {count} more", count=len(trial.missed) - _MISSED))


def _title(trial: Trial) -> str:
    seen, checked = trial.seen, trial.checked
    match trial.name:
        case "unchanged":
            return say("every op against itself: {seen} false alarms in {checked} cases", seen=seen, checked=checked)
        case "slower":
            return say(
                "twice the allowed slow-down planted: found in {seen} of {checked} cases", seen=seen, checked=checked
            )
        case _:
            return say("a wrong element planted: found in {seen} of {checked} ops", seen=seen, checked=checked)


def _noise(line: CaseNoise) -> str:
    smallest = line.noise.smallest
    seen = units.percent(smallest) if smallest is not None else say("over 12 x")
    return _line(
        units.percent(line.noise.spread),
        units.percent(line.tau),
        seen,
        units.time(line.base_us),
        plain(f"{line.op} {line.case}"),
    )


def _line(*cells: str) -> str:
    *numbers, name = cells
    return "".join(" " * (14 - cell_len(cell)) + cell for cell in numbers) + f"  {name}"


def _verdict(found: SelfTest) -> str:
    if found.passed:
        return say("perfci can be trusted on this machine: nothing false was said, and what was planted was found.")
    return say("Something did not come out as it should: run perfci doctor, quiet the device, and try again.")
