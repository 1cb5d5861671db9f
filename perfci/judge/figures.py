"""Figures of a case that have separate limits: speedup, bandwidth, memory, its first call, its errors."""

import math
from collections.abc import Callable, Mapping, Sequence

from perfci.core import commands
from perfci.core.model.basics import ErrorStats, Fact, Interval, Reason, Suite, Verdict
from perfci.core.model.decision import PROCESSES, Finding
from perfci.core.model.measured import CACHE_MULTIPLE, KERNEL, SPEEDUP, PerformanceCase, from_memory
from perfci.judge.compare import Context, list_medians_again
from perfci.statistics import exact
from perfci.thresholds.limits import Thresholds

CEILING = 0.03
"""By how much the copy's bandwidth, which is measured once a run, may be wrong before a kernel is blamed. The copies of
18 first allocations on one H200 lay 2.2 % below to 1.0 % above their median (standard deviation 0.9 %)."""

SAME_STATE = 2.0
"""First calls that differ by more than this factor did not compile the same: one of them found it compiled."""

OVERALL = ("mean_abs", "rmse")
ERRORS = (*OVERALL, "p99_abs", "max_abs")


def judge_memory(case: PerformanceCase, context: Context) -> Finding | None:
    """Returns a finding if a call holds more device memory than is allowed beside the base's."""
    allowed, now = context.limits.peak_memory, case.peak_bytes
    if allowed is None or case.base is None or case.base.failure:
        return None
    before = case.base.peak_bytes
    facts: dict[str, Fact] = {"before": before, "after": now, "allowed": allowed}
    if now is None or not before:
        return Finding(Verdict.INCONCLUSIVE, (Reason("peak_memory_unknown", facts),))
    if now > before * (1 + allowed):
        facts["change"] = now / before - 1
        return Finding(Verdict.REGRESSED, (Reason("peak_memory_grew", facts),), exact=True)
    return None


def judge_speedup(case: PerformanceCase, context: Context) -> Finding | None:
    """Returns whether the speedup reaches its target, if there is one."""
    wanted, seen, blocks = context.limits.speedup, context.comparison.speedup, case.blocks
    if wanted is None or seen is None:
        return None
    facts: dict[str, Fact] = {"speedup": seen.value, "low": seen.low, "high": seen.high, "target": wanted}
    facts["blocks"] = len(blocks)
    again = [math.exp(-shift) for shift in list_medians_again(blocks, [block.shifts.get(SPEEDUP) for block in blocks])]
    kinds = ("speedup_too_few_blocks", "speedup_reached", "speedup_undecided", "too_slow", "too_slow_suspected")
    return _judge_target(seen, wanted, again, facts, kinds)


def _judge_target(
    seen: Interval,
    wanted: float,
    again: Sequence[float],
    facts: dict[str, Fact],
    kinds: Sequence[str],
    off: float = 0.0,
) -> Finding:
    """PASS if the interval's lower end reaches the target, TOO_SLOW if all of it and every fresh process miss it.

    off: by how much, as a ratio, all may be wrong alike. kinds: too few blocks, reached, undecided, missed, suspected.
    """
    few, reached, undecided, missed, suspected = kinds
    more = len(again) < PROCESSES
    if seen.confidence < exact.CONFIDENCE:
        return Finding(Verdict.INCONCLUSIVE, (Reason(few, facts),), unsettled=more)
    if seen.low >= wanted:
        return Finding(Verdict.PASS, (Reason(reached, facts),))
    if seen.high * (1 + off) >= wanted:
        return Finding(Verdict.INCONCLUSIVE, (Reason(undecided, facts),), unsettled=more)
    if not more and max(again) * (1 + off) < wanted:
        return Finding(Verdict.TOO_SLOW, (Reason(missed, {**facts, "processes": len(again)}),))
    return Finding(Verdict.INCONCLUSIVE, (Reason(suspected, facts),), unsettled=more)


def judge_bandwidth(case: PerformanceCase, context: Context) -> Finding | None:
    """Returns whether a kernel that memory bounds reaches its share of the run's copy, if a share is asked for.

    All processes must miss by CEILING. A share that op or case asked for and that cannot be applied is named.
    """
    wanted, run = context.limits.bandwidth_share, context.run
    blocks = [block for block in case.blocks if KERNEL in block.arms]
    if wanted is None or not blocks:
        return None
    facts = _facts("bandwidth_share", context) | {"target": wanted, "moved": case.bytes_moved}
    copy, moved, l2 = run.limits.copy_gbps, case.bytes_moved, run.environment.device.l2_bytes
    asked = facts["source"] != f"{context.thresholds.folder}/default.yaml"
    if not moved:
        return Finding(Verdict.INCONCLUSIVE, (Reason("bandwidth_undeclared", facts),)) if asked else None
    if copy is None or l2 is None:
        return Finding(Verdict.INCONCLUSIVE, (Reason("bandwidth_unknown", facts),))

    peak, unbounded = run.limits.matmul_tflops.get(case.dtype or "") or 0.0, None
    if case.cache == "warm":
        unbounded = "bandwidth_warm"
    elif not from_memory(moved, case.cache, l2):
        unbounded = "bandwidth_small"
    elif case.flops and case.flops / moved * copy >= 1e3 * peak:
        unbounded = "bandwidth_by_arithmetic"  # by the roofline: the copy has to be the lower ceiling
    if unbounded:
        facts |= {"l2": l2, "times": CACHE_MULTIPLE, "dtype": case.dtype or "-"}
        return Finding(Verdict.PASS, (Reason(unbounded, facts),)) if asked else None

    def share(log_us: float) -> float:
        return moved / math.exp(log_us) / 1e3 / copy

    logs = [math.log(block.arms[KERNEL].time.median_us) for block in blocks]
    time = exact.location(logs)
    seen = Interval(share(time.value), share(time.high), share(time.low), time.confidence)
    again = [share(median) for median in list_medians_again(blocks, logs)]
    facts |= {"share": seen.value, "low": seen.low, "high": seen.high, "copy": copy, "blocks": len(blocks)}
    facts |= {"ceiling": CEILING, "processes": len(again)}
    ends = ("too_few_blocks", "reached", "undecided", "low", "suspected")
    return _judge_target(seen, wanted, again, facts, [f"bandwidth_{end}" for end in ends], CEILING)


def judge_first_call(case: PerformanceCase, context: Context) -> Finding | None:
    """Returns a finding if the first call, compilation included, takes longer than its limit.

    TOO_SLOW takes two fresh processes beyond it that compiled as much. An earned limit holds for runs of both suites.
    """
    limit, seconds, again = context.limits.compile_s, case.compile_s, case.compile_again_s
    if limit is None or (seconds is not None and seconds <= limit):
        return None
    facts = _facts("compile_s", context)
    facts |= {"seconds": seconds, "limit": limit, "processes": len(again)}
    facts |= {"least": min(again, default=None), "most": max(again, default=None)}
    plan, key = context.run.plan, context.run.environment.device.key
    whole = Suite.ACCURACY in plan.suites and plan.filter is None
    earned = facts["source"] == f"{context.thresholds.folder}/{key}/{context.comparison.op}.json"
    if seconds is None:
        verdict, kind = Verdict.INCONCLUSIVE, "compile_unknown"
    elif earned and not whole:
        verdict, kind = Verdict.PASS, "compile_not_held"
    elif len(again) < PROCESSES:
        verdict, kind = Verdict.INCONCLUSIVE, "compile_suspected"
    elif max(again) <= limit:
        verdict, kind = Verdict.PASS, "compile_refuted"
    elif min(again) <= limit:
        verdict, kind = Verdict.INCONCLUSIVE, "compile_disputed"
    elif seconds * SAME_STATE < min(again):
        verdict, kind = Verdict.INCONCLUSIVE, "compile_other_state"
    else:
        verdict, kind = Verdict.TOO_SLOW, "compile_too_slow"
    # Runs from before first calls were kept of fresh processes have these processes without them.
    more = kind == "compile_suspected" and len({block.process for block in case.blocks} - {0}) < PROCESSES
    return Finding(verdict, (Reason(kind, facts),), unsettled=more, exact=verdict is not Verdict.PASS)


def judge_errors(case: PerformanceCase, context: Context) -> Finding | None:
    """Returns a finding if the timed outputs are less exact than is asked for."""
    if case.errors is None:
        return None
    device, op = context.run.environment.device.key, context.comparison.op
    reason = errors_beyond("timed", case.errors, op, case.case, context.thresholds, device)
    return Finding(Verdict.WRONG, (reason,), exact=True) if reason else None


QUESTIONS: Mapping[str, Callable[[PerformanceCase, Context], Finding | None]] = {
    "memory": judge_memory,
    "target": judge_speedup,
    "bandwidth": judge_bandwidth,
    "compile": judge_first_call,
    "errors": judge_errors,
}

TARGETS = frozenset({"target", "bandwidth", "compile"})  # questions about what an op is meant to reach


def errors_beyond(
    whose: str, errors: ErrorStats, op: str, case: str, limits: Thresholds, device: str, checks: int = 1
) -> Reason | None:
    """Why errors are beyond their limits, by the figure furthest beyond. checks: how many they are the worst of."""
    for_case = limits.for_case(op, case)
    pairs = {name: (getattr(errors, name), getattr(for_case, name)) for name in ERRORS}
    beyond = {
        name: value / limit if limit else math.inf
        for name, (value, limit) in pairs.items()
        if value is not None and limit is not None and value > limit
    }
    if not beyond:
        return None
    worst = max(beyond, key=lambda name: beyond[name])
    value, limit = pairs[worst]
    facts: dict[str, Fact] = {
        "op": op, "case": case, "figure": worst, "value": value, "limit": limit,
        "source": limits.origin(op, case, worst, device), "beyond": len(beyond),
        "limits": sum(limit is not None for _, limit in pairs.values()), "checks": checks,
        "max_abs": errors.max_abs, "command": show_command(op, case),
    }  # fmt: skip
    return Reason(f"{whose}_errors_{'overall' if any(name in OVERALL for name in beyond) else 'in_places'}", facts)


def show_command(op: str, case: str) -> str:
    """The command that shows the origin of every value that a case is judged by."""
    return commands.write("thresholds", "show", "--op", op, "--case", case)


def _facts(key: str, context: Context) -> dict[str, Fact]:
    op, case = context.comparison.op, context.comparison.case
    origin = context.thresholds.origin(op, case, key, context.run.environment.device.key)
    return {"op": op, "case": case, "source": origin, "command": show_command(op, case)}
