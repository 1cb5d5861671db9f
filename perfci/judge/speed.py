"""The verdict about the speed of one timed case: the gravest finding decides, the others are told with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from perfci import stats
from perfci.judge import findings
from perfci.judge.findings import Adjusted, Context, Finding
from perfci.model import Block, Comparison, Judgement, Need, PerformanceCase, Reason, Screen, Suite, Verdict
from perfci.thresholds import CaseThresholds

GRAVITY = (
    Verdict.REGRESSED,
    Verdict.TOO_SLOW,
    Verdict.INCONCLUSIVE,
    Verdict.STALE,
    Verdict.IMPROVED,
    Verdict.NEW,
    Verdict.PASS,
)
"""Which of several findings decides."""

THROTTLING = frozenset({"thermal", "power_brake"})
"""Why nothing is beyond doubt; the ordinary power cap is not among them."""

_BEYOND_DOUBT = frozenset({Verdict.REGRESSED, Verdict.TOO_SLOW, Verdict.IMPROVED})


def adjust(comparisons: Sequence[Comparison], family: int) -> Mapping[tuple[str, str], Adjusted]:
    """Holm over the plan's family of first looks: slower, faster and span are a family each, with its own alpha."""
    columns = (
        _holm([_first_p(comparison.screens, findings.slower_p) for comparison in comparisons], family),
        _holm([_first_p(comparison.screens, findings.faster_p) for comparison in comparisons], family),
        _holm([_first_p(comparison.spans, findings.slower_p) for comparison in comparisons], family),
    )
    keys = [(comparison.op, comparison.case) for comparison in comparisons]
    return {key: Adjusted(*p) for key, p in zip(keys, zip(*columns, strict=True), strict=True)}


def _holm(p: Sequence[float | None], family: int) -> list[float]:
    tested = [value for value in p if value is not None]
    adjusted = iter(stats.holm(tested, max(family, len(tested))))
    return [1.0 if value is None else next(adjusted) for value in p]


def _first_p(screens: Sequence[Screen], p: Callable[[Screen], float]) -> float | None:
    return p(screens[0]) if screens and screens[0].process == 0 else None


def judge_case(case: PerformanceCase, comparison: Comparison, context: Context) -> tuple[Judgement, Need | None]:
    """The verdict about a case that was timed, and the need for fresh processes where these would decide it."""
    found = sorted(_findings(case, comparison, context), key=lambda finding: GRAVITY.index(finding.verdict))
    hindrances = tuple(_hindrances(case.blocks))
    verdict, reasons = _decide(found, hindrances, case.suspicion)
    open_question = any(finding.unsettled for finding in found) and not hindrances and not case.suspicion
    row = Judgement(
        op=comparison.op,
        suite=Suite.PERFORMANCE,
        case=comparison.case,
        verdict=verdict,
        reasons=(*reasons, *_noise(case.blocks, context.limits)),
        comparison=comparison,
        p_adjusted=context.adjusted.slower if comparison.screens else None,
    )
    return row, Need(comparison.op, comparison.case, findings.PROCESSES) if open_question else None


def _findings(case: PerformanceCase, comparison: Comparison, context: Context) -> Iterator[Finding]:
    yield findings.against_baseline(comparison, context)
    yield from findings.span(comparison, context)
    yield from findings.target(comparison, case.blocks, context.limits)


def _decide(
    found: Sequence[Finding], hindrances: Sequence[Reason], suspicion: Sequence[Reason]
) -> tuple[Verdict, tuple[Reason, ...]]:
    """A measurement that looks broken decides first, then what hides the answer, then the gravest finding."""
    verdict = found[0].verdict
    reasons = tuple(reason for finding in found for reason in finding.reasons)
    if suspicion:
        return Verdict.SUSPECT, (*suspicion, *reasons, *hindrances)
    if hindrances and verdict in _BEYOND_DOUBT:
        return Verdict.INCONCLUSIVE, (*hindrances, *reasons)
    return verdict, (*reasons, *hindrances)


def _hindrances(blocks: Sequence[Block]) -> Iterator[Reason]:
    throttled = [held for block in blocks if (held := THROTTLING.intersection(block.state.throttle))]
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
