"""The speed part of an op's section: percentiles, achieved rates, what one call costs, what the compiler made."""

from __future__ import annotations

from collections.abc import Sequence

from perfci.core import units
from perfci.core.model import PEER, Limits, OpRun, PerformanceCase
from perfci.core.wording import say
from perfci.report.ceilings import find_place
from perfci.report.frame import ArmSpread
from perfci.report.text import code, plain, strong
from perfci.report.view import Part, Table, make_table
from perfci.report.words import write_count, write_number, write_seconds

RSD_WARNS = 0.05
"""Relative standard deviation above which launches scatter enough to be pointed out."""


def make_parts(op: OpRun, spreads: Sequence[ArmSpread], limits: Limits) -> tuple[Part, ...]:
    """The tables, some of them empty if nothing was measured."""
    name = plain(op.op, 80)
    if any(spread.exact for spread in spreads):
        note = say("Percentiles and RSD: all launches together. RSD above {limit:%} in bold.", limit=RSD_WARNS)
    else:
        note = say(
            "Percentiles and RSD: medians over the blocks of each block's own; least time excepted. RSD above "
            "{limit:%} in bold.",
            limit=RSD_WARNS,
        )
    call_note = say(
        "Device time sums a launch's kernels, copies and memsets; the span runs from its first start to its last end; "
        "the host time is how long the call kept the host busy. First call: compilation included, cold cache."
    )
    return (
        Part(say("{op}: launches of each arm", op=name), note, _tabulate_launches(spreads)),
        Part(say("{op}: achieved rates", op=name), _describe_limits(limits), _tabulate_rates(op, spreads, limits)),
        Part(say("{op}: one call", op=name), call_note, _tabulate_calls(op, spreads)),
        Part(say("{op}: compiled kernels", op=name), "", _tabulate_binaries(op)),
    )


def _tabulate_launches(spreads: Sequence[ArmSpread]) -> Table:
    arms = {"kernel": say("kernel"), "base": say("base"), "reference": say("reference")}
    shown = []
    for one in spreads:
        times = (one.min_us, one.p05_us, one.p50_us, one.p95_us, one.p99_us)
        rsd = units.percent(one.rsd)
        shown.append((
            code(one.case),
            arms.get(one.arm) or plain(one.arm.removeprefix(PEER)),
            str(one.blocks),
            str(one.launches),
            *map(units.time, times),
            strong(rsd) if one.rsd > RSD_WARNS else rsd,
            units.percent(one.outliers / one.launches if one.launches else None),
        ))  # fmt: skip
    heads = "case | arm | blocks: | launches: | min: | p05: | p50: | p95: | p99: | RSD: | outliers:"
    return make_table(heads, shown).without_empty()


def _describe_limits(limits: Limits) -> str:
    known = [say("copy {limit:n} GB/s", limit=limits.copy_gbps)] if limits.copy_gbps else []
    known += [
        say("{dtype} matmul {limit:n} TFLOP/s", dtype=plain(dtype), limit=limit)
        for dtype, limit in sorted(limits.matmul_tflops.items())
    ]
    if not known:
        return say("No limit was measured.")
    return say("Limits measured on this device in this run: {limits}.", limits=", ".join(known))


def _tabulate_rates(op: OpRun, spreads: Sequence[ArmSpread], limits: Limits) -> Table:
    medians = {(spread.case, spread.arm): spread.p50_us for spread in spreads}
    declared = [case for case in op.performance if case.blocks and (case.bytes_moved or case.flops)]
    rows = (
        _write_rates(case, medians.get((case.case, "kernel")), medians.get((case.case, "reference")), limits)
        for case in declared
    )
    heads = (
        "case | moved: | kernel GB/s: | of copy limit: | reference GB/s: | kernel TFLOP/s: | of matmul limit: | "
        "reference TFLOP/s: | operations a byte: | bound by | of that ceiling:"
    )
    return make_table(heads, rows).without_empty()


def _write_rates(
    case: PerformanceCase, kernel: float | None, reference: float | None, limits: Limits
) -> tuple[str, ...]:
    def rate(work: int | None, us: float | None, unit: float) -> float | None:
        return work / us / unit if work and us else None

    def share(reached: float | None, limit: float | None) -> str:
        return units.percent(reached / limit if reached is not None and limit else None)

    gbps, tflops = rate(case.bytes_moved, kernel, 1e3), rate(case.flops, kernel, 1e6)
    found = find_place("", case, kernel, limits)
    side = of_ceiling = "-"
    if found and found.ridge is not None:
        side, of_ceiling = say("memory") if found.by_memory else say("arithmetic"), units.percent(found.share)
    return (
        code(case.case),
        units.size(case.bytes_moved),
        write_number(gbps),
        share(gbps, limits.copy_gbps),
        write_number(rate(case.bytes_moved, reference, 1e3)),
        write_number(tflops),
        share(tflops, limits.matmul_tflops.get(case.dtype or "")),
        write_number(rate(case.flops, reference, 1e6)),
        write_number(found.intensity if found else None),
        side,
        of_ceiling,
    )


def _tabulate_calls(op: OpRun, spreads: Sequence[ArmSpread]) -> Table:
    arms = {(spread.case, spread.arm): spread for spread in spreads}

    def write_times(spread: ArmSpread | None) -> list[str]:
        times = (spread.p50_us, spread.span_us, spread.host_us) if spread else (None, None, None)
        return [units.time(us) for us in times]

    shown = []
    for case in op.performance:
        kernel = arms.get((case.case, "kernel"))
        activities = kernel.activities if kernel else None
        if case.blocks:
            shown.append((
                code(case.case),
                *write_times(kernel),
                "-" if activities is None else f"{activities:.0f}",
                *write_times(arms.get((case.case, "reference"))),
                write_seconds(case.compile_s),
                write_count(case.warmup_launches),
                units.size(case.footprint_bytes),
                units.size(case.peak_bytes),
                write_number(case.errors.max_abs if case.errors else None),
                write_number(case.errors.l2 if case.errors else None),
                say("warm") if case.cache == "warm" else "-",
            ))  # fmt: skip
    heads = (
        "case | kernel device: | kernel span: | kernel host: | kernels a call: | reference device: | reference span: | "
        "reference host: | first call: | warm-up calls: | memory: | peak memory: | max abs error: | L2 error: | cache"
    )
    return make_table(heads, shown).without_empty()


def _tabulate_binaries(op: OpRun) -> Table:
    shown = (
        (code(case.case), code(one.name), write_count(one.registers), write_count(one.spills),
         units.size(one.shared_bytes), write_count(one.warps), write_count(one.stages),
         code(one.constants or "") or "-")
        for case in op.performance
        for one in case.compiled
    )  # fmt: skip
    heads = "case | kernel | registers: | spills: | shared memory: | warps: | stages: | configuration"
    return make_table(heads, shown).without_empty()
