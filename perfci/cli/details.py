"""What `perfci show` tells of an op: its accuracy, then each case's verdict, looks at it, arms and compiled kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfci import units
from perfci.model import AccuracyCase, Block, Gate, Judgement, OpRun, PerformanceCase, Run, Screen, Summary
from perfci.report import rows
from perfci.report.accuracy import dtype_of
from perfci.report.text import NAME_LIMIT, plain
from perfci.wording import sentence

PLAIN = 160
"""Columns where there is no terminal."""

ROOMY = 112
"""Columns from which a terminal has room for all that is known about a block."""

_STYLES = {Gate.FAILS: "bold red", Gate.WARNS: "bold yellow", Gate.OK: "green"}
_NOTHING_TOLD = "-"

Judged = Mapping[tuple[str, str | None], Judgement]


@dataclass(frozen=True)
class Grid:
    """A table without lines; where there is no terminal it is not squeezed into 80 columns."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: int = 1
    """leading columns that hold text, the others numbers"""
    minor: tuple[str, ...] = ()
    """columns left out on a terminal narrower than ROOMY"""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", title_justify="left")
        narrow = console.is_terminal and options.max_width < ROOMY
        kept = [i for i, name in enumerate(self.columns) if not (narrow and name in self.minor)]
        for index in kept:
            table.add_column(self.columns[index], justify="left" if index < self.texts else "right", overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(row[index]) for index in kept))
        yield Text(self.title, style="italic")
        room = options if console.is_terminal else options.update(width=PLAIN)
        yield from console.render(Padding(table, (0, 0, 0, 2), expand=False), room)


def show(
    op: OpRun, cases: Sequence[PerformanceCase], judged: Judged, run: Run, language: str = "en"
) -> Iterator[RenderableType]:
    """Details of an op's chosen cases; `judged` has the performance rows by op and case."""
    name, where_ran = plain(op.op, NAME_LIMIT), run.environment
    where = plain(f"{where_ran.device.name}{rows.timed_by(where_ran.timer)}")
    yield Text(f"{name} on {where}", style="bold")
    for reason in (op.failure, op.unmeasured, *op.notes):
        if reason:
            yield Text(plain(sentence(reason, language)))
    if op.accuracy:
        yield _accuracy(op.accuracy)
    for check in op.accuracy:
        if check.failure:
            inputs = f"{check.case}, {check.values}, {check.layout}, seed {check.seed}"
            yield Text(f"  {plain(inputs)}: {plain(sentence(check.failure, language))}", style=_STYLES[Gate.FAILS])
    for case in cases:
        yield Text()
        yield from _case(name, case, judged.get((op.op, case.case)), language)


def _case(op: str, case: PerformanceCase, row: Judgement | None, language: str) -> Iterator[RenderableType]:
    yield Text(f"{op} {plain(case.case, NAME_LIMIT)}", style="bold")
    if row:
        told = [plain(sentence(reason, language)) for reason in row.reasons]
        yield Text.assemble((str(row.verdict), _STYLES[row.verdict.gate]), "  ", *told[:1])
        yield from (Text(f"  also: {text}") for text in told[1:])
    yield from (Text(f"  {plain(sentence(reason, language))}") for reason in case.suspicion)
    yield Text(_times(case, row))
    if row and row.comparison and row.comparison.screens:
        yield _looks(row.comparison.screens)
    if case.blocks:
        yield _arms(case.blocks)
    if case.compiled:
        yield _compiled(case)


def _times(case: PerformanceCase, row: Judgement | None) -> str:
    """The case's own numbers in one line."""
    seen = row.comparison if row else None
    speedup = seen.speedup if seen else None
    facts = [
        ("kernel", units.time(seen.kernel_us if seen else None)),
        ("baseline", units.time(seen.baseline_us if seen else None)),
        ("reference", units.time(seen.reference_us if seen else None)),
        ("speedup", rows.speedup(speedup)),
        ("first call", units.time(None if case.compile_s is None else case.compile_s * 1e6)),
        ("memory", units.size(case.footprint_bytes)),
        ("max abs error", _worst([case.errors.max_abs] if case.errors else [])),
    ]
    told = [f"{name} {value}" for name, value in facts if value != _NOTHING_TOLD]
    return "  " + (", ".join(told) or "not timed")


def _looks(screens: Sequence[Screen]) -> Grid:
    return Grid(
        "Looks against the baseline (beta and reference: its weight as control and its own change)",
        ("look", "change", "95 % interval", "allowed", "p slower", "p faster", "blocks", "stored", "beta", "reference"),
        tuple(_look(screen) for screen in screens),
        minor=("p faster", "blocks", "stored"),
    )


def _look(screen: Screen) -> tuple[str, ...]:
    return (
        "first" if screen.process == 0 else f"fresh process {screen.process}",
        units.percent(screen.change.value, signed=True),
        f"{units.percent(screen.change.low, signed=True)} to {units.percent(screen.change.high, signed=True)}",
        units.percent(screen.margin),
        units.significant(screen.p_slower),
        units.significant(screen.p_faster),
        str(screen.blocks),
        str(screen.baseline_blocks),
        units.significant(screen.beta),
        units.percent(screen.reference_change, signed=True),
    )


def _arms(blocks: Sequence[Block]) -> Grid:
    found = [(name, block.process, block.index, timed) for block in blocks for name, timed in block.arms.items()]
    found.sort(key=lambda one: (one[0], one[1]))
    return Grid(
        "Blocks",
        ("arm", "process", "block", "median", "min", "p05", "p95", "max", "RSD", "outliers", "span", "host"),
        tuple(
            (
                plain(name, 24),
                str(process),
                str(index),
                *_summary(timed.time),
                units.time(timed.span_us),
                units.time(timed.host_us),
            )
            for name, process, index, timed in found
        ),
        minor=("min", "p05", "max", "host"),
    )


def _summary(time: Summary) -> tuple[str, ...]:
    us = (time.median_us, time.min_us, time.p05_us, time.p95_us, time.max_us)
    return (*(units.time(one) for one in us), units.percent(time.rsd), f"{time.outliers}/{time.launches}")


def _compiled(case: PerformanceCase) -> Grid:
    def whole(value: int | None) -> str:
        return "-" if value is None else str(value)

    return Grid(
        "Compiled kernels",
        ("kernel", "configuration", "registers", "spills", "shared memory", "warps", "stages"),
        tuple(
            (
                plain(one.name, NAME_LIMIT),
                plain(one.constants or "-", NAME_LIMIT),
                whole(one.registers),
                whole(one.spills),
                units.size(one.shared_bytes),
                whole(one.warps),
                whole(one.stages),
            )
            for one in case.compiled
        ),
        texts=2,
    )


def _accuracy(checks: Sequence[AccuracyCase]) -> Grid:
    groups: dict[str, list[AccuracyCase]] = {}
    for check in checks:
        groups.setdefault(dtype_of(check.case), []).append(check)
    return Grid(
        "Accuracy",
        ("dtype", "checks", "failed", "not checked", "max abs error", "reference's"),
        tuple(
            (
                plain(dtype, 24),
                str(sum(check.unchecked is None for check in group)),
                str(sum(check.failure is not None for check in group)),
                str(sum(check.unchecked is not None for check in group)),
                _worst([check.errors.max_abs for check in group if check.errors]),
                _worst([check.reference_errors.max_abs for check in group if check.reference_errors]),
            )
            for dtype, group in groups.items()
        ),
    )


def _worst(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return units.significant(max(known)) if known else "-"
