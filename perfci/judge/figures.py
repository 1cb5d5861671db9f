"""Figures of a case that have limits of their own: its share of the bandwidth, its first call, its errors."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfci.core.model import Block, ErrorStats, Fact, PerformanceCase, Reason, Verdict
from perfci.judge.findings import KERNEL, PROCESSES, Context, Finding
from perfci.statistics import exact
from perfci.store.past.lines import CACHE_MULTIPLE, from_memory
from perfci.thresholds.limits import CaseThresholds, Thresholds

CEILING = 0.03
"""What the copy's bandwidth, which is measured once a run, may be off by before a kernel is blamed. The copies of 18
first allocations on one H200 lay 2.2 % below to 1.0 % above their median (standard deviation 0.9 %)."""

SAME_STATE = 2.0
"""First calls that differ by more than this factor did not compile the same: one of them found it compiled."""

OVERALL = ("mean_abs", "rmse")
ERRORS = (*OVERALL, "p99_abs", "max_abs")


# --- share of the bandwidth -------------------------------------------------------------------------------------------


def bandwidth(case: PerformanceCase, op: str, context: Context) -> Iterator[Finding]:
    """Whether a kernel that memory bounds reaches its share of the run's own copy; nothing where none is asked for.

    By the rule of the speedup target: the lower end of the interval must reach the share to pass; the upper end must
    miss it to fail, and every fresh process's own median too, two at least. All processes share one measured copy,
    whose noise no interval shows: to fail, all must miss by CEILING besides. A share of default.yaml is for the cases
    that it can be meant for; where it cannot be held although somebody asked for it by op or case, that is told.
    """
    wanted = context.limits.bandwidth_share
    blocks = [block for block in case.blocks if KERNEL in block.arms]
    if wanted is None or not blocks:
        return
    facts = _told(op, case.case, "bandwidth_share", context) | {"target": wanted, "moved": case.bytes_moved}
    copy, moved = context.ceilings.copy_gbps, case.bytes_moved
    why_not = _not_held(case, context, facts)
    if why_not is not None:
        yield from why_not
    elif moved and copy:
        yield _share(moved, copy, wanted, blocks, facts)


def _not_held(case: PerformanceCase, context: Context, facts: dict[str, Fact]) -> tuple[Finding, ...] | None:
    """None where it can be held; else what is to be said of it."""
    asked = facts["source"] != f"{context.thresholds.folder}/default.yaml"
    l2 = context.device.l2_bytes if context.device else None
    if not case.bytes_moved:
        return (Finding(Verdict.INCONCLUSIVE, (Reason("bandwidth_undeclared", facts),)),) if asked else ()
    if context.ceilings.copy_gbps is None or l2 is None:
        return (Finding(Verdict.INCONCLUSIVE, (Reason("bandwidth_unknown", facts),)),)
    kind = None
    if case.cache == "warm":
        kind = "bandwidth_warm"
    elif not from_memory(case.bytes_moved, case.cache, l2):
        kind = "bandwidth_small"
    elif case.flops and not _by_memory(case, context):
        kind = "bandwidth_by_arithmetic"
    if kind is None:
        return None
    told = Reason(kind, {**facts, "l2": l2, "times": CACHE_MULTIPLE, "dtype": case.dtype or "-"})
    return (Finding(Verdict.PASS, (told,)),) if asked else ()


def _by_memory(case: PerformanceCase, context: Context) -> bool:
    """Whether the copy is the lower ceiling (roofline); not where the other is not known."""
    peak = context.ceilings.matmul_tflops.get(case.dtype or "")
    intensity = (case.flops or 0) / (case.bytes_moved or 1)
    return bool(peak) and intensity * (context.ceilings.copy_gbps or 0.0) < 1e3 * (peak or 0.0)


def _share(moved: int, copy: float, wanted: float, blocks: Sequence[Block], told: dict[str, Fact]) -> Finding:
    def share(log_us: float) -> float:
        return moved / math.exp(log_us) / 1e3 / copy

    seen = exact.location([math.log(block.arms[KERNEL].time.median_us) for block in blocks])
    again = [share(median) for median in _medians_again(blocks)]
    more = len(again) < PROCESSES
    low, high = share(seen.high), share(seen.low)
    facts: dict[str, Fact] = {
        **told, "share": share(seen.value), "low": low, "high": high, "copy": copy, "blocks": len(blocks),
        "ceiling": CEILING, "processes": len(again),
    }  # fmt: skip
    if seen.confidence < exact.CONFIDENCE:
        return Finding(Verdict.INCONCLUSIVE, (Reason("bandwidth_too_few_blocks", facts),), unsettled=more)
    if low >= wanted:
        return Finding(Verdict.PASS, (Reason("bandwidth_reached", facts),))
    if high * (1 + CEILING) >= wanted:
        return Finding(Verdict.INCONCLUSIVE, (Reason("bandwidth_undecided", facts),), unsettled=more)
    if not more and max(again) * (1 + CEILING) < wanted:
        return Finding(Verdict.TOO_SLOW, (Reason("bandwidth_low", facts),))
    return Finding(Verdict.INCONCLUSIVE, (Reason("bandwidth_suspected", facts),), unsettled=more)


def _medians_again(blocks: Sequence[Block]) -> list[float]:
    """Logarithm of the kernel's median time, microseconds, in each fresh process."""
    times: dict[int, list[float]] = {}
    for block in blocks:
        if block.process > 0:
            times.setdefault(block.process, []).append(math.log(block.arms[KERNEL].time.median_us))
    return [statistics.median(own) for own in times.values()]


# --- first call -------------------------------------------------------------------------------------------------------


def first_call(case: PerformanceCase, op: str, context: Context) -> Iterator[Finding]:
    """Whether the first call, compilation included, keeps its limit; nothing where it does, or where there is none.

    One call is one observation on a busy host: TOO_SLOW takes two fresh processes that lie beyond the limit too, and
    that compiled as much. A first look that was much faster than theirs had found the kernel compiled, by an accuracy
    check or another case, and tells of something else. What was earned is of runs of both suites, in which the accuracy
    checks start the compiler: another run's first calls are no match for it.
    """
    limit, seconds, again = context.limits.compile_s, case.compile_s, case.compile_again_s
    if limit is None:
        return
    facts = _told(op, case.case, "compile_s", context)
    facts |= {"seconds": seconds, "limit": limit, "processes": len(again)}
    facts |= {"least": min(again, default=None), "most": max(again, default=None)}
    if seconds is None:
        yield Finding(Verdict.INCONCLUSIVE, (Reason("compile_unknown", facts),), exact=True)
    elif seconds > limit and not context.whole and _earned(op, facts, context):
        yield Finding(Verdict.PASS, (Reason("compile_not_held", facts),))
    elif seconds > limit:
        yield _first_calls(seconds, limit, again, case, facts)


def _earned(op: str, facts: Mapping[str, Fact], context: Context) -> bool:
    key = context.device.key if context.device else ""
    return facts["source"] == f"{context.thresholds.folder}/{key}/{op}.yaml"


def _first_calls(
    seconds: float, limit: float, again: Sequence[float], case: PerformanceCase, facts: dict[str, Fact]
) -> Finding:
    if len(again) < PROCESSES:
        # Runs from before first calls were kept of fresh processes have these processes without them.
        open_question = len({block.process for block in case.blocks} - {0}) < PROCESSES
        return Finding(Verdict.INCONCLUSIVE, (Reason("compile_suspected", facts),), unsettled=open_question, exact=True)
    if max(again) <= limit:
        return Finding(Verdict.PASS, (Reason("compile_refuted", facts),))
    if min(again) <= limit:
        return Finding(Verdict.INCONCLUSIVE, (Reason("compile_disputed", facts),), exact=True)
    if seconds * SAME_STATE < min(again):
        return Finding(Verdict.INCONCLUSIVE, (Reason("compile_other_state", facts),), exact=True)
    return Finding(Verdict.TOO_SLOW, (Reason("compile_too_slow", facts),), exact=True)


# --- errors -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Beyond:
    """An error that is larger than its limit."""

    figure: str
    value: float
    limit: float

    @property
    def times(self) -> float:
        """How many times the limit."""
        return self.value / self.limit if self.limit else math.inf


def timed_errors(case: PerformanceCase, op: str, context: Context) -> Iterator[Finding]:
    """Whether the timed outputs are as exact as is asked for; nothing where they are, or where errors are not known."""
    reason = case.errors and errors_beyond(
        "timed", case.errors, op, case.case, context.thresholds, context.device.key if context.device else ""
    )
    if reason:
        yield Finding(Verdict.WRONG, (reason,), exact=True)


def errors_beyond(
    whose: str, errors: ErrorStats, op: str, case: str, limits: Thresholds, device: str, checks: int = 1
) -> Reason | None:
    """Why errors are beyond their limits, by the figure that is furthest beyond; None where none is.

    whose: "checked" or "timed"; checks: how many the errors are the worst of.
    """
    own = limits.for_case(op, case)
    found = list(_beyond(errors, own))
    if not found:
        return None
    worst = max(found, key=lambda each: each.times)
    spread = "overall" if any(each.figure in OVERALL for each in found) else "in_places"
    facts: dict[str, Fact] = {
        "op": op, "case": case, "figure": worst.figure, "value": worst.value, "limit": worst.limit,
        "source": limits.origin(op, case, worst.figure, device), "beyond": len(found),
        "limits": sum(getattr(own, figure) is not None for figure in ERRORS), "checks": checks,
        "max_abs": errors.max_abs, "command": show(op, case),
    }  # fmt: skip
    return Reason(f"{whose}_errors_{spread}", facts)


def _beyond(errors: ErrorStats, limits: CaseThresholds) -> Iterator[Beyond]:
    for figure in ERRORS:
        value: float | None = getattr(errors, figure)
        limit: float | None = getattr(limits, figure)
        if value is not None and limit is not None and value > limit:
            yield Beyond(figure, value, limit)


# --- what every sentence tells ----------------------------------------------------------------------------------------


def show(op: str, case: str) -> str:
    """The command that tells where every value comes from that a case is judged by."""
    return shlex.join(["perfci", "thresholds", "show", "--op", op, "--case", case])


def _told(op: str, case: str, key: str, context: Context) -> dict[str, Fact]:
    device = context.device.key if context.device else ""
    return {
        "op": op,
        "case": case,
        "source": context.thresholds.origin(op, case, key, device),
        "command": show(op, case),
    }
