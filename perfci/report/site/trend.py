"""How an op's cases went over its kept runs, as plain numbers; a run is told by its place, 0 the oldest.

A move is the median of the last runs against that of the first, five at either end or as many as do not overlap, as a
ratio - 1: plus is slower. What a case lost by itself is its moves between marks put together: the jump at a mark, which
a new driver made or people accepted, is left out, and what crept in before and after a new driver adds up. Since an
epoch is a new beginning, it counts from the last one on.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from perfci.core import environment
from perfci.core.model import (
    Bearing,
    Environment,
    ErrorStats,
    HistoryAccuracy,
    HistoryCase,
    HistoryRun,
    HistoryStored,
    Step,
)
from perfci.core.wording import say
from perfci.report.past import letters, moment
from perfci.report.site.kept import Kept
from perfci.report.text import plain
from perfci.thresholds.limits import Thresholds

ENDS = 5
"""Most runs at either end of a move."""

FEW = 4
"""Least runs between two marks by which a case is called steady, slower or faster."""

_Each = TypeVar("_Each", HistoryCase, HistoryAccuracy, HistoryStored)

Values = tuple[float | None, ...]
"""One a run; None where the run does not have it."""


class State(StrEnum):
    """What is said of a case, or of an op: of its worst case."""

    DAMAGED = "damaged"
    SLOWER = "slower"
    FASTER = "faster"
    STEADY = "steady"
    FEW = "few"
    GONE = "gone"
    ACCURACY = "accuracy"


class Kind(StrEnum):
    """What a mark is about."""

    EPOCH = "epoch"
    ENVIRONMENT = "environment"
    BOARD = "board"


@dataclass(frozen=True)
class Mark:
    """What lies between a run and the one before it."""

    run: int
    """place of the run after it"""
    kind: Kind
    what: str
    """plain: fields that changed, or cases that it is about"""
    why: str = ""
    """plain: what people said"""
    cases: frozenset[str] | None = None
    """that it is about; None: all"""
    name: str = ""
    """letters by which charts and tables name it"""

    @property
    def parts(self) -> bool:
        """Whether runs before it are not held against runs after it: another board alone widens what is usual."""
        return self.kind is not Kind.BOARD


@dataclass(frozen=True)
class Case:
    """A performance case over the runs."""

    case: str
    seen: tuple[HistoryCase | None, ...]
    state: State
    marks: tuple[Mark, ...]
    """that it concerns"""
    start: int
    """place of the first run since its last epoch"""
    move: float | None
    """of the kernel over all kept runs"""
    reference_move: float | None
    own: float | None
    """what the kernel lost by itself since then, ratio - 1"""
    reference_own: float | None
    allowed: float | None
    """what a merge request may slow it down by now, ratio"""
    written: float | None = None
    """the same as people wrote it, nothing earned or relaxed"""

    @property
    def kernel(self) -> Values:
        """Medians, microseconds."""
        return tuple(each.kernel_us.median_us if each else None for each in self.seen)

    @property
    def reference(self) -> Values:
        """Medians, microseconds."""
        return tuple(each.reference_us.median_us if each and each.reference_us else None for each in self.seen)

    @property
    def speedup(self) -> Values:
        """Reference / kernel."""
        return tuple(_speedup(each) if each else None for each in self.seen)


@dataclass(frozen=True)
class Accuracy:
    """An accuracy case over the runs."""

    case: str
    seen: tuple[HistoryAccuracy | None, ...]

    @property
    def errors(self) -> tuple[ErrorStats | None, ...]:
        """Of each run."""
        return tuple(each.errors if each else None for each in self.seen)

    @property
    def greatest(self) -> Values:
        """The greatest absolute errors."""
        return tuple(each.errors.max_abs if each else None for each in self.seen)


@dataclass(frozen=True)
class Storage:
    """A tensor stored in low precision over the runs."""

    case: str
    seen: tuple[HistoryStored | None, ...]

    @property
    def p99(self) -> Values:
        """99th percentile of the absolute error of each run."""
        return tuple(each.errors.p99_abs if each else None for each in self.seen)

    @property
    def clip_ratio(self) -> Values:
        """Share of clipped values of each run."""
        return tuple(each.clip_ratio if each else None for each in self.seen)

    @property
    def divergence(self) -> Values:
        """Of each run from the one before, nats."""
        return tuple(each.divergence if each else None for each in self.seen)


@dataclass(frozen=True)
class Op:
    """An op on a device model over its kept runs."""

    kept: Kept
    cases: tuple[Case, ...]
    """those of the last run first, in its order"""
    accuracy: tuple[Accuracy, ...]
    marks: tuple[Mark, ...]
    stored: tuple[Storage, ...] = ()

    @property
    def state(self) -> State:
        """That of its worst case."""
        states = {case.state for case in self.cases}
        order = (State.SLOWER, State.FASTER, State.STEADY, State.FEW, State.GONE)
        if self.kept.damaged:
            return State.DAMAGED
        return next((state for state in order if state in states), State.ACCURACY if self.accuracy else State.FEW)

    @property
    def worst(self) -> Case | None:
        """The case that lost most by itself."""
        known = [case for case in self.cases if case.own is not None and case.state is not State.GONE]
        return max(known, key=lambda case: case.own or 0, default=None)

    @property
    def relative(self) -> Values:
        """Kernel time of all cases together against the median of the runs, ratio - 1: the geometric mean."""
        parts = [_centred(_logs(case.kernel)) for case in self.cases]
        return tuple(_mean(each) for each in zip(*parts, strict=True)) if parts else (None,) * len(self.kept.runs)

    @property
    def speedup(self) -> Values:
        """The geometric mean over the cases that each run has."""
        parts = [_logs(case.speedup) for case in self.cases]
        found = [_mean(each) for each in zip(*parts, strict=True)] if parts else [None] * len(self.kept.runs)
        return tuple(None if one is None else 1 + one for one in found)

    @property
    def move(self) -> float | None:
        """Of the cases that the op has now, over all kept runs: the geometric mean."""
        moves = [case.move for case in self.cases if case.move is not None and case.state is not State.GONE]
        # Times differ by 21 powers of ten at the most, beyond which a ratio - 1 is -1 and has no logarithm.
        return math.expm1(statistics.fmean(math.log(max(1 + each, 1e-21)) for each in moves)) if moves else None


def op(kept: Kept) -> Op:
    """All that is told of a history."""
    marks = named(_marks(kept))
    by_case = _by_name([run.cases for run in kept.runs])
    checks = _by_name([run.accuracy for run in kept.runs])
    cases = [_case(name, tuple(seen), kept, marks) for name, seen in by_case.items()]
    found = _by_name([run.stored for run in kept.runs])
    stored = tuple(Storage(name, tuple(seen)) for name, seen in found.items())
    return Op(kept, tuple(cases), tuple(Accuracy(name, tuple(seen)) for name, seen in checks.items()), marks, stored)


def _by_name(runs: Sequence[Sequence[_Each]]) -> Mapping[str, list[_Each | None]]:
    """What each case has of each run; the cases of the last run first."""
    found: dict[str, list[_Each | None]] = {each.case: [None] * len(runs) for run in reversed(runs) for each in run}
    for place, run in enumerate(runs):
        for each in run:
            found[each.case][place] = each
    return found


def _case(name: str, seen: tuple[HistoryCase | None, ...], kept: Kept, marks: Sequence[Mark]) -> Case:
    mine = tuple(mark for mark in marks if mark.cases is None or name in mark.cases)
    start = max((mark.run for mark in mine if mark.kind is Kind.EPOCH), default=0)
    ends = sorted({start, len(seen), *(mark.run for mark in mine if mark.parts and mark.run > start)})
    stretches = list(itertools.pairwise(ends))
    kernel = [each.kernel_us.median_us if each else None for each in seen]
    reference = [each.reference_us.median_us if each and each.reference_us else None for each in seen]
    own, allowed = _own(kernel, stretches), _allowed(name, kernel[start:], kept, kept.limits)
    written = _allowed(name, kernel[start:], kept, replace(kept.limits, earned={}, loosened={}))
    state = State.GONE if _gone(name, kept.runs) else _state(own, allowed)
    moves = (move(kernel), move(reference), own, _own(reference, stretches))
    return Case(name, seen, state, mine, start, *moves, allowed, written)


def _own(values: Sequence[float | None], stretches: Sequence[tuple[int, int]]) -> float | None:
    """The moves within stretches of runs put together; a stretch of too few runs says nothing."""
    parts = [[value for value in values[first:end] if value is not None] for first, end in stretches]
    moves = [found for part in parts if len(part) >= FEW and (found := move(part)) is not None]
    return math.prod(1 + each for each in moves) - 1 if moves else None


def _gone(name: str, runs: Sequence[HistoryRun]) -> bool:
    """Whether the last run with any cases lacks it: it was renamed, or taken out."""
    last = next((run for run in reversed(runs) if run.cases or run.inconclusive), None)
    return last is not None and name not in {*(case.case for case in last.cases), *last.inconclusive}


def _state(own: float | None, allowed: float | None) -> State:
    if own is None or allowed is None:
        return State.FEW
    return State.SLOWER if own > allowed else State.FASTER if own < -allowed else State.STEADY


def _allowed(name: str, kernel: Sequence[float | None], kept: Kept, limits: Thresholds) -> float | None:
    known = [us for us in kernel if us is not None]
    timer = kept.runs[-1].environment.timer
    return limits.for_case(kept.place.op, name).allowed(statistics.median(known), timer) if known else None


def move(values: Sequence[float | None]) -> float | None:
    """From the median of the first runs to that of the last, ratio - 1; None from nothing, or of fewer than two values.

    >>> round(move([10.0, 10.2, None, 11.0, 11.2]), 3)
    0.099
    """
    known = [value for value in values if value is not None]
    ends = min(ENDS, len(known) // 2)
    first = statistics.median(known[:ends]) if ends else 0.0
    return finite(statistics.median(known[-ends:]) / first - 1) if first else None


def finite(value: float) -> float | None:
    """The number, if it can be written per cent: errors may differ by more than a ratio can hold."""
    return value if math.isfinite(100 * value) else None


def _speedup(case: HistoryCase) -> float | None:
    if case.shift is not None:
        return math.exp(-case.shift)
    return case.reference_us.median_us / case.kernel_us.median_us if case.reference_us else None


def relative(values: Values) -> Values:
    """The values against their median, ratios - 1; none where that is 0."""
    known = [value for value in values if value is not None]
    middle = statistics.median(known) if known else 0.0
    return tuple(None if value is None or not middle else finite(value / middle - 1) for value in values)


def _centred(values: Values) -> Values:
    known = [value for value in values if value is not None]
    middle = statistics.median(known) if known else 0.0
    return tuple(None if value is None else value - middle for value in values)


def _logs(values: Values) -> Values:
    return tuple(None if value is None else math.log(value) for value in values)


def _mean(logs: Sequence[float | None]) -> float | None:
    """The geometric mean - 1."""
    known = [one for one in logs if one is not None]
    return math.expm1(statistics.fmean(known)) if known else None


# --- marks ------------------------------------------------------------------------------------------------------------


def named(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """The marks in order of the runs, each with its letters: A, B, ... Z, AA, AB."""
    ranked = sorted(marks, key=lambda mark: (mark.run, list(Kind).index(mark.kind)))
    return tuple(replace(mark, name=letters(place)) for place, mark in enumerate(ranked))


def _marks(kept: Kept) -> list[Mark]:
    epochs = [
        Mark(place, Kind.EPOCH, _about(run.epoch.cases), plain(run.epoch.why), cases=frozenset(run.epoch.cases) or None)
        for place, run in enumerate(kept.runs)
        if run.epoch
    ]
    return [*epochs, *_with_steps(list(_surroundings([run.environment for run in kept.runs])), kept)]


def _about(cases: Sequence[str]) -> str:
    if not cases:
        return say("all cases")
    return "; ".join(plain(case, 80) for case in cases[:3]) + (f"; ... (+{len(cases) - 3})" if len(cases) > 3 else "")


def _surroundings(runs: Sequence[Environment]) -> Iterator[Mark]:
    """Fields that may move a number and differ from the run before; a board where it is measured on first."""
    boards = {runs[0].device.uuid} if runs else set()
    for place, now in enumerate(runs[1:], start=1):
        before = runs[place - 1]
        if _same(before, now):
            continue
        fields = [each for each in environment.differences([before], now) if each.moves]
        moved = [each for each in fields if each.bearing is not Bearing.BOARD]
        if moved:
            yield Mark(place, Kind.ENVIRONMENT, plain(environment.told(moved)))
        elif fields and now.device.uuid not in boards:
            yield Mark(place, Kind.BOARD, plain(environment.told(fields)))
        boards.add(now.device.uuid)


def _same(one: Environment, other: Environment) -> bool:
    """Whether they differ in their commits at most, which is soon told."""
    return (one.device, one.timer, one.python, one.packages, one.variables) == (
        other.device, other.timer, other.python, other.packages, other.variables,
    )  # fmt: skip


def _with_steps(found: list[Mark], kept: Kept) -> list[Mark]:
    """What people said of a change of the environment, at the run that it shows in."""
    marks = {mark.run: mark for mark in found}
    for step in kept.steps:
        place = _place(step, kept.runs)
        if place is not None:
            what = plain(environment.told(step.differs))
            mark = marks.get(place, Mark(place, Kind.ENVIRONMENT, what))
            why = "; ".join(filter(None, (mark.why, plain(step.why))))
            marks[place] = replace(mark, kind=Kind.ENVIRONMENT, why=why)
    return list(marks.values())


def _place(step: Step, runs: Sequence[HistoryRun]) -> int | None:
    """Its first run; else the first run after the day on which it was recorded; None where no kept run is."""
    own = [place for place, run in enumerate(runs) if run.run in step.after.run_ids]
    when = moment(step.date)
    later = (place for place, run in enumerate(runs) if when and (at := moment(run.created)) and at >= when)
    place = own[0] if own else next(later, None)
    return place or None  # before the first run there is nothing to tell apart


def minute(run: HistoryRun) -> str:
    """The same with the time of the day."""
    return f"{at:%Y-%m-%d %H:%M}" if (at := moment(run.created)) else plain(run.created, 24)


def commit(run: HistoryRun) -> str:
    """The beginning of a run's commit, plain."""
    return plain(run.environment.commit or "-", 60)[:10] + ("+" if run.environment.dirty else "")
