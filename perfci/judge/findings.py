"""The questions about one timed case, each answered by a finding: its baseline, its span, its memory, its target."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date

from perfci.core.environment import told
from perfci.core.model import Block, Comparison, Device, Fact, Limits, PerformanceCase, Reason, Screen, Verdict
from perfci.statistics import exact as exact_module
from perfci.thresholds.limits import CaseThresholds, Thresholds

KERNEL, SPEEDUP = "kernel", "kernel/reference"

_IN_QUESTION = frozenset({Verdict.REGRESSED, Verdict.IMPROVED, Verdict.INCONCLUSIVE, Verdict.STALE})
"""What is not to be said of a kernel where the environment may have done it."""

PROCESSES = 2
"""Fresh processes that must confirm what the first look suspects."""


@dataclass(frozen=True)
class Adjusted:
    """Holm-adjusted p values of a case's first look, over the plan's family; 1 where nothing was tested."""

    slower: float = 1.0
    faster: float = 1.0
    span: float = 1.0
    duel_slower: float = 1.0
    duel_faster: float = 1.0
    duel_span: float = 1.0
    """of the duel as it stands, over the cases duelled"""


@dataclass(frozen=True)
class Context:
    """What a case is judged by."""

    limits: CaseThresholds
    adjusted: Adjusted
    alpha: float
    family: int
    timer: str | None
    duel_family: int = 0
    """cases that may be duelled"""
    same_files: bool = False
    """the op's files are the base's own"""
    identity_counts: bool = True
    """False where the change alters the toolchain: that both revisions do the same with this one proves nothing"""
    thresholds: Thresholds = field(default_factory=Thresholds)
    """whose expected entries may excuse it"""
    within: tuple[Adjusted, ...] = ()
    """p values of the same case with what each of its expected entries allows"""
    day: date | None = None
    """of the run, by which entries expire"""
    ceilings: Limits = field(default_factory=Limits)
    """of the device, measured in the run"""
    device: Device | None = None
    whole: bool = True
    """both suites of all the op's cases were run, as in the runs that are accepted"""


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


# --- slower or faster than the baseline -------------------------------------------------------------------------------


def slower_p(screen: Screen) -> float:
    """The p of being slower by more than the margin."""
    return screen.p_slower


def faster_p(screen: Screen) -> float:
    """The p of being faster by more than the margin."""
    return screen.p_faster


@dataclass(frozen=True)
class _Change:
    """A change to look for, and the kinds of what can be said about it."""

    verdict: Verdict
    sign: int
    p: Callable[[Screen], float]
    suspected: str
    confirmed: str
    refuted: str
    disputed: str

    def seen(self, screen: Screen, p: float, alpha: float, floor_us: float) -> bool:
        """Beyond the margin, which p has inside its null hypothesis, and beyond what the timer can tell."""
        return p <= alpha and self.sign * screen.difference_us > floor_us


_SLOWER = _Change(
    Verdict.REGRESSED, 1, slower_p, "slower_suspected", "slower_confirmed", "slower_refuted", "slower_disputed"
)
_FASTER = _Change(
    Verdict.IMPROVED, -1, faster_p, "faster_suspected", "faster_confirmed", "faster_refuted", "faster_disputed"
)
_ALIKE_SLOWER, _ALIKE_FASTER = (
    _Change(verdict, sign, p, "alike_suspected", "alike_confirmed", "alike_refuted", "alike_disputed")
    for verdict, sign, p in ((Verdict.REGRESSED, 1, slower_p), (Verdict.IMPROVED, -1, faster_p))
)
_SPAN = _Change(Verdict.REGRESSED, 1, slower_p, "span_suspected", "span_confirmed", "span_refuted", "span_disputed")


def against_baseline(comparison: Comparison, context: Context) -> Finding:
    """Slower, faster or neither; NEW without a baseline, STALE where it cannot speak, or the environment may have."""
    return _excused(screened(comparison, context), comparison)


def span(comparison: Comparison, context: Context) -> Iterator[Finding]:
    """Whether host work or further kernels stretched the launch; nothing where they did not."""
    yield from (_excused(found, comparison) for found in stretched(comparison, context))


def screened(comparison: Comparison, context: Context) -> Finding:
    """As `against_baseline`, whatever the environment: what moved, not who moved it."""
    if not comparison.screens:
        return _unscreened(comparison)
    first, floor = comparison.screens[0], context.limits.floor(context.timer)
    if first.smallest_p * context.family > context.alpha:
        return Finding(Verdict.INCONCLUSIVE, (_too_few(first, context),))
    for change, p in ((_SLOWER, context.adjusted.slower), (_FASTER, context.adjusted.faster)):
        if change.seen(first, p, context.alpha, floor):
            return _confirmation(change, comparison.screens, comparison, context, floor)
    if comparison.stale:
        return Finding(Verdict.STALE, (comparison.stale,))
    return _no_change(comparison, floor)


def stretched(comparison: Comparison, context: Context) -> Iterator[Finding]:
    """As `span`, whatever the environment."""
    floor = context.limits.span_floor_us
    if comparison.spans and _SPAN.seen(comparison.spans[0], context.adjusted.span, context.alpha, floor):
        yield _confirmation(_SPAN, comparison.spans, comparison, context, floor)


def drift(comparison: Comparison, context: Context) -> Finding:
    """As `screened`, of a kernel that is known to do as its base: what moved it is not its own doing.

    So where the reference left its range as well, which keeps the screen from blaming a kernel, the kernel's own time
    is asked, with nothing corrected: that both moved alike is what is to be told.
    """
    found = screened(comparison, context)
    if found.verdict is not Verdict.STALE or not comparison.alone:
        return found
    first, floor = comparison.alone[0], context.limits.floor(context.timer)
    for change in (_ALIKE_SLOWER, _ALIKE_FASTER):
        # Each case by itself at its share of alpha: a family of their own, for which Bonferroni will do.
        if change.seen(first, change.p(first) * context.family, context.alpha, floor):
            return _confirmation(change, comparison.alone, comparison, context, floor)
    return found


def surroundings(comparison: Comparison) -> Iterator[Reason]:
    """The fields of the environment that may have moved a case, where there are any."""
    moved = [each for each in comparison.differs if each.moves]
    if moved:
        yield Reason("environment_may_have", {"fields": told(moved)})


def _excused(found: Finding, comparison: Comparison) -> Finding:
    """Nothing is blamed on a kernel, or put down to it, that another environment may have done: STALE, with fields."""
    moved = [each for each in comparison.differs if each.moves]
    first = found.reasons[0]
    if not moved or not comparison.screens or first.kind == "too_few_blocks" or found.verdict not in _IN_QUESTION:
        return found
    kind = "stale_environment_span" if first.kind.startswith("span_") else "stale_environment"
    if found.verdict is Verdict.STALE:
        kind = "stale_environment_regime"
    return Finding(Verdict.STALE, (Reason(kind, {**first.facts, "fields": told(moved)}),))


def _unscreened(comparison: Comparison) -> Finding:
    if comparison.stale:
        return Finding(Verdict.STALE, (comparison.stale,))
    speedup = comparison.speedup.value if comparison.speedup else None
    facts = {"op": comparison.op, "kernel_us": comparison.kernel_us, "speedup": speedup}
    return Finding(Verdict.NEW, (Reason("new_case", facts),))


def _confirmation(
    change: _Change, screens: Sequence[Screen], comparison: Comparison, context: Context, floor_us: float
) -> Finding:
    """What the fresh processes say to a suspicion: all must agree to confirm it, and none to refute it."""
    again = screens[1:]
    agreed = sum(change.seen(screen, change.p(screen), context.alpha, floor_us) for screen in again)
    facts = {**_facts(screens[0], comparison), **_again(again), "agreed": agreed}
    if len(again) < PROCESSES:
        return Finding(Verdict.INCONCLUSIVE, (Reason(change.suspected, facts),), unsettled=True)
    if agreed == len(again):
        return Finding(change.verdict, (Reason(change.confirmed, facts),))
    if agreed == 0:
        refuted = Reason(change.refuted, facts)
        stale = comparison.stale
        return Finding(Verdict.STALE, (stale, refuted)) if stale else Finding(Verdict.PASS, (refuted,))
    return Finding(Verdict.INCONCLUSIVE, (Reason(change.disputed, facts),))


def _no_change(comparison: Comparison, floor_us: float) -> Finding:
    """PASS, unless the centre lies beyond the margin and only noise keeps it from being a regression."""
    screens = comparison.screens
    facts = {**_facts(screens[0], comparison), **_again(screens[1:])}
    beyond = [screen.change.value > screen.margin and screen.difference_us > floor_us for screen in screens]
    if statistics.median_low(beyond):
        return Finding(Verdict.INCONCLUSIVE, (Reason("too_noisy", facts),), unsettled=len(screens) == 1)
    if abs(screens[0].change.value) > screens[0].margin and abs(screens[0].difference_us) <= floor_us:
        return Finding(Verdict.PASS, (Reason("below_floor", {**facts, "floor_us": floor_us}),))
    return Finding(Verdict.PASS, (Reason("no_change", facts),))


def _too_few(screen: Screen, context: Context) -> Reason:
    needed = exact_module.blocks_needed(context.family, context.alpha, screen.baseline_blocks)
    facts = {
        "blocks": screen.blocks,
        "baseline_blocks": screen.baseline_blocks,
        "needed": needed,
        "family": context.family,
        "alpha": context.alpha,
    }
    return Reason("too_few_blocks", facts)


def _facts(screen: Screen, comparison: Comparison) -> dict[str, Fact]:
    return {
        "change": screen.change.value,
        "low": screen.change.low,
        "high": screen.change.high,
        "margin": screen.margin,
        "difference_us": screen.difference_us,
        "kernel_us": comparison.kernel_us,
        "baseline_us": comparison.baseline_us,
        "blocks": screen.blocks,
        "baseline_blocks": screen.baseline_blocks,
        "reference_change": screen.reference_change,
        "activities": comparison.activities,
        "baseline_activities": comparison.baseline_activities,
    }


def _again(screens: Sequence[Screen]) -> dict[str, Fact]:
    changes = [screen.change.value for screen in screens]
    return {
        "processes": len(changes),
        "again_low": min(changes, default=None),
        "again_high": max(changes, default=None),
    }


# --- memory -----------------------------------------------------------------------------------------------------------


def memory(case: PerformanceCase, limits: CaseThresholds) -> Iterator[Finding]:
    """Whether a call holds more device memory than is allowed beside the base's; nothing where that is not gated."""
    allowed, now = limits.peak_memory, case.peak_bytes
    before = case.base.peak_bytes if case.base and not case.base.failure else None
    if allowed is None or case.base is None or case.base.failure:
        return
    facts: dict[str, Fact] = {"before": before, "after": now, "allowed": allowed}
    if now is None or not before:
        yield Finding(Verdict.INCONCLUSIVE, (Reason("peak_memory_unknown", facts),))
    elif now > before * (1 + allowed):
        facts["change"] = now / before - 1
        yield Finding(Verdict.REGRESSED, (Reason("peak_memory_grew", facts),), exact=True)


# --- speedup target ---------------------------------------------------------------------------------------------------


def target(comparison: Comparison, blocks: Sequence[Block], limits: CaseThresholds) -> Iterator[Finding]:
    """Whether the speedup reaches its target; nothing where there is none.

    The lower end of the interval must reach it to pass. The upper end must miss it to fail, and every fresh process's
    own median too; a duel may have had one of these already.
    """
    wanted, speedup = limits.speedup, comparison.speedup
    if wanted is None or speedup is None:
        return
    again = _speedups_again(blocks)
    more = len(again) < PROCESSES
    facts = {
        "speedup": speedup.value,
        "low": speedup.low,
        "high": speedup.high,
        "target": wanted,
        "blocks": len(blocks),
    }
    if speedup.confidence < exact_module.CONFIDENCE:
        yield Finding(Verdict.INCONCLUSIVE, (Reason("speedup_too_few_blocks", facts),), unsettled=more)
    elif speedup.low >= wanted:
        yield Finding(Verdict.PASS, (Reason("speedup_reached", facts),))
    elif speedup.high >= wanted:
        yield Finding(Verdict.INCONCLUSIVE, (Reason("speedup_undecided", facts),), unsettled=more)
    elif not more and max(again) < wanted:
        yield Finding(Verdict.TOO_SLOW, (Reason("too_slow", {**facts, "processes": len(again)}),))
    else:
        yield Finding(Verdict.INCONCLUSIVE, (Reason("too_slow_suspected", facts),), unsettled=more)


def _speedups_again(blocks: Sequence[Block]) -> list[float]:
    """Median speedup of each fresh process."""
    shifts: dict[int, list[float]] = {}
    for block in blocks:
        if block.process > 0 and SPEEDUP in block.shifts:
            shifts.setdefault(block.process, []).append(block.shifts[SPEEDUP])
    return [math.exp(-statistics.median(own)) for own in shifts.values()]
