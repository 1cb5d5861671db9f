"""What `perfci show` tells of an op: its accuracy, then each case's verdict, looks at it, arms and compiled kernels.

A case that a base was held against also has the duel, look by look, and what its call does otherwise than the base's.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from perfci.core import units
from perfci.core.model import (
    AccuracyCase,
    ArmBlock,
    Block,
    Gate,
    Identity,
    Judgement,
    Look,
    OpRun,
    PerformanceCase,
    Run,
    Screen,
    Static,
    StaticOp,
    Summary,
    Verdict,
)
from perfci.core.wording import say, sentence
from perfci.ops.spec import matches
from perfci.report import against, compiled, rows, words
from perfci.report.accuracy import find_dtype
from perfci.report.text import NAME_LIMIT, plain
from perfci.statistics import duel_rule

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
            whole = index == 0 and not console.is_terminal
            table.add_column(
                self.columns[index], justify="left" if index < self.texts else "right", overflow="fold", no_wrap=whole
            )
        for row in self.rows:
            table.add_row(*(Text(row[index]) for index in kept))
        yield Text(self.title, style="italic")
        names = PLAIN + max((cell_len(row[0]) for row in self.rows), default=0)
        room = options if console.is_terminal else options.update(width=names)
        yield from console.render(Padding(table, (0, 0, 0, 2), expand=False), room)


def show(op: OpRun, cases: Sequence[PerformanceCase], judged: Judged, run: Run) -> Iterator[RenderableType]:
    """Details of an op's chosen cases; `judged` has the performance rows by op and case."""
    name, where_ran = plain(op.op, NAME_LIMIT), run.environment
    where = plain(f"{where_ran.device.name}{words.describe_timer(where_ran.timer)}")
    if op != OpRun(op.op) or not run.static:
        yield Text(say("{op} on {device}", op=name, device=where), style="bold")
    for reason in (op.failure, op.unmeasured, *op.notes):
        if reason:
            yield Text(plain(sentence(reason)))
    if op.accuracy:
        yield _accuracy(op.accuracy)
    for check in op.accuracy:
        if check.failure:
            inputs = f"{check.case}, {check.values}, {check.layout}, {say('seed')} {check.seed}"
            yield Text(f"  {plain(inputs)}: {plain(sentence(check.failure))}", style=_STYLES[Gate.FAILS])
    for case in cases:
        yield Text()
        yield from _case(name, case, judged.get((op.op, case.case)))
    if run.static:
        chosen = {case.case for case in cases} if len(cases) < len(op.performance) else None
        yield from static(run.static, op.op, chosen)


def _case(op: str, case: PerformanceCase, row: Judgement | None) -> Iterator[RenderableType]:
    yield Text(f"{op} {plain(case.case, NAME_LIMIT)}", style="bold")
    if row:
        told = [plain(sentence(reason)) for reason in row.reasons]
        yield Text.assemble((str(row.verdict), _STYLES[row.gate]), "  ", *told[:1])
        yield from (Text("  " + say("also: {text}", text=text)) for text in told[1:])
    yield from (Text(f"  {plain(sentence(reason))}") for reason in case.suspicion)
    yield Text(_times(case, row))
    yield from (Text(f"  {line}") for line in _base(case, row))
    yield from (Text(f"  {line}") for line in _peers(row))
    if row and row.comparison and row.comparison.duel:
        yield _duel(case.blocks, row.comparison.duel, row.verdict)
    if row and row.comparison and row.comparison.screens:
        yield _looks(row.comparison.screens)
    if case.blocks:
        yield _arms(case.blocks)
    if case.identity:
        yield from _identity(case.identity)
    if case.compiled:
        yield _compiled(case)


def _times(case: PerformanceCase, row: Judgement | None) -> str:
    """The case's own numbers in one line."""
    seen = row.comparison if row else None
    speedup = seen.speedup if seen else None
    facts = [
        (say("kernel"), units.time(seen.kernel_us if seen else None)),
        (say("base"), units.time(seen.base_us if seen else None)),
        (say("baseline"), units.time(seen.baseline_us if seen else None)),
        (say("reference"), units.time(seen.reference_us if seen else None)),
        (say("speedup"), words.write_speedup(speedup)),
        (say("first call"), units.time(None if case.compile_s is None else case.compile_s * 1e6)),
        (say("L2 cache"), _cache(case)),
        (say("memory"), units.size(case.footprint_bytes)),
        (say("peak memory"), units.size(case.peak_bytes)),
        (say("max abs error"), _worst([case.errors.max_abs] if case.errors else [])),
    ]
    told = [f"{name} {value}" for name, value in facts if value != _NOTHING_TOLD]
    return "  " + (say(", ").join(told) or say("not timed"))


def _cache(case: PerformanceCase) -> str:
    if not case.blocks:
        return _NOTHING_TOLD
    return say("warm") if case.cache == "warm" else say("cold")


def _base(case: PerformanceCase, row: Judgement | None) -> Iterator[str]:
    """What the base has to do with the case; what stands among the verdict's reasons is not told again."""
    if case.base is None or (case.base.same and not case.base.duelled):
        return
    told = {plain(sentence(reason)) for reason in row.reasons} if row else set()
    for text in against.describe_base(case.base):
        if plain(text) not in told:
            yield say("against the base: {text}", text=plain(text))


def _peers(row: Judgement | None) -> Iterator[str]:
    """Each peer's time and ratio, or why it has none."""
    for peer in row.comparison.peers if row and row.comparison else ():
        name = plain(peer.name, NAME_LIMIT)
        if peer.ratio:
            ratio = words.write_speedup(peer.ratio)
            yield say("peer {name}: {us:us}, {ratio} the kernel's time", name=name, us=peer.us, ratio=ratio)
        if peer.failure:
            yield say("peer {name}: {why}", name=name, why=plain(sentence(peer.failure)))


def _duel(blocks: Sequence[Block], seen: Look, verdict: Verdict) -> Grid:
    taken = duel_looks(blocks, seen)
    return Grid(
        say("Duel, look by look: kernel against base, {allowed:%} allowed", allowed=math.expm1(seen.tau)),
        (
            say("blocks"),
            say("processes"),
            say("says"),
            say("change"),
            say("interval"),
            say("p slower"),
            say("p faster"),
            say("by process"),
        ),
        tuple(
            (str(look.blocks), str(look.processes), _says(look, verdict, last=look is taken[-1]), *_duel_look(look))
            for look in taken
        ),
        texts=0,
        minor=(say("p faster"),),
    )


def _says(look: Look, verdict: Verdict, *, last: bool) -> str:
    """What a look led to: those of one process can only clear; those of several stay open until the last decides."""
    if look.processes < min(duel_rule.FINAL):
        return str(duel_rule.answer(look, 1.0, 1.0, 1.0))
    return str(verdict) if last else str(duel_rule.Answer.OPEN)


def duel_looks(blocks: Sequence[Block], seen: Look) -> list[Look]:
    """The looks that were taken up to the last one, from the blocks that each of them had."""
    by_process: dict[int, list[float]] = {}
    for block in blocks:
        if against.DUEL in block.shifts:
            by_process.setdefault(block.process, []).append(block.shifts[against.DUEL])
    first, *later = [by_process[process] for process in sorted(by_process)]
    counts = [count for count in (duel_rule.FIRST, duel_rule.SECOND) if count < len(first)]
    early = [[first[:count]] for count in (*counts, len(first))]
    final = [[first, *later[: processes - 1]] for processes in duel_rule.FINAL if processes <= 1 + len(later)]
    every = [[first, *later]] if 1 + len(later) not in {1, *duel_rule.FINAL} else []
    return [duel_rule.look(look, math.expm1(seen.tau)) for look in (*early, *final, *every)]


def _duel_look(look: Look) -> tuple[str, ...]:
    found, tested = rows.to_ratio(look.shift), look.processes >= min(duel_rule.FINAL)
    ends = say(
        "{low:+%} to {high:+%} at {confidence} %",
        low=found.low,
        high=found.high,
        confidence=f"{100 * found.confidence:.0f}",
    )
    return (
        units.percent(found.value, signed=True),
        ends,
        units.significant(look.p_slower) if tested else _NOTHING_TOLD,
        units.significant(look.p_faster) if tested else _NOTHING_TOLD,
        against.write_processes(look),
    )


def _identity(found: Identity) -> Iterator[RenderableType]:
    """What one call of the kernel does on the device."""
    if found.unknown:
        yield Text(f"  {plain(sentence(found.unknown))}")
    operations = say("{count:torch operation|torch operations}", count=len(found.operations))
    tuned = say("; tuned: {choices}", choices=plain("; ".join(found.choices))) if found.choices else ""
    launches = say("{count:launch|launches}", count=len(found.launches))
    yield Text("  " + say("a call makes {launches}, {operations}", launches=launches, operations=operations) + tuned)
    if found.launches:
        yield Grid(
            say("Launches of a call"),
            (say("kernel"), say("code"), say("arguments"), say("grid"), say("warps"), say("stages")),
            tuple(
                (
                    plain(launch.kernel, NAME_LIMIT),
                    plain(launch.artefact[:8], 8),
                    plain(", ".join(f"{name}={value}" for name, value in launch.arguments.items()), NAME_LIMIT),
                    " x ".join(map(str, launch.grid)),
                    _whole(launch.warps),
                    _whole(launch.stages),
                )
                for launch in found.launches
            ),
            texts=3,
            minor=(say("arguments"),),
        )


def static(found: Static, op: str, chosen: Collection[str] | None = None) -> Iterator[RenderableType]:
    """What the op's cases compile to without a device, target by target; chosen: these cases only."""
    for one in found.ops:
        if one.op == op:
            kept = one if chosen is None else replace(one, cases=tuple(c for c in one.cases if c.case in chosen))
            yield from _static(kept, compiled.find_base(found, one), found.toolchain)


def _static(op: StaticOp, base: StaticOp | None, toolchain: str) -> Iterator[RenderableType]:
    yield Text()
    yield Text(plain(say("{op} compiled for {target} by {by}", op=op.op, target=op.target, by=toolchain)), style="bold")
    for reason in (op.failure, op.unavailable):
        if reason:
            yield Text(f"  {plain(sentence(reason))}")
    for case in op.cases:
        if why := case.failure or case.identity.unknown:
            yield Text(f"  {plain(case.case, NAME_LIMIT)}: {plain(sentence(why))}")
    if found := compiled.find_binaries(op, base):
        beside = say(", with the base's figure where that was another") if base else ""
        yield Grid(
            say("Kernels") + beside,
            (say("kernel"), say("cases"), *compiled.FIGURES),
            tuple(
                (plain(one.now.name, NAME_LIMIT), plain(", ".join(one.cases), NAME_LIMIT), *compiled.write_figures(one))
                for one in found
            ),
            texts=2,
            minor=(say("cases"), "local", "shared", "mix"),
        )


def _whole(value: int | None) -> str:
    return _NOTHING_TOLD if value is None else str(value)


def _looks(screens: Sequence[Screen]) -> Grid:
    return Grid(
        say("Looks against the baseline (beta and reference: its weight as control and its own change)"),
        (
            say("look"),
            say("change"),
            say("95 % interval"),
            say("allowed"),
            say("p slower"),
            say("p faster"),
            say("blocks"),
            say("stored"),
            say("beta"),
            say("reference"),
        ),
        tuple(_look(screen) for screen in screens),
        minor=(say("p faster"), say("blocks"), say("stored")),
    )


def _look(screen: Screen) -> tuple[str, ...]:
    return (
        say("first") if screen.process == 0 else say("fresh process {number}", number=screen.process),
        units.percent(screen.change.value, signed=True),
        say("{low:+%} to {high:+%}", low=screen.change.low, high=screen.change.high),
        units.percent(screen.margin),
        units.significant(screen.p_slower),
        units.significant(screen.p_faster),
        str(screen.blocks),
        str(screen.baseline_blocks),
        units.significant(screen.beta),
        units.percent(screen.reference_change, signed=True),
    )


def _arms(blocks: Sequence[Block]) -> Grid:
    found = [(name, block, timed) for block in blocks for name, timed in block.arms.items()]
    found.sort(key=lambda one: (one[0], one[1].process))
    extra = _extra(blocks)
    return Grid(
        say("Blocks"),
        (
            say("arm"),
            say("process"),
            say("block"),
            say("median"),
            say("min"),
            "p05",
            "p95",
            say("max"),
            "RSD",
            say("outliers"),
            say("span"),
            say("host"),
            *extra,
        ),
        tuple(
            (
                plain(name, 24),
                str(block.process),
                str(block.index),
                *_summary(timed.time),
                units.time(timed.span_us),
                units.time(timed.host_us),
                *(tell(block, timed) for tell in extra.values()),
            )
            for name, block, timed in found
        ),
        minor=(say("min"), "p05", say("max"), say("host")),
    )


def _extra(blocks: Sequence[Block]) -> Mapping[str, Callable[[Block, ArmBlock], str]]:
    """Columns that only some runs need: the levels that launches fall into, the board where it was another."""
    found: dict[str, Callable[[Block, ArmBlock], str]] = {}
    if any(len(arm.modes_us) > 1 for block in blocks for arm in block.arms.values()):
        found[say("levels")] = lambda _, arm: say(" and ").join(map(units.time, arm.modes_us)) or _NOTHING_TOLD
    if any(block.board for block in blocks):
        found[say("board")] = lambda block, _: plain(block.board or _NOTHING_TOLD, 12)
    return found


def _summary(time: Summary) -> tuple[str, ...]:
    us = (time.median_us, time.min_us, time.p05_us, time.p95_us, time.max_us)
    return (*(units.time(one) for one in us), units.percent(time.rsd), f"{time.outliers}/{time.launches}")


def _compiled(case: PerformanceCase) -> Grid:
    return Grid(
        say("Compiled kernels"),
        (
            say("kernel"),
            say("configuration"),
            say("registers"),
            say("spills"),
            say("shared memory"),
            say("warps"),
            say("stages"),
        ),
        tuple(
            (
                plain(one.name, NAME_LIMIT),
                plain(one.constants or "-", NAME_LIMIT),
                _whole(one.registers),
                _whole(one.spills),
                units.size(one.shared_bytes),
                _whole(one.warps),
                _whole(one.stages),
            )
            for one in case.compiled
        ),
        texts=2,
    )


def stored(op: OpRun, pattern: str | None, judged: Sequence[Judgement]) -> Iterator[RenderableType]:
    """What an op stores in low precision, as far as it fits the pattern, and what is said of figures beyond limits."""
    chosen = [each for each in op.stored if matches(each.case, pattern)]
    if not chosen:
        return
    yield Text()
    yield Grid(
        say("Stored in low precision"),
        (say("case"), say("p50 abs"), say("p99 abs"), say("max abs"), say("clipped"), say("divergence"), say("scales")),
        tuple(
            (
                plain(each.case, NAME_LIMIT),
                _worst([each.errors.p50_abs]),
                _worst([each.errors.p99_abs]),
                _worst([each.errors.max_abs]),
                units.percent(each.clip_ratio),
                units.significant(each.divergence),
                units.size(each.scale_bytes),
            )
            for each in chosen
        ),
    )
    cases = {each.case for each in chosen}
    for row in judged:
        if row.op == op.op and row.case in cases:
            for reason in row.reasons:
                yield Text(f"  {plain(row.case or '')}: {plain(sentence(reason))}", style=_STYLES[row.verdict.gate])


def _accuracy(checks: Sequence[AccuracyCase]) -> Grid:
    groups: dict[str, list[AccuracyCase]] = {}
    for check in checks:
        groups.setdefault(find_dtype(check.case), []).append(check)
    return Grid(
        say("Accuracy"),
        (
            say("dtype"),
            say("checks"),
            say("failed"),
            say("not checked"),
            say("max abs error"),
            say("reference's"),
            say("L2 error"),
            say("reference's"),
        ),
        tuple(
            (
                plain(dtype, 24),
                str(sum(check.unchecked is None for check in group)),
                str(sum(check.failure is not None for check in group)),
                str(sum(check.unchecked is not None for check in group)),
                _worst([check.errors.max_abs for check in group if check.errors]),
                _worst([check.reference_errors.max_abs for check in group if check.reference_errors]),
                _worst([check.errors.l2 for check in group if check.errors]),
                _worst([check.reference_errors.l2 for check in group if check.reference_errors]),
            )
            for dtype, group in groups.items()
        ),
    )


def _worst(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return units.significant(max(known)) if known else "-"
