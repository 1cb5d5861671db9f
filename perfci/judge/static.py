"""Verdicts about compiled kernels: there is no noise, so what grew by more than is allowed fails at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfci.core import units
from perfci.core.model import Fact, Judgement, KernelBinary, Reason, Run, StaticCase, StaticOp, Suite, Verdict
from perfci.core.wording import as_fact, because, say
from perfci.ops import identity
from perfci.thresholds.limits import CaseThresholds, Thresholds

OFFLINE = "offline"  # device of a run that compiles and does nothing else

SPILLS, OCCUPANCY = "spill_bytes", "occupancy"

FIGURES: Mapping[str, tuple[str, str]] = {
    "registers": ("registers", as_fact("registers")),
    SPILLS: ("spill_bytes", as_fact("spill bytes")),
    "shared_memory": ("shared_bytes", as_fact("shared memory")),
    "instructions": ("instructions", as_fact("instructions")),
    OCCUPANCY: ("occupancy", as_fact("occupancy")),
}
"""Threshold -> field of a `KernelBinary`, and what people call it."""


def judge_static(run: Run, thresholds: Thresholds) -> Iterator[Judgement]:
    """One row an op and target for all cases that are fine, and one for each other case."""
    if run.static is None:
        return
    before = {(op.op, op.target): op for op in run.static.base_ops}
    same = {op.op for op in run.plan.ops if op.base and op.base.same}
    for op in run.static.ops:
        base = before.get((op.op, op.target))
        yield from _judge_op(op, base, op.op in same, thresholds)
        # A run that times names the removed cases by what it times.
        if run.plan.device == OFFLINE and run.plan.filter is None and base and not op.failure:
            kept = {case.case for case in op.cases}
            for case in (case.case for case in base.cases if case.case not in kept):
                yield _row(op, case, Verdict.REMOVED, (Reason("removed_since_base", {"op": op.op}),))


def _row(op: StaticOp, case: str | None, verdict: Verdict, reasons: Sequence[Reason]) -> Judgement:
    return Judgement(op.op, Suite.COMPILED, case, verdict, tuple(reasons), target=op.target)


def _judge_op(op: StaticOp, base: StaticOp | None, same: bool, thresholds: Thresholds) -> Iterator[Judgement]:
    if op.failure:
        # A Triton that perfci does not know is no fault of the op.
        unknown = op.failure.kind == "triton_unknown"
        yield _row(op, None, Verdict.INCONCLUSIVE if unknown else Verdict.ERROR, (op.failure,))
        return
    known = {case.case: case for case in base.cases} if base else {}
    fine: list[tuple[Verdict, StaticCase]] = []
    for case in op.cases:
        verdict, reasons = _judge_case(case, known.get(case.case), same, thresholds.for_case(op.op, case.case))
        if verdict in {Verdict.PASS, Verdict.UNCHANGED} and not reasons:
            fine.append((verdict, case))
        else:
            yield _row(op, case.case, verdict, reasons)
    if not fine:
        return

    # All cases that are fine are one row.
    verdict = Verdict.UNCHANGED if {verdict for verdict, _ in fine} == {Verdict.UNCHANGED} else Verdict.PASS
    binaries = {binary.artefact: binary for _, case in fine for binary in case.binaries}.values()
    facts: dict[str, Fact] = {
        "cases": len(fine),
        "target": op.target,
        "kernels": len(binaries),
        "registers": max((binary.registers or 0 for binary in binaries), default=0),
        "spilled": sum(bool(binary.spill_bytes) for binary in binaries),
    }
    # Kernels of an NPU have no registers.
    bare = binaries and not op.unavailable and all(binary.registers is None for binary in binaries)
    if verdict is Verdict.UNCHANGED:
        kind = "compiled_alone_unchanged" if bare else "compiled_unchanged"
    else:
        kind = "compiled_alone" if bare else "compiled"
    lacking = (because("base_uncompiled", base.failure),) if base and base.failure else ()
    unavailable = (op.unavailable,) if op.unavailable else ()
    yield _row(op, None, verdict, (Reason(kind, facts), *lacking, *unavailable))


def _judge_case(
    case: StaticCase, base: StaticCase | None, same: bool, limits: CaseThresholds
) -> tuple[Verdict, tuple[Reason, ...]]:
    if case.failure:
        return Verdict.ERROR, (case.failure,)
    if same:
        return Verdict.UNCHANGED, ()
    if base is None:
        unknown = case.identity.unknown
        return (Verdict.INCONCLUSIVE, (Reason("identity_unknown"), unknown)) if unknown else (Verdict.PASS, ())
    if base.failure:
        return Verdict.PASS, (because("base_uncompiled", base.failure),)
    alike = identity.same_work(base.identity, case.identity)
    if alike:
        return Verdict.UNCHANGED, ()

    # What grew is seen as well if a call could not be captured to its end (alike is None).
    grown, unseen = _compare_figures(case.binaries, base.binaries, limits)
    changes = identity.list_changes(base.identity, case.identity)
    if grown:
        return Verdict.REGRESSED, (*grown, *unseen, *changes)
    if alike is None:
        return Verdict.INCONCLUSIVE, (Reason("identity_unknown"), *changes, *unseen)
    verdict = Verdict.INCONCLUSIVE if unseen else Verdict.PASS
    return verdict, (*unseen, *_describe_changes(case, base), *changes)


def _compare_figures(
    now: Sequence[KernelBinary], before: Sequence[KernelBinary], limits: CaseThresholds
) -> tuple[list[Reason], list[Reason]]:
    """Returns figures of kernels beyond what is allowed, and those that are limited and that no tool gave."""
    gates = {name: float(getattr(limits, name)) for name in FIGURES if getattr(limits, name) is not None}
    pairs = list(_pair(now, before))
    grown, unseen = [], []
    for new, old in pairs:
        for name, allowed in gates.items():
            field, what = FIGURES[name]
            was, is_now = getattr(old, field), getattr(new, field)
            if was is None or is_now is None:
                continue
            if name == SPILLS:
                beyond, told = is_now > was + allowed, say("{bytes} B more", bytes=f"{allowed:.0f}")
            elif name == OCCUPANCY:
                beyond, told = is_now < was * (1 - allowed), say("{share:%} less", share=allowed)
            else:
                beyond, told = is_now > was * (1 + allowed), say("{share:%} more", share=allowed)
            if beyond:
                write = units.percent if name == OCCUPANCY else str
                facts: dict[str, Fact] = {"kernel": new.name, "what": what, "option": name}
                facts |= {"before": write(was), "after": write(is_now), "allowed": told}
                grown.append(Reason("compiled_grew", facts))
    changed = [binary for pair in pairs if pair[0].artefact != pair[1].artefact for binary in pair]
    for name in gates:
        field, what = FIGURES[name]
        if blind := next((binary for binary in changed if getattr(binary, field) is None), None):
            unseen.append(Reason("compiled_unseen", {"kernel": blind.name, "what": what, "option": name}))
    return grown, unseen


def _pair(now: Sequence[KernelBinary], before: Sequence[KernelBinary]) -> Iterator[tuple[KernelBinary, KernelBinary]]:
    """Each kernel with the base's: the same code with itself, then by name, then what is left in launching order."""
    waiting, left = list(now), list(before)
    for fields in (("artefact",), ("name",), ()):
        for binary in tuple(waiting):
            old = next((old for old in left if all(getattr(old, f) == getattr(binary, f) for f in fields)), None)
            if old:
                waiting.remove(binary)
                left.remove(old)
                yield binary, old


def _describe_changes(case: StaticCase, base: StaticCase) -> Iterator[Reason]:
    """How the figures of kernels with other code changed, or if they did not, their instructions by class."""
    same = {one.artefact for one in case.binaries} & {one.artefact for one in base.binaries}
    before, after = (tuple(b for b in each.binaries if b.artefact not in same) for each in (base, case))
    if figures(before) != figures(after):
        yield Reason("compiled_changed", {"before": figures(before), "after": figures(after)})
        return
    for new, old in _pair(after, before):
        classes = [name for name in sorted({*old.mix, *new.mix}) if old.mix.get(name, 0) != new.mix.get(name, 0)]
        if classes:
            mix = ", ".join(f"{name} {old.mix.get(name, 0)} -> {new.mix.get(name, 0)}" for name in classes)
            code: dict[str, Fact] = {"before": old.artefact[:8], "after": new.artefact[:8]}
            yield Reason("compiled_mix_changed", {"kernel": new.name, **code, "figures": figures([new]), "mix": mix})


def figures(binaries: Sequence[KernelBinary]) -> str:
    """The most telling figures of a case's kernels, in words.

    >>> figures([KernelBinary("k", "", registers=32, spill_bytes=0, instructions=120)])
    'k: 32 registers, 0 B spilled, 120 instructions'
    """
    found = []
    for binary in binaries:
        parts = [
            (binary.registers, f"{binary.registers} registers"),
            (binary.spill_bytes, f"{binary.spill_bytes} B spilled"),
            (binary.shared_bytes, f"{binary.shared_bytes} B shared"),
            (binary.instructions, f"{binary.instructions} instructions"),
            (binary.occupancy, f"occupancy {100 * (binary.occupancy or 0):.0f} %"),
        ]
        known = ", ".join(text for value, text in parts if value is not None)
        found.append(f"{binary.name}: {known}" if known else binary.name)
    return "; ".join(found) or "no kernels"
