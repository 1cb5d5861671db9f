"""What `perfci show` prints of an op: the tables of the report, and everything that was measured of each case."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType

from perfci.cli.output import STYLES, Grid, Paragraph, describe_device
from perfci.core import units
from perfci.core.errors import require
from perfci.core.model import Block, Gate, Identity, Judgement, OpRun, PerformanceCase, Run, Screen, Suite
from perfci.core.wording import say, sentence
from perfci.report import accuracy, against, frame, sections, speed, words
from perfci.report.view import Section, make_table


def show_op(op: OpRun, judged: Sequence[Judgement], run: Run, pattern: str | None = None) -> Iterator[RenderableType]:
    """Prints an op with its chosen cases. `judged` has the rows of all ops, `pattern` chooses compiled cases too."""
    rows = [row for row in judged if row.op == op.op]
    timed = {row.case: row for row in rows if row.suite is Suite.PERFORMANCE}
    if op != OpRun(op.op) or not run.static:
        yield Paragraph(say("{op} on {device}", op=op.op, device=describe_device(run)), style="bold")
    yield from (Paragraph(reason) for reason in (op.failure, op.unmeasured, *op.notes) if reason)
    yield from show_tables(accuracy.make_parts(op))
    yield from (Paragraph(line, 2, STYLES[Gate.FAILS]) for line in accuracy.describe_failures(op))
    yield from (Paragraph(line, 2, STYLES[Gate.WARNS]) for line in accuracy.compare_with_base(op))
    for case in op.performance:
        yield ""
        yield from _show_case(op.op, case, timed.get(case.case))
    if more := list(show_tables(sections.list_tables(op, rows))):
        yield from ("", *more)
    if run.static:
        yield from require("compiled", "static", "perfci static").show(run.static, op.op, pattern)


def show_tables(sections: Iterable[Section]) -> Iterator[RenderableType]:
    """Prints the tables of a report's sections."""
    return (Grid(one.table, one.title) for one in sections if one)


def _show_case(op: str, case: PerformanceCase, row: Judgement | None) -> Iterator[RenderableType]:
    seen = row.comparison if row else None
    yield Paragraph(f"{op} {case.case}", style="bold")
    reasons = [sentence(reason) for reason in row.reasons] if row else []
    if row:
        told = say("{verdict}: {why}", verdict=row.verdict, why=reasons[0]) if reasons else str(row.verdict)
        yield Paragraph(told, style=STYLES[row.gate])
        yield from (Paragraph(say("also: {text}", text=text), 2) for text in reasons[1:])
    yield from (Paragraph(reason, 2) for reason in case.suspicion)
    facts = (
        (say("kernel"), units.time(seen.kernel_us if seen else None)),
        (say("base"), units.time(seen.base_us if seen else None)),
        (say("baseline"), units.time(seen.baseline_us if seen else None)),
        (say("reference"), units.time(seen.reference_us if seen else None)),
        (say("speedup"), words.write_speedup(seen.speedup if seen else None)),
        (say("first call"), words.write_seconds(case.compile_s)),
        (say("L2 cache"), (say("warm") if case.cache == "warm" else say("cold")) if case.blocks else "-"),
        (say("memory"), units.size(case.footprint_bytes)),
        (say("peak memory"), units.size(case.peak_bytes)),
    )
    stated = [f"{name} {value}" for name, value in facts if value != "-"]
    yield Paragraph(say(", ").join(stated) or say("not timed"), 2)
    if case.base and (case.base.duelled or not case.base.same):
        for text in against.describe_base(case.base):
            if text not in reasons:
                yield Paragraph(say("against the base: {text}", text=text), 2)
    for peer in seen.peers if seen else ():
        if peer.ratio:
            ratio = words.write_speedup(peer.ratio)
            text = say("peer {name}: {us:us}, {ratio} the kernel's time", name=peer.name, us=peer.us, ratio=ratio)
            yield Paragraph(text, 2)
        if peer.failure:
            yield Paragraph(say("peer {name}: {why}", name=peer.name, why=sentence(peer.failure)), 2)
    if row and seen and seen.duel:
        yield Grid(against.tabulate_duels([row]), say("Duel: kernel against base"))
    if row and seen and seen.sustained:
        yield Grid(against.tabulate_sustained([row]), say("At the power limit"))
    if row and seen and seen.host:
        yield Grid(against.tabulate_hosts([row]), say("Host time: many calls in a row"))
    if seen and seen.screens:
        yield _tabulate_looks(seen.screens)
    if case.blocks:
        yield Grid(speed.tabulate_launches(frame.pool_case(op, case)), say("Launches of each arm"))
        yield _tabulate_blocks(case.blocks)
    if case.identity:
        yield from _show_identity(case.identity)
    if case.compiled:
        yield Grid(speed.tabulate_binaries([case]), say("Compiled kernels"))


def _show_identity(identity: Identity) -> Iterator[RenderableType]:
    """Prints what one call of the kernel does on the device."""
    if identity.unknown:
        yield Paragraph(identity.unknown, 2)
    operations = say("{count:torch operation|torch operations}", count=len(identity.operations))
    tuned = say("; tuned: {choices}", choices="; ".join(identity.choices)) if identity.choices else ""
    launches = say("{count:launch|launches}", count=len(identity.launches))
    yield Paragraph(say("a call makes {launches}, {operations}", launches=launches, operations=operations) + tuned, 2)
    if identity.launches:
        lines = (
            (
                launch.kernel,
                launch.artefact[:8],
                ", ".join(f"{name}={value}" for name, value in launch.arguments.items()),
                " x ".join(map(str, launch.grid)),
                words.write_count(launch.warps),
                words.write_count(launch.stages),
            )
            for launch in identity.launches
        )
        table = make_table("kernel | code | arguments | grid: | warps: | stages:", lines)
        yield Grid(table, say("Launches of a call"))


def _tabulate_looks(screens: Sequence[Screen]) -> Grid:
    lines = (
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
    )
    headings = (
        "look | change: | 95 % interval: | allowed: | p slower: | p faster: | blocks: | stored: | beta: | reference:"
    )
    title = say("Looks against the baseline (beta and reference: its weight as control and its change)")
    return Grid(make_table(headings, lines), title)


def _tabulate_blocks(blocks: Sequence[Block]) -> Grid:
    rows = [(name, block, timed) for block in blocks for name, timed in block.arms.items()]
    rows.sort(key=lambda one: (one[0], one[1].process))
    lines = []
    for name, block, timed in rows:
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
    return Grid(make_table(headings, lines), say("Blocks"))
