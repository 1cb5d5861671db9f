"""Advice, drawn from what was measured: each rule looks at one case, and says nothing where a fact is missing.

A rule gives its numbers and how far the case is off; what may be done about it stands once, in `ADVICE`. Cases that are
WRONG, ERROR or SUSPECT get none: the time of a wrong kernel means nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfci.core.model import Judgement, KernelBinary, Limits, OpRun, PerformanceCase, Run
from perfci.core.wording import say
from perfci.device.targets import TARGETS, Target, find_occupancy
from perfci.report.ceilings import Place, place, unsound
from perfci.report.frame import Spread
from perfci.report.text import code, inline
from perfci.report.view import Part, Table

L2_TIMES = 4
"""Least footprint in L2 caches of a case whose bandwidth is that of memory: of less, part is served by the cache."""

LOW_BANDWIDTH = 0.75
"""Share of the measured copy below which a kernel bound by memory leaves something: pointwise and row kernels reach 93
to 102 % of it on an H200 once they move more than the cache holds."""

LOW_COMPUTE = 0.6
"""The same of the measured matrix product: kernels reach 75 to 90 % of the library's on an H200; fused or skinny ones
less, without a fault."""

REACHED = 0.9
"""Share of its ceiling from which a case needs no more processors: 128 programs on 132 may well saturate memory."""

LOW_OCCUPANCY = 0.25
"""Share of a processor's warps below which too few are there to hide a memory access: 16 of 64 on an H100, as in
NVIDIA's best practices. Matrix products do well with less, so it is told only where the ceiling is missed too."""

SPAN_RATIO = 1.2
"""Span of a call / its device time from which the rest is told: below, it is the some us between any two launches."""

SPAN_GAP_US = 3.0
"""And at least so many microseconds of it: one host-side launch takes about as long."""

CASES = 3
"""Most cases of a rule named one by one."""


@dataclass(frozen=True)
class Facts:
    """One case, and what is known of where it ran; None is what is not known."""

    op: str
    case: PerformanceCase
    limits: Limits
    kernel: Spread | None = None
    """of the kernel's launches"""
    processors: int | None = None
    l2_bytes: int | None = None
    binaries: tuple[tuple[str, KernelBinary], ...] = ()
    """targets that its kernels were compiled for without a device, and what became of them"""

    @property
    def us(self) -> float | None:
        """Device time of a launch."""
        return self.kernel.p50_us if self.kernel else None

    @property
    def place(self) -> Place | None:
        """Below the ceilings."""
        return place(self.op, self.case, self.us, self.limits)

    @property
    def bandwidth(self) -> float | None:
        """Share of the measured copy that it reaches, where memory is what bounds it and the cache cannot help."""
        moved, limit = self.case.bytes_moved, self.limits.copy_gbps
        if not moved or not limit or not self.us or not self.l2_bytes or moved < L2_TIMES * self.l2_bytes:
            return None
        found = self.place
        bound_elsewhere = bool(self.case.flops) and (found is None or found.ridge is None or not found.by_memory)
        return None if bound_elsewhere or self.case.cache == "warm" else moved / self.us / 1e3 / limit

    @property
    def share(self) -> float | None:
        """Of its ceiling that it reaches, where that is known."""
        found = self.place
        return found.share if found and found.ridge is not None else self.bandwidth


@dataclass(frozen=True)
class Finding:
    """What a rule found in one case."""

    case: str
    numbers: str
    """what was measured, as a sentence"""
    off: float
    """how far from what it could be; the largest is told first"""


# --- rules ------------------------------------------------------------------------------------------------------------


def small_grid(facts: Facts) -> Finding | None:
    """No launch of the call has as many programs as the device has processors, and the ceiling is missed."""
    launches = facts.case.identity.launches if facts.case.identity else ()
    if not launches or not facts.processors or (facts.share or 0.0) >= REACHED:
        return None
    largest = max(launches, key=lambda launch: math.prod(launch.grid))
    programs = math.prod(largest.grid)
    if programs >= facts.processors:
        return None
    numbers = say(
        "{kernel} runs {programs} programs on {processors} processors.",
        kernel=code(largest.kernel),
        programs=programs,
        processors=facts.processors,
    )
    return Finding(facts.case.case, numbers, 1 - programs / facts.processors)


def spills(facts: Facts) -> Finding | None:
    """The compiler had no registers left."""
    worst = max((one for one in facts.case.compiled if one.spills), key=lambda one: one.spills or 0, default=None)
    if worst is None:
        return None
    numbers = say(
        "{kernel} spills {spills} registers of a thread; it has {registers}.",
        kernel=code(worst.name),
        spills=worst.spills,
        registers=worst.registers,
    )
    return Finding(facts.case.case, numbers, float(worst.spills or 0))


def low_bandwidth(facts: Facts) -> Finding | None:
    """Bound by memory, and far from the measured copy."""
    share = facts.bandwidth
    if share is None or share >= LOW_BANDWIDTH:
        return None
    numbers = say(
        "It moves {moved:size} in {time:us}: {share:%} of the measured copy, {limit:n} GB/s.",
        moved=facts.case.bytes_moved,
        time=facts.us,
        share=share,
        limit=facts.limits.copy_gbps,
    )
    return Finding(facts.case.case, numbers, 1 - share)


def low_compute(facts: Facts) -> Finding | None:
    """Bound by arithmetic, and far from the measured matrix product."""
    found = facts.place
    if found is None or found.ridge is None or found.by_memory or found.share >= LOW_COMPUTE:
        return None
    numbers = say(
        "At {intensity:n} operations a byte, right of the ridge at {ridge:n}, it reaches {reached:n} TFLOP/s: "
        "{share:%} of the measured matrix product in {dtype}.",
        intensity=found.intensity,
        ridge=found.ridge,
        reached=found.tflops,
        share=found.share,
        dtype=inline(found.dtype),
    )
    return Finding(facts.case.case, numbers, 1 - found.share)


def low_occupancy(facts: Facts) -> Finding | None:
    """Few warps fit on a processor, and the ceiling is missed."""
    if low_bandwidth(facts) is None and low_compute(facts) is None:
        return None
    low = [(t, b) for t, b in facts.binaries if b.occupancy is not None and b.occupancy < LOW_OCCUPANCY]
    if not low:
        return None
    target, binary = min(low, key=lambda one: one[1].occupancy or 0.0)
    numbers = say(
        "{kernel} fills {occupancy:%} of a processor's warps on {target}, held down by {cause}.",
        kernel=code(binary.name),
        occupancy=binary.occupancy,
        target=inline(target),
        cause=_cause(binary, TARGETS.get(target)),
    )
    return Finding(facts.case.case, numbers, 1 - (binary.occupancy or 0.0))


def _cause(binary: KernelBinary, target: Target | None) -> str:
    """Registers or shared memory, whichever lets fewer warps in by itself; both where that cannot be told."""
    registers, shared = binary.registers or 0, binary.shared_bytes or 0
    both = say("{registers} registers a thread and {shared:size} of shared memory", registers=registers, shared=shared)
    if target is None or not binary.warps:
        return both
    by_registers = find_occupancy(target, registers=registers, shared=0, warps=binary.warps)
    by_shared = find_occupancy(target, registers=0, shared=shared, warps=binary.warps)
    if by_registers == by_shared:
        return both
    if by_registers < by_shared:
        return say("{registers} registers a thread", registers=registers)
    return say("{shared:size} of shared memory a program", shared=shared)


def gaps(facts: Facts) -> Finding | None:
    """A call lasts longer than what it does."""
    seen = facts.kernel
    if seen is None or not seen.span_us or seen.activities is None or seen.activities < 2:
        return None
    gap = seen.span_us - seen.p50_us
    if seen.span_us < SPAN_RATIO * seen.p50_us or gap < SPAN_GAP_US:
        return None
    numbers = say(
        "A call lasts {span:us} for {time:us} of work in {count} kernels, copies and memsets: {gap:us} of it are gaps.",
        span=seen.span_us,
        time=seen.p50_us,
        count=f"{seen.activities:.0f}",
        gap=gap,
    )
    return Finding(facts.case.case, numbers, gap / seen.p50_us)


def several_launches(facts: Facts) -> Finding | None:
    """A call is more than one kernel; where the gaps between them are told, that says it."""
    seen = facts.kernel
    if seen is None or seen.activities is None or seen.activities < 2 or gaps(facts):
        return None
    numbers = say(
        "A call makes {count} kernels, copies and memsets, {time:us} in all.",
        count=f"{seen.activities:.0f}",
        time=seen.p50_us,
    )
    return Finding(facts.case.case, numbers, seen.activities)


Rule = Callable[[Facts], Finding | None]

RULES: tuple[Rule, ...] = (spills, small_grid, low_bandwidth, low_compute, low_occupancy, gaps, several_launches)


def advised(rule: Rule) -> str:
    """What may be done about what a rule finds."""
    told: Mapping[Rule, str] = {
        spills: say("Spilled registers go through memory: try smaller blocks, more warps or fewer stages."),
        small_grid: say("Processors are left without work: try smaller blocks, or split the reduced axis."),
        low_bandwidth: say(
            "Memory is the bound and is not saturated: look at alignment, the width of loads and the size of blocks."
        ),
        low_compute: say(
            "Arithmetic is the bound and is not saturated: look at block sizes, stages, warps and whether tensor cores "
            "are used."
        ),
        low_occupancy: say("Too few warps hide the latency of memory: try smaller blocks, fewer stages or more warps."),
        gaps: say("The device waits between a call's kernels: launch fewer, or spare the host work between them."),
        several_launches: say("Several launches for one call: see whether they can be fused into one."),
    }
    return told[rule]


# --- all cases --------------------------------------------------------------------------------------------------------


def parts(run: Run, op: OpRun, judged: Sequence[Judgement], spreads: Sequence[Spread]) -> Iterator[Part]:
    """The op's advice as a table: a row a rule, the case that is furthest off first and with its numbers."""
    known = list(facts(run, op, judged, spreads))
    shown = []
    for rule in RULES:
        found = sorted((one for each in known if (one := rule(each))), key=lambda one: -one.off)
        if found:
            shown.append((_cases(found), found[0].numbers, advised(rule)))
    title = say("{op}: advice", op=inline(op.op, 80))
    note = say("Drawn from what this run measured; where several cases are named, the numbers are those of the first.")
    yield Part(title, note, Table((say("case"), say("measured"), say("worth a try")), tuple(shown)))


def facts(run: Run, op: OpRun, judged: Iterable[Judgement], spreads: Iterable[Spread]) -> Iterator[Facts]:
    """Of every timed case of the op whose time is sound."""
    bad = unsound(judged)
    kernels = {spread.case: spread for spread in spreads if (spread.op, spread.arm) == (op.op, "kernel")}
    device = run.environment.device
    if op.failure or (op.op, None) in bad:
        return
    for case in op.performance:
        if case.blocks and not case.failure and not case.suspicion and (op.op, case.case) not in bad:
            yield Facts(
                op.op, case, run.limits, kernels.get(case.case), device.processors, device.l2_bytes,
                _binaries(run, op.op, case.case),
            )  # fmt: skip


def _binaries(run: Run, op: str, case: str) -> tuple[tuple[str, KernelBinary], ...]:
    compiled = [one for one in run.static.ops if one.op == op] if run.static else []
    found = [(one.target, each) for one in compiled for each in one.cases if each.case == case]
    return tuple((target, binary) for target, each in found for binary in each.binaries)


def _cases(found: Sequence[Finding]) -> str:
    named = ", ".join(code(one.case) for one in found[:CASES])
    if len(found) <= CASES:
        return named
    return say("{cases} and {count} more", cases=named, count=len(found) - CASES)
