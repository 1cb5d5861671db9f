"""Compiled kernels: what the compiler made of every case for each target, beside what it made of the base."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perfci.core import units, wording
from perfci.core.model import Judgement, KernelBinary, Static, StaticOp, Suite
from perfci.core.wording import say
from perfci.report.against import CASES
from perfci.report.speed import without_empty
from perfci.report.text import code, inline, plain
from perfci.report.view import Compiled, Part, Table


@dataclass(frozen=True)
class Binary:
    """One kernel of an op for one target, the base's own in its place, and the cases that launch it."""

    now: KernelBinary
    before: KernelBinary | None
    """None without a base, or where that case of the base has no kernel of this name"""
    cases: tuple[str, ...]


def section(static: Static | None, judged: Sequence[Judgement]) -> Compiled | None:
    """Everything that was compiled without a device; None where nothing was."""
    if static is None:
        return None
    targets = ", ".join(map(inline, static.targets))
    tools = inline(static.toolchain)
    made = say("Compiled without a device for {targets} by {tools}.", targets=targets, tools=tools)
    note = say(
        "Registers, spills and local memory are a thread's, shared memory a program's. *Occupancy*: warps that fit on "
        "a processor at once, of the most that it holds."
    )
    compared = say(
        "`32 -> 40`: the base's figure, then this revision's; a figure alone is the same in both, or only here."
    )
    return Compiled(
        head=" ".join([made, note, *([compared] if static.base_ops else [])]),
        problems=tuple(_problems(static)),
        parts=tuple(part for part in _parts(static, judged) if part.table.rows),
    )


def binaries(op: StaticOp, base: StaticOp | None) -> tuple[Binary, ...]:
    """The distinct pairs of a kernel and the base's, in order of their first launch."""
    known = {case.case: {one.name: one for one in case.binaries} for case in base.cases} if base else {}
    found: dict[tuple[str, str, str | None], Binary] = {}
    for case in op.cases:
        for binary in case.binaries:
            before = known.get(case.case, {}).get(binary.name)
            key = (binary.name, binary.artefact, before.artefact if before else None)
            seen = found.setdefault(key, Binary(binary, before, ()))
            found[key] = replace(seen, cases=(*seen.cases, case.case))
    return tuple(found.values())


def base_of(static: Static, op: StaticOp) -> StaticOp | None:
    """The same op of the base for the same target, where its files differ."""
    return next((one for one in static.base_ops if (one.op, one.target) == (op.op, op.target)), None)


FIGURES = ("registers", "spills", "local", "shared", "instructions", "warps", "occupancy", "mix")


def figure_names() -> tuple[str, ...]:
    """FIGURES as a reader sees them."""
    return (
        say("registers"),
        say("spills"),
        say("local"),
        say("shared"),
        say("instructions"),
        say("warps"),
        say("occupancy"),
        say("mix"),
    )


def figures(one: Binary, shown: Callable[[str], str] = plain) -> tuple[str, ...]:
    """The figures of FIGURES, each with the base's where that differs; shown: makes names harmless where they stand."""
    now, before = one.now, one.before or one.now
    return (
        _beside(_whole(before.registers), _whole(now.registers)),
        _beside(units.size(before.spill_bytes), units.size(now.spill_bytes)),
        _beside(units.size(before.local_bytes), units.size(now.local_bytes)),
        _beside(units.size(before.shared_bytes), units.size(now.shared_bytes)),
        _beside(_whole(before.instructions), _whole(now.instructions)),
        _beside(_whole(before.warps), _whole(now.warps)),
        _beside(_share(before.occupancy), _share(now.occupancy)),
        _mix(before.mix, now.mix, shown),
    )


def _mix(before: Mapping[str, int], now: Mapping[str, int], shown: Callable[[str], str]) -> str:
    """The most frequent classes first, those without an instruction left out."""
    counts = [(name, before.get(name, 0), now.get(name, 0)) for name in sorted({*now, *before})]
    counts.sort(key=lambda one: one[2], reverse=True)
    known = [(name, _beside(str(was), str(count))) for name, was, count in counts if was or count]
    return ", ".join(f"{shown(_class_word(name))} {count}" for name, count in known) or "-"


def _class_word(name: str) -> str:
    """A class of instructions as a reader sees it."""
    known = {
        "memory": say("memory"),
        "tensor": say("tensor"),
        "float": say("float"),
        "integer": say("integer"),
        "control": say("control"),
        "other": say("other"),
    }
    return known.get(name, name)


def _beside(before: str, now: str) -> str:
    return now if before in {now, "-"} else f"{before} -> {now}"


def _whole(value: int | None) -> str:
    return "-" if value is None else str(value)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


# --- the section ------------------------------------------------------------------------------------------------------


def _problems(static: Static) -> Iterator[str]:
    """What broke as a whole, and what could not be found out, each sentence once."""
    told: dict[str, list[str]] = {}
    for op in static.ops:
        for reason in (op.failure, op.unavailable):
            if reason:
                where = say("{op} for {target}", op=code(op.op), target=inline(op.target))
                told.setdefault(inline(wording.sentence(reason)), []).append(where)
    for sentence, places in told.items():
        yield say("{where}: {sentence}", where=_listed(places), sentence=sentence)


def _listed(places: Sequence[str]) -> str:
    shown = ", ".join(places[:CASES])
    if len(places) <= CASES:
        return shown
    return say("{names} and {count} more", names=shown, count=len(places) - CASES)


def _parts(static: Static, judged: Sequence[Judgement]) -> Iterator[Part]:
    """By op, then by target; then what changed, and what is not known."""
    for name in dict.fromkeys(op.op for op in static.ops):
        mine = [op for op in static.ops if op.op == name]
        title = inline(name, 80)
        for op in mine:
            yield Part(
                say("{op} for {target}", op=title, target=inline(op.target)), "", _kernels(op, base_of(static, op))
            )
        yield Part(say("{op}: changes beside the figures", op=title), "", _changes(name, judged))
        yield Part(say("{op}: not known without a device", op=title), "", _unknown(mine))


def _kernels(op: StaticOp, base: StaticOp | None) -> Table:
    shown = tuple(
        (code(one.now.name), *figures(one, inline), _listed(list(map(code, one.cases)))) for one in binaries(op, base)
    )
    numbers = figure_names()[:-1]
    columns = (say("kernel"), *numbers, say("instructions by class"), say("cases"))
    return without_empty(Table(columns, shown, frozenset(numbers)))


def _changes(op: str, judged: Sequence[Judgement]) -> Table:
    """Reasons beside the one that decided; that the code is another is seen in the figures."""
    told = []
    for row in judged:
        if (row.op, row.suite) == (op, Suite.COMPILED) and row.case and row.reasons[0].kind != "identity_unknown":
            more = [reason for reason in row.reasons[1:] if reason.kind != "code_changed"]
            told.append((row.target or "", row.case, " ".join(wording.sentence(reason) for reason in more)))
    return Table((say("target"), say("case"), say("beside the reason above")), _alike(told))


def _unknown(ops: Sequence[StaticOp]) -> Table:
    told = [
        (op.target, case.case, wording.sentence(case.identity.unknown))
        for op in ops
        for case in op.cases
        if case.identity.unknown and not case.failure
    ]
    return Table((say("target"), say("case"), say("why")), _alike(told))


def _alike(told: Sequence[tuple[str, str, str]]) -> tuple[tuple[str, ...], ...]:
    """(target, case, text) as rows: cases of a target that share a text, and targets whose cases are the same ones."""
    cases: dict[tuple[str, str], list[str]] = {}
    for target, case, text in told:
        if text:
            cases.setdefault((text, target), []).append(case)
    targets: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (text, target), names in cases.items():
        targets.setdefault((text, tuple(names)), []).append(target)
    return tuple(
        (", ".join(map(inline, where)), _listed(list(map(code, names))), inline(text, 1500))
        for (text, names), where in targets.items()
    )
