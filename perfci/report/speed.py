"""The speed part of an op's section: percentiles, achieved rates, what one call costs, what the compiler made."""

from __future__ import annotations

from collections.abc import Sequence

from perfci.core import units
from perfci.core.model import PEER, Limits, OpRun, PerformanceCase
from perfci.core.wording import say
from perfci.report.ceilings import Place, place
from perfci.report.frame import Spread
from perfci.report.text import code, inline
from perfci.report.view import Part, Table

RSD_WARNS = 0.05
"""Relative standard deviation above which launches scatter enough to be pointed out."""


def parts(op: OpRun, spreads: Sequence[Spread], limits: Limits) -> tuple[Part, ...]:
    """The tables, some of them empty where nothing was measured."""
    name = inline(op.op, 80)
    return (
        Part(say("{op}: launches of each arm", op=name), _spread_note(spreads), _percentiles(spreads)),
        Part(say("{op}: achieved rates", op=name), _rate_note(limits), _rates(op, spreads, limits)),
        Part(say("{op}: one call", op=name), _call_note(), _calls(op, spreads)),
        Part(say("{op}: compiled kernels", op=name), "", _compiled(op)),
    )


def arm_word(arm: str) -> str:
    """What is timed in a case, as a reader sees it, escaped."""
    known = {"kernel": say("kernel"), "base": say("base"), "reference": say("reference")}
    return known.get(arm) or inline(arm.removeprefix(PEER))


def seconds(value: float | None) -> str:
    """Seconds in the unit that fits."""
    return units.time(None if value is None else value * 1e6)


def _spread_note(spreads: Sequence[Spread]) -> str:
    if any(spread.exact for spread in spreads):
        return say("Percentiles and RSD: all launches together. RSD above {limit:%} in bold.", limit=RSD_WARNS)
    return say(
        "Percentiles and RSD: medians over the blocks of each block's own; least time excepted. RSD above {limit:%} in "
        "bold.",
        limit=RSD_WARNS,
    )


def _percentiles(spreads: Sequence[Spread]) -> Table:
    columns = (
        say("case"),
        say("arm"),
        say("blocks"),
        say("launches"),
        say("min"),
        say("p05"),
        say("p50"),
        say("p95"),
        say("p99"),
        say("RSD"),
        say("outliers"),
    )
    return without_empty(Table(columns, tuple(_percentile_row(s) for s in spreads), frozenset(columns[2:])))


def _percentile_row(spread: Spread) -> tuple[str, ...]:
    times = (spread.min_us, spread.p05_us, spread.p50_us, spread.p95_us, spread.p99_us)
    rsd = units.percent(spread.rsd)
    return (
        code(spread.case),
        arm_word(spread.arm),
        str(spread.blocks),
        str(spread.launches),
        *(units.time(us) for us in times),
        f"**{rsd}**" if spread.rsd > RSD_WARNS else rsd,
        units.percent(spread.outliers / spread.launches if spread.launches else None),
    )


def _rates(op: OpRun, spreads: Sequence[Spread], limits: Limits) -> Table:
    medians = {(spread.case, spread.arm): spread.p50_us for spread in spreads}
    declared = [case for case in op.performance if case.blocks and (case.bytes_moved or case.flops)]
    shown = tuple(
        _rate_row(case, medians.get((case.case, "kernel")), medians.get((case.case, "reference")), limits)
        for case in declared
    )
    columns = (
        say("case"),
        say("moved"),
        say("kernel GB/s"),
        say("of copy limit"),
        say("reference GB/s"),
        say("kernel TFLOP/s"),
        say("of matmul limit"),
        say("reference TFLOP/s"),
        say("operations a byte"),
        say("bound by"),
        say("of that ceiling"),
    )
    return without_empty(Table(columns, shown, frozenset({*columns[1:9], columns[10]})))


def _rate_row(case: PerformanceCase, kernel: float | None, reference: float | None, limits: Limits) -> tuple[str, ...]:
    moved, product = gbps(case.bytes_moved, kernel), tflops(case.flops, kernel)
    return (
        code(case.case),
        units.size(case.bytes_moved),
        _number(moved),
        units.percent(_share(moved, limits.copy_gbps)),
        _number(gbps(case.bytes_moved, reference)),
        _number(product),
        units.percent(_share(product, limits.matmul_tflops.get(case.dtype or ""))),
        _number(tflops(case.flops, reference)),
        *_ceiling(place("", case, kernel, limits)),
    )


def _ceiling(found: Place | None) -> tuple[str, str, str]:
    """Intensity, the side of the ridge, and the share of the ceiling there; the side only where the ridge is known."""
    if found is None or found.ridge is None:
        return (_number(found.intensity) if found else "-", "-", "-")
    side = say("memory") if found.by_memory else say("arithmetic")
    return (_number(found.intensity), side, units.percent(found.share))


def gbps(bytes_moved: int | None, us: float | None) -> float | None:
    """Gigabytes (1e9) a second."""
    return None if not bytes_moved or not us else bytes_moved / us / 1e3


def tflops(flops: int | None, us: float | None) -> float | None:
    """Tera floating-point operations a second."""
    return None if not flops or not us else flops / us / 1e6


def _share(value: float | None, limit: float | None) -> float | None:
    return value / limit if value is not None and limit else None


def _number(value: float | None) -> str:
    return "-" if value is None else units.significant(value)


def _rate_note(limits: Limits) -> str:
    known = [say("copy {limit:n} GB/s", limit=limits.copy_gbps)] if limits.copy_gbps else []
    known += [
        say("{dtype} matmul {limit:n} TFLOP/s", dtype=inline(dtype), limit=limit)
        for dtype, limit in sorted(limits.matmul_tflops.items())
    ]
    if not known:
        return say("No limit was measured.")
    return say("Limits measured on this device in this run: {limits}.", limits=", ".join(known))


def _call_note() -> str:
    return say(
        "Device time sums a launch's kernels, copies and memsets; the span runs from its first start to its last end; "
        "the host time is how long the call kept the host busy. First call: compilation included, cold cache."
    )


def _calls(op: OpRun, spreads: Sequence[Spread]) -> Table:
    arms = {(spread.case, spread.arm): spread for spread in spreads}
    shown = tuple(
        _call_row(case, arms.get((case.case, "kernel")), arms.get((case.case, "reference")))
        for case in op.performance
        if case.blocks
    )
    columns = (
        say("case"),
        say("kernel device"),
        say("kernel span"),
        say("kernel host"),
        say("kernels a call"),
        say("reference device"),
        say("reference span"),
        say("reference host"),
        say("first call"),
        say("warm-up calls"),
        say("memory"),
        say("peak memory"),
        say("max abs error"),
        say("L2 error"),
        say("cache"),
    )
    return without_empty(Table(columns, shown, frozenset(columns[1:-1])))


def _call_row(case: PerformanceCase, kernel: Spread | None, reference: Spread | None) -> tuple[str, ...]:
    def of(spread: Spread | None) -> tuple[str, str, str]:
        if spread is None:
            return ("-", "-", "-")
        return (units.time(spread.p50_us), units.time(spread.span_us), units.time(spread.host_us))

    activities = kernel.activities if kernel else None
    return (
        code(case.case),
        *of(kernel),
        "-" if activities is None else f"{activities:.0f}",
        *of(reference),
        seconds(case.compile_s),
        "-" if case.warmup_launches is None else str(case.warmup_launches),
        units.size(case.footprint_bytes),
        units.size(case.peak_bytes),
        _number(case.errors.max_abs if case.errors else None),
        _number(case.errors.l2 if case.errors else None),
        say("warm") if case.cache == "warm" else "-",
    )


def _compiled(op: OpRun) -> Table:
    shown = tuple(
        (
            code(case.case),
            code(kernel.name),
            _whole(kernel.registers),
            _whole(kernel.spills),
            units.size(kernel.shared_bytes),
            _whole(kernel.warps),
            _whole(kernel.stages),
            code(kernel.constants) if kernel.constants else "-",
        )
        for case in op.performance
        for kernel in case.compiled
    )
    columns = (
        say("case"),
        say("kernel"),
        say("registers"),
        say("spills"),
        say("shared memory"),
        say("warps"),
        say("stages"),
        say("configuration"),
    )
    return without_empty(Table(columns, shown, frozenset(columns[2:7])))


def _whole(value: int | None) -> str:
    return "-" if value is None else str(value)


def without_empty(table: Table) -> Table:
    """The table without columns that hold nothing but dashes."""
    kept = [i for i in range(len(table.columns)) if i == 0 or any(row[i] != "-" for row in table.rows)]
    return Table(
        tuple(table.columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in table.rows), table.right
    )
