"""What a base revision at hand means for a case: timed side by side, or proven to do the same device work."""

from __future__ import annotations

import math
from dataclasses import replace

from perfci.core.model import Base, BaseArm, Fact, Look, Reason, Verdict
from perfci.judge.findings import Context, Finding, judge_span, judge_time, note_environment, screen_drift, screen_span
from perfci.statistics import duel_rule, tail_rule
from perfci.statistics.duel_rule import Ruling
from perfci.statistics.exact import to_ratio

EQUAL = 0.05  # p of the equivalence test below which kernel and base count as equal, for DRIFTED

_MOVED = frozenset({Verdict.REGRESSED, Verdict.IMPROVED})


def judge_against_base(base: BaseArm, context: Context) -> tuple[Finding, Finding | None]:
    """Answers about time and span of a case that the base has too. If they were duelled, no baseline fails the case."""
    duel, span = context.comparison.duel, context.comparison.duel_span
    if duel is not None:
        return _judge_duel(base, duel, context), _judge_span_duel(base, span, context) if span else None
    if base.same and identity_counts(context.run.plan.base):
        # Timed against the stored baseline: whatever moved, it was not the kernel.
        found = [each for each in (screen_drift(context), screen_span(context)) if each]
        reasons = tuple(reason for finding in found for reason in finding.reasons)
        if any(finding.verdict in _MOVED for finding in found):
            first = _describe_moved_reference(context) or Reason("drifted_same_work")
            return Finding(Verdict.DRIFTED, (first, *reasons, *note_environment(context.comparison))), None
        unsettled = any(each.unsettled for each in found)
        return Finding(Verdict.UNCHANGED, (Reason("unchanged_timed"), *reasons), unsettled), None
    # The stored baseline decides. Nobody knows anything about a change without one.
    plain = judge_time(context)
    why = (Reason("toolchain_unproven" if base.same else "not_duelled"), *base.changes)
    if plain.verdict is Verdict.NEW and not base.same:
        return Finding(Verdict.INCONCLUSIVE, (*why, *plain.reasons)), judge_span(context)
    return replace(plain, reasons=(*plain.reasons, *why)), judge_span(context)


def identity_counts(base: Base | None) -> bool:
    """Whether the same device work proves a kernel unchanged: not if each revision has its own toolchain."""
    return base is None or not base.changed_pins or base.python is not None


def _judge_duel(base: BaseArm, seen: Look, context: Context) -> Finding:
    answer = duel_rule.answer(seen, context.adjusted.duel_slower, context.adjusted.duel_faster, context.alpha)
    facts = _facts(seen, context)
    if answer in {Ruling.SLOWER, Ruling.FASTER}:
        kind = "duel_slower" if answer is Ruling.SLOWER else "duel_faster"
        if base.same:  # two arms that do the same work cannot differ: the measurement is at fault
            return Finding(Verdict.INCONCLUSIVE, (Reason("control_failed", facts), Reason(kind, facts)))
        verdict = Verdict.REGRESSED if answer is Ruling.SLOWER else Verdict.IMPROVED
        return Finding(verdict, (Reason(kind, facts), *base.changes))
    if answer is Ruling.OPEN:
        wanted = duel_rule.processes_wanted(seen) - 1
        return Finding(Verdict.INCONCLUSIVE, (Reason("duel_open", facts),), unsettled=True, processes=wanted)
    if answer is Ruling.UNDECIDED:
        return Finding(Verdict.INCONCLUSIVE, (Reason("duel_undecided", facts),))

    # No slower than the base. By the stored baseline both may still have moved.
    verdict = Verdict.UNCHANGED if base.same else Verdict.PASS
    cleared = Reason("duel_cleared", facts)
    if not context.comparison.screens:
        return Finding(verdict, (cleared,))
    stored, moved = screen_drift(context), _describe_moved_reference(context)
    if stored.verdict in _MOVED and seen.p_differs <= EQUAL:
        first = moved or Reason("drifted", facts)
        return Finding(Verdict.DRIFTED, (first, *stored.reasons, *note_environment(context.comparison)))
    asides: tuple[Reason, ...] = ()
    if moved:
        asides = (moved,)
    elif stored.verdict in {*_MOVED, Verdict.INCONCLUSIVE, Verdict.STALE}:
        # A duel that clears a case early leaves the screen with few blocks, which does not matter.
        asides = tuple(reason for reason in stored.reasons if reason.kind != "too_few_blocks")
    return Finding(verdict, (cleared, *asides), stored.unsettled, stored.processes)


def _describe_moved_reference(context: Context) -> Reason | None:
    """Returns a reason if the reference has left its baseline and the kernel has not."""
    margin, comparison = context.limits.margin, context.comparison
    if not comparison.screens or not comparison.kernel_us or not comparison.baseline_us:
        return None
    kernel, reference = comparison.kernel_us / comparison.baseline_us - 1, comparison.screens[0].reference_change
    if abs(kernel) > margin or abs(reference) <= margin:
        return None
    return Reason("reference_moved", {"reference_change": reference, "change": kernel})


def _judge_span_duel(base: BaseArm, seen: Look, context: Context) -> Finding | None:
    """Host work and synchronisation that a change adds between kernels, of which identity knows nothing."""
    answer = duel_rule.answer(seen, context.adjusted.duel_span, 1.0, context.alpha)
    facts, longer = _facts(seen, context), seen.shift.value > seen.tau
    if answer is Ruling.SLOWER:
        slower = Reason("duel_span_slower", facts)
        if base.same and context.same_files:
            return Finding(Verdict.INCONCLUSIVE, (Reason("control_failed", facts), slower))
        return Finding(Verdict.REGRESSED, (slower,))
    if answer is Ruling.OPEN and longer:
        wanted = duel_rule.processes_wanted(seen) - 1
        return Finding(Verdict.INCONCLUSIVE, (Reason("duel_span_open", facts),), unsettled=True, processes=wanted)
    if answer is Ruling.UNDECIDED and longer:
        return Finding(Verdict.INCONCLUSIVE, (Reason("duel_span_undecided", facts),))
    return None


def judge_tail(base: BaseArm | None, context: Context) -> Finding | None:
    """What the medians of a duel do not see: launches, blocks or processes that take far longer."""
    tail, seen = context.comparison.tail, context.comparison.duel
    if base is None or base.failure or tail is None or seen is None:
        return None
    facts = {**_facts(seen, context), "mean": tail.mean, "p90": tail.p90, "share": tail.share, "times": tail.times}
    facts |= {"base_share": tail.base_share, "apart": tail.apart}
    levels: tuple[Reason, ...] = ()
    if tail.slow_processes:
        levels = (Reason("split_processes", {**facts, "count": tail.slow_processes}),)
    elif tail.slow_blocks:
        levels = (Reason("split_blocks", {**facts, "count": tail.slow_blocks}),)
    answer = tail_rule.answer(tail, seen)
    if answer is Ruling.SLOWER:
        slower = Reason("tail_slower", facts)
        if base.same:
            return Finding(Verdict.INCONCLUSIVE, (Reason("control_failed", facts), slower, *levels))
        return Finding(Verdict.TAIL, (slower, *levels))
    if answer is Ruling.OPEN:
        wanted = duel_rule.processes_wanted(seen) - 1
        return Finding(Verdict.INCONCLUSIVE, (Reason("tail_open", facts), *levels), unsettled=True, processes=wanted)
    if answer is Ruling.UNDECIDED:
        return Finding(Verdict.INCONCLUSIVE, (Reason("tail_undecided", facts), *levels))
    return Finding(Verdict.PASS, levels) if levels else None


def _facts(seen: Look, context: Context) -> dict[str, Fact]:
    change = to_ratio(seen.shift)
    return {
        "change": change.value, "low": change.low, "high": change.high, "tau": math.expm1(seen.tau),
        "blocks": seen.blocks, "processes": seen.processes,
        "base_us": context.comparison.base_us, "kernel_us": context.comparison.kernel_us,
        "least": math.expm1(min(seen.medians)), "most": math.expm1(max(seen.medians)),
        "family": context.run.plan.duel_family,
    }  # fmt: skip
