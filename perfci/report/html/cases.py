"""What is told of each case when its row is opened: reasons, numbers, charts, and what to type.

The gravest cases are written into the page as they are. The others, which may be hundreds, are packed as numbers that
the page's script draws when a row is opened; the two look alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from perfci.core import units, wording
from perfci.core.model import (
    Baseline,
    Block,
    Difference,
    Gate,
    Judgement,
    Judgements,
    Look,
    PerformanceCase,
    PlannedOp,
    Run,
    Suite,
)
from perfci.core.wording import say
from perfci.report import against, rows
from perfci.report.figures.duels import Duel
from perfci.report.figures.sheet import Floats
from perfci.report.frame import Spread
from perfci.report.html import charts, drawings
from perfci.report.html.charts import Chart, Store
from perfci.report.html.drawings import Timed
from perfci.report.steps import RUN_FILE, make_steps, quoted, repeat
from perfci.report.text import plain, spell
from perfci.store.launches import LaunchRow

Cells = tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """Numbers of each block of a case, or texts."""

    name: str
    values: tuple[float | None, ...] = ()
    texts: tuple[str, ...] = ()
    """plain; in place of numbers"""


@dataclass(frozen=True)
class Detail:
    """Everything about one case; texts are plain, not yet escaped, words between single backticks are code."""

    why: tuple[str, ...]
    """sentences beside the one in its row"""
    facts: tuple[tuple[str, str], ...]
    arms: tuple[Cells, ...]
    """a row an arm, its columns those of `arm_columns`"""
    differs: tuple[Cells, ...]
    """fields of the environment that are no longer as they were: name, before, after, whether that moves times"""
    commands: tuple[tuple[str, str], ...]
    """what it is for, and what to type"""
    charts: tuple[Chart, ...] = ()
    blocks: tuple[Column, ...] = ()


@dataclass(frozen=True)
class Known:
    """What details are made of, ready to be looked up by op and case."""

    run: Run
    cases: Mapping[tuple[str, str], PerformanceCase]
    spreads: Mapping[tuple[str, str], Sequence[Spread]]
    launches: Mapping[tuple[str, str], Mapping[str, Floats]] = field(default_factory=dict)
    stored: Mapping[tuple[str, str], Floats] = field(default_factory=dict)
    """medians of the baseline's blocks, microseconds"""


def known(
    run: Run, spreads: Iterable[Spread], launches: Iterable[LaunchRow], baselines: Mapping[str, Baseline]
) -> Known:
    """The run's cases, arms, launches, and the baselines of its kind of device and its timer."""
    arms: dict[tuple[str, str], list[Spread]] = {}
    for spread in spreads:
        arms.setdefault((spread.op, spread.case), []).append(spread)
    return Known(
        run=run,
        cases={(op.op, case.case): case for op in run.ops for case in op.performance},
        spreads=arms,
        launches=_launches(launches),
        stored=_stored(run, baselines),
    )


def _launches(found: Iterable[LaunchRow]) -> dict[tuple[str, str], dict[str, Floats]]:
    parts: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in found:
        parts.setdefault((row.op, row.case), {}).setdefault(row.arm, []).extend(row.us)
    finite = {key: {arm: np.array(us) for arm, us in arms.items()} for key, arms in parts.items()}
    return {key: {arm: us[np.isfinite(us)] for arm, us in arms.items()} for key, arms in finite.items()}


def _stored(run: Run, baselines: Mapping[str, Baseline]) -> dict[tuple[str, str], Floats]:
    where = run.environment
    fitting = {op: one for op, one in baselines.items() if (one.device, one.timer) == (where.device.key, where.timer)}
    return {
        (op, case.case): np.array([block.kernel_us for block in case.blocks])
        for op, one in fitting.items()
        for case in one.cases
        if case.blocks
    }


def detail(row: Judgement, found: Known) -> Detail:
    """What is told of one judged row."""
    key = (row.op, row.case or "")
    timed = found.cases.get(key) if row.suite is Suite.PERFORMANCE else None
    blocks = tuple(sorted(timed.blocks, key=lambda block: block.started_s)) if timed else ()
    return Detail(
        why=tuple(_why(row, timed)),
        facts=tuple(_facts(row, timed)),
        arms=tuple(map(_arm, found.spreads.get(key, ()))) if blocks else (),
        differs=differs(row.comparison.differs if row.comparison else ()),
        commands=tuple(_commands(row, found.run)),
        charts=tuple(drawings.charts(_timed(row, blocks, found))) if blocks else (),
        blocks=tuple(_columns(blocks)) if blocks else (),
    )


def _timed(row: Judgement, blocks: tuple[Block, ...], found: Known) -> Timed:
    key = (row.op, row.case or "")
    return Timed(
        name=plain(row.case or "", 80),
        verdict=row.verdict,
        blocks=blocks,
        baseline_us=row.comparison.baseline_us if row.comparison else None,
        stored=found.stored.get(key),
        launches=found.launches.get(key),
        duel=_duel(row, blocks),
    )


def _duel(row: Judgement, blocks: Sequence[Block]) -> Duel | None:
    look = row.comparison.duel if row.comparison else None
    if look is None:
        return None
    shifts: dict[int, list[float]] = {}
    for block in blocks:
        if against.DUEL in block.shifts:
            shifts.setdefault(block.process, []).append(block.shifts[against.DUEL])
    processes = tuple(tuple(shifts[process]) for process in sorted(shifts))
    return Duel("", row.verdict, processes, math.expm1(look.tau), rows.to_ratio(look.shift))


# --- texts ------------------------------------------------------------------------------------------------------------


def _why(row: Judgement, timed: PerformanceCase | None) -> Iterator[str]:
    told = [wording.sentence(reason) for reason in row.reasons[1:]]
    if timed:
        told += [wording.sentence(reason) for reason in (timed.failure, *timed.suspicion) if reason]
        told += against.describe_base(timed.base) if timed.base else ()
    yield from map(plain, dict.fromkeys(told))


def _facts(row: Judgement, timed: PerformanceCase | None) -> Iterator[tuple[str, str]]:
    seen = row.comparison
    if seen and seen.duel:
        yield from _duelled(seen.duel, row)
    if seen and seen.base_us:
        yield say("base"), units.time(seen.base_us)
    if seen and seen.baseline_us:
        yield say("baseline"), units.time(seen.baseline_us)
    if timed and timed.bytes_moved:
        yield say("moved"), units.size(timed.bytes_moved)
    if timed and timed.peak_bytes:
        yield say("peak memory"), units.size(timed.peak_bytes)
    for kernel in timed.compiled if timed else ():
        told = [(kernel.registers, say("registers")), (kernel.spills, say("spills")), (kernel.warps, say("warps"))]
        yield plain(kernel.name, 60), ", ".join(f"{count} {name}" for count, name in told if count is not None) or "-"


def _duelled(look: Look, row: Judgement) -> Iterator[tuple[str, str]]:
    yield say("change"), against.write_change(look)
    yield say("allowed"), units.percent(math.expm1(look.tau))
    if look.processes > 1:
        yield say("by process"), against.write_processes(look)
    if row.p_adjusted is not None and row.p_adjusted < 1:
        yield say("p slower (adjusted)"), units.significant(row.p_adjusted)


def arm_columns() -> Cells:
    """Headings of the rows of `Detail.arms`."""
    return (say("arm"), say("blocks"), say("launches"), say("min"), say("p50"), say("p95"), say("RSD"))


def _arm(spread: Spread) -> Cells:
    times = (spread.min_us, spread.p50_us, spread.p95_us)
    name = drawings.arm_name(spread.arm)
    return (
        plain(name, 60),
        str(spread.blocks),
        str(spread.launches),
        *map(units.time, times),
        units.percent(spread.rsd),
    )


def difference_columns() -> Cells:
    """Headings of the rows of `differs`."""
    return (say("field"), say("before"), say("now"), say("moves times"))


def differs(found: Iterable[Difference]) -> tuple[Cells, ...]:
    """Fields of the environment as rows of plain texts."""
    return tuple(
        (plain(one.field, 80), _value(one.before), _value(one.after), say("yes") if one.moves else say("no"))
        for one in found
    )


def _value(text: str | None) -> str:
    return "-" if text is None else plain(text, 160)


def _commands(row: Judgement, run: Run) -> Iterator[tuple[str, str]]:
    """What its verdict asks for, and how to run it alone, and to read all about it."""
    told: dict[str, str] = {}
    for step in make_steps(run, Judgements((row,))) if row.gate is not Gate.OK else ():
        told.setdefault(step.command, f"{step.verdict}: {spell(step.advice)}")
    if row.suite is Suite.PERFORMANCE and row.case is not None:
        told.setdefault(_again(row.op, row.case, run), say("The same inputs again, this case alone:"))
        show = f"perfci show {RUN_FILE} --op {quoted(row.op)} --case {quoted(row.case)}"
        told.setdefault(show, say("Every look at it:"))
    return ((what, command) for command, what in told.items())


def _again(op: str, case: str, run: Run) -> str:
    """The run's own command, for one case."""
    plan = replace(run.plan, ops=(PlannedOp(op, (), (case,)),), filter=case)
    return repeat(replace(run, plan=plan, static=None))


def _columns(blocks: Sequence[Block]) -> Iterator[Column]:
    """The blocks' numbers, those that are drawn."""
    yield Column(say("start, s"), tuple(block.started_s for block in blocks))
    yield Column(say("process"), tuple(float(block.process) for block in blocks))
    for arm in dict.fromkeys(arm for block in blocks for arm in block.arms):
        medians = tuple(block.arms[arm].time.median_us if arm in block.arms else None for block in blocks)
        yield Column(say("{arm}, us", arm=plain(drawings.arm_name(arm), 60)), medians)
    states = (
        (say("SM clock, MHz"), [block.state.sm_clock_mhz for block in blocks]),
        (say("temperature, C"), [block.state.temperature_c for block in blocks]),
    )
    for name, values in states:
        if any(value is not None for value in values):
            yield Column(name, tuple(None if value is None else float(value) for value in values))


def across(columns: Sequence[Column]) -> Iterator[Cells]:
    """The columns row by row, with as many decimals as `page.js` shows."""
    return zip(*(column.texts or _written(column.values) for column in columns), strict=True)


def _written(values: Sequence[float | None]) -> tuple[str, ...]:
    digits = charts.digits(values)
    return tuple("-" if value is None else f"{value:.{digits}f}" for value in values)


# --- packed -----------------------------------------------------------------------------------------------------------


def packed(found: Detail, store: Store) -> list[Any]:
    """As `page.js` reads it."""
    blocks = [_packed_column(column, store) for column in found.blocks]
    return [
        found.why, found.facts, found.arms, found.differs, found.commands,
        [charts.packed(chart, store) for chart in found.charts], blocks,
    ]  # fmt: skip


def _packed_column(column: Column, store: Store) -> list[Any]:
    """Its name and where its numbers are, or where its texts are and 1."""
    if column.texts:
        return [column.name, store.style(*column.texts), 1]
    return [column.name, store.numbers(column.values)]
