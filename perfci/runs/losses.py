"""Slow-downs that nobody agreed on: a gate that takes over whatever it measures learns them, and is green ever after.

What is about to be accepted is held against two things: the stored baseline, also where that could not speak for a
verdict (another driver, another thermal regime), and the first runs that the history holds of the case in this
environment since its last epoch. The second stops a creep whose every step is within what is allowed: it can take the
baseline along by no more than one promise to see (twice tau), whatever the number of steps.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from perfci.core.environment import differences, mixed, told
from perfci.core.model import Baseline, BaselineCase, Environment, Fact, HistoryCase, HistoryRun, Reason
from perfci.thresholds.limits import CaseThresholds

FIRST = 5
"""Runs of the history whose medians are held against: one alone may have been lucky."""


@dataclass(frozen=True)
class _Times:
    """Medians of block medians, microseconds."""

    kernel_us: float
    reference_us: float

    def against(self, other: _Times) -> tuple[float, float]:
        """How much slower kernel and reference are than the other's, log."""
        return math.log(self.kernel_us / other.kernel_us), math.log(self.reference_us / other.reference_us)


@dataclass(frozen=True)
class _Fresh:
    """A case that is about to be accepted."""

    op: str
    case: BaselineCase
    times: _Times
    environment: Environment
    allowed: float
    """log"""

    def lost(self, before: _Times) -> dict[str, Fact] | None:
        """The facts of a loss, where it is one."""
        kernel, reference = self.times.against(before)
        if kernel <= self.allowed or kernel - reference <= self.allowed:
            return None
        return {
            "op": self.op,
            "case": self.case.case,
            "change": math.expm1(kernel),
            "reference_change": math.expm1(reference),
            "allowed": math.expm1(self.allowed),
        }


def losses(
    fresh: Baseline, stored: Baseline | None, runs: Sequence[HistoryRun], limits: Callable[[str], CaseThresholds]
) -> dict[str, Reason]:
    """Case id -> why its new numbers are a loss that nobody agreed on.

    fresh: the new blocks, of runs of one environment; stored: what they would replace; runs: the op's history. A case
    has lost where its kernel is slower by more than is promised to be seen, twice tau, and by that much more than its
    reference is: what moves both, such as a clock, is no kernel's fault.
    """
    own = {run.id for run in fresh.runs}
    cases = [_fresh(fresh, case, limits) for case in fresh.cases]
    found = {case.case.case: _from_baseline(case, stored) or _from_first(case, runs, own) for case in cases}
    return {case: reason for case, reason in found.items() if reason}


def _fresh(fresh: Baseline, case: BaselineCase, limits: Callable[[str], CaseThresholds]) -> _Fresh:
    environment = next(run.environment for run in fresh.runs if run.id == case.blocks[0].run)
    times = _of_blocks(case)
    promised = 2 * limits(case.case).allowed(times.kernel_us, fresh.timer)
    return _Fresh(fresh.op, case, times, environment, math.log1p(promised))


def _of_blocks(case: BaselineCase) -> _Times:
    blocks = case.blocks
    kernel_us = statistics.median(block.kernel_us for block in blocks)
    return _Times(kernel_us, statistics.median(block.reference_us for block in blocks))


def _from_baseline(fresh: _Fresh, stored: Baseline | None) -> Reason | None:
    if stored is None or (stored.device, stored.timer) != (fresh.environment.device.key, fresh.environment.timer):
        return None
    case = next((each for each in stored.cases if each.case == fresh.case.case), None)
    if case is None or not case.blocks or case.cache != fresh.case.cache:
        return None
    facts = fresh.lost(_of_blocks(case))
    if facts is None:
        return None
    used = {block.run for block in case.blocks}
    then = [run.environment for run in stored.runs if run.id in used]
    moved = [each for each in differences(then, fresh.environment) if each.moves]
    if moved:
        return Reason("accept_lost_elsewhere", {**facts, "fields": told(moved)})
    return Reason("accept_lost", facts)


def _from_first(fresh: _Fresh, runs: Sequence[HistoryRun], own: Collection[str]) -> Reason | None:
    first = list(_first(fresh, runs, own))
    times = [_of_history(case) for _, case in first]
    known = [each for each in times if each is not None]
    if not known:
        return None
    kernel_us = statistics.median(each.kernel_us for each in known)
    facts = fresh.lost(_Times(kernel_us, statistics.median(each.reference_us for each in known)))
    if facts is None:
        return None
    return Reason("accept_crept", {**facts, "count": len(known), "since": first[0][0].created[:10]})


def _first(fresh: _Fresh, runs: Sequence[HistoryRun], own: Collection[str]) -> Iterator[tuple[HistoryRun, HistoryCase]]:
    """The first runs of the case since its last epoch that were made where the fresh ones were, these left out."""
    began = max((at for at, run in enumerate(runs) if run.epoch and fresh.case.case in run.epoch.cases), default=0)
    alike = (
        (run, case)
        for run in runs[began:]
        for case in run.cases
        if case.case == fresh.case.case
        and run.run not in own
        and case.cache == fresh.case.cache
        and case.reference_us is not None
        and not mixed(run.environment, fresh.environment)
    )
    for _, pair in zip(range(FIRST), alike, strict=False):
        yield pair


def _of_history(case: HistoryCase) -> _Times | None:
    return _Times(case.kernel_us.median_us, case.reference_us.median_us) if case.reference_us else None
