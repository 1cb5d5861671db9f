"""The speed part of an op's section: percentiles, achieved rates, what one call costs, what the compiler made."""

from __future__ import annotations

from collections.abc import Sequence

from perfci import units
from perfci.model import Limits, OpRun, PerformanceCase
from perfci.report.frame import Spread
from perfci.report.text import code, inline
from perfci.report.view import Part, Table

RSD_WARNS = 0.05
"""Relative standard deviation above which launches scatter enough to be pointed out."""


def parts(op: OpRun, spreads: Sequence[Spread], limits: Limits) -> tuple[Part, ...]:
    """The tables, some of them empty where nothing was measured."""
    name = inline(op.op, 80)
    return (
        Part(f"{name}: launches of each arm", _spread_note(spreads), _percentiles(spreads)),
        Part(f"{name}: achieved rates", _rate_note(limits), _rates(op, spreads, limits)),
        Part(f"{name}: one call", _CALL_NOTE, _calls(op, spreads)),
        Part(f"{name}: compiled kernels", "", _compiled(op)),
    )


def seconds(value: float | None) -> str:
    """Seconds in the unit that fits."""
    return units.time(None if value is None else value * 1e6)


def _spread_note(spreads: Sequence[Spread]) -> str:
    pooled = any(spread.exact for spread in spreads)
    source = "all launches together" if pooled else "medians over the blocks of each block's own; least time excepted"
    return f"Percentiles and RSD: {source}. RSD above {units.percent(RSD_WARNS)} in bold."


_PERCENTILES = ("case", "arm", "blocks", "launches", "min", "p05", "p50", "p95", "p99", "RSD", "outliers")


def _percentiles(spreads: Sequence[Spread]) -> Table:
    return without_empty(Table(_PERCENTILES, tuple(_percentile_row(s) for s in spreads), frozenset(_PERCENTILES[2:])))


def _percentile_row(spread: Spread) -> tuple[str, ...]:
    times = (spread.min_us, spread.p05_us, spread.p50_us, spread.p95_us, spread.p99_us)
    rsd = units.percent(spread.rsd)
    return (
        code(spread.case),
        inline(spread.arm),
        str(spread.blocks),
        str(spread.launches),
        *(units.time(us) for us in times),
        f"**{rsd}**" if spread.rsd > RSD_WARNS else rsd,
        units.percent(spread.outliers / spread.launches if spread.launches else None),
    )


_RATES = (
    "case",
    "moved",
    "kernel GB/s",
    "of copy limit",
    "reference GB/s",
    "kernel TFLOP/s",
    "of matmul limit",
    "reference TFLOP/s",
)


def _rates(op: OpRun, spreads: Sequence[Spread], limits: Limits) -> Table:
    medians = {(spread.case, spread.arm): spread.p50_us for spread in spreads}
    declared = [case for case in op.performance if case.blocks and (case.bytes_moved or case.flops)]
    shown = tuple(
        _rate_row(case, medians.get((case.case, "kernel")), medians.get((case.case, "reference")), limits)
        for case in declared
    )
    return without_empty(Table(_RATES, shown, frozenset(_RATES[1:])))


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
    )


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
    parts = [f"copy {units.significant(limits.copy_gbps)} GB/s"] if limits.copy_gbps else []
    parts += [f"{inline(d)} matmul {units.significant(v)} TFLOP/s" for d, v in sorted(limits.matmul_tflops.items())]
    return f"Limits measured on this device in this run: {', '.join(parts)}." if parts else "No limit was measured."


_CALL_NOTE = (
    "Device time sums a launch's kernels, copies and memsets; the span runs from its first start to its last end; "
    "the host time is how long the call kept the host busy. First call: compilation included, cold cache."
)

_CALLS = (
    "case",
    "kernel device",
    "kernel span",
    "kernel host",
    "kernels a call",
    "reference device",
    "reference span",
    "reference host",
    "first call",
    "warm-up calls",
    "memory",
    "peak memory",
    "max abs error",
)


def _calls(op: OpRun, spreads: Sequence[Spread]) -> Table:
    arms = {(spread.case, spread.arm): spread for spread in spreads}
    shown = tuple(
        _call_row(case, arms.get((case.case, "kernel")), arms.get((case.case, "reference")))
        for case in op.performance
        if case.blocks
    )
    return without_empty(Table(_CALLS, shown, frozenset(_CALLS[1:])))


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
    )


_COMPILED = ("case", "kernel", "registers", "spills", "shared memory", "warps", "stages", "configuration")


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
    return without_empty(Table(_COMPILED, shown, frozenset(_COMPILED[2:7])))


def _whole(value: int | None) -> str:
    return "-" if value is None else str(value)


def without_empty(table: Table) -> Table:
    """The table without columns that hold nothing but dashes."""
    kept = [i for i in range(len(table.columns)) if i == 0 or any(row[i] != "-" for row in table.rows)]
    return Table(
        tuple(table.columns[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in table.rows), table.right
    )
