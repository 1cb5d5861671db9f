"""Answers to questions about one timed case, and those that its stored baseline gives about time and span."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from perfci.core.environment import list_differences
from perfci.core.model import Block, Comparison, Fact, Reason, Run, Screen, Verdict
from perfci.statistics import exact
from perfci.thresholds.limits import CaseThresholds, Thresholds

KERNEL, REFERENCE, BASE = "kernel", "reference", "base"
SPEEDUP, DUEL = f"{KERNEL}/{REFERENCE}", f"{KERNEL}/{BASE}"

PROCESSES = 2
"""Fresh processes that must confirm what the first look suspects."""

_IN_QUESTION = frozenset({Verdict.REGRESSED, Verdict.IMPROVED, Verdict.INCONCLUSIVE, Verdict.STALE})
"""Findings that a changed environment may have caused."""


@dataclass(frozen=True)
class Adjusted:
    """Holm-adjusted p values of a case, over the plan's families. 1 if nothing was tested."""

    slower: float = 1.0
    faster: float = 1.0
    span: float = 1.0
    """of the first look at the baseline"""
    duel_slower: float = 1.0
    duel_faster: float = 1.0
    duel_span: float = 1.0
    """of the duel as it stands, over the cases duelled"""


@dataclass(frozen=True)
class Context:
    """What a case is judged by."""

    run: Run
    thresholds: Thresholds
    limits: CaseThresholds
    """of this case; in the question what an expected entry would excuse, as wide as that entry"""
    adjusted: Adjusted = Adjusted()
    same_files: bool = False
    """the op's files are the base's own"""

    @property
    def alpha(self) -> float:
        """Chance of any false alarm in a run."""
        return self.thresholds.alpha

    @property
    def floor_us(self) -> float:
        """Least difference that the run's timer can tell."""
        return self.limits.floor(self.run.environment.timer)


@dataclass(frozen=True)
class Finding:
    """The answer to one question about a case."""

    verdict: Verdict
    reasons: tuple[Reason, ...] = ()
    unsettled: bool = False
    """fresh processes would decide it"""
    processes: int = PROCESSES
    """how many, those at hand included"""
    exact: bool = False
    """not a matter of time: neither noise nor a hot device hides it"""


@dataclass(frozen=True)
class _Change:
    """A change to look for, and the kinds of what can be said about it."""

    suspected: str
    confirmed: str
    refuted: str
    disputed: str
    verdict: Verdict = Verdict.REGRESSED

    def p(self, screen: Screen) -> float:
        return screen.p_slower if self.verdict is Verdict.REGRESSED else screen.p_faster

    def is_seen(self, screen: Screen, p: float, alpha: float, floor_us: float) -> bool:
        """Whether it exceeds the margin, which is part of p's null hypothesis, and what the timer can tell."""
        slower_us = screen.difference_us if self.verdict is Verdict.REGRESSED else -screen.difference_us
        return p <= alpha and slower_us > floor_us


_SLOWER = _Change("slower_suspected", "slower_confirmed", "slower_refuted", "slower_disputed")
_FASTER = _Change("faster_suspected", "faster_confirmed", "faster_refuted", "faster_disputed", Verdict.IMPROVED)
_ALIKE_SLOWER = _Change("alike_suspected", "alike_confirmed", "alike_refuted", "alike_disputed")
_ALIKE_FASTER = replace(_ALIKE_SLOWER, verdict=Verdict.IMPROVED)
_SPAN = _Change("span_suspected", "span_confirmed", "span_refuted", "span_disputed")


def judge_time(comparison: Comparison, context: Context) -> Finding:
    """Returns slower, faster or neither; NEW without a baseline; STALE if it or the environment does not allow more."""
    return _excuse_by_environment(screen_time(comparison, context), comparison)


def judge_span(comparison: Comparison, context: Context) -> Iterator[Finding]:
    """Yields a finding if host work or further kernels stretched the launch."""
    yield from (_excuse_by_environment(found, comparison) for found in screen_span(comparison, context))


def screen_time(comparison: Comparison, context: Context) -> Finding:
    """Like `judge_time`, whatever the environment: what moved, not who moved it."""
    screens, floor = comparison.screens, context.floor_us
    if not screens:
        if comparison.stale:
            return Finding(Verdict.STALE, (comparison.stale,))
        speedup = comparison.speedup.value if comparison.speedup else None
        facts = {"op": comparison.op, "kernel_us": comparison.kernel_us, "speedup": speedup}
        return Finding(Verdict.NEW, (Reason("new_case", facts),))
    first, family = screens[0], context.run.plan.family
    if first.smallest_p * family > context.alpha:
        needed = exact.blocks_needed(family, context.alpha, first.baseline_blocks)
        counts: dict[str, Fact] = {"blocks": first.blocks, "baseline_blocks": first.baseline_blocks, "needed": needed}
        reason = Reason("too_few_blocks", {**counts, "family": family, "alpha": context.alpha})
        return Finding(Verdict.INCONCLUSIVE, (reason,))
    for change, p in ((_SLOWER, context.adjusted.slower), (_FASTER, context.adjusted.faster)):
        if change.is_seen(first, p, context.alpha, floor):
            return _confirm(change, screens, comparison, context, floor)
    if comparison.stale:
        return Finding(Verdict.STALE, (comparison.stale,))
    return _find_no_change(comparison, floor)


def screen_span(comparison: Comparison, context: Context) -> Iterator[Finding]:
    """Like `judge_span`, whatever the environment."""
    floor, spans = context.limits.span_floor_us, comparison.spans
    if spans and _SPAN.is_seen(spans[0], context.adjusted.span, context.alpha, floor):
        yield _confirm(_SPAN, spans, comparison, context, floor)


def screen_drift(comparison: Comparison, context: Context) -> Finding:
    """Like `screen_time`, of a kernel that is known to do the same as its base: what moved it is not its own doing.

    If the reference left its range as well, the screen blames no kernel. Then the kernel's own time is asked, with
    nothing corrected, since both may have moved alike.
    """
    found = screen_time(comparison, context)
    if found.verdict is not Verdict.STALE or not comparison.alone:
        return found
    first, floor = comparison.alone[0], context.floor_us
    for change in (_ALIKE_SLOWER, _ALIKE_FASTER):
        # Each case by itself at its share of alpha: a family of their own, for which Bonferroni will do.
        if change.is_seen(first, change.p(first) * context.run.plan.family, context.alpha, floor):
            return _confirm(change, comparison.alone, comparison, context, floor)
    return found


def note_environment(comparison: Comparison) -> Iterator[Reason]:
    """The fields of the environment that may have moved a case, if there are any."""
    if moved := [each for each in comparison.differs if each.moves]:
        yield Reason("environment_may_have", {"fields": list_differences(moved)})


def medians_again(blocks: Sequence[Block], quantities: Sequence[float | None]) -> list[float]:
    """The median of a quantity in each fresh process; quantities: one a block, None if it does not have it."""
    by_process: dict[int, list[float]] = {}
    for block, quantity in zip(blocks, quantities, strict=True):
        if block.process > 0 and quantity is not None:
            by_process.setdefault(block.process, []).append(quantity)
    return [statistics.median(own) for own in by_process.values()]


def _excuse_by_environment(found: Finding, comparison: Comparison) -> Finding:
    """STALE, with the fields, if another environment may have done what was found: no kernel is blamed or praised."""
    moved = [each for each in comparison.differs if each.moves]
    first = found.reasons[0]
    if not moved or not comparison.screens or first.kind == "too_few_blocks" or found.verdict not in _IN_QUESTION:
        return found
    kind = "stale_environment_span" if first.kind.startswith("span_") else "stale_environment"
    if found.verdict is Verdict.STALE:
        kind = "stale_environment_regime"
    return Finding(Verdict.STALE, (Reason(kind, {**first.facts, "fields": list_differences(moved)}),))


def _confirm(
    change: _Change, screens: Sequence[Screen], comparison: Comparison, context: Context, floor_us: float
) -> Finding:
    """What the fresh processes add to a suspicion: all must agree to confirm it, and none to refute it."""
    again = screens[1:]
    agreed = sum(change.is_seen(screen, change.p(screen), context.alpha, floor_us) for screen in again)
    facts = {**_facts(screens, comparison), "agreed": agreed}
    if len(again) < PROCESSES:
        return Finding(Verdict.INCONCLUSIVE, (Reason(change.suspected, facts),), unsettled=True)
    if agreed == len(again):
        return Finding(change.verdict, (Reason(change.confirmed, facts),))
    if agreed:
        return Finding(Verdict.INCONCLUSIVE, (Reason(change.disputed, facts),))
    refuted = Reason(change.refuted, facts)
    if comparison.stale:
        return Finding(Verdict.STALE, (comparison.stale, refuted))
    return Finding(Verdict.PASS, (refuted,))


def _find_no_change(comparison: Comparison, floor_us: float) -> Finding:
    """PASS, unless the centre lies beyond the margin and only noise keeps it from being a regression."""
    screens = comparison.screens
    facts = _facts(screens, comparison)
    beyond = [screen.change.value > screen.margin and screen.difference_us > floor_us for screen in screens]
    if statistics.median_low(beyond):
        return Finding(Verdict.INCONCLUSIVE, (Reason("too_noisy", facts),), unsettled=len(screens) == 1)
    if abs(screens[0].change.value) > screens[0].margin and abs(screens[0].difference_us) <= floor_us:
        return Finding(Verdict.PASS, (Reason("below_floor", {**facts, "floor_us": floor_us}),))
    return Finding(Verdict.PASS, (Reason("no_change", facts),))


def _facts(screens: Sequence[Screen], comparison: Comparison) -> dict[str, Fact]:
    first, again = screens[0], [screen.change.value for screen in screens[1:]]
    return {
        "change": first.change.value,
        "low": first.change.low,
        "high": first.change.high,
        "margin": first.margin,
        "difference_us": first.difference_us,
        "kernel_us": comparison.kernel_us,
        "baseline_us": comparison.baseline_us,
        "blocks": first.blocks,
        "baseline_blocks": first.baseline_blocks,
        "reference_change": first.reference_change,
        "activities": comparison.activities,
        "baseline_activities": comparison.baseline_activities,
        "processes": len(again),
        "again_low": min(again, default=None),
        "again_high": max(again, default=None),
    }
