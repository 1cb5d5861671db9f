"""The speed part of an op's section: percentiles, achieved rates, what one call costs, what the compiler made."""

from collections.abc import Iterable, Iterator, Sequence

from perfci.core import units
from perfci.core.model import PEER, Limits, OpRun, PerformanceCase
from perfci.core.wording import say
from perfci.report.ceilings import find_place
from perfci.report.frame import HOST, ArmSpread
from perfci.report.text import code, plain, strong
from perfci.report.view import Section, Table, make_table
from perfci.report.words import write_count, write_number, write_seconds

RSD_WARNS = 0.05  # relative standard deviation above which the scatter of launches is pointed out


def make_parts(op: OpRun, spreads: Sequence[ArmSpread], limits: Limits) -> Iterator[Section]:
    """Returns the tables. Some are empty if nothing was measured."""
    name = plain(op.op, 80)
    note = say(
        "Minimum and mean: of all launches together. So are p99 and SD (standard deviation), each block's shift "
        "taken out. The others: medians over the blocks of each block's own. Host: of block medians, how long the "
        "kernel's calls kept it. RSD above {limit:%} and spills in bold.",
        limit=RSD_WARNS,
    )
    yield Section(say("{op}: launches of each arm", op=name), (note,), table=tabulate_launches(spreads))
    ceilings = [say("copy {limit:n} GB/s", limit=limits.copy_gbps)] if limits.copy_gbps else []
    for dtype, limit in sorted(limits.matmul_tflops.items()):
        ceilings.append(say("{dtype} matmul {limit:n} TFLOP/s", dtype=plain(dtype), limit=limit))
    measured = say("Limits measured on this device in this run: {limits}.", limits=", ".join(ceilings) or say("none"))
    yield Section(say("{op}: achieved rates", op=name), (measured,), table=_tabulate_rates(op, spreads, limits))
    note = say(
        "Device time sums a launch's kernels, copies and memsets; the span runs from its first start to its last end; "
        "the host time is how long the call kept the host busy. First call: compilation included, cold cache."
    )
    yield Section(say("{op}: one call", op=name), (note,), table=_tabulate_calls(op, spreads))
    yield Section(say("{op}: compiled kernels", op=name), table=tabulate_binaries(op.performance))


def tabulate_launches(spreads: Iterable[ArmSpread]) -> Table:
    """Returns a table of the percentiles, means and spreads of each arm."""
    arms = {"kernel": say("kernel"), "base": say("base"), "reference": say("reference"), HOST: say("host")}
    shown = []
    for one in spreads:
        rsd = units.percent(one.rsd)
        shown.append((
            code(one.case),
            arms.get(one.arm) or plain(one.arm.removeprefix(PEER)),
            str(one.blocks),
            str(one.launches),
            *map(units.time, (one.min_us, one.p50_us, one.p90_us, one.p99_us, one.mean_us, one.sd_us)),
            strong(rsd) if one.rsd > RSD_WARNS and one.arm != HOST else rsd,
            units.time(one.iqr_us),
            units.percent(one.outliers / one.launches if one.launches else None),
        ))  # fmt: skip
    heads = "case | arm | blocks: | launches: | min: | p50: | p90: | p99: | mean: | SD: | RSD: | IQR: | outliers:"
    return make_table(heads, shown)


def _tabulate_rates(op: OpRun, spreads: Sequence[ArmSpread], limits: Limits) -> Table:
    times = {spread.case: spread.p50_us for spread in spreads if spread.arm == "kernel"}
    shown = []
    for case in op.performance:
        us = times.get(case.case)
        if not us or not (case.bytes_moved or case.flops):
            continue
        rates, place, bound = find_rates(case, us, limits), find_place("", case, us, limits), "-"
        if place and place.ridge is not None:
            bound = say("memory") if place.by_memory else say("arithmetic")
        shown.append((
            code(case.case),
            units.size(case.bytes_moved),
            write_number(rates["gbps"]),
            units.percent(rates["of_copy"]),
            write_number(rates["tflops"]),
            units.percent(rates["of_matmul"]),
            write_number(place.intensity if place else None),
            bound,
        ))  # fmt: skip
    heads = "case | moved: | GB/s: | of copy limit: | TFLOP/s: | of matmul limit: | operations a byte: | bound by"
    return make_table(heads, shown)


def find_rates(case: PerformanceCase, us: float, limits: Limits) -> dict[str, float | None]:
    """What a case reaches in this time: GB/s, TFLOP/s, and their shares of the limits that the run measured."""
    gbps = case.bytes_moved / us / 1e3 if case.bytes_moved else None
    tflops = case.flops / us / 1e6 if case.flops else None
    peak = limits.matmul_tflops.get(case.dtype or "")
    of_copy = gbps / limits.copy_gbps if gbps and limits.copy_gbps else None
    return {"gbps": gbps, "of_copy": of_copy, "tflops": tflops, "of_matmul": tflops / peak if tflops and peak else None}


def _tabulate_calls(op: OpRun, spreads: Sequence[ArmSpread]) -> Table:
    kernels = {spread.case: spread for spread in spreads if spread.arm == "kernel"}
    shown = []
    for case in op.performance:
        seen = kernels.get(case.case)
        if seen is None:
            continue
        shown.append((
            code(case.case),
            *map(units.time, (seen.p50_us, seen.span_us, seen.host_us)),
            "-" if seen.activities is None else f"{seen.activities:.0f}",
            write_seconds(case.compile_s),
            units.size(case.footprint_bytes),
            units.size(case.peak_bytes),
            say("warm") if case.cache == "warm" else "-",
        ))  # fmt: skip
    heads = "case | device time: | span: | host: | kernels a call: | first call: | memory: | peak memory: | cache"
    return make_table(heads, shown)


def tabulate_binaries(cases: Iterable[PerformanceCase]) -> Table:
    """Returns a table of the kernels that the compiler made for each case."""
    shown = (
        (
            code(case.case),
            code(one.name),
            write_count(one.registers),
            strong(write_count(one.spills)) if one.spills else write_count(one.spills),
            units.size(one.shared_bytes),
            write_count(one.warps),
            write_count(one.stages),
            code(one.constants or "") or "-",
        )
        for case in cases
        for one in case.compiled
    )
    heads = "case | kernel | registers: | spills: | shared memory: | warps: | stages: | configuration"
    return make_table(heads, shown)
