"""The verdict about the speed of one timed case: the gravest finding decides, the others are told with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from perfci.core.model import Block, Comparison, Gate, Judgement, Need, PerformanceCase, Reason, Screen, Suite, Verdict
from perfci.judge import duel, expected, figures, findings
from perfci.judge.findings import Adjusted, Context, Finding
from perfci.statistics import exact
from perfci.thresholds.limits import CaseThresholds

GRAVITY = (
    Verdict.WRONG,
    Verdict.REGRESSED,
    Verdict.TOO_SLOW,
    Verdict.INCONCLUSIVE,
    Verdict.DRIFTED,
    Verdict.STALE,
    Verdict.EXPECTED,
    Verdict.IMPROVED,
    Verdict.NEW,
    Verdict.UNCHANGED,
    Verdict.PASS,
)
"""Which of several findings decides."""

THROTTLING = frozenset({"thermal", "power_brake"})
"""Why nothing is beyond doubt; the ordinary power cap is not among them."""

_BEYOND_DOUBT = frozenset({Verdict.REGRESSED, Verdict.TOO_SLOW, Verdict.IMPROVED, Verdict.DRIFTED})
_IN_DOUBT = frozenset({Verdict.INCONCLUSIVE, Verdict.PASS, Verdict.STALE, Verdict.EXPECTED})


def adjust(comparisons: Sequence[Comparison], family: int, duels: int = 0) -> Mapping[tuple[str, str], Adjusted]:
    """Holm over the plan's families: first looks at the baseline, and duels, each question with an alpha of its own."""
    columns = (
        _holm([_first_p(comparison.screens, findings.slower_p) for comparison in comparisons], family),
        _holm([_first_p(comparison.screens, findings.faster_p) for comparison in comparisons], family),
        _holm([_first_p(comparison.spans, findings.slower_p) for comparison in comparisons], family),
        _holm([each.duel.p_slower if each.duel else None for each in comparisons], duels),
        _holm([each.duel.p_faster if each.duel else None for each in comparisons], duels),
        _holm([each.duel_span.p_slower if each.duel_span else None for each in comparisons], duels),
    )
    keys = [(comparison.op, comparison.case) for comparison in comparisons]
    return {key: Adjusted(*p) for key, p in zip(keys, zip(*columns, strict=True), strict=True)}


def _holm(p: Sequence[float | None], family: int) -> list[float]:
    tested = [value for value in p if value is not None]
    adjusted = iter(exact.holm(tested, max(family, len(tested))))
    return [1.0 if value is None else next(adjusted) for value in p]


def _first_p(screens: Sequence[Screen], p: Callable[[Screen], float]) -> float | None:
    return p(screens[0]) if screens and screens[0].process == 0 else None


def judge_case(case: PerformanceCase, comparison: Comparison, context: Context) -> tuple[Judgement, Need | None]:
    """The verdict about a case that was timed, and the need for fresh processes where these would decide it."""
    answers = _answers(case, comparison, context)
    excused = expected.excused(answers, _allowed(case, comparison, context), context.day)
    found = sorted(excused.found.values(), key=_gravity)
    verdict, reasons = _decide(found, case)
    fails = verdict.gate is Gate.FAILS
    wanted = [finding.processes for finding in found if finding.unsettled]
    # What fails beyond doubt needs no more device time: the other questions could not change the gate.
    decided = fails and not found[0].unsettled
    open_question = wanted and not decided and not _mostly_hindered(case.blocks) and not case.suspicion
    row = Judgement(
        op=comparison.op,
        suite=Suite.PERFORMANCE,
        case=comparison.case,
        verdict=verdict,
        reasons=(*reasons, *_base_failure(case), *_noise(case.blocks, context.limits), *_modes(case.blocks)),
        comparison=comparison,
        p_adjusted=_p_adjusted(comparison, context),
        expected=excused.entry if fails or verdict is Verdict.EXPECTED else None,
        warns=excused.overdue and verdict is Verdict.EXPECTED,
        suggested=expected.suggested(answers, comparison, context) if fails else None,
    )
    return row, Need(comparison.op, comparison.case, max(wanted)) if open_question else None


def _gravity(finding: Finding) -> tuple[int, bool]:
    return GRAVITY.index(finding.verdict), not finding.exact


def _p_adjusted(comparison: Comparison, context: Context) -> float | None:
    if comparison.duel:
        return context.adjusted.duel_slower
    return context.adjusted.slower if comparison.screens else None


def _answers(case: PerformanceCase, comparison: Comparison, context: Context) -> Mapping[str, Finding]:
    """What is found, by the question that it answers; a question that is not even raised is missing."""
    if case.base and not case.base.failure:
        time, *spans = duel.against_base(case.base, comparison, context)
    else:
        time, *spans = findings.against_baseline(comparison, context), *findings.span(comparison, context)
    asked = {
        "time": [time],
        "span": spans,
        "memory": list(findings.memory(case, context.limits)),
        "target": list(findings.target(comparison, case.blocks, context.limits)),
        "bandwidth": list(figures.bandwidth(case, comparison.op, context)),
        "compile": list(figures.first_call(case, comparison.op, context)),
        "errors": list(figures.timed_errors(case, comparison.op, context)),
    }
    return {question: found[0] for question, found in asked.items() if found}


def _allowed(case: PerformanceCase, comparison: Comparison, context: Context) -> list[expected.Allowed]:
    """The same questions, with what each of the case's expected entries allows."""
    entries = context.thresholds.expected(comparison.op, comparison.case)
    return [
        expected.Allowed(
            entry,
            _answers(case, seen, replace(context, limits=context.limits.widened(entry.up_to), adjusted=adjusted)),
        )
        for entry, seen, adjusted in zip(entries, comparison.within, context.within, strict=True)
    ]


def _base_failure(case: PerformanceCase) -> tuple[Reason, ...]:
    return (case.base.failure,) if case.base and case.base.failure else ()


def _decide(found: Sequence[Finding], case: PerformanceCase) -> tuple[Verdict, tuple[Reason, ...]]:
    """A measurement that looks broken decides first, then what hides the answer, then the gravest finding."""
    first, hindrances = found[0], tuple(_hindrances(case.blocks))
    reasons = tuple(reason for finding in found for reason in finding.reasons)
    if case.suspicion:
        return Verdict.SUSPECT, (*case.suspicion, *reasons, *hindrances)
    if hindrances and _hidden(first, case.blocks):
        return Verdict.INCONCLUSIVE, (*hindrances, *reasons)
    return first.verdict, (*reasons, *hindrances)


def _hidden(first: Finding, blocks: Sequence[Block]) -> bool:
    """Whether a hot or shared device hides an answer: what is beyond doubt, and the rest where most blocks had it."""
    if first.exact:
        return False
    return first.verdict in _BEYOND_DOUBT or (first.verdict in _IN_DOUBT and _mostly_hindered(blocks))


def _mostly_hindered(blocks: Sequence[Block]) -> bool:
    return 2 * sum(_held(block) != frozenset() or bool(block.state.foreign_processes) for block in blocks) > len(blocks)


def _held(block: Block) -> frozenset[str]:
    return THROTTLING.intersection(block.state.throttle)


def _hindrances(blocks: Sequence[Block]) -> Iterator[Reason]:
    throttled = [held for block in blocks if (held := _held(block))]
    if throttled:
        why = ", ".join(sorted(frozenset().union(*throttled)))
        yield Reason("throttled", {"why": why, "count": len(throttled), "blocks": len(blocks)})
    foreign = [block.state.foreign_processes or 0 for block in blocks]
    if any(foreign):
        facts = {"processes": max(foreign), "count": sum(map(bool, foreign)), "blocks": len(blocks)}
        yield Reason("foreign_processes", facts)


def _noise(blocks: Sequence[Block], limits: CaseThresholds) -> Iterator[Reason]:
    """The rule of thumb of an RSD under 5 %: told where most blocks break it, gating nothing."""
    spreads = [block.arms[findings.KERNEL].time.rsd for block in blocks if findings.KERNEL in block.arms]
    noisy = sum(rsd > limits.rsd for rsd in spreads)
    if noisy > len(spreads) / 2:
        facts = {"count": noisy, "blocks": len(spreads), "rsd": sorted(spreads)[len(spreads) // 2], "limit": limits.rsd}
        yield Reason("noisy_blocks", facts)


def _modes(blocks: Sequence[Block]) -> Iterator[Reason]:
    """Launches that fall into several levels: told where most blocks show it, gating nothing."""
    arms = [block.arms[findings.KERNEL] for block in blocks if findings.KERNEL in block.arms]
    split = [arm.modes_us for arm in arms if len(arm.modes_us) > 1]
    if split and len(split) > len(arms) / 2:
        typical = split[len(split) // 2]
        facts = {"count": len(split), "blocks": len(arms), "low_us": min(typical), "high_us": max(typical)}
        yield Reason("multi_modal", facts)
