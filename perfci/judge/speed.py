"""The verdict about the speed of one timed case: the gravest finding decides, the others stand beside it."""

from collections.abc import Iterator, Mapping, Sequence

from perfci.core.model import Block, Expected, Gate, Judgement, Need, PerformanceCase, Reason, Suite, Verdict
from perfci.judge import change, expected, figures
from perfci.judge.duel import judge_against_base, judge_host, judge_tail
from perfci.judge.findings import Context, Finding, judge_span, judge_time
from perfci.store.lines import KERNEL
from perfci.thresholds.case import FAILS, CaseThresholds
from perfci.thresholds.limits import WORK

GRAVITY = (
    Verdict.WRONG, Verdict.REGRESSED, Verdict.TOO_SLOW, Verdict.TAIL, Verdict.INCONCLUSIVE, Verdict.DRIFTED,
    Verdict.STALE, Verdict.EXPECTED, Verdict.IMPROVED, Verdict.NEW, Verdict.UNCHANGED, Verdict.PASS,
)  # fmt: skip
"""Which of several findings decides."""

THROTTLING = frozenset({"thermal", "power_brake"})
"""Throttling that makes an answer doubtful. The ordinary power cap does not."""

PROOFS = frozenset({"above_bandwidth", "above_rate", "beyond_clock", "calls_reference", "timing_function_replaced"})
"""Suspicions that prove that a time is not that of the kernel's work. They fail the gate unless its owners agreed."""

_BEYOND_DOUBT = frozenset({Verdict.REGRESSED, Verdict.TOO_SLOW, Verdict.TAIL, Verdict.IMPROVED, Verdict.DRIFTED})
_IN_DOUBT = frozenset({Verdict.INCONCLUSIVE, Verdict.PASS, Verdict.STALE, Verdict.EXPECTED})


def judge_case(
    case: PerformanceCase, context: Context, allowed: Sequence[tuple[Expected, Context]]
) -> tuple[Judgement, Need | None]:
    """A timed case's verdict, and the need for fresh processes. allowed: its expected entries, each as if it holds."""
    comparison, answers = context.comparison, _answer_questions(case, context)
    wide = [(entry, _answer_questions(case, within)) for entry, within in allowed]
    day = expected.day_of(context.run)
    excused = expected.excuse(answers, wide, day)
    slower = sorted(excused.found.values(), key=lambda answer: (GRAVITY.index(answer.verdict), not answer.exact))
    states = [(block, block.state) for block in case.blocks]
    hindered = 2 * sum(
        bool(_throttled(block) or state.foreign_processes or state.ecc_errors) for block, state in states
    )
    mostly_hindered = hindered > len(case.blocks)
    verdict, reasons = _decide(slower, case, mostly_hindered)
    proven = any(reason.kind in PROOFS for reason in case.suspicion)
    claimed = verdict is Verdict.IMPROVED and case.self_reported is not None
    if proven or claimed:
        entries = (entry for entry in context.thresholds.expected(comparison.op) if entry.weaker == WORK)
        entry = next((entry for entry in entries if expected.stage(entry, day) is expected.Standing.HOLDS), None)
        facts = {"op": comparison.op, "entry": f"- {{weaker: {WORK}, why: ..., until: 2027-01-31}}"}
        if entry or proven:
            told = change.declare(entry) if entry else Reason("proof_undeclared", facts)
            proven, reasons = entry is None, (reasons[0], told, *reasons[1:])
        else:
            verdict, reasons = Verdict.INCONCLUSIVE, (Reason("faster_self_reported", facts), *reasons)
    fails = verdict.gate is Gate.FAILS
    wanted = [finding.processes for finding in slower if finding.unsettled]
    # What fails beyond doubt needs no more device time: the other questions could not change the gate.
    decided = fails and not slower[0].unsettled
    open_question = wanted and not decided and not mostly_hindered and not case.suspicion
    failure = (case.base.failure,) if case.base and case.base.failure else ()
    unhosted = (case.unhosted,) if case.unhosted else ()
    if failure and verdict is Verdict.NEW and context.run.plan.base and context.run.plan.base.suites:
        # No one but the change knows how fast it may be.
        verdict, reasons, failure = Verdict.INCONCLUSIVE, (*failure, *reasons), ()
    tested = comparison.duel or next(iter(comparison.screens), None)
    row = Judgement(
        op=comparison.op, suite=Suite.PERFORMANCE, case=comparison.case, verdict=verdict, comparison=comparison,
        reasons=(*reasons, *failure, *unhosted, *_note_noise(case.blocks, context.limits)),
        p_adjusted=tested.adjusted_slower if tested else None,
        expected=excused.entry if fails or verdict is Verdict.EXPECTED else None,
        warns=excused.overdue and verdict is Verdict.EXPECTED,
        fails=proven or (verdict is Verdict.TAIL and context.limits.tail == FAILS),
        suggested=expected.suggest(answers, context) if fails else None,
    )  # fmt: skip
    return row, Need(comparison.op, comparison.case, max(wanted)) if open_question else None


def _answer_questions(case: PerformanceCase, context: Context) -> Mapping[str, Finding]:
    """Answers by their question. A question that is not even raised is missing."""
    host = judge_host(case.base, context) if case.base and not case.base.failure else None
    if not case.blocks:  # the same device work, which was not timed
        launches = len(case.identity.launches) if case.identity else None
        same = Finding(Verdict.UNCHANGED, (Reason("unchanged_work", {"launches": launches}),))
        # Its first call may have got work that no launch shows.
        calls = case.compile_s is not None and not context.run.plan.round
        first = figures.judge_first_call(case, context) if calls else None
        asked = {"time": same, "host": host, "compile": first}
        return {question: answer for question, answer in asked.items() if answer}
    if case.base and not case.base.failure:
        asked = dict(judge_against_base(case.base, context))
    else:
        asked = {"time": judge_time(context), "span": judge_span(context)}
    asked |= {"host": host, "tail": judge_tail(case.base, context)}
    names = figures.QUESTIONS.keys() - (figures.TARGETS if context.run.plan.round else set())
    asked |= {name: ask(case, context) for name, ask in figures.QUESTIONS.items() if name in names}
    return {question: answer for question, answer in asked.items() if answer}


def _decide(
    findings: Sequence[Finding], case: PerformanceCase, mostly_hindered: bool
) -> tuple[Verdict, tuple[Reason, ...]]:
    """A measurement that looks broken decides first, then what hides the answer, then the gravest finding."""
    first, hindrances = findings[0], tuple(_hindrances(case.blocks))
    reasons = tuple(reason for finding in findings for reason in finding.reasons)
    if case.suspicion:
        return Verdict.SUSPECT, (*case.suspicion, *reasons, *hindrances)
    # A hot or shared device hides what would be beyond doubt, and the rest if most blocks had it.
    in_doubt = first.verdict in _IN_DOUBT and mostly_hindered
    if hindrances and not first.exact and (first.verdict in _BEYOND_DOUBT or in_doubt):
        return Verdict.INCONCLUSIVE, (*hindrances, *reasons)
    return first.verdict, (*reasons, *hindrances)


def _throttled(block: Block) -> frozenset[str]:
    return THROTTLING.intersection(block.state.throttle)


def _hindrances(blocks: Sequence[Block]) -> Iterator[Reason]:
    if throttled := [held for block in blocks if (held := _throttled(block))]:
        why = ", ".join(sorted(frozenset().union(*throttled)))
        yield Reason("throttled", {"why": why, "count": len(throttled), "blocks": len(blocks)})
    foreign = [block.state.foreign_processes or 0 for block in blocks]
    if any(foreign):
        facts = {"processes": max(foreign), "count": sum(map(bool, foreign)), "blocks": len(blocks)}
        yield Reason("foreign_processes", facts)
    if errors := max((block.state.ecc_errors or 0 for block in blocks), default=0):
        yield Reason("ecc_errors", {"count": errors})


def _note_noise(blocks: Sequence[Block], limits: CaseThresholds) -> Iterator[Reason]:
    """Named if most blocks show it, and gating nothing: an RSD above 5 %, launches that fall into several levels."""
    arms = [block.arms[KERNEL] for block in blocks if KERNEL in block.arms]
    spreads = sorted(arm.time.rsd for arm in arms)
    noisy = sum(rsd > limits.rsd for rsd in spreads)
    if noisy > len(spreads) / 2:
        facts = {"count": noisy, "blocks": len(spreads), "rsd": spreads[len(spreads) // 2], "limit": limits.rsd}
        yield Reason("noisy_blocks", facts)
    split = [arm.modes_us for arm in arms if len(arm.modes_us) > 1]
    if split and len(split) > len(arms) / 2:
        typical = split[len(split) // 2]
        levels = {"low_us": min(typical), "high_us": max(typical)}
        yield Reason("multi_modal", {"count": len(split), "blocks": len(arms), **levels})
