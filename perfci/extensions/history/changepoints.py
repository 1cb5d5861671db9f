"""Change points: when the level of a case steps over its accepted runs, and what explains the step. Pure.

Circular binary segmentation (Olshen, Venkatraman, Lucito, Wigler, Biostatistics 5 (2004) 557) on normal scores (van der
Waerden 1952, Blom's approximation): of all windows of runs the one that stands out most is reported if it stands out
more than in random orders of the same runs. docs/drift.md has the rates, and compares other methods.
"""

import functools
import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfci.core import commands
from perfci.core.environment import list_differences
from perfci.core.model import Difference, Fact, Interval, Reason
from perfci.extensions.common.accepted_runs import HistoryCase, HistoryRun
from perfci.extensions.history.series import list_steps
from perfci.statistics import exact

Floats = NDArray[np.float64]

RATE = 0.001  # false alarms a case and look, at most: half of it for each of the two figures
FEWEST = 20  # runs of a case below which nothing is reported: no order of fewer runs is unlikely enough
SHORTEST = 3  # runs of a level
LEAST = 0.0025  # a smaller step, ratio, is never reported, however quiet the runs: no duel is asked to see less
STORED_LEAST = 0.05  # the same for figures of storage in low precision: rounding may cause a smaller step

STORED_ZEROS: Mapping[str, float] = {"stored_p99": 1e-12, "clip_ratio": 1e-3, "divergence": 1e-2}
"""Figure of storage in low precision -> what a smaller value counts as, since no one would act below it."""

NEAR = 2  # most runs between a step of one figure and a step of the other if the two are one

KERNEL, SPEEDUP, REFERENCE = "kernel_us", "speedup", "reference_us"

DIGITS = 12  # of a commit in a command for git

THRESHOLDS: Mapping[int, float] = {
    20: 3.513, 22: 3.593, 24: 3.684, 26: 3.777, 28: 3.870, 30: 3.918, 33: 3.987, 36: 4.067, 40: 4.137, 45: 4.224,
    50: 4.287, 60: 4.381, 70: 4.489, 80: 4.570, 90: 4.615, 100: 4.651,
}  # fmt: skip
"""Runs -> what the greatest standardised window of so many exceeds in RATE / 2 of all orders, by 200,000 orders each
of `benchmarks/changepoints.py --thresholds`. A count between two takes the larger one's."""

_DROP = 4.0
"""Of the squared statistic: places that lose no more fit a step about as well, at 95 % (chi-square's 3.84)."""


class Cause(StrEnum):
    """The explanation of a step."""

    ACCEPTED = "accepted"  # a loss that people accepted
    ENVIRONMENT = "environment"  # a new driver, torch, Triton, ...: no one's fault
    BOARD = "board"
    """no board was used both before and after, or the boards changed and the step is as small as boards differ"""
    REFERENCE = "reference"  # the reference moved as well, or moved alone
    MACHINE = "machine"  # a duel of the newest commit with the one before shows no such loss
    KERNEL = "kernel"  # nothing known explains it: the kernel, if a duel confirms it


@dataclass(frozen=True)
class ChangePoint:
    """A step of a case between two accepted runs."""

    case: str
    figure: str  # kernel_us, speedup if only that one shows it, or a figure of storage in low precision
    before: HistoryRun  # the last run of the level before
    after: HistoryRun  # the first of the level after
    size: Interval  # ratio - 1, plus is slower; of the speedup: how much slower against its reference
    runs: tuple[int, int]  # of the level before and of that after
    cause: Cause
    moved: tuple[Difference, ...] = ()  # fields of the environment that changed with it
    reference: float | None = None  # change of the reference's time, ratio - 1
    why: str | None = None  # people's reason, if this step, or all up to a later run, was accepted
    lasting: bool = True  # the newest level has kept half of it at least

    @property
    def unexplained(self) -> bool:
        """Whether the kernel has become slower, nothing else explains it, no one accepted it, and it lasts."""
        return self.cause is Cause.KERNEL and self.size.value > 0 and self.lasting and self.why is None


def find_cuts(values: ArrayLike) -> tuple[int, ...]:
    """Returns the places at which another level begins in a series of finite numbers in time order.

    Of series without a step RATE / 2 have any if all orders are as likely. Thresholds grow with their correlation.
    """
    series = np.asarray(values, dtype=np.float64)
    if not np.all(np.isfinite(series)):
        raise ValueError("change points of what is not finite")
    if series.size < FEWEST:
        return ()
    r = estimate_correlation(series)
    wide = math.sqrt((1 + r) / (1 - r))
    return _settle(series, sorted(_split(series, 0, series.size, wide)), wide)


def find_threshold(count: int) -> float:
    """Returns what the greatest standardised window of so many runs, FEWEST at least, has to exceed."""
    return next((THRESHOLDS[length] for length in sorted(THRESHOLDS) if length >= count), max(THRESHOLDS.values()))


def estimate_correlation(series: Floats) -> float:
    """Returns how much a run resembles the one before it: 0 if not beyond two standard errors, 0.95 at most.

    Values two and three runs apart differ, squared, by 1 + r and 1 + r + r^2 times as much as those one run apart.
    """
    typical = []
    for apart in (1, 2, 3):
        steps = series[apart:] - series[:-apart]
        away = np.abs(steps - np.median(steps))
        typical.append(float(np.minimum(away, 3 * np.median(away)).mean()))
    near, *far = typical
    if not near:
        return 0.0
    second, third = ((distance / near) ** 2 for distance in far)
    r = (second - 1 + (math.sqrt(max(4 * third - 3, 1.0)) - 1) / 2) / 2
    return min(r, 0.95) if r > 2 / math.sqrt(series.size) else 0.0


@functools.cache
def normal_scores(count: int) -> Floats:
    """Returns the expected normal values of so many ranks, with a sample variance of 1."""
    normal = statistics.NormalDist()
    scores = np.array([normal.inv_cdf((rank - 0.375) / (count + 0.25)) for rank in range(1, count + 1)])
    return scores / math.sqrt(float(scores @ scores) / (count - 1))


def _score(series: Floats) -> Floats:
    """Scores of the ranks; equal values share the mean of theirs."""
    order = np.argsort(series, kind="stable")
    scores = normal_scores(series.size)
    _, first, counts = np.unique(series[order], return_index=True, return_counts=True)
    score = np.empty_like(scores)
    score[order] = np.repeat(np.add.reduceat(scores, first) / counts, counts)
    return score


def _find_window(series: Floats, wide: float) -> tuple[int, int] | None:
    """Begin and end of the window that stands out most, if it does so more than chance allows."""
    count = series.size
    if count < FEWEST:
        return None
    sums = np.concatenate([[0.0], np.cumsum(_score(series))])
    sizes = np.arange(count + 1)[None, :] - np.arange(count + 1)[:, None]
    allowed = (sizes >= SHORTEST) & (sizes <= count - SHORTEST)
    # Each sum over its standard deviation, if the scores of a window are drawn without replacement.
    spread = np.sqrt(np.where(allowed, sizes * (count - sizes) / count, 1.0))
    apart = np.where(allowed, np.abs(sums[None, :] - sums[:, None]) / spread, 0.0)
    at = int(apart.argmax())
    return divmod(at, count + 1) if apart.flat[at] > wide * find_threshold(count) else None


def _split(series: Floats, low: int, high: int, wide: float) -> Iterator[int]:
    """The ends of windows that stand out, in series[low:high] and then in its parts."""
    window = _find_window(series[low:high], wide)
    if window is None:
        return
    inner = [low + end for end in window if 0 < end < high - low]
    yield from inner
    for begin, end in itertools.pairwise([low, *inner, high]):
        yield from _split(series, begin, end, wide)


def _settle(series: Floats, places: Sequence[int], wide: float) -> tuple[int, ...]:
    """Each at the place that fits best between its neighbours. Those that do not stand out there go, one by one."""

    def place(kept: list[int]) -> list[int]:
        for at, _ in enumerate(kept):
            ends = [0, *kept, series.size]
            low, high = ends[at], ends[at + 2]
            if high - low >= 2 * SHORTEST:
                kept[at] = low + int(_measure_strength(series[low:high]).argmax())
        return sorted(set(kept))

    kept = place(list(places))
    while kept:
        parts = [series[low:high] for low, _, high in _list_levels(kept, series.size)]
        weak = [at for at, part in enumerate(parts) if _find_window(part, wide) is None]
        if not weak:
            break
        least = min(weak, key=lambda at: _measure_strength(parts[at]).max())
        kept = place([*kept[:least], *kept[least + 1 :]])
    return tuple(kept)


def _measure_strength(series: Floats) -> Floats:
    """How much the runs from each place on stand out from those before it, standardised; 0 too near to an end."""
    count = series.size
    places = np.arange(SHORTEST, count - SHORTEST + 1)
    strength = np.zeros(count + 1)
    strength[places] = np.abs(np.cumsum(_score(series))[places - 1]) / np.sqrt(places * (count - places) / count)
    return strength


Known = Sequence[tuple[HistoryRun, HistoryCase]]  # a case over the runs that have it, oldest first


def index_cases(history: Sequence[HistoryRun]) -> dict[str, Known]:
    """Returns for each case that the newest run knows the runs that have it and were timed like the newest of them."""
    series: dict[str, list[tuple[HistoryRun, HistoryCase]]] = {}
    newest: dict[str, tuple[str | None, str]] = {}  # case -> timer and cache
    for run in reversed(history):
        for each in run.cases:
            timed = run.environment.timer, each.cache
            if newest.setdefault(each.case, timed) == timed:
                series.setdefault(each.case, []).append((run, each))
    return {case: series[case][::-1] for case in (history[-1].known if history else ()) if case in series}


def find_changes(points: Known) -> tuple[ChangePoint, ...]:
    """Returns the steps of a case, oldest first: none in fewer than 20 runs, and none below 0.25 %."""
    changes = _Series(points).list_changes() if points else ()
    return tuple(change for change in changes if abs(change.size.value) >= LEAST)


def find_stored_changes(history: Sequence[HistoryRun], case: str) -> tuple[ChangePoint, ...]:
    """Returns a stored tensor's lasting steps for the worse, over all environments, as its seed is fixed."""
    points = [(run, tensor) for run in history for tensor in run.stored if tensor.case == case]
    stored_changes = []
    for figure, least in STORED_ZEROS.items():
        values = [case.errors.p99_abs if figure == "stored_p99" else getattr(case, figure) for _, case in points]
        series = np.log([max(value or 0.0, least) for value in values])
        for low, at, high in _list_levels(find_cuts(series), len(points)):
            size = exact.to_ratio(_measure_shift(series, low, at, high))
            if size.value >= STORED_LEAST and _lasts(series, low, at, high):
                runs = (points[at - 1][0], points[at][0])
                stored_changes.append(ChangePoint(case, figure, *runs, size, (at - low, high - at), Cause.KERNEL))
    return tuple(stored_changes)


def describe_change(change: ChangePoint, op: str) -> Reason:
    """A step in a sentence, with the commits between which it came and what to do next."""
    before, after = change.before.environment, change.after.environment
    commits = [(run.environment.commit or run.run)[:DIGITS] for run in (change.before, change.after)]
    size = change.size
    facts: dict[str, Fact] = {"op": op, "case": change.case, "figure": change.figure, "date": change.after.created[:10]}
    facts |= {"change": size.value, "low": size.low, "high": size.high, "before": commits[0], "after": commits[1]}
    what = [op, "--case", change.case]
    if change.figure in STORED_ZEROS:
        return Reason("stored_stepped", {**facts, "command": commands.write("history", *what)})
    if change.unexplained:
        bisectable = before.commit and after.commit and before.commit != after.commit and not before.dirty | after.dirty
        words = ("bisect", *what, "--against", commits[0], "--bad", commits[1]) if bisectable else ("history", *what)
        return Reason("step_slower", {**facts, "command": commands.write(*words)})
    if change.why is not None:
        return Reason("step_accepted", {**facts, "why": change.why})
    if change.cause is Cause.ENVIRONMENT:
        return Reason("step_environment", {**facts, "fields": list_differences(change.moved)})
    if change.cause is Cause.REFERENCE:
        return Reason("step_reference", {**facts, "reference": change.reference})
    if change.cause in {Cause.BOARD, Cause.MACHINE}:
        return Reason(f"step_{change.cause}", facts)
    return Reason("step_faster" if change.size.value < 0 else "step_gone", facts)


class _Series:
    """A case over the runs that can be compared with each other."""

    def __init__(self, points: Known) -> None:
        self.case = points[0][1].case
        self.runs = [run for run, _ in points]
        self.boards = [case.board or run.environment.device.uuid for run, case in points]
        cases = [case for _, case in points]
        # Log scale, more is slower.
        self.figures = {KERNEL: np.log([case.kernel_us.median_us for case in cases])}
        shifts = [case.shift for case in cases if case.shift is not None]
        if len(shifts) == len(cases):
            self.figures[SPEEDUP] = np.array(shifts)
            # What kernel and speedup leave: the reference as the same blocks saw it.
            self.figures[REFERENCE] = self.figures[KERNEL] - self.figures[SPEEDUP]

    def list_changes(self) -> Iterator[ChangePoint]:
        """Steps of the kernel's time, and those of the speedup that are not the same ones."""
        steps = [(KERNEL, *step) for step in self._list_steps(KERNEL)]
        ranges = [self._find_range(*step) for step in steps]
        for step in self._list_steps(SPEEDUP):
            first, last = self._find_range(SPEEDUP, *step)
            if not any(first - NEAR <= end and begin - NEAR <= last for begin, end in ranges):
                steps.append((SPEEDUP, *step))
        yield from (self._describe(*step) for step in sorted(steps, key=lambda each: each[2]))

    def _list_steps(self, figure: str) -> list[tuple[int, int, int]]:
        """Begin, step, end of the levels. A step is put at an explanation beside it if it fits there about as well."""
        if figure not in self.figures:
            return []
        series, count, places = self.figures[figure], len(self.runs), set()
        for low, at, high in _list_levels(find_cuts(series), count):
            strength = _measure_strength(series[low:high]) ** 2
            fits = [place for place in (at, at - 1, at + 1) if strength[at - low] - strength[place - low] <= _DROP]
            inner = (fit for fit in fits if low < fit < high)
            places.add(next((fit for fit in inner if self.runs[fit].why(self.case) or self._find_moved(fit)), at))
        return _list_levels(sorted(places), count)

    def _find_range(self, figure: str, low: int, at: int, high: int) -> tuple[int, int]:
        """Between which places the step may lie: wide if it is a creep and not a step."""
        strength = _measure_strength(self.figures[figure][low:high]) ** 2
        fits = np.flatnonzero(strength >= strength.max() - _DROP)
        return min(low + int(fits[0]), at), max(low + int(fits[-1]), at)

    def _describe(self, figure: str, low: int, at: int, high: int) -> ChangePoint:
        shifts = {name: _measure_shift(series, low, at, high) for name, series in self.figures.items()}
        moved, why = self._find_moved(at), self.runs[at].why(self.case)
        if why is not None:
            cause = Cause.ACCEPTED
        elif moved:
            cause = Cause.ENVIRONMENT
        elif self._may_be_boards(figure, low, at, high):
            cause = Cause.BOARD
        else:
            cause = Cause.REFERENCE if _may_be_reference(figure, shifts) else Cause.KERNEL
        later = [told for run in self.runs[at + 1 :] if (told := run.why(self.case)) is not None]
        return ChangePoint(
            case=self.case, figure=figure, before=self.runs[at - 1], after=self.runs[at],
            size=exact.to_ratio(shifts[figure]), runs=(at - low, high - at), cause=cause, moved=moved,
            reference=math.expm1(shifts[REFERENCE].value) if REFERENCE in shifts else None,
            why=why if why is not None or not later else later[-1],
            lasting=_lasts(self.figures[figure], low, at, high),
        )  # fmt: skip

    def _find_moved(self, at: int) -> tuple[Difference, ...]:
        return list_steps(self.runs[at - 1], self.runs[at])

    def _may_be_boards(self, figure: str, low: int, at: int, high: int) -> bool:
        """Whether boards explain the step: two runs of one board, before and after, differ by less than half of it."""
        boards = self.boards[low:high]
        if None in boards or len({*boards}) == 1:
            return False
        series, names = self.figures[figure][low:high], np.array(boards)
        alike = names[at - low :, None] == names[None, : at - low]
        within = np.subtract.outer(series[at - low :], series[: at - low])[alike]
        if within.size < SHORTEST:
            return True
        size = _measure_shift(self.figures[figure], low, at, high).value
        return abs(float(np.median(within))) < abs(size) / 2


def _list_levels(cuts: Sequence[int], count: int) -> list[tuple[int, int, int]]:
    """Of each cut: the begin of the level before, the cut, and the end of the level after."""
    ends = [0, *cuts, count]
    return list(zip(ends, ends[1:], ends[2:], strict=False))


def _measure_shift(series: Floats, low: int, at: int, high: int) -> Interval:
    """Hodges-Lehmann shift of the level after against the one before, log."""
    return exact.pairs(series[at:high], series[low:at]).shift()


def _lasts(series: Floats, low: int, at: int, high: int) -> bool:
    """Whether the last five runs are nearer to the level after than to the one before."""
    before, after = float(np.median(series[low:at])), float(np.median(series[at:high]))
    return after != before and (float(np.median(series[-5:])) - before) / (after - before) >= 0.5


def _may_be_reference(figure: str, shifts: Mapping[str, Interval]) -> bool:
    """Whether the reference moved too, by half as much at least, or alone, with an interval narrower than the step."""
    if REFERENCE not in shifts:
        return False
    size, reference, kernel = shifts[figure].value, shifts[REFERENCE], shifts[KERNEL]
    if figure == SPEEDUP:
        return abs(kernel.value) < abs(size) / 2 and kernel.high - kernel.low < abs(size)
    return size != 0 and reference.value / size >= 0.5 and reference.high - reference.low < abs(size)
