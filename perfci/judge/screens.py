"""What the stored baseline of a timed case says of its time and span: the answers of the screens."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfci.core.environment import list_differences
from perfci.core.model import PROCESSES, Comparison, Fact, Finding, Reason, Screen, Verdict, choose_look
from perfci.judge.compare import Context
from perfci.statistics import exact


@dataclass(frozen=True)
class _Change:
    """A change to look for, and the kinds of the reasons about it."""

    suspected: str
    confirmed: str
    refuted: str
    disputed: str
    verdict: Verdict = Verdict.REGRESSED

    def p(self, screen: Screen) -> float:
        return screen.p_slower if self.verdict is Verdict.REGRESSED else screen.p_faster

    def is_seen(self, screen: Screen, p: float, alpha: float, floor_us: float) -> bool:
        """Whether it exceeds the margin, which is part of p's null hypothesis, and what the timer can see."""
        slower_us = screen.difference_us if self.verdict is Verdict.REGRESSED else -screen.difference_us
        return p <= alpha and slower_us > floor_us


_SLOWER = _Change("slower_suspected", "slower_confirmed", "slower_refuted", "slower_disputed")
_FASTER = _Change("faster_suspected", "faster_confirmed", "faster_refuted", "faster_disputed", Verdict.IMPROVED)
_ALIKE_SLOWER = _Change("alike_suspected", "alike_confirmed", "alike_refuted", "alike_disputed")
_ALIKE_FASTER = replace(_ALIKE_SLOWER, verdict=Verdict.IMPROVED)
_SPAN = _Change("span_suspected", "span_confirmed", "span_refuted", "span_disputed")


def judge_time(context: Context) -> Finding:
    """Returns slower, faster or neither. NEW without a baseline. STALE if it or the environment does not allow more."""
    return _excuse_by_environment(screen_time(context), context.comparison)


def judge_span(context: Context) -> Finding | None:
    """Returns a finding if host work or further kernels stretched the launch."""
    span = screen_span(context)
    return span and _excuse_by_environment(span, context.comparison)


def screen_time(context: Context) -> Finding:
    """Like `judge_time`, whatever the environment: what moved, not who moved it."""
    comparison, screens, floor = context.comparison, context.comparison.screens, context.floor_us
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
    for change, p in ((_SLOWER, first.adjusted_slower), (_FASTER, first.adjusted_faster)):
        if change.is_seen(first, p, context.alpha, floor):
            return _confirm(change, screens, context, floor)
    if comparison.stale:
        return Finding(Verdict.STALE, (comparison.stale,))
    # No change was found. It may still lie beyond the margin, with only noise that keeps it from being a regression.
    told, shown = _facts(screens, comparison), choose_look(screens)
    if shown.change.value > shown.margin and shown.difference_us > floor:
        return Finding(Verdict.INCONCLUSIVE, (Reason("too_noisy", told),), unsettled=len(screens) == 1)
    if abs(shown.change.value) > shown.margin and abs(shown.difference_us) <= floor:
        return Finding(Verdict.PASS, (Reason("below_floor", {**told, "floor_us": floor}),))
    return Finding(Verdict.PASS, (Reason("no_change", told),))


def screen_span(context: Context) -> Finding | None:
    """Like `judge_span`, whatever the environment."""
    floor, spans = context.limits.span_floor_us, context.comparison.spans
    if spans and _SPAN.is_seen(spans[0], spans[0].adjusted_slower, context.alpha, floor):
        return _confirm(_SPAN, spans, context, floor)
    return None


def screen_drift(context: Context) -> Finding:
    """Like `screen_time`, of a kernel that does its base's work. If the reference moved too, its time is asked."""
    finding, alone = screen_time(context), context.comparison.alone
    if finding.verdict is Verdict.STALE and alone:
        for change in (_ALIKE_SLOWER, _ALIKE_FASTER):
            # Each case by itself at its share of alpha: a family of their own, for which Bonferroni will do.
            if change.is_seen(alone[0], change.p(alone[0]) * context.run.plan.family, context.alpha, context.floor_us):
                return _confirm(change, alone, context, context.floor_us)
    return finding


def note_environment(comparison: Comparison) -> tuple[Reason, ...]:
    """Returns the fields of the environment that may have moved a case, if there are any."""
    moved = [differ for differ in comparison.differs if differ.moves]
    return (Reason("environment_may_have", {"fields": list_differences(moved)}),) if moved else ()


def _excuse_by_environment(finding: Finding, comparison: Comparison) -> Finding:
    """Returns STALE, with the fields, if another environment may have done it: no kernel is blamed or praised."""
    moved, first = [differ for differ in comparison.differs if differ.moves], finding.reasons[0]
    settled = finding.verdict in {Verdict.PASS, Verdict.NEW}
    if not moved or not comparison.screens or first.kind == "too_few_blocks" or settled:
        return finding
    kind = "stale_environment_span" if first.kind.startswith("span_") else "stale_environment"
    if finding.verdict is Verdict.STALE:
        kind = "stale_environment_regime"
    return Finding(Verdict.STALE, (Reason(kind, {**first.facts, "fields": list_differences(moved)}),))


def _confirm(change: _Change, screens: Sequence[Screen], context: Context, floor_us: float) -> Finding:
    """The fresh processes' answer to a suspicion: all must agree to confirm it, and none to refute it."""
    again, stale = screens[1:], context.comparison.stale
    agreed = sum(change.is_seen(screen, change.p(screen), context.alpha, floor_us) for screen in again)
    facts = {**_facts(screens, context.comparison), "agreed": agreed}
    if len(again) < PROCESSES:
        return Finding(Verdict.INCONCLUSIVE, (Reason(change.suspected, facts),), unsettled=True)
    if agreed == len(again):
        return Finding(change.verdict, (Reason(change.confirmed, facts),))
    if agreed:
        return Finding(Verdict.INCONCLUSIVE, (Reason(change.disputed, facts),))
    refuted = Reason(change.refuted, facts)
    return Finding(Verdict.STALE, (stale, refuted)) if stale else Finding(Verdict.PASS, (refuted,))


def _facts(screens: Sequence[Screen], comparison: Comparison) -> dict[str, Fact]:
    shown, changes = choose_look(screens), [screen.change.value for screen in screens]
    return {
        "change": shown.change.value, "low": shown.change.low, "high": shown.change.high, "margin": shown.margin,
        "difference_us": shown.difference_us, "kernel_us": comparison.kernel_us, "baseline_us": comparison.baseline_us,
        "blocks": shown.blocks, "baseline_blocks": shown.baseline_blocks, "reference_change": shown.reference_change,
        "activities": comparison.activities, "baseline_activities": comparison.baseline_activities,
        "first": changes[0], "least": min(changes), "most": max(changes), "looks": len(screens),
        "processes": len(screens) - 1,
        "again_low": min(changes[1:], default=None), "again_high": max(changes[1:], default=None),
    }  # fmt: skip
