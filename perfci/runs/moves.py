"""What a change of the environment did to the stored numbers, op by op, and its record as a step: pure.

After another driver, torch or board the numbers of now and before cannot be held against each other. So a person looks
at what moved: where the reference moved too, the environment did it; where the kernel moved alone, nobody knows, and
such a case stays as it was until it is named.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfci.core.environment import REFERENCE_PACKAGES, differences
from perfci.core.model import (
    Baseline,
    BaselineBlock,
    BaselineCase,
    BaselineRun,
    Difference,
    Interval,
    Reason,
    Step,
    StepCase,
    StepSide,
)
from perfci.statistics import exact
from perfci.thresholds.limits import CaseThresholds

Limits = Callable[[str], CaseThresholds]
"""Case id -> its thresholds."""

STEP_PACKAGES = ("torch", "triton", "pytorch-triton", "torch-npu", "triton-ascend")
"""Versions that a step names; the runs of the baseline hold all of them."""


@dataclass(frozen=True)
class CaseMove:
    """How far one case moved; changes are ratios - 1 with their intervals, plus is slower."""

    case: str
    kernel: Interval
    reference: Interval
    before_us: float
    """medians of the kernel's block medians"""
    after_us: float
    unexplained: bool
    """the kernel moved where its reference did not, or not that far"""


@dataclass(frozen=True)
class Common:
    """What many cases did together: the geometric mean of their changes, and its least and greatest, ratios - 1."""

    mean: float
    least: float
    most: float

    @classmethod
    def of(cls, changes: Sequence[float]) -> Common:
        """changes: at least one ratio - 1."""
        mean = math.expm1(statistics.fmean(map(math.log1p, changes)))
        return cls(mean, min(changes), max(changes))


@dataclass(frozen=True)
class Survey:
    """One op held against its stored baseline across a change of the environment."""

    op: str
    differs: tuple[Difference, ...] = ()
    """of any of the cases, those fields first that may move a number"""
    cases: tuple[CaseMove, ...] = ()
    """those whose environment is another now"""
    same: tuple[str, ...] = ()
    """those whose environment is the one of now: they stay as they are"""
    new: tuple[str, ...] = ()
    """those that the baseline lacks"""
    apart: tuple[Reason, ...] = ()
    """why others cannot be compared at all"""

    @property
    def kernel(self) -> Common | None:
        """Of the kernels; None where no case moved from one environment to another."""
        return Common.of([move.kernel.value for move in self.cases]) if self.cases else None

    @property
    def reference(self) -> Common | None:
        """Of the references."""
        return Common.of([move.reference.value for move in self.cases]) if self.cases else None

    @property
    def largest(self) -> CaseMove | None:
        """The case whose kernel moved most."""
        return max(self.cases, key=lambda move: abs(math.log1p(move.kernel.value)), default=None)

    @property
    def unexplained(self) -> tuple[CaseMove, ...]:
        """The cases whose kernels moved alone."""
        return tuple(move for move in self.cases if move.unexplained)


def survey(old: Baseline, new: Baseline, limits: Limits) -> Survey:
    """What moved between a stored baseline and one of fresh runs, which are all of one environment.

    Both are of one device model and timer. limits: how far a kernel may move until it counts as moved.
    """
    stored = {case.case: case for case in old.cases}
    found = {case.case: _differs(case, old, new) for case in new.cases if case.case in stored}
    apart = [_other_cache(stored[case.case], case) for case in new.cases if case.case in stored]
    both = [case for case in new.cases if case.case in stored and case.blocks and stored[case.case].blocks]
    alike = [case for case in both if case.cache == stored[case.case].cache]
    moving = [case for case in alike if any(each.moves for each in found[case.case])]
    union = dict.fromkeys(each for case in (moving or alike) for each in found[case.case])
    return Survey(
        op=new.op,
        differs=tuple(sorted(union, key=lambda each: not each.moves)),
        cases=tuple(_move(stored[case.case], case, found[case.case], limits, new.timer) for case in moving),
        same=tuple(case.case for case in alike if case not in moving),
        new=tuple(case.case for case in new.cases if case.case not in stored),
        apart=tuple(reason for reason in apart if reason),
    )


def stepped(old: Baseline, new: Baseline, seen: Survey, taken: Collection[str], date: str, why: str) -> Baseline:
    """The stored baseline with the fresh blocks of the cases taken, and the step that says so; the rest as it was."""
    fresh = {case.case: case for case in new.cases if case.case in taken}
    cases = tuple(fresh.get(case.case, case) for case in old.cases)
    used = {block.run for case in cases for block in case.blocks}
    sources = {run.id: run for run in (*old.runs, *new.runs)}
    before = _sources(old, [case for case in old.cases if case.case in taken])
    step = Step(
        date=date,
        why=why,
        before=_side(before),
        after=_side(_sources(new, fresh.values())),
        differs=tuple(each for each in seen.differs if each.moves),
        cases=tuple(
            StepCase(move.case, move.kernel.value, move.reference.value) for move in seen.cases if move.case in taken
        ),
    )
    runs = tuple(run for run in sources.values() if run.id in used)
    return replace(old, runs=runs, cases=cases, steps=(*old.steps, step))


def commits(baseline: Baseline, cases: Collection[str]) -> tuple[str | None, ...]:
    """The commits that the cases' blocks were measured at, each once, the newest run's first; None where not recorded.

    One with uncommitted changes counts as not recorded.
    """
    runs = _sources(baseline, [case for case in baseline.cases if case.case in cases])
    newest = sorted(runs, key=lambda run: run.created, reverse=True)
    return tuple(dict.fromkeys(None if run.environment.dirty else run.environment.commit for run in newest))


def _differs(case: BaselineCase, old: Baseline, new: Baseline) -> tuple[Difference, ...]:
    """The runs of now are of one environment but for their boards: a board counts that none of before was."""
    stored = next(each for each in old.cases if each.case == case.case)
    before = [run.environment for run in _sources(old, [stored])]
    found = [each for run in _sources(new, [case]) for each in differences(before, run.environment)]
    return tuple(dict.fromkeys(found))


def _sources(baseline: Baseline, cases: Iterable[BaselineCase]) -> list[BaselineRun]:
    used = {block.run for case in cases for block in case.blocks}
    return [run for run in baseline.runs if run.id in used]


def _other_cache(stored: BaselineCase, case: BaselineCase) -> Reason | None:
    if stored.cache == case.cache:
        return None
    return Reason("rebaseline_other_cache", {"case": case.case, "stored": stored.cache, "cache": case.cache})


def _move(
    stored: BaselineCase, case: BaselineCase, differs: Sequence[Difference], limits: Limits, timer: str
) -> CaseMove:
    kernel = _change([block.kernel_us for block in case.blocks], [block.kernel_us for block in stored.blocks])
    reference = _change([block.reference_us for block in case.blocks], [block.reference_us for block in stored.blocks])
    before_us, after_us = _kernel_us(stored.blocks), _kernel_us(case.blocks)
    own = limits(case.case)
    within = abs(before_us * kernel.value) <= own.floor(timer)
    packages = {f"packages.{name}" for name in REFERENCE_PACKAGES}
    replaced = any(each.field in packages for each in differs)
    explained = within or _explained(kernel.value, reference.value, own.margin, replaced=replaced)
    return CaseMove(case.case, kernel, reference, before_us, after_us, unexplained=not explained)


def _explained(kernel: float, reference: float, margin: float, *, replaced: bool) -> bool:
    """Whether a kernel's change is none that matters, or goes with its reference's; both ratios - 1.

    A kernel follows what slows its reference with a weight from 0 to 1.5, as in the screen. A reference that was itself
    replaced by another version of its library says less: only a kernel that moved as far as it did goes with it.
    """
    moved, other, allowed = math.log1p(kernel), math.log1p(reference), math.log1p(margin)
    if replaced:
        return abs(moved) <= allowed or abs(moved - other) <= allowed
    followed = exact.MAX_WEIGHT * other
    return min(0.0, followed) - allowed <= moved <= max(0.0, followed) + allowed


def _change(now_us: Sequence[float], before_us: Sequence[float]) -> Interval:
    shift = exact.pairs(np.log(now_us), np.log(before_us)).shift()
    return Interval(math.expm1(shift.value), math.expm1(shift.low), math.expm1(shift.high), shift.confidence)


def _kernel_us(blocks: Sequence[BaselineBlock]) -> float:
    return statistics.median(block.kernel_us for block in blocks)


def _side(runs: Sequence[BaselineRun]) -> StepSide:
    """The values of the newest run stand for all but what may differ from run to run."""
    newest = max(runs, key=lambda run: run.created).environment
    packages: Mapping[str, str] = newest.packages
    return StepSide(
        run_ids=tuple(run.id for run in runs),
        commits=tuple(dict.fromkeys(run.environment.commit for run in runs if run.environment.commit)),
        boards=tuple(dict.fromkeys(run.environment.device.uuid for run in runs if run.environment.device.uuid)),
        driver=newest.device.driver,
        runtime=newest.device.runtime,
        python=newest.python,
        packages={name: packages[name] for name in STEP_PACKAGES if name in packages},
    )
