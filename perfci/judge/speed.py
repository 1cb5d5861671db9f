"""The verdict about the speed of one timed case: the gravest finding decides, the others stand beside it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from perfci.core.model.basics import Fact, Gate, Look, Reason, Suite, Verdict
from perfci.core.model.decision import Finding, Judgement, Need
from perfci.core.model.measured import DUEL, KERNEL, BaseArm, Block, PerformanceCase
from perfci.core.model.run import Base, Expected
from perfci.judge import change, expected, figures
from perfci.judge.compare import Context
from perfci.judge.screens import judge_span, judge_time, note_environment, screen_drift, screen_span
from perfci.statistics import duel_rule, many_duels, tail_rule
from perfci.statistics.duel_rule import Ruling
from perfci.statistics.exact import to_ratio
from perfci.thresholds.case import FAILS, CaseThresholds
from perfci.thresholds.limits import WORK

EQUAL = 0.05  # p of the equivalence test below which kernel and base count as equal, for DRIFTED

_MOVED = frozenset({Verdict.REGRESSED, Verdict.IMPROVED, Verdict.DRIFTED})

_SEEN_ONCE = {
    **dict.fromkeys(("slower_suspected", "faster_suspected", "alike_suspected"), "time_moved"),
    "span_suspected": "span_moved",
}
"""Kind of a reason that asks for fresh processes -> what it shows without them."""


def judge_against_base(base: BaseArm, context: Context) -> Mapping[str, Finding | None]:
    """Answers about a case that the base has too, by question. If they were duelled, no baseline fails the case."""
    compared = context.comparison
    if compared.duel is not None:
        time = _judge_duel(base, compared.duel, context)
        if compared.duel.apart and not time.unsettled:
            time = replace(time, reasons=(*time.reasons, _tell_least(compared.duel, context)))
        return {
            "time": time,
            "span": _judge_longer(base, compared.duel_span, "span", context),
            "sustained": _judge_longer(base, compared.duel_sustained, "sustained", context),
        }
    if base.same and identity_counts(context.run.plan.base):
        # Timed against the stored baseline: whatever moved, it was not the kernel.
        findings = [_believe(screen) for screen in (screen_drift(context), screen_span(context)) if screen]
        reasons = tuple(reason for finding in findings for reason in finding.reasons)
        if any(finding.verdict in _MOVED for finding in findings):
            first = _describe_moved_reference(context) or Reason("drifted_same_work")
            drifted = Finding(Verdict.DRIFTED, (first, *reasons, *note_environment(context.comparison)))
            return {"time": drifted}
        return {"time": Finding(Verdict.UNCHANGED, (Reason("unchanged_timed"), *reasons))}
    # The stored baseline decides. No one knows anything about a change without one.
    plain = judge_time(context)
    why = (Reason("toolchain_unproven" if base.same else "not_duelled"), *base.changes)
    if plain.verdict is Verdict.NEW and not base.same:
        plain = Finding(Verdict.INCONCLUSIVE, (*why, *plain.reasons))
    else:
        plain = replace(plain, reasons=(*plain.reasons, *why))
    return {"time": plain, "span": judge_span(context)}


def identity_counts(base: Base | None) -> bool:
    """Whether the same device work proves a kernel unchanged: not if each revision has its toolchain."""
    return base is None or not base.changed_pins or base.python is not None


def _judge_duel(base: BaseArm, seen: Look, context: Context) -> Finding:
    answer = duel_rule.answer(seen, seen.adjusted_slower, seen.adjusted_faster, context.alpha)
    regimes = _name_regimes(context)
    facts = {**_facts(seen, context), **regimes}
    beside = (Reason("regimes", facts),) if regimes else ()
    if answer in {Ruling.SLOWER, Ruling.FASTER}:
        kind = f"duel_{'slower' if answer is Ruling.SLOWER else 'faster'}{'_limited' if regimes else ''}"
        if base.same:  # two arms that do the same work cannot differ: the measurement is at fault
            return Finding(Verdict.INCONCLUSIVE, (Reason("control_failed", facts), Reason(kind, facts)))
        verdict = Verdict.REGRESSED if answer is Ruling.SLOWER else Verdict.IMPROVED
        return Finding(verdict, (Reason(kind, facts), *base.changes))
    if answer is Ruling.OPEN:
        wanted = duel_rule.processes_wanted(seen) - 1
        return Finding(Verdict.INCONCLUSIVE, (Reason("duel_open", facts), *beside), unsettled=True, processes=wanted)
    if answer is Ruling.UNDECIDED:
        return Finding(Verdict.INCONCLUSIVE, (Reason("duel_undecided", facts), *beside))

    # No slower than the base. By the stored baseline both may still have moved.
    verdict = Verdict.UNCHANGED if base.same else Verdict.PASS
    cleared = Reason("duel_cleared", facts)
    if not context.comparison.screens:
        return Finding(verdict, (cleared, *beside))
    stored, moved = screen_drift(context), _describe_moved_reference(context)
    stored = _believe(stored) if base.same else stored
    if stored.verdict in _MOVED and (base.same or seen.p_differs <= EQUAL):
        first = moved or Reason("drifted", facts)
        return Finding(Verdict.DRIFTED, (first, *stored.reasons, *note_environment(context.comparison)))
    asides: tuple[Reason, ...] = ()
    if moved:
        asides = (moved,)
    elif stored.verdict in {*_MOVED, Verdict.INCONCLUSIVE, Verdict.STALE}:
        # A duel that clears a case early leaves the screen with few blocks, which does not matter.
        asides = tuple(reason for reason in stored.reasons if reason.kind != "too_few_blocks")
    return Finding(verdict, (cleared, *beside, *asides), stored.unsettled, stored.processes)


def _name_regimes(context: Context) -> dict[str, Fact]:
    """Facts about the free clock and the power limit, if the kernel reaches that and was duelled there too."""
    sustained, compared = context.comparison.duel_sustained, context.comparison
    if sustained is None or compared.clock_mhz is None:
        return {}
    facts: dict[str, Fact] = {"mhz": round(compared.clock_mhz), "sustained": math.expm1(sustained.shift.value)}
    for figure in compared.sustained:
        facts |= {f"{figure.arm}_alone_us": figure.us, f"{figure.arm}_alone_mhz": round(figure.clock_mhz or 0)}
    return facts


def _tell_least(seen: Look, context: Context) -> Reason:
    """Returns the least slow-down that a duel in turns would have found, by its blocks."""
    run, at = context.run, context.comparison
    cases = (case for op in run.ops if op.op == at.op for case in op.performance if case.case == at.case)
    shifts = [block.shifts[DUEL] for case in cases for block in case.blocks if DUEL in block.shifts]
    tau = math.expm1(seen.tau)
    least = many_duels.noise(shifts, tau, context.alpha, run.plan.duel_family).smallest if len(shifts) > 1 else None
    if least is None:
        return Reason("duel_in_turns_blind", {"most": many_duels.STEPS[-1] * tau})
    return Reason("duel_in_turns", {"least": least, "power": many_duels.POWER})


def _believe(stored: Finding) -> Finding:
    """One look at the baseline, of a kernel that does its base's work: no process has to confirm it.

    It can only have drifted, which blames no one.
    """
    first = stored.reasons[0]
    if stored.unsettled and first.kind in _SEEN_ONCE:
        return Finding(Verdict.DRIFTED, (Reason(_SEEN_ONCE[first.kind], first.facts),))
    return replace(stored, unsettled=False)


def _describe_moved_reference(context: Context) -> Reason | None:
    """Returns a reason if the reference has left its baseline and the kernel has not."""
    margin, comparison = context.limits.margin, context.comparison
    if not comparison.screens or not comparison.kernel_us or not comparison.baseline_us:
        return None
    kernel, reference = comparison.kernel_us / comparison.baseline_us - 1, comparison.screens[0].reference_change
    if abs(kernel) > margin or abs(reference) <= margin:
        return None
    return Reason("reference_moved", {"reference_change": reference, "change": kernel})


def judge_host(base: BaseArm, context: Context) -> Finding | None:
    """Whether a call keeps the host longer than the base's does."""
    look, now, before = context.comparison.duel_host, context.comparison.host, context.comparison.base_host
    if look is None or now is None or before is None:
        return None
    facts: dict[str, Fact] = {"host_us": now.host_us, "base_host_us": before.host_us}
    facts |= {"more_us": now.host_us - before.host_us, "loop_us": now.loop_us, "base_loop_us": before.loop_us}
    return _judge_longer(base, look, "host", context, facts)


def _judge_longer(
    base: BaseArm, seen: Look | None, question: str, context: Context, more: Mapping[str, Fact] = MappingProxyType({})
) -> Finding | None:
    """Whether something else than the device's time at the free clock has grown, of which identity knows nothing."""
    if seen is None:
        return None
    answer = duel_rule.answer(seen, seen.adjusted_slower, 1.0, context.alpha)
    facts, longer = {**_facts(seen, context), **more}, duel_rule.may_be_longer(seen)
    if answer is Ruling.SLOWER:
        slower = Reason(f"duel_{question}_slower", facts)
        if base.same and context.same_files:
            return Finding(Verdict.INCONCLUSIVE, (Reason("control_failed", facts), slower))
        return Finding(Verdict.REGRESSED, (slower,))
    if not longer or answer not in {Ruling.OPEN, Ruling.UNDECIDED}:
        return None
    duel = context.comparison.duel
    # A kernel may reach the power limit in one process and not in the next, so another one may bring nothing.
    if answer is Ruling.UNDECIDED or (duel and duel.processes > seen.processes):
        return Finding(Verdict.INCONCLUSIVE, (Reason(f"duel_{question}_undecided", facts),))
    wanted = duel_rule.processes_wanted(seen) - 1
    return Finding(Verdict.INCONCLUSIVE, (Reason(f"duel_{question}_open", facts),), unsettled=True, processes=wanted)


def judge_tail(base: BaseArm | None, context: Context) -> Finding | None:
    """The tail of a duel, which its medians do not see: launches, blocks or processes that take far longer."""
    tail, seen = context.comparison.tail, context.comparison.duel
    if base is None or base.failure or tail is None or seen is None:
        return None
    facts = {**_facts(seen, context), "mean": tail.mean, "p90": tail.p90, "share": tail.share, "times": tail.times}
    facts |= {"base_share": tail.base_share, "apart": tail.apart}
    facts |= {"mean_possible": tail.mean + tail.reach if math.isfinite(tail.reach) else None}
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
        "possible": math.expm1(seen.shift.value + seen.reach) if math.isfinite(seen.reach) else None,
        "family": context.run.plan.duel_family,
    }  # fmt: skip


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
