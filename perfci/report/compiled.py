"""Compiled kernels: what the compiler made of every case for each target, beside what it made of the base."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perfci.core import units
from perfci.core.model import Judgement, KernelBinary, Static, StaticOp, Suite
from perfci.core.wording import say, sentence
from perfci.report.against import CASES
from perfci.report.text import code, list_some, phrase, plain
from perfci.report.view import Part, SharedSection, make_table
from perfci.report.words import write_count


@dataclass(frozen=True)
class Binary:
    """One kernel of an op for one target, the base's own in its place, and the cases that launch it."""

    now: KernelBinary
    before: KernelBinary | None
    """None without a base, or if that case of the base has no kernel of this name"""
    cases: tuple[str, ...]


def make_section(static: Static | None, judged: Sequence[Judgement]) -> SharedSection | None:
    """Everything that was compiled without a device. None if nothing was."""
    if static is None:
        return None
    targets = ", ".join(map(plain, static.targets))
    notes = [
        say("Compiled without a device for {targets} by {tools}.", targets=targets, tools=plain(static.toolchain)),
        phrase(
            "Registers, spills and local memory are a thread's, shared memory a program's. *Occupancy*: warps that fit "
            "on a processor at once, of the most that it holds."
        ),
    ]
    if static.base_ops:
        notes.append(
            say(
                "`32 -> 40`: the base's figure, then this revision's; a figure alone is the same in both, or only here."
            )
        )
    parts = tuple(part for part in _make_parts(static, judged) if part.table.rows)
    return SharedSection(" ".join(notes), tuple(_describe_problems(static)), parts)


def find_binaries(op: StaticOp, base: StaticOp | None) -> tuple[Binary, ...]:
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


def find_base(static: Static, op: StaticOp) -> StaticOp | None:
    """The same op of the base for the same target, if its files differ."""
    return next((one for one in static.base_ops if (one.op, one.target) == (op.op, op.target)), None)


FIGURES = ("registers", "spills", "local", "shared", "instructions", "warps", "occupancy", "mix")


def write_figures(one: Binary) -> tuple[str, ...]:
    """The figures of FIGURES, each with the base's if that differs."""
    now, before = one.now, one.before or one.now
    return (
        _compare(write_count(before.registers), write_count(now.registers)),
        _compare(units.size(before.spill_bytes), units.size(now.spill_bytes)),
        _compare(units.size(before.local_bytes), units.size(now.local_bytes)),
        _compare(units.size(before.shared_bytes), units.size(now.shared_bytes)),
        _compare(write_count(before.instructions), write_count(now.instructions)),
        _compare(write_count(before.warps), write_count(now.warps)),
        _compare(_write_share(before.occupancy), _write_share(now.occupancy)),
        _write_mix(before.mix, now.mix),
    )


def _write_mix(before: Mapping[str, int], now: Mapping[str, int]) -> str:
    """The most frequent classes of instructions first, those without an instruction left out."""
    names = {
        "memory": say("memory"),
        "tensor": say("tensor"),
        "float": say("float"),
        "integer": say("integer"),
        "control": say("control"),
        "other": say("other"),
    }
    counts = [(name, before.get(name, 0), now.get(name, 0)) for name in sorted({*now, *before})]
    counts.sort(key=lambda one: one[2], reverse=True)
    known = [
        (names.get(name, plain(name)), _compare(str(was), str(count))) for name, was, count in counts if was or count
    ]
    return ", ".join(f"{name} {count}" for name, count in known) or "-"


def _compare(before: str, now: str) -> str:
    return now if before in {now, "-"} else f"{before} -> {now}"


def _write_share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"


# --- the section ------------------------------------------------------------------------------------------------------


def _describe_problems(static: Static) -> Iterator[str]:
    """What broke as a whole, and what could not be found out, each sentence once."""
    found: dict[str, list[str]] = {}
    for op in static.ops:
        for reason in (op.failure, op.unavailable):
            if reason:
                where = say("{op} for {target}", op=code(op.op), target=plain(op.target))
                found.setdefault(plain(sentence(reason)), []).append(where)
    for text, places in found.items():
        yield say("{where}: {sentence}", where=list_some(places, CASES), sentence=text)


def _make_parts(static: Static, judged: Sequence[Judgement]) -> Iterator[Part]:
    """By op, then by target, then what changed, and what is not known."""
    kernel_heads = (
        "kernel | registers: | spills: | local: | shared: | instructions: | warps: | occupancy: | "
        "instructions by class | cases"
    )
    for name in dict.fromkeys(op.op for op in static.ops):
        mine, title = [op for op in static.ops if op.op == name], plain(name, 80)
        for op in mine:
            kernels = (
                (code(one.now.name), *write_figures(one), list_some(list(map(code, one.cases)), CASES))
                for one in find_binaries(op, find_base(static, op))
            )
            table = make_table(kernel_heads, kernels).without_empty()
            yield Part(say("{op} for {target}", op=title, target=plain(op.target)), "", table)
        changes = _gather(_find_changes(name, judged))
        heads = "target | case | beside the reason above"
        yield Part(say("{op}: changes beside the figures", op=title), "", make_table(heads, changes))
        unknown = [
            (op.target, case.case, sentence(case.identity.unknown))
            for op in mine
            for case in op.cases
            if case.identity.unknown and not case.failure
        ]
        title = say("{op}: not known without a device", op=title)
        yield Part(title, "", make_table("target | case | why", _gather(unknown)))


def _find_changes(op: str, judged: Sequence[Judgement]) -> list[tuple[str, str, str]]:
    """Reasons beside the one that decided. That the code is another is seen in the figures."""
    found = []
    for row in judged:
        if (row.op, row.suite) == (op, Suite.COMPILED) and row.case and row.reasons[0].kind != "identity_unknown":
            more = [reason for reason in row.reasons[1:] if reason.kind != "code_changed"]
            found.append((row.target or "", row.case, " ".join(map(sentence, more))))
    return found


def _gather(found: Sequence[tuple[str, str, str]]) -> Iterator[tuple[str, ...]]:
    """(target, case, text) as rows: cases of a target that share a text, and targets whose cases are the same ones."""
    cases: dict[tuple[str, str], list[str]] = {}
    for target, case, text in found:
        if text:
            cases.setdefault((text, target), []).append(case)
    targets: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for (text, target), names in cases.items():
        targets.setdefault((text, tuple(names)), []).append(target)
    for (text, alike), where in targets.items():
        yield ", ".join(map(plain, where)), list_some(list(map(code, alike)), CASES), plain(text, 1500)
