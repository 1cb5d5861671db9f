"""Advice, drawn from what was measured: each rule looks at one case, and finds nothing if a fact is missing.

Cases that are WRONG, ERROR or SUSPECT get none: the time of a wrong kernel means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfci.core.model import Judgement, Limits, OpRun, PerformanceCase, Run
from perfci.core.wording import say
from perfci.report.ceilings import CeilingPoint, find_place, find_unsound
from perfci.report.frame import ArmSpread
from perfci.report.text import code, list_some, plain
from perfci.report.view import Part, make_table

L2_TIMES = 4
"""Least footprint in L2 caches of a case whose bandwidth is that of memory: of less, part is served by the cache."""

LOW_BANDWIDTH = 0.75
"""Share of the measured copy below which a kernel bound by memory leaves something: pointwise and row kernels reach 93
to 102 % of it on an H200 once they move more than the cache holds."""

LOW_COMPUTE = 0.6
"""The same of the measured matrix product: kernels reach 75 to 90 % of the library's on an H200. Fused or skinny ones
less, without a fault."""

REACHED = 0.9
"""Share of its ceiling from which a case needs no more processors: 128 programs on 132 may well saturate memory."""

SPAN_RATIO = 1.2
"""Span of a call / its device time from which gaps are shown: below, they are the some us between any two launches."""

SPAN_GAP_US = 3.0
"""And at least so many microseconds of it: one host-side launch takes about as long."""

CASES = 3
"""Most cases of a rule named one by one."""


@dataclass(frozen=True)
class CaseFacts:
    """One case, and what is known of where it ran. None is what is not known."""

    op: str
    case: PerformanceCase
    limits: Limits
    kernel: ArmSpread | None = None
    """of the kernel's launches"""
    processors: int | None = None
    l2_bytes: int | None = None

    @property
    def place(self) -> CeilingPoint | None:
        """Below the ceilings."""
        return find_place(self.op, self.case, self.kernel.p50_us if self.kernel else None, self.limits)

    @property
    def bandwidth(self) -> float | None:
        """Share of the measured copy that it reaches, if memory is what bounds it and the cache cannot help."""
        moved, limit = self.case.bytes_moved, self.limits.copy_gbps
        us = self.kernel.p50_us if self.kernel else None
        if not moved or not limit or not us or not self.l2_bytes or moved < L2_TIMES * self.l2_bytes:
            return None
        found = self.place
        bound_elsewhere = bool(self.case.flops) and (found is None or found.ridge is None or not found.by_memory)
        return None if bound_elsewhere or self.case.cache == "warm" else moved / us / 1e3 / limit


@dataclass(frozen=True)
class Hint:
    """What a rule found in one case."""

    case: str
    off: float
    """how far from what it could be, the largest is shown first"""
    numbers: str
    """what was measured, as a sentence"""
    advice: str


# --- rules ------------------------------------------------------------------------------------------------------------


def find_spills(facts: CaseFacts) -> Hint | None:
    """The compiler had no registers left."""
    worst = max((one for one in facts.case.compiled if one.spills), key=lambda one: one.spills or 0, default=None)
    if worst is None:
        return None
    numbers = say(
        "{kernel} spills {spills} registers of a thread; it has {registers}.",
        kernel=code(worst.name), spills=worst.spills, registers=worst.registers,
    )  # fmt: skip
    advice = say("Spilled registers go through memory: try smaller blocks, more warps or fewer stages.")
    return Hint(facts.case.case, float(worst.spills or 0), numbers, advice)


def find_small_grid(facts: CaseFacts) -> Hint | None:
    """No launch of the call has as many programs as the device has processors, and the ceiling is missed."""
    found = facts.place
    share = found.share if found and found.ridge is not None else facts.bandwidth
    launches = facts.case.identity.launches if facts.case.identity else ()
    if not launches or not facts.processors or (share or 0.0) >= REACHED:
        return None
    largest = max(launches, key=lambda launch: math.prod(launch.grid))
    programs = math.prod(largest.grid)
    if programs >= facts.processors:
        return None
    numbers = say(
        "{kernel} runs {programs} programs on {processors} processors.",
        kernel=code(largest.kernel), programs=programs, processors=facts.processors,
    )  # fmt: skip
    advice = say("Processors are left without work: try smaller blocks, or split the reduced axis.")
    return Hint(facts.case.case, 1 - programs / facts.processors, numbers, advice)


def find_low_bandwidth(facts: CaseFacts) -> Hint | None:
    """Bound by memory, and far from the measured copy."""
    share = facts.bandwidth
    if share is None or share >= LOW_BANDWIDTH or facts.kernel is None:
        return None
    numbers = say(
        "It moves {moved:size} in {time:us}: {share:%} of the measured copy, {limit:n} GB/s.",
        moved=facts.case.bytes_moved, time=facts.kernel.p50_us, share=share, limit=facts.limits.copy_gbps,
    )  # fmt: skip
    advice = say(
        "Memory is the bound and is not saturated: look at alignment, the width of loads and the size of blocks."
    )
    return Hint(facts.case.case, 1 - share, numbers, advice)


def find_low_compute(facts: CaseFacts) -> Hint | None:
    """Bound by arithmetic, and far from the measured matrix product."""
    found = facts.place
    if found is None or found.ridge is None or found.by_memory or found.share >= LOW_COMPUTE:
        return None
    numbers = say(
        "At {intensity:n} operations a byte, right of the ridge at {ridge:n}, it reaches {reached:n} TFLOP/s: "
        "{share:%} of the measured matrix product in {dtype}.",
        intensity=found.intensity, ridge=found.ridge, reached=found.tflops, share=found.share, dtype=plain(found.dtype),
    )  # fmt: skip
    advice = say(
        "Arithmetic is the bound and is not saturated: look at block sizes, stages, warps and whether tensor cores are "
        "used."
    )
    return Hint(facts.case.case, 1 - found.share, numbers, advice)


def find_gaps(facts: CaseFacts) -> Hint | None:
    """A call of several kernels, copies and memsets. It may last longer than what it does."""
    seen = facts.kernel
    if seen is None or seen.activities is None or seen.activities < 2:
        return None
    gap, count = (seen.span_us or 0.0) - seen.p50_us, f"{seen.activities:.0f}"
    if gap < SPAN_GAP_US or seen.p50_us + gap < SPAN_RATIO * seen.p50_us:
        numbers = say(
            "A call makes {count} kernels, copies and memsets, {time:us} in all.", count=count, time=seen.p50_us
        )
        advice = say("Several launches for one call: see whether they can be fused into one.")
        return Hint(facts.case.case, -1 / seen.activities, numbers, advice)
    numbers = say(
        "A call lasts {span:us} for {time:us} of work in {count} kernels, copies and memsets: {gap:us} of it are gaps.",
        span=seen.span_us, time=seen.p50_us, count=count, gap=gap,
    )  # fmt: skip
    advice = say("The device waits between a call's kernels: launch fewer, or spare the host work between them.")
    return Hint(facts.case.case, gap / seen.p50_us, numbers, advice)


RULES = (find_spills, find_small_grid, find_low_bandwidth, find_low_compute, find_gaps)


# --- all cases --------------------------------------------------------------------------------------------------------


def make_parts(run: Run, op: OpRun, judged: Sequence[Judgement], spreads: Sequence[ArmSpread]) -> Iterator[Part]:
    """The op's advice as a table: a row a piece of advice, with the case that is furthest off first and its numbers."""
    known = list(_collect(run, op, judged, spreads))
    shown = []
    for rule in RULES:
        found: dict[str, list[Hint]] = {}
        for hint in sorted(filter(None, map(rule, known)), key=lambda one: -one.off):
            found.setdefault(hint.advice, []).append(hint)
        for advice, hints in found.items():
            shown.append((list_some([code(one.case) for one in hints], CASES), hints[0].numbers, advice))
    title = say("{op}: advice", op=plain(op.op, 80))
    note = say("Drawn from what this run measured; where several cases are named, the numbers are those of the first.")
    yield Part(title, note, make_table("case | measured | worth a try", shown))


def _collect(run: Run, op: OpRun, judged: Sequence[Judgement], spreads: Sequence[ArmSpread]) -> Iterator[CaseFacts]:
    """Of every timed case of the op whose time is sound."""
    bad = find_unsound(judged)
    kernels = {spread.case: spread for spread in spreads if (spread.op, spread.arm) == (op.op, "kernel")}
    device = run.environment.device
    if op.failure or (op.op, None) in bad:
        return
    for case in op.performance:
        if case.blocks and not case.failure and not case.suspicion and (op.op, case.case) not in bad:
            kernel = kernels.get(case.case)
            yield CaseFacts(op.op, case, run.limits, kernel, device.processors, device.l2_bytes)
