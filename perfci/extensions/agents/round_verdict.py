"""The verdict about a round of optimising an op: from a run beside the best round before, judged case by case."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from perfci.core.files import read_regular
from perfci.core.model.basics import Interval, Reason, Suite, Verdict
from perfci.core.model.decision import Comparison, Judgement, Judgements
from perfci.core.model.measured import COMPILED, DUEL, OpRun, PerformanceCase, by_process, choose_regime
from perfci.core.model.run import Run
from perfci.extensions.agents.logbook import Round, RoundCase, RoundVerdict
from perfci.extensions.common.strays import SAME, Shown, estimate_noise
from perfci.judge.cause import list_changes
from perfci.judge.change import have_one_interface
from perfci.statistics import exact
from perfci.statistics.exact import CONFIDENCE


def weigh_round(place: int) -> int:
    """How many times a round's cases its family counts. place: 1, 2, ... among the tried rounds of its start."""
    return place * (place + 1)


def find_confidence(place: int) -> float:
    """Confidence of a round's intervals, so that those of all rounds hold together with 95 %."""
    return 1 - (1 - CONFIDENCE) / weigh_round(place)


_FASTER = {"duel_faster", "duel_faster_limited"}
_SLOWER = {"duel_slower", "duel_slower_limited", *(f"duel_{of}_slower" for of in ("span", "sustained", "host"))}
_WORSE = frozenset({Verdict.REGRESSED, Verdict.TAIL})  # also by memory. Slower may be excused by thresholds/


def judge_round(blank: Round, run: Run, judgements: Judgements) -> Round:
    """Returns the round with all that its run shows. By its place the intervals are widened for so many rounds.

    kinds of `blank`: what its files show of the kind of change.
    """
    planned = next(op for op in run.plan.ops if op.op == blank.op)
    outcome = next((op for op in run.ops if op.op == blank.op), OpRun(blank.op))
    rows = [row for row in judgements.rows if row.op == blank.op]
    confidence = find_confidence(blank.place)
    gains = measure_gains(outcome.performance, confidence)
    timed = [row for row in rows if row.case and row.suite is Suite.PERFORMANCE]
    moved = {case.case: case.bytes_moved for case in outcome.performance}
    cases = tuple(
        RoundCase(
            seen.case,
            seen.kernel_us,
            seen.base_us,
            seen.reference_us,
            gains.get(seen.case),
            bytes_moved=moved.get(seen.case),
        )
        for seen in (row.comparison or Comparison(row.op, str(row.case)) for row in timed)
    )
    changed = list_changes(outcome.performance)
    tuned = any(change.name not in COMPILED for change in changed)
    signature = planned.base.signature if planned.base else ()
    has = {
        "tuning": tuned,
        "interface": bool(signature) and not have_one_interface(signature, planned.signature),
        "logic": False,
    }
    kinds = tuple(kind for kind in has if has[kind] or kind in blank.kinds) or ("tuning",)
    gain = average_gains([case.best for case in cases], confidence)
    device, total = run.environment.device.key, None if blank.best else gain
    done = replace(blank, device=device, cases=cases, changed=changed, kinds=kinds, gain=gain, total=total)
    open_ = bool(judgements.needs) and not may_be_kept(judgements)
    verdict, reasons = _decide(done, rows, timed, outcome.unmeasured, open_)
    return replace(done, verdict=verdict, reasons=reasons)


def may_be_kept(judgements: Judgements) -> bool:
    """Whether more processes, which are needed, could have a round kept: a case looks faster, and none too slow."""
    faster, slower = zip(*map(_look_at, judgements.rows), strict=True) if judgements.rows else ((), ())
    return bool(judgements.needs) and any(faster) and not any(slower)


def _look_at(row: Judgement) -> tuple[bool, bool]:
    """Whether a case looks faster, and whether it looks slower, by more than is allowed in any of its duels."""
    seen = row.comparison or Comparison(row.op, str(row.case))
    looks = [look for look in (seen.duel, seen.duel_span, seen.duel_sustained, seen.duel_host) if look]
    return any(-look.shift.value > look.tau for look in looks), any(look.shift.value > look.tau for look in looks)


def measure_gains(cases: Sequence[PerformanceCase], confidence: float) -> Mapping[str, Interval]:
    """Each case's gain, the base's time / the kernel's - 1, with an interval that allows for what processes differ by.

    The noise is pooled over the cases. One that does the same work has exactly no gain, one that was not duelled none.
    """
    seen = {}
    for case in cases:
        blocks = [block for block in choose_regime(case.blocks) if DUEL in block.shifts]
        if case.base and case.base.same:
            seen[case.case] = SAME
        elif blocks:
            processes = by_process(blocks, [-block.shifts[DUEL] for block in blocks]).values()
            seen[case.case] = Shown(tuple(map(tuple, processes)))
    noise = estimate_noise(seen.values())
    return {case: exact.to_ratio(noise.interval(shown, confidence)) for case, shown in seen.items()}


def average_gains(gains: Sequence[Interval | None], confidence: float) -> Interval | None:
    """The geometric mean. None without gains, and if one is missing."""
    ratios = [Interval(1 + one.value, 1 + one.low, 1 + one.high, one.confidence) for one in gains if one]
    if not ratios or len(ratios) < len(gains):
        return None
    mean = exact.average_ratios(ratios, confidence)
    return Interval(mean.value - 1, mean.low - 1, mean.high - 1, confidence)


def _decide(
    done: Round, rows: Sequence[Judgement], timed: Sequence[Judgement], unmeasured: Reason | None, open_: bool
) -> tuple[RoundVerdict, tuple[Reason, ...]]:
    """A fault decides first, then a missing measurement, then all of the cases."""
    doubts = [row for row in rows if row.verdict is Verdict.INCONCLUSIVE]
    late = [row for row in doubts if any(reason.kind.endswith("_late") for reason in row.reasons)]
    for verdict, said in (
        (RoundVerdict.WRONG, [row for row in rows if row.verdict is Verdict.WRONG]),
        (RoundVerdict.ERROR, [row for row in rows if row.verdict is Verdict.ERROR]),
        (RoundVerdict.REFUSED, [row for row in rows if row.verdict in {Verdict.SUSPECT, Verdict.WEAKENED}]),
        # Answers that no one could check, and cases that were not timed beside the base: there is no verdict.
        (RoundVerdict.ERROR, [row for row in doubts if row in late or not (row.comparison and row.comparison.duel)]),
    ):
        if said:
            return verdict, _list_first(said)
    if unmeasured:  # such as without an accelerator
        return RoundVerdict.ERROR, (unmeasured,)
    if done.gain is None:
        return RoundVerdict.ERROR, _list_first(timed) or (Reason("worker_silent"),)
    certain = [row for row in timed if row not in doubts]
    faster = sum(any(reason.kind in _FASTER for reason in row.reasons) for row in certain)
    slower = sum(any(reason.kind in _SLOWER for reason in row.reasons) or row.verdict in _WORSE for row in certain)
    # Not beyond doubt, yet by more than is allowed: no one would keep it for the cases that are faster.
    doubtful = sum(_look_at(row)[1] for row in doubts)
    if open_:  # so it ends after its first process, by what its cases look like
        faster, slower = faster + sum(_look_at(row)[0] for row in doubts), slower + doubtful
    verdict = RoundVerdict.SLOWER if slower else RoundVerdict.EQUAL
    if faster:
        verdict = RoundVerdict.MIXED if slower or doubtful else RoundVerdict.KEPT
    facts = {"gain": done.gain.value, "low": done.gain.low, "high": done.gain.high, "cases": len(timed)}
    facts |= {"faster": faster, "slower": slower, "doubtful": doubtful, "place": done.place}
    if open_:
        return verdict, (Reason("round_unpromising", facts),)
    # Undecided duels are counted, without their cases.
    others = [reason for reason in _list_first(doubts) if not reason.kind.endswith("_undecided")]
    return verdict, (Reason(f"round_{verdict}", facts), *others)


def _list_first(rows: Sequence[Judgement]) -> tuple[Reason, ...]:
    """The reasons that decided the rows, each kind once."""
    return (*{row.reasons[0].kind: row.reasons[0] for row in rows if row.reasons}.values(),)


def read_kind(before: Path, now: Path) -> str | None:
    """Kinds of change that a file shows, at the base and now, where it may be missing. None if only a run can show it.

    Decorated functions, such as kernels, that differ in more than numbers are logic. Other numbers, and files that are
    no Python, such as tuned ones, are tuning.
    """
    if now.suffix != ".py":
        return "tuning"
    try:
        old, new = (ast.parse(read_regular(path.resolve()) if path.is_file() else b"") for path in (before, now))
    except (SyntaxError, ValueError, RecursionError):
        return None
    for node in (*ast.walk(old), *ast.walk(new)):
        if isinstance(node, ast.Constant):
            node.value = 0
    kernels = [[ast.dump(node) for node in tree.body if getattr(node, "decorator_list", ())] for tree in (old, new)]
    return "logic" if kernels[0] != kernels[1] else "tuning" if ast.dump(old) == ast.dump(new) else None
