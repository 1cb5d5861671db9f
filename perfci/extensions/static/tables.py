"""Compiled kernels: what the compiler made of every case for each target, beside what it made of the base."""

from perfci.core import units
from perfci.core.model import KernelBinary, Static, StaticOp
from perfci.core.wording import join, say, sentence
from perfci.report.against import CASES
from perfci.report.text import code, list_some, phrase, plain
from perfci.report.view import Section, Table, make_table
from perfci.report.words import write_count


def make_section(static: Static) -> Section:
    """Returns everything that was compiled without a device."""
    note = say(
        "Compiled without a device for {targets} by {tools}.",
        targets=", ".join(map(plain, static.targets)),
        tools=plain(static.toolchain),
    )
    if static.base_toolchain:
        note = join([note, say("The base was compiled by {tools}.", tools=plain(static.base_toolchain))])
    figures = phrase(
        "Registers, spills and local memory are a thread's, shared memory a program's. *Occupancy*: warps that fit on "
        "a processor at once, of the most that it holds. `32 -> 40`: the base's figure, then this revision's."
    )
    note = join([note, figures])
    # What broke as a whole, and what could not be found out: each sentence once.
    problems: dict[str, list[str]] = {}
    for op in static.ops:
        for reason in filter(None, (op.failure, op.unavailable)):
            where = say("{op} for {target}", op=code(op.op), target=plain(op.target))
            problems.setdefault(plain(sentence(reason)), []).append(where)
    lines = tuple(
        say("{where}: {sentence}", where=list_some(places, CASES), sentence=text) for text, places in problems.items()
    )
    parts = []
    for op in static.ops:
        title = say("{op} for {target}", op=plain(op.op, 80), target=plain(op.target))
        parts.append(Section(title, table=tabulate_kernels(static, op)))
    return Section(say("Compiled kernels"), (note,), lines, parts=tuple(filter(None, parts)))


def tabulate_kernels(static: Static, op: StaticOp) -> Table:
    """Returns the figures of an op's kernels for one target, each with the base's if that differs.

    A kernel that several cases launch has one row, in the order of their first launches.
    """
    base = next((one for one in static.base_ops if (one.op, one.target) == (op.op, op.target)), None)
    binaries = {case.case: {one.name: one for one in case.binaries} for case in base.cases} if base else {}
    kernels: dict[tuple[str, str, str | None], tuple[KernelBinary, KernelBinary | None, list[str]]] = {}
    for case in op.cases:
        for now in case.binaries:
            before = binaries.get(case.case, {}).get(now.name)
            key = (now.name, now.artefact, before.artefact if before else None)
            kernels.setdefault(key, (now, before, []))[2].append(code(case.case))
    rows = []
    for now, before, cases in kernels.values():
        pairs = [
            [
                write_count(side.registers),
                units.size(side.spill_bytes),
                units.size(side.local_bytes),
                units.size(side.shared_bytes),
                write_count(side.instructions),
                write_count(side.warps),
                "-" if side.occupancy is None else f"{100 * side.occupancy:.0f} %",
            ]
            for side in (before or now, now)
        ]
        figures = (new if old in {new, "-"} else f"{old} -> {new}" for old, new in zip(*pairs, strict=True))
        rows.append((code(now.name), *figures, list_some(cases, CASES)))
    heads = "kernel | registers: | spills: | local: | shared: | instructions: | warps: | occupancy: | cases"
    return make_table(heads, rows)
