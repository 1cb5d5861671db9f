"""Answers to questions about one timed case, and those that its stored baseline gives about time and span."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfci.core.environment import list_differences
from perfci.core.model import Block, Comparison, Fact, Reason, Run, Screen, Verdict, choose_look
from perfci.core.model.measured import by_process, find_median
from perfci.statistics import exact
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import Thresholds

PROCESSES = 2  # fresh processes that must confirm what the first look suspects


Key = tuple[str, str]  # op and case


def adjust(compared: Mapping[Key, Comparison], family: int, duels: int) -> Mapping[Key, Comparison]:
    """The comparisons with p values adjusted over the plan's families, each question with an alpha of its own.

    Those are first looks at the baseline, and duels as they stand, over the cases duelled (Holm).
    """
    changes: dict[Key, dict[str, Any]] = {key: {} for key in compared}
    for name in ("screens", "spans"):
        screens = {key: looks for key, comparison in compared.items() if (looks := getattr(comparison, name))}
        first = {key: looks[0] for key, looks in screens.items() if looks[0].process == 0}
        for key, seen in _apply_holm(first, family):
            changes[key][name] = (seen, *screens[key][1:])
    for name in ("duel", "duel_span", "duel_sustained", "duel_host"):
        looks = {key: look for key, comparison in compared.items() if (look := getattr(comparison, name))}
        for key, seen in _apply_holm(looks, duels):
            changes[key][name] = seen
    return {
        key: replace(comparison, **changes[key]) if changes[key] else comparison for key, comparison in compared.items()
    }


def _apply_holm(tested: Mapping[Key, Any], family: int) -> Iterator[tuple[Key, Any]]:
    """Yields looks, or screens, with their adjusted p values."""
    size = max(family, len(tested))
    slower, faster = (
        exact.holm([getattr(look, name) for look in tested.values()], size) for name in ("p_slower", "p_faster")
    )
    for (key, seen), p_slower, p_faster in zip(tested.items(), slower, faster, strict=True):
        yield key, replace(seen, adjusted_slower=p_slower, adjusted_faster=p_faster)


@dataclass(frozen=True)
class Context:
    """A case as compared, and what it is judged by."""

    run: Run
    thresholds: Thresholds
    limits: CaseThresholds  # of this case. In the question what an expected entry would excuse, as wide as that entry
    comparison: Comparison
    same_files: bool = False  # the op's files are the base's

    @property
    def alpha(self) -> float:
        """Chance of any false alarm in a run."""
        return self.thresholds.alpha

    @property
    def floor_us(self) -> float:
        """Least difference that the run's timer can see."""
        return self.limits.floor(self.run.environment.timer)


@dataclass(frozen=True)
class Finding:
    """The answer to one question about a case."""

    verdict: Verdict
    reasons: tuple[Reason, ...] = ()
    unsettled: bool = False  # fresh processes would decide it
    processes: int = PROCESSES  # how many, those at hand included
    exact: bool = False  # not a matter of time: neither noise nor a hot device hides it


def medians_again(blocks: Sequence[Block], quantities: Sequence[float | None]) -> list[float]:
    """Returns the median of a quantity in each fresh process. quantities: one a block, None if it does not have it."""
    medians = {process: find_median(values) for process, values in by_process(blocks, quantities).items()}
    return [median for process, median in medians.items() if process > 0 and median is not None]


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
