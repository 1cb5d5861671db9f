"""What a base revision at hand means for a case: timed side by side, or proven to do the same device work."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from perfci.core.model import BaseArm, Comparison, Fact, Identity, Look, Reason, Verdict
from perfci.judge.findings import Context, Finding, against_baseline, drift, span, stretched, surroundings
from perfci.statistics import duel_rule

EQUAL = 0.05
"""p of the equivalence test below which kernel and base count as equal, for DRIFTED."""

_MOVED = frozenset({Verdict.REGRESSED, Verdict.IMPROVED})


def against_base(base: BaseArm, comparison: Comparison, context: Context) -> Iterator[Finding]:
    """The answer about a case that the base has too. Where the two were duelled the stored baseline never fails it."""
    if comparison.duel is not None:
        yield _duel(base, comparison, comparison.duel, context)
        yield from _span(base, comparison, comparison.duel_span, context)
    elif base.same and context.identity_counts:
        yield _same_work(comparison, context)
    else:
        yield _by_baseline(base, against_baseline(comparison, context))
        yield from span(comparison, context)


def _by_baseline(base: BaseArm, stored: Finding) -> Finding:
    """The stored baseline decides, and why the base does not; about a change without a baseline nobody knows."""
    why = (Reason("toolchain_unproven" if base.same else "not_duelled"), *base.changes)
    if stored.verdict is Verdict.NEW and not base.same:
        return Finding(Verdict.INCONCLUSIVE, (*why, *stored.reasons))
    return replace(stored, reasons=(*stored.reasons, *why))


def unchanged(call: Identity | None) -> Reason:
    """Why a case was not timed at all."""
    return Reason("unchanged_work", {"launches": len(call.launches) if call else None})


def _duel(base: BaseArm, comparison: Comparison, seen: Look, context: Context) -> Finding:
    answer = duel_rule.answer(seen, context.adjusted.duel_slower, context.adjusted.duel_faster, context.alpha)
    facts = _facts(seen, comparison, context)
    if answer in {duel_rule.Answer.SLOWER, duel_rule.Answer.FASTER}:
        return _beyond_doubt(base, answer, facts)
    if answer is duel_rule.Answer.OPEN:
        wanted = duel_rule.processes_wanted(seen) - 1
        return Finding(Verdict.INCONCLUSIVE, (Reason("duel_open", facts),), unsettled=True, processes=wanted)
    if answer is duel_rule.Answer.UNDECIDED:
        return Finding(Verdict.INCONCLUSIVE, (Reason("duel_undecided", facts),))
    return _cleared(base, seen, comparison, context, facts)


def _beyond_doubt(base: BaseArm, answer: duel_rule.Answer, facts: dict[str, Fact]) -> Finding:
    """Slower or faster; of two arms that do the same work neither can be: then the measurement is at fault."""
    slower = answer is duel_rule.Answer.SLOWER
    kind = "duel_slower" if slower else "duel_faster"
    if base.same:
        return Finding(Verdict.INCONCLUSIVE, (Reason("control_failed", facts), Reason(kind, facts)))
    verdict = Verdict.REGRESSED if slower else Verdict.IMPROVED
    return Finding(verdict, (Reason(kind, facts), *base.changes))


def _cleared(base: BaseArm, seen: Look, comparison: Comparison, context: Context, facts: dict[str, Fact]) -> Finding:
    """No slower than the base; the stored baseline may still tell that both moved."""
    verdict = Verdict.UNCHANGED if base.same else Verdict.PASS
    cleared = Reason("duel_cleared", facts)
    if not comparison.screens:
        return Finding(verdict, (cleared,))
    stored = drift(comparison, context)
    if stored.verdict in _MOVED and seen.p_differs <= EQUAL:
        first = _reference_moved(comparison, context) or Reason("drifted", facts)
        return Finding(Verdict.DRIFTED, (first, *stored.reasons, *surroundings(comparison)))
    return Finding(verdict, (cleared, *_asides(stored, comparison, context)), stored.unsettled, stored.processes)


def _asides(stored: Finding, comparison: Comparison, context: Context) -> Iterator[Reason]:
    """What the stored baseline adds: a reference that moved alone, a suspicion; nothing where it agrees."""
    if moved := _reference_moved(comparison, context):
        yield moved
    elif stored.verdict in {*_MOVED, Verdict.INCONCLUSIVE, Verdict.STALE}:
        # A duel that clears a case early leaves the screen with few blocks, which is nobody's concern.
        yield from (reason for reason in stored.reasons if reason.kind != "too_few_blocks")


def _reference_moved(comparison: Comparison, context: Context) -> Reason | None:
    """The kernel stands where its baseline does, the reference does not."""
    margin = context.limits.margin
    screen = comparison.screens[0] if comparison.screens else None
    if screen is None or not comparison.kernel_us or not comparison.baseline_us:
        return None
    kernel = comparison.kernel_us / comparison.baseline_us - 1
    if abs(kernel) > margin or abs(screen.reference_change) <= margin:
        return None
    return Reason("reference_moved", {"reference_change": screen.reference_change, "change": kernel})


def _same_work(comparison: Comparison, context: Context) -> Finding:
    """The same device work as the base's, timed against the stored baseline: whatever moved, it was not the kernel."""
    found = (drift(comparison, context), *stretched(comparison, context))
    reasons = tuple(reason for finding in found for reason in finding.reasons)
    if any(finding.verdict in _MOVED for finding in found):
        first = _reference_moved(comparison, context) or Reason("drifted_same_work")
        return Finding(Verdict.DRIFTED, (first, *reasons, *surroundings(comparison)))
    open_question = any(finding.unsettled for finding in found)
    return Finding(Verdict.UNCHANGED, (Reason("unchanged_timed"), *reasons), open_question)


def _span(base: BaseArm, comparison: Comparison, seen: Look | None, context: Context) -> Iterator[Finding]:
    """Host work and synchronisation that a change adds between the kernels of a launch.

    Of these identity knows nothing; only where the files are the same too is a longer span the measurement's fault.
    """
    if seen is None:
        return
    answer = duel_rule.answer(seen, context.adjusted.duel_span, 1.0, context.alpha)
    facts, longer = _facts(seen, comparison, context), seen.shift.value > seen.tau
    if answer is duel_rule.Answer.SLOWER:
        slower = Reason("duel_span_slower", facts)
        if base.same and context.same_files:
            yield Finding(Verdict.INCONCLUSIVE, (Reason("control_failed", facts), slower))
        else:
            yield Finding(Verdict.REGRESSED, (slower,))
    elif answer is duel_rule.Answer.OPEN and longer:
        wanted = duel_rule.processes_wanted(seen) - 1
        yield Finding(Verdict.INCONCLUSIVE, (Reason("duel_span_open", facts),), unsettled=True, processes=wanted)
    elif answer is duel_rule.Answer.UNDECIDED and longer:
        yield Finding(Verdict.INCONCLUSIVE, (Reason("duel_span_undecided", facts),))


def _facts(seen: Look, comparison: Comparison, context: Context) -> dict[str, Fact]:
    return {
        "change": math.expm1(seen.shift.value),
        "low": math.expm1(seen.shift.low),
        "high": math.expm1(seen.shift.high),
        "tau": math.expm1(seen.tau),
        "blocks": seen.blocks,
        "processes": seen.processes,
        "base_us": comparison.base_us,
        "kernel_us": comparison.kernel_us,
        "least": math.expm1(min(seen.medians)),
        "most": math.expm1(max(seen.medians)),
        "family": context.duel_family,
    }
