"""What is told of each case when its row is opened: reasons, numbers, a picture, and what to type.

The gravest cases are written into the page as they are. The others, which may be hundreds, are packed as texts that
the page's script shows when a row is opened; the two look alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfci.core import units, wording
from perfci.core.model import (
    PEER,
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
from perfci.report import against
from perfci.report.frame import Spread
from perfci.report.steps import RUN_FILE, make_steps, quoted, repeat
from perfci.report.text import plain, spell
from perfci.report.view import Picture

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
    picture: Picture | None = None
    blocks: tuple[Column, ...] = ()


@dataclass(frozen=True)
class Known:
    """What details are made of, ready to be looked up by op and case."""

    run: Run
    cases: Mapping[tuple[str, str], PerformanceCase]
    spreads: Mapping[tuple[str, str], Sequence[Spread]]
    pictures: Mapping[tuple[str, str], Picture]
    """of single cases"""


def known(run: Run, spreads: Iterable[Spread], pictures: Mapping[tuple[str, str], Picture]) -> Known:
    """The run's cases, arms and pictures."""
    arms: dict[tuple[str, str], list[Spread]] = {}
    for spread in spreads:
        arms.setdefault((spread.op, spread.case), []).append(spread)
    return Known(run, {(op.op, case.case): case for op in run.ops for case in op.performance}, arms, pictures)


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
        picture=found.pictures.get(key) if row.suite is Suite.PERFORMANCE else None,
        blocks=tuple(_columns(blocks)) if blocks else (),
    )


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
    name = arm_name(spread.arm)
    return (
        plain(name, 60),
        str(spread.blocks),
        str(spread.launches),
        *map(units.time, times),
        units.percent(spread.rsd),
    )


def arm_name(name: str) -> str:
    """An arm in the reader's language, as plain text."""
    usual = {"kernel": say("kernel"), "base": say("base"), "reference": say("reference")}
    return usual.get(name) or name.removeprefix(PEER)


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
        yield Column(say("{arm}, us", arm=plain(arm_name(arm), 60)), medians)
    states = (
        (say("SM clock, MHz"), [block.state.sm_clock_mhz for block in blocks]),
        (say("temperature, C"), [block.state.temperature_c for block in blocks]),
    )
    for name, values in states:
        if any(value is not None for value in values):
            yield Column(name, tuple(None if value is None else float(value) for value in values))


def across(columns: Sequence[Column]) -> Iterator[Cells]:
    """The columns row by row, with so many decimals that a thousandth of their span shows."""
    return zip(*(column.texts or _written(column.values) for column in columns), strict=True)


def _written(values: Sequence[float | None]) -> tuple[str, ...]:
    digits = _count_digits(values)
    return tuple("-" if value is None else f"{value:.{digits}f}" for value in values)


def _count_digits(values: Sequence[float | None]) -> int:
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known or all(value == round(value) for value in known):
        return 0
    span = max(known) - min(known) or max(map(abs, known))
    return min(max(math.ceil(3 - math.log10(span)), 2), 9)


def packed(found: Detail) -> list[Any]:
    """As `page.js` reads it."""
    blocks = [[column.name for column in found.blocks], list(across(found.blocks))] if found.blocks else []
    return [found.why, found.facts, found.arms, found.differs, found.commands, blocks]
