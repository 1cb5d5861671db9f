"""What `perfci selftest` shows: the three tries, and how small a slow-down each case would show."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from perfci import units
from perfci.pipeline.selftest import CaseNoise, SelfTest, Trial
from perfci.report.text import plain

_TITLES = {
    "unchanged": "every op against itself: {seen} false alarms in {checked} cases",
    "slower": "twice the allowed slow-down planted: found in {seen} of {checked} cases",
    "wrong": "a wrong element planted: found in {seen} of {checked} ops",
}
_MISSED = 5


def trials(found: SelfTest) -> Iterator[Text]:
    """Lines for a terminal or a log."""
    for trial in found.trials:
        yield from _trial(trial)
    if found.noise:
        yield Text()
        yield Text(f"Noise on {plain(found.device)}: spread of the shift between two equal arms, block by block")
        yield Text(_line("spread", "allowed", "seen at 95 %", "kernel", "op and case"), style="dim")
        yield from (Text(_noise(line)) for line in found.noise)
    yield Text(_verdict(found), style="green" if found.passed else "bold red")


def _trial(trial: Trial) -> Iterator[Text]:
    title = _TITLES[trial.name].format(seen=trial.seen, checked=trial.checked)
    word = "ok  " if trial.passed else "FAIL"
    yield Text(f"{word}  {title}", style="green" if trial.passed else "bold red")
    for name in trial.missed[:_MISSED]:
        yield Text(f"      {plain(name)}")
    if len(trial.missed) > _MISSED:
        yield Text(f"      and {len(trial.missed) - _MISSED} more")


def _noise(line: CaseNoise) -> str:
    smallest = line.noise.smallest
    seen = units.percent(smallest) if smallest is not None else "over 12 x"
    return _line(
        units.percent(line.noise.spread),
        units.percent(line.tau),
        seen,
        units.time(line.base_us),
        plain(f"{line.op} {line.case}"),
    )


def _line(*cells: str) -> str:
    *numbers, name = cells
    return "".join(f"{cell:>14}" for cell in numbers) + f"  {name}"


def _verdict(found: SelfTest) -> str:
    if found.passed:
        return "perfci can be trusted on this machine: nothing false was said, and what was planted was found."
    return "Something did not come out as it should: run perfci doctor, quiet the device, and try again."
