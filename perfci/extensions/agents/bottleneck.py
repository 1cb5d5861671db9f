"""The bound of a case, and the directions that promise most: by counters if there are some, else by code and times.

Sources: Williams, Waterman, Patterson, Roofline (CACM 52(4), 2009); Little's law for latency and what is in flight
(Volkov, Understanding Latency Hiding on GPUs, 2016, chapter 4); Amdahl (AFIPS 1967); NVIDIA's rules of Nsight Compute:
SOLBottleneck (bound from 60 % of a peak), Occupancy, CPIStall, UncoalescedAccess.
"""

import math
from collections.abc import Iterator
from dataclasses import replace

from perfci.core.model import Device, Fact, KernelBinary, Reason, as_fact
from perfci.extensions.agents.profile_records import Advice, Bound, CaseProfile
from perfci.extensions.common.binaries import find_occupancy
from perfci.extensions.common.targets import Target

BUSY = 0.6  # share of a peak from which it is what holds a case up
CACHED = 1.25  # share of a copy's rate from which declared bytes come from the cache. Stores alone reach 1.11
START_US = 1.5  # what a kernel takes that does nothing, by an H200's activity records
IDLE_WARPS, IDLE_TENSOR_WARPS = 0.25, 0.1
"""shares of a processor's warps below which too few are at work. Tensor kernels hide latency by their pipeline"""
WORTH = 1.05  # speedup from which a direction is worth a round
ROOMY = 0.5  # occupancy from which more of it hardly helps
NOTABLE = 0.25  # share of a warp's time from which a stall is named
MOST = 2  # directions that are named

_PEAKS = {
    "of_copy": (Bound.MEMORY, as_fact("Declared bytes, beside a copy")),
    "of_matmul": (Bound.COMPUTE, as_fact("Declared operations, beside a matrix product")),
    "dram": (Bound.MEMORY, as_fact("DRAM")), "mte": (Bound.MEMORY, as_fact("Moving data (MTE)")),
    "l2": (Bound.L2, as_fact("L2 cache")), "tensor": (Bound.COMPUTE, as_fact("Tensor pipe")),
    "cube": (Bound.COMPUTE, as_fact("Cube unit")),
    "vector": (Bound.COMPUTE, as_fact("Vector unit")), "issue": (Bound.COMPUTE, as_fact("Instruction issue")),
}  # fmt: skip
_STALLS = {  # counter -> what shortens it, and what a warp waits for
    "stall_long_scoreboard": ("more_stages", as_fact("data from L2 or DRAM")),
    "stall_gmma": ("more_stages", as_fact("the tensor pipe")),
    "stall_barrier": ("fewer_warps", as_fact("other warps of its program")),
    "stall_short_scoreboard": ("less_shared", as_fact("shared memory")),
    "stall_mio_throttle": ("less_shared", as_fact("shared memory")),
    "stall_lg_throttle": ("wider_loads", as_fact("the queue of loads and stores")),
    "stall_math_pipe_throttle": ("larger_tiles", as_fact("a pipe that calculates")),
    "stall_wait": ("larger_tiles", as_fact("its last instruction")),
    "stall_no_instruction": ("smaller_tiles", as_fact("instructions to be fetched")),
}
_GENERAL = {  # what helps against a bound without further evidence
    Bound.MEMORY: ("wider_loads", "larger_tiles"),
    Bound.L2: ("larger_tiles", "wider_loads"),
    Bound.COMPUTE: ("more_stages", "larger_tiles"),
    Bound.LATENCY: ("more_stages", "wider_loads"),
    Bound.OCCUPANCY: ("more_warps", "smaller_tiles"),
    Bound.LAUNCH: ("fewer_warps", "smaller_tiles"),
}
_OF_GPUS = frozenset({"more_warps", "fewer_warps", "wider_loads"})  # an NPU has neither warps nor threads


def diagnose(case: CaseProfile, device: Device, target: Target | None = None) -> CaseProfile:
    """Returns the case with its bound, the evidence and the two directions that promise most.

    target: the device's architecture, for the occupancy model.
    """
    if case.failure or not case.us:
        return case
    fill = case.programs / device.processors if case.programs and device.processors else None
    binary = min(
        (binary for binary in case.binaries if binary.occupancy), key=lambda kernel: kernel.occupancy or 0, default=None
    )
    # The roofline: what is declared, at the measured ceilings.
    reached = max(case.rates.get("of_copy", 0.0), case.rates.get("of_matmul", 0.0))
    bound, first = _classify(case, case.us, reached, fill, binary)
    advices: dict[str, Advice] = {}
    directions = sorted(_advise(case, case.us, bound, fill, binary, target), key=lambda direction: -direction[1])
    for kind, speedup, model in [*directions, *((kind, math.inf, "roofline") for kind in _GENERAL[bound])]:
        # No model may promise more than the roofline, or less time than a start takes. What the host takes is apart.
        roofline, start = (1 / reached if reached else math.inf, "roofline"), (case.us / START_US, "launch")
        most, by = (speedup, model) if model == "host" else min((speedup, model), roofline, start)
        if WORTH <= most < math.inf and not (device.kind == "npu" and kind in _OF_GPUS):
            advices.setdefault(kind, Advice(kind, Reason(f"advice_{kind}", {"speedup": most}), most, by))
    evidence = (*first, *_find_evidence(case, case.us, fill, binary))
    return replace(case, bound=bound, evidence=evidence, advice=tuple(advices.values())[:MOST])


def _classify(
    case: CaseProfile, us: float, reached: float, fill: float | None, binary: KernelBinary | None
) -> tuple[Bound, list[Reason]]:
    """The busiest peak from BUSY on. Below that a kernel's start, idle processors, or latency, in this order."""
    shares = sorted((share, name) for name in _PEAKS if (share := {**case.rates, **case.counters}.get(name)))[::-1]
    busy = [Reason("profile_busy", {"share": share, "what": _PEAKS[name][1]}) for share, name in shares[:MOST]]
    if shares and shares[0][0] >= BUSY:
        share, name = shares[0]
        return Bound.L2 if name == "of_copy" and share > CACHED else _PEAKS[name][0], busy
    # Work that the ceilings would do within a kernel's start, or kernels that are hardly longer than that.
    starts = max(case.activities or 1, 1)
    tiny = us * reached < START_US and us < 10 * START_US if reached else False
    if tiny or ((starts > 1 or not reached) and us < 3 * START_US * starts):
        ideal = us * reached or None
        return Bound.LAUNCH, [
            Reason("profile_start", {"ideal_us": ideal, "us": us, "kernels": starts, "least_us": START_US})
        ]
    warps = case.counters.get("occupancy", binary.occupancy if binary else None)
    idle = warps is not None and warps < (IDLE_TENSOR_WARPS if _uses_tensor(case) else IDLE_WARPS)
    return Bound.OCCUPANCY if idle or (fill or 1.0) * WORTH < 1.0 else Bound.LATENCY, busy


def _uses_tensor(case: CaseProfile) -> bool | None:
    """Whether it uses the tensor pipe, by counters or instructions. None if that is not known."""
    mixes = [bool(binary.mix.get("tensor")) for binary in case.binaries if binary.mix]
    used = [case.counters[name] for name in ("tensor", "cube") if name in case.counters]
    return max(used) > 0.0 if used else any(mixes) if mixes else None


def _find_stall(case: CaseProfile) -> tuple[str, float]:
    """The stall that a warp waits for most, and its share of the time between two of its instructions."""
    return max(((name, case.counters.get(name, 0.0)) for name in _STALLS), key=lambda stall: stall[1])


def _find_evidence(case: CaseProfile, us: float, fill: float | None, binary: KernelBinary | None) -> list[Reason]:
    """Other evidence, by counters and code."""
    counters, (stall, share) = case.counters, _find_stall(case)
    warps, room = counters.get("occupancy"), {} if binary is None else {
        "kernel": binary.name, "registers": binary.registers, "shared": binary.shared_bytes, "share": binary.occupancy,
    }  # fmt: skip
    traffic, conflicts = counters.get("dram_bytes"), counters.get("bank_conflicts", 0.0)
    used, spills = counters.get("coalesced", 1.0), max((binary.spill_bytes or 0 for binary in case.binaries), default=0)
    striking: tuple[tuple[object, str, dict[str, Fact]], ...] = (
        (fill is not None and fill * WORTH < 1.0, "profile_programs", {"programs": case.programs, "share": fill}),
        (warps, "profile_occupancy", {"share": warps}),
        (room, "profile_room", room),
        (share >= NOTABLE, "profile_stall", {"share": share, "what": _STALLS[stall][1]}),
        (traffic, "profile_traffic", {"traffic": traffic, "bytes": case.bytes_moved, "l2_hit": counters.get("l2_hit")}),
        (used < BUSY, "profile_sectors", {"share": used, "sectors": counters.get("sectors_load")}),
        (conflicts >= NOTABLE, "profile_conflicts", {"share": conflicts}),
        (spills, "profile_spills", {"spills": spills}),
        ((case.host_us or 0.0) > us, "profile_host", {"host_us": case.host_us, "us": us}),
    )
    return [Reason(kind, facts) for shows, kind, facts in striking if shows]


def _advise(
    case: CaseProfile, us: float, bound: Bound, fill: float | None, binary: KernelBinary | None, target: Target | None
) -> Iterator[tuple[str, float, str]]:
    """Directions that evidence speaks for: kind, the speedup that a model allows, the model. inf: the roofline's."""
    counters, starts = case.counters, case.activities or 1
    if bound is Bound.LAUNCH:
        yield "fuse_launches", us / max(us - (starts - 1) * START_US, START_US), "launch"
        yield "lighter_wrapper", (case.host_us or 0.0) / us, "host"  # of a user's loop
    if bound is Bound.MEMORY and case.bytes_moved:
        yield "less_traffic", counters.get("dram_bytes", 0.0) / case.bytes_moved, "traffic"
    if 0.0 < (used := counters.get("coalesced", 1.0)) < BUSY:
        yield "coalesce", 1 / used, "traffic"
    if case.rates.get("of_matmul", 0.0) > case.rates.get("of_copy", 0.0) and _uses_tensor(case) is False:
        yield "use_tensor_cores", math.inf, "roofline"
    if fill:
        yield "more_programs", 1 / fill, "waves"
    if bound not in {Bound.OCCUPANCY, Bound.LATENCY}:
        return
    if any(binary.spill_bytes for binary in case.binaries):
        yield "fewer_registers", math.inf, "roofline"
    if binary and target and binary.registers and binary.warps and binary.occupancy and binary.occupancy < ROOMY:
        taken = {"registers": binary.registers, "shared": binary.shared_bytes or 0, "warps": binary.warps}
        # Little's law: with more warps more is in flight, and the rate grows with it.
        for kind, name, value in (
            ("fewer_registers", "registers", taken["registers"] // 2),
            ("less_shared", "shared", taken["shared"] // 2),
            ("more_warps", "warps", taken["warps"] * 2),
        ):
            yield kind, find_occupancy(target, **(taken | {name: value})) / binary.occupancy, "occupancy"
    stall, share = _find_stall(case)
    if share >= NOTABLE:  # Amdahl: as if the stall were gone
        yield _STALLS[stall][0], 1 / max(1 - share, 0.01), "stalls"
