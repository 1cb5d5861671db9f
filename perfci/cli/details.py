"""What `perfci show` says of an op: its accuracy, then each case's verdict, looks at it, arms and compiled kernels.

A case that was compared with a base also has the duel, look by look, and what its call does otherwise than the base's.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from rich.console import RenderableType

from perfci.cli.output import STYLES, Grid, Paragraph
from perfci.core import units
from perfci.core.model import (
    AccuracyCase,
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
    Verdict,
)
from perfci.core.wording import say, sentence
from perfci.ops.spec import matches
from perfci.report import against, compiled, rows, words
from perfci.report.accuracy import find_dtype
from perfci.report.view import make_table
from perfci.statistics import duel_rule

Judged = Mapping[tuple[str, str | None], Judgement]


def show_op(op: OpRun, cases: Sequence[PerformanceCase], judged: Judged, run: Run) -> Iterator[RenderableType]:
    """Details of an op's chosen cases; `judged` has the performance rows by op and case."""
    if op != OpRun(op.op) or not run.static:
        device = f"{run.environment.device.name}{words.describe_timer(run.environment.timer)}"
        yield Paragraph(say("{op} on {device}", op=op.op, device=device), style="bold")
    yield from (Paragraph(reason) for reason in (op.failure, op.unmeasured, *op.notes) if reason)
    if op.accuracy:
        yield _tabulate_accuracy(op.accuracy)
    for check in op.accuracy:
        if check.failure:
            inputs = f"{check.case}, {check.values}, {check.layout}, {say('seed')} {check.seed}"
            yield Paragraph(f"{inputs}: {sentence(check.failure)}", 2, STYLES[Gate.FAILS])
    for case in cases:
        yield ""
        yield from _show_case(op.op, case, judged.get((op.op, case.case)))
    if run.static:
        chosen = {case.case for case in cases} if len(cases) < len(op.performance) else None
        yield from show_static(run.static, op.op, chosen)


def _show_case(op: str, case: PerformanceCase, row: Judgement | None) -> Iterator[RenderableType]:
    seen = row.comparison if row else None
    yield Paragraph(f"{op} {case.case}", style="bold")
    if row:
        first, *rest = [sentence(reason) for reason in row.reasons] or [""]
        yield Paragraph(f"{row.verdict}: {first}" if first else str(row.verdict), style=STYLES[row.gate])
        yield from (Paragraph(say("also: {text}", text=text), 2) for text in rest)
    yield from (Paragraph(reason, 2) for reason in case.suspicion)
    facts = [
        (say("kernel"), units.time(seen.kernel_us if seen else None)),
        (say("base"), units.time(seen.base_us if seen else None)),
        (say("baseline"), units.time(seen.baseline_us if seen else None)),
        (say("reference"), units.time(seen.reference_us if seen else None)),
        (say("speedup"), words.write_speedup(seen.speedup if seen else None)),
        (say("first call"), units.time(None if case.compile_s is None else case.compile_s * 1e6)),
        (say("L2 cache"), (say("warm") if case.cache == "warm" else say("cold")) if case.blocks else "-"),
        (say("memory"), units.size(case.footprint_bytes)),
        (say("peak memory"), units.size(case.peak_bytes)),
        (say("max abs error"), _write_worst([case.errors.max_abs] if case.errors else [])),
    ]
    told = [f"{name} {value}" for name, value in facts if value != "-"]
    yield Paragraph(say(", ").join(told) or say("not timed"), 2)
    if case.base and (case.base.duelled or not case.base.same):
        said = {sentence(reason) for reason in row.reasons} if row else set()
        for text in against.describe_base(case.base):
            if text not in said:
                yield Paragraph(say("against the base: {text}", text=text), 2)
    for peer in seen.peers if seen else ():
        if peer.ratio:
            ratio = words.write_speedup(peer.ratio)
            text = say("peer {name}: {us:us}, {ratio} the kernel's time", name=peer.name, us=peer.us, ratio=ratio)
            yield Paragraph(text, 2)
        if peer.failure:
            yield Paragraph(say("peer {name}: {why}", name=peer.name, why=sentence(peer.failure)), 2)
    if row and seen and seen.duel:
        yield _tabulate_duel(case.blocks, seen.duel, row.verdict)
    if seen and seen.screens:
        yield _tabulate_looks(seen.screens)
    if case.blocks:
        yield _tabulate_blocks(case.blocks)
    if case.identity:
        yield from _show_identity(case.identity)
    if case.compiled:
        yield _tabulate_compiled(case)


def _tabulate_duel(blocks: Sequence[Block], seen: Look, verdict: Verdict) -> Grid:
    taken = repeat_looks(blocks, seen)
    lines = []
    for look in taken:
        found, tested = rows.to_ratio(look.shift), look.processes >= min(duel_rule.FINAL)
        if not tested:  # looks of one process can only clear
            answer = str(duel_rule.answer(look, 1.0, 1.0, 1.0))
        else:
            answer = str(verdict) if look is taken[-1] else str(duel_rule.Ruling.OPEN)
        confidence = f"{100 * found.confidence:.0f}"
        ends = say("{low:+%} to {high:+%} at {confidence} %", low=found.low, high=found.high, confidence=confidence)
        chances = [units.significant(p) if tested else "-" for p in (look.p_slower, look.p_faster)]
        change = units.percent(found.value, signed=True)
        counts = (str(look.blocks), str(look.processes))
        lines.append((*counts, answer, change, ends, *chances, against.write_processes(look)))
    headings = "blocks: | processes: | says: | change: | interval: | p slower: | p faster: | by process:"
    title = say("Duel, look by look: kernel against base, {allowed:%} allowed", allowed=math.expm1(seen.tau))
    return Grid(make_table(headings, lines), title, minor=(6, 7))


def repeat_looks(blocks: Sequence[Block], seen: Look) -> list[Look]:
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


def _show_identity(found: Identity) -> Iterator[RenderableType]:
    """What one call of the kernel does on the device."""
    if found.unknown:
        yield Paragraph(found.unknown, 2)
    operations = say("{count:torch operation|torch operations}", count=len(found.operations))
    tuned = say("; tuned: {choices}", choices="; ".join(found.choices)) if found.choices else ""
    launches = say("{count:launch|launches}", count=len(found.launches))
    yield Paragraph(say("a call makes {launches}, {operations}", launches=launches, operations=operations) + tuned, 2)
    if found.launches:
        lines = [
            (
                launch.kernel,
                launch.artefact[:8],
                ", ".join(f"{name}={value}" for name, value in launch.arguments.items()),
                " x ".join(map(str, launch.grid)),
                words.write_count(launch.warps),
                words.write_count(launch.stages),
            )
            for launch in found.launches
        ]
        headings = "kernel | code | arguments | grid: | warps: | stages:"
        yield Grid(make_table(headings, lines), say("Launches of a call"), minor=(2,))


def show_static(found: Static, op: str, chosen: Collection[str] | None = None) -> Iterator[RenderableType]:
    """What the op's cases compile to without a device, target by target; chosen: these cases only."""
    for one in found.ops:
        if one.op == op:
            kept = one if chosen is None else replace(one, cases=tuple(c for c in one.cases if c.case in chosen))
            yield from _show_target(kept, compiled.find_base(found, one), found.toolchain)


def _show_target(op: StaticOp, base: StaticOp | None, toolchain: str) -> Iterator[RenderableType]:
    yield ""
    head = say("{op} compiled for {target} by {by}", op=op.op, target=op.target, by=toolchain)
    yield Paragraph(head, style="bold")
    yield from (Paragraph(reason, 2) for reason in (op.failure, op.unavailable) if reason)
    for case in op.cases:
        if why := case.failure or case.identity.unknown:
            yield Paragraph(f"{case.case}: {sentence(why)}", 2)
    if found := compiled.find_binaries(op, base):
        beside = say(", with the base's figure where that was another") if base else ""
        lines = [(one.now.name, ", ".join(one.cases), *compiled.write_figures(one)) for one in found]
        headings = "kernel | cases | " + " | ".join(f"{name}:" for name in compiled.FIGURES)
        yield Grid(make_table(headings, lines), say("Kernels") + beside, minor=(1, 4, 5, 9))


def _tabulate_looks(screens: Sequence[Screen]) -> Grid:
    lines = [
        (
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
        for screen in screens
    ]
    headings = (
        "look | change: | 95 % interval: | allowed: | p slower: | p faster: | blocks: | stored: | beta: | reference:"
    )
    title = say("Looks against the baseline (beta and reference: its weight as control and its own change)")
    return Grid(make_table(headings, lines), title, minor=(5, 6, 7))


def _tabulate_blocks(blocks: Sequence[Block]) -> Grid:
    found = [(name, block, timed) for block in blocks for name, timed in block.arms.items()]
    found.sort(key=lambda one: (one[0], one[1].process))
    lines = []
    for name, block, timed in found:
        time = timed.time
        times = [units.time(us) for us in (time.median_us, time.min_us, time.p05_us, time.p95_us, time.max_us)]
        levels = say(" and ").join(map(units.time, timed.modes_us)) if len(timed.modes_us) > 1 else "-"
        outliers = f"{time.outliers}/{time.launches}"
        spans = (units.time(timed.span_us), units.time(timed.host_us), levels, (block.board or "-")[-12:])
        lines.append((name, str(block.process), str(block.index), *times, units.percent(time.rsd), outliers, *spans))
    headings = (
        "arm | process: | block: | median: | min: | p05: | p95: | max: | RSD: | outliers: | span: | host: | levels: "
        "| board:"
    )
    return Grid(make_table(headings, lines).without_empty(), say("Blocks"), minor=(4, 5, 7, 10, 11))


def _tabulate_compiled(case: PerformanceCase) -> Grid:
    lines = [
        (
            one.name,
            one.constants or "-",
            words.write_count(one.registers),
            words.write_count(one.spills),
            units.size(one.shared_bytes),
            words.write_count(one.warps),
            words.write_count(one.stages),
        )
        for one in case.compiled
    ]
    headings = "kernel | configuration | registers: | spills: | shared memory: | warps: | stages:"
    return Grid(make_table(headings, lines), say("Compiled kernels"))


def show_stored(op: OpRun, pattern: str | None, judged: Sequence[Judgement]) -> Iterator[RenderableType]:
    """What an op stores in low precision, as far as it fits the pattern, and figures that are beyond limits."""
    chosen = [each for each in op.stored if matches(each.case, pattern)]
    if not chosen:
        return
    lines = [
        (
            each.case,
            *(_write_worst([error]) for error in (each.errors.p50_abs, each.errors.p99_abs, each.errors.max_abs)),
            units.percent(each.clip_ratio),
            units.significant(each.divergence),
            units.size(each.scale_bytes),
        )
        for each in chosen
    ]
    headings = "case | p50 abs: | p99 abs: | max abs: | clipped: | divergence: | scales:"
    yield ""
    yield Grid(make_table(headings, lines), say("Stored in low precision"))
    cases = {each.case for each in chosen}
    for row in judged:
        if row.op == op.op and row.case in cases:
            style = STYLES[row.verdict.gate]
            yield from (Paragraph(f"{row.case or ''}: {sentence(reason)}", 2, style) for reason in row.reasons)


def _tabulate_accuracy(checks: Sequence[AccuracyCase]) -> Grid:
    groups: dict[str, list[AccuracyCase]] = {}
    for check in checks:
        groups.setdefault(find_dtype(check.case), []).append(check)
    lines = [
        (
            dtype,
            str(sum(check.unchecked is None for check in group)),
            str(sum(check.failure is not None for check in group)),
            str(sum(check.unchecked is not None for check in group)),
            _write_worst([check.errors.max_abs for check in group if check.errors]),
            _write_worst([check.reference_errors.max_abs for check in group if check.reference_errors]),
            _write_worst([check.errors.l2 for check in group if check.errors]),
            _write_worst([check.reference_errors.l2 for check in group if check.reference_errors]),
        )
        for dtype, group in groups.items()
    ]
    headings = "dtype | checks: | failed: | not checked: | max abs error: | reference's: | L2 error: | reference's:"
    return Grid(make_table(headings, lines), say("Accuracy"), minor=(5, 7))


def _write_worst(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return units.significant(max(known)) if known else "-"
