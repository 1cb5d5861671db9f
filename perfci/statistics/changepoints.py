"""Change points: when the level of a case steps over its accepted runs, and what explains the step. Pure.

A step is looked for in the kernel's time and in the speedup, by circular binary segmentation (Olshen, Venkatraman,
Lucito, Wigler, Biostatistics 5 (2004) 557) on normal scores (van der Waerden 1952; Blom's approximation): of all
windows of runs the one whose scores stand out most from the rest is reported if it stands out more than in random
orders of the same runs. What that takes depends on the number of runs alone, whatever the noise looks like. So the rate
of false alarms is computed and not calibrated. docs/drift.md has the rates, beside those of other ways.
"""

from __future__ import annotations

import functools
import itertools
import math
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfci.core.environment import differences, list_differences
from perfci.core.model import Bearing, Difference, Fact, HistoryCase, HistoryRun, Interval, Reason
from perfci.statistics import exact

Floats = NDArray[np.float64]

RATE = 0.001
"""False alarms a case and look, at most: half of it for each of the two figures."""

FEWEST = 20
"""Runs of a case below which nothing is reported: no order of fewer ones is unlikely enough."""

SHORTEST = 3
"""Runs of a level."""

LEAST = 0.0025
"""A smaller step, ratio, is never reported, however quiet the runs: no duel is asked to see less."""

NEAR = 2
"""Runs by which the places where the two figures' steps may lie are apart at most, to be one."""

KERNEL, SPEEDUP = "kernel_us", "speedup"

DIGITS = 12
"""Of a commit that is to be named to git."""

THRESHOLDS: Mapping[int, float] = {
    20: 3.513, 22: 3.593, 24: 3.684, 26: 3.777, 28: 3.870, 30: 3.918, 33: 3.987, 36: 4.067, 40: 4.137, 45: 4.224,
    50: 4.287, 60: 4.381, 70: 4.489, 80: 4.570, 90: 4.615, 100: 4.651,
}  # fmt: skip
"""Runs -> what the greatest standardised window of so many exceeds in RATE / 2 of all orders.

Made by `benchmarks/changepoints.py --thresholds`: 200,000 orders each, a count between two takes the larger one's.
"""

_DROP = 4.0
"""Of the squared statistic: places that lose no more fit a step about as well, at 95 % (chi-square's 3.84)."""


class Cause(StrEnum):
    """What explains a step."""

    ACCEPTED = "accepted"
    """a loss that people accepted"""
    ENVIRONMENT = "environment"
    """a new driver, torch, Triton, ...: nobody's fault"""
    BOARD = "board"
    """no board was used both before and after"""
    REFERENCE = "reference"
    """the reference moved as well, or moved alone"""
    KERNEL = "kernel"
    """nothing that is known of: the kernel"""


@dataclass(frozen=True)
class ChangePoint:
    """A step of a case between two accepted runs."""

    case: str
    figure: str
    """kernel_us, or speedup if only that one shows it"""
    before: HistoryRun
    """the last run of the level before"""
    after: HistoryRun
    """the first of the level after"""
    size: Interval
    """ratio - 1, plus is slower; of the speedup: how much slower against its reference"""
    runs: tuple[int, int]
    """of the level before and of that after"""
    cause: Cause
    moved: tuple[Difference, ...] = ()
    """fields of the environment that changed with it"""
    reference: float | None = None
    """change of the reference's time, ratio - 1"""
    why: str | None = None
    """of the accepted loss that it is"""
    since: str | None = None
    """why of a loss that was accepted later on: nothing before it counts any more"""
    lasting: bool = True
    """the newest level has kept half of it at least"""

    @property
    def unexplained(self) -> bool:
        """Whether the kernel has become slower, nothing else explains it, nobody accepted it, and it lasts."""
        return self.cause is Cause.KERNEL and self.size.value > 0 and self.lasting and self.since is None

    @property
    def commits(self) -> tuple[str, str] | None:
        """Between which it came, shortened. None if they are unknown, the same, or not what was measured."""
        before, after = self.before.environment, self.after.environment
        if not before.commit or not after.commit or before.commit == after.commit or before.dirty or after.dirty:
            return None
        return before.commit[:DIGITS], after.commit[:DIGITS]


def cuts(values: ArrayLike) -> tuple[int, ...]:
    """Places at which another level begins in a series; finite numbers, in time order.

    Of a series without a step, whatever its noise, RATE / 2 have any, as long as each order of its values is as likely.
    """
    series = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(series)):
        raise ValueError("change points of what is not finite")
    found = sorted(_split(series, 0, series.size))
    return _settled(series, found)


def threshold(count: int) -> float:
    """What the greatest standardised window of so many runs has to exceed; infinite if nothing could."""
    if count < FEWEST:
        return math.inf
    return next((THRESHOLDS[each] for each in sorted(THRESHOLDS) if each >= count), max(THRESHOLDS.values()))


def changes(history: Sequence[HistoryRun], case: str) -> tuple[ChangePoint, ...]:
    """The steps of a case over accepted runs in their order, the oldest first.

    Runs count that were timed like the newest one of the case. None is found in fewer than 20, and none below 0.25 %.
    """
    known = _known(history, case)
    if len(known) < FEWEST:
        return ()
    series = _Series(case, tuple(run for run, _ in known), _figures([found for _, found in known]))
    return tuple(change for change in series.changes() if abs(change.size.value) >= LEAST)


def too_few(history: Sequence[HistoryRun], case: str) -> bool:
    """Whether a case has too few runs for any step."""
    return len(_known(history, case)) < FEWEST


def told_of(change: ChangePoint, op: str) -> Reason:
    """A step in a sentence, with the commits between which it came and what to do next."""
    facts = _facts(change, op)
    return _slower(change, facts) if change.unexplained else Reason(_kind(change), facts)


_KINDS = {
    Cause.ACCEPTED: "step_accepted",
    Cause.ENVIRONMENT: "step_environment",
    Cause.BOARD: "step_board",
}


def _kind(change: ChangePoint) -> str:
    if change.cause is Cause.REFERENCE:
        return "step_reference" if change.figure == KERNEL else "step_reference_alone"
    if change.cause is not Cause.KERNEL:
        return _KINDS[change.cause]
    if change.size.value < 0:
        return "step_faster"
    return "step_gone" if change.since is None else "step_accepted_since"


def _slower(change: ChangePoint, facts: Mapping[str, Fact]) -> Reason:
    if change.commits is None:
        return Reason("step_slower_somewhere", facts)
    command = shlex.join(["perfci", "bisect", "--op", str(facts["op"]), "--case", change.case, *change.commits])
    return Reason("step_slower", {**facts, "command": command})


def _facts(change: ChangePoint, op: str) -> dict[str, Fact]:
    before, after = (run.environment.commit or run.run for run in (change.before, change.after))
    return {
        "op": op,
        "case": change.case,
        "figure": change.figure,
        "change": change.size.value,
        "low": change.size.low,
        "high": change.size.high,
        "reference": change.reference,
        "before": before[:DIGITS],
        "after": after[:DIGITS],
        "date": change.after.created[:10],
        "fields": list_differences(change.moved),
        "why": change.why or change.since,
    }


# --- the statistic ----------------------------------------------------------------------------------------------------


@functools.cache
def normal_scores(count: int) -> Floats:
    """Expected normal values of so many ranks, with a sample variance of 1."""
    normal = statistics.NormalDist()
    found = np.array([normal.inv_cdf((rank - 0.375) / (count + 0.25)) for rank in range(1, count + 1)])
    return found / math.sqrt(float(found @ found) / (count - 1))


def greatest(scores: Floats) -> Floats:
    """Of series of scores, shaped (series, runs): the greatest absolute standardised sum over a window of each.

    A window and the rest have SHORTEST runs each at least; a single step is a window that reaches to an end.
    """
    count = scores.shape[1]
    sums = np.concatenate([np.zeros((len(scores), 1)), np.cumsum(scores, axis=1)], axis=1)
    found = np.zeros(len(scores))
    for size in range(SHORTEST, count - SHORTEST + 1):
        apart = np.abs(sums[:, size:] - sums[:, :-size]).max(axis=1) / _deviation(size, count)
        np.maximum(found, apart, out=found)
    return found


def _deviation(size: int | Floats, count: int) -> Floats:
    """Standard deviation of the sum of so many scores, drawn without replacement."""
    found: Floats = np.sqrt(np.asarray(size * (count - size) / count))
    return found


def _scored(series: Floats) -> Floats:
    """Scores of the ranks; equal values share the mean of theirs."""
    order = np.argsort(series, kind="stable")
    ordered = series[order]
    scores = normal_scores(series.size)
    _, first, counts = np.unique(ordered, return_index=True, return_counts=True)
    means = np.add.reduceat(scores, first) / counts
    found = np.empty_like(scores)
    found[order] = np.repeat(means, counts)
    return found


def _window(series: Floats) -> tuple[int, int] | None:
    """Begin and end of the window that stands out most, if it does so more than chance allows."""
    count = series.size
    if count < FEWEST:
        return None
    sums = np.concatenate([[0.0], np.cumsum(_scored(series))])
    sizes = np.arange(count + 1)[None, :] - np.arange(count + 1)[:, None]
    allowed = (sizes >= SHORTEST) & (sizes <= count - SHORTEST)
    apart = np.abs(sums[None, :] - sums[:, None])
    apart = np.where(allowed, apart / _deviation(np.where(allowed, sizes, SHORTEST).astype(np.float64), count), 0.0)
    at = int(apart.argmax())
    return divmod(at, count + 1) if apart.flat[at] > threshold(count) else None


def _split(series: Floats, low: int, high: int) -> Iterator[int]:
    """The ends of windows that stand out, in series[low:high] and then in its parts."""
    window = _window(series[low:high])
    if window is None:
        return
    inner = [low + end for end in window if 0 < end < high - low]
    yield from inner
    for begin, end in itertools.pairwise([low, *inner, high]):
        yield from _split(series, begin, end)


def _settled(series: Floats, found: Sequence[int]) -> tuple[int, ...]:
    """Each at the place that fits best between its neighbours. Those that do not stand out there go, one by one."""
    kept = _placed(series, found)
    while kept:
        ends = [0, *kept, series.size]
        weak = [at for at, _ in enumerate(kept) if _window(series[ends[at] : ends[at + 2]]) is None]
        if not weak:
            break
        least = min(weak, key=lambda at: _strength(series[ends[at] : ends[at + 2]]).max())
        kept = _placed(series, [*kept[:least], *kept[least + 1 :]])
    return tuple(kept)


def _placed(series: Floats, found: Sequence[int]) -> list[int]:
    kept = list(found)
    for at, _ in enumerate(kept):
        low, high = ([0, *kept, series.size][at], [0, *kept, series.size][at + 2])
        if high - low >= 2 * SHORTEST:
            kept[at] = low + int(_strength(series[low:high]).argmax())
    return sorted(set(kept))


def _strength(series: Floats) -> Floats:
    """How much the runs from each place on stand out from those before it, standardised; 0 too near to an end."""
    count = series.size
    places = np.arange(SHORTEST, count - SHORTEST + 1)
    found = np.zeros(count + 1)
    found[places] = np.abs(np.cumsum(_scored(series))[places - 1]) / _deviation(places.astype(np.float64), count)
    return found


# --- a case -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Series:
    """A case over the runs that can be compared with each other."""

    case: str
    runs: tuple[HistoryRun, ...]
    figures: Mapping[str, Floats]
    """log scale, more is slower: kernel_us, and speedup and reference_us if every run has them"""

    def changes(self) -> Iterator[ChangePoint]:
        kernel, speedup = list(self._steps(KERNEL)), list(self._steps(SPEEDUP))
        ranges = [self._range(KERNEL, *step) for step in kernel]
        told = [(KERNEL, *step) for step in kernel]
        told += [(SPEEDUP, *step) for step in speedup if not _meets(self._range(SPEEDUP, *step), ranges)]
        yield from (self._change(*each) for each in sorted(told, key=lambda each: each[2]))

    def _steps(self, figure: str) -> Iterator[tuple[int, int, int]]:
        """Of each: the begin of the level before, the step, and the end of the level after."""
        ends = [0, *self._cuts(figure), len(self.runs)]
        yield from zip(ends, ends[1:], ends[2:], strict=False)

    def _range(self, figure: str, low: int, at: int, high: int) -> tuple[int, int]:
        """Between which places the step may lie: wide if it is no step but a creep."""
        strength = _strength(self.figures[figure][low:high]) ** 2
        fits = np.flatnonzero(strength >= strength.max() - _DROP)
        return min(low + int(fits[0]), at), max(low + int(fits[-1]), at)

    def _cuts(self, figure: str) -> list[int]:
        """The places of steps; if a place about as good is that of an explanation, it is that one."""
        if figure not in self.figures:
            return []
        series = self.figures[figure]
        found = cuts(series)
        ends = [0, *found, len(series)]
        return sorted({self._explained_place(series, *each) for each in zip(ends, ends[1:], ends[2:], strict=False)})

    def _explained_place(self, series: Floats, low: int, at: int, high: int) -> int:
        strength = _strength(series[low:high]) ** 2
        fits = [each for each in (at, at - 1, at + 1) if strength[at - low] - strength[each - low] <= _DROP]
        return next((each for each in fits if low < each < high and (self._why(each) or self._moved(each))), at)

    def _change(self, figure: str, low: int, at: int, high: int) -> ChangePoint:
        shifts = {name: self._shift(name, low, at, high) for name in self.figures}
        cause, moved = self._cause(figure, shifts, low, at, high)
        size, reference = shifts[figure], shifts.get("reference_us")
        later = [run.epoch.why for run in self.runs[at + 1 :] if run.epoch and self.case in run.epoch.cases]
        return ChangePoint(
            case=self.case,
            figure=figure,
            before=self.runs[at - 1],
            after=self.runs[at],
            size=Interval(math.expm1(size.value), math.expm1(size.low), math.expm1(size.high), size.confidence),
            runs=(at - low, high - at),
            cause=cause,
            moved=moved,
            reference=math.expm1(reference.value) if reference else None,
            why=self._why(at) if cause is Cause.ACCEPTED else None,
            since=later[-1] if later else None,
            lasting=self._lasts(figure, size.value, low, at),
        )

    def _shift(self, figure: str, low: int, at: int, high: int) -> Interval:
        """Hodges-Lehmann shift of the level after against the one before, log."""
        series = self.figures[figure]
        return exact.pairs(series[at:high], series[low:at]).shift()

    def _cause(
        self, figure: str, shifts: Mapping[str, Interval], low: int, at: int, high: int
    ) -> tuple[Cause, tuple[Difference, ...]]:
        moved = self._moved(at)
        if self._why(at):
            return Cause.ACCEPTED, moved
        if moved:
            return Cause.ENVIRONMENT, moved
        if self._other_boards(low, at, high):
            return Cause.BOARD, ()
        return (Cause.REFERENCE if _reference_did(figure, shifts) else Cause.KERNEL), ()

    def _why(self, at: int) -> str | None:
        epoch = self.runs[at].epoch
        return epoch.why if epoch and self.case in epoch.cases else None

    def _moved(self, at: int) -> tuple[Difference, ...]:
        """What changed but the board: runs may change between boards of a model every night."""
        found = differences([self.runs[at - 1].environment], self.runs[at].environment)
        return tuple(each for each in found if each.moves and each.bearing is not Bearing.BOARD)

    def _other_boards(self, low: int, at: int, high: int) -> bool:
        before, after = (
            {run.environment.device.uuid for run in part} for part in (self.runs[low:at], self.runs[at:high])
        )
        return None not in before | after and not before & after

    def _lasts(self, figure: str, size: float, low: int, at: int) -> bool:
        """Whether the last five runs are nearer to the level after than to the one before."""
        series = self.figures[figure]
        return (float(np.median(series[-5:])) - float(np.median(series[low:at]))) / size >= 0.5 if size else False


def _meets(place: tuple[int, int], others: Sequence[tuple[int, int]]) -> bool:
    """Whether a step of one figure may be one of the other's."""
    return any(place[0] - NEAR <= last and first - NEAR <= place[1] for first, last in others)


def _reference_did(figure: str, shifts: Mapping[str, Interval]) -> bool:
    """Whether the reference moved too, by half as much at least, or alone.

    An unsteady reference proves nothing: its interval has to be narrower than the step.
    """
    if "reference_us" not in shifts or SPEEDUP not in shifts:
        return False
    size, reference, kernel = shifts[figure].value, shifts["reference_us"], shifts[KERNEL]
    if figure == SPEEDUP:
        return abs(kernel.value) < abs(size) / 2 and kernel.high - kernel.low < abs(size)
    return reference.value / size >= 0.5 and reference.high - reference.low < abs(size) if size else False


def _known(history: Sequence[HistoryRun], case: str) -> list[tuple[HistoryRun, HistoryCase]]:
    """Runs that have a case, each once, timed as the newest of them."""
    found: dict[str, tuple[HistoryRun, HistoryCase]] = {}
    for run in history:
        for each in run.cases:
            if each.case == case and case not in run.inconclusive and _is_time(each.kernel_us.median_us):
                found.setdefault(run.run, (run, each))
    known = list(found.values())
    return [pair for pair in known if _timed(*pair) == _timed(*known[-1])]


def _timed(run: HistoryRun, case: HistoryCase) -> tuple[str | None, str]:
    return run.environment.timer, case.cache


def _is_time(value: float) -> bool:
    return math.isfinite(value) and value > 0


def _figures(cases: Sequence[HistoryCase]) -> Mapping[str, Floats]:
    found = {KERNEL: np.log([case.kernel_us.median_us for case in cases])}
    shifts = [case.shift for case in cases if case.shift is not None and math.isfinite(case.shift)]
    if len(shifts) == len(cases):
        found[SPEEDUP] = np.array(shifts)
        # What kernel and speedup leave: the reference as the same blocks saw it.
        found["reference_us"] = found[KERNEL] - found[SPEEDUP]
    return found
