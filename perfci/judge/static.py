"""Verdicts about compiled kernels: no noise, so that what grew by more than is allowed fails at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from perfci.core import units
from perfci.core.model import (
    Fact,
    Identity,
    Judgement,
    KernelBinary,
    Reason,
    Run,
    Static,
    StaticCase,
    StaticOp,
    Suite,
    Verdict,
)
from perfci.core.wording import caused, say
from perfci.ops import identity
from perfci.thresholds.limits import CaseThresholds, Thresholds

OFFLINE = "offline"
"""Device of a run that compiles and does nothing else."""

SPILLS, OCCUPANCY = "spill_bytes", "occupancy"

FIGURES: Mapping[str, str] = {
    "registers": "registers",
    SPILLS: "spill_bytes",
    "shared_memory": "shared_bytes",
    "instructions": "instructions",
    OCCUPANCY: "occupancy",
}
"""Threshold -> field of a `KernelBinary`."""


def rows(run: Run, thresholds: Thresholds) -> Iterator[Judgement]:
    """One row an op and target where all its cases are fine, else one a case that is not."""
    if run.static:
        yield from judged(run.static, run, thresholds)


def judged(found: Static, run: Run, thresholds: Thresholds) -> Iterator[Judgement]:
    """The verdicts about what was compiled."""
    before = {(op.op, op.target): op for op in found.base_ops}
    same = {op.op for op in run.plan.ops if op.base and op.base.same}
    for op in found.ops:
        base = before.get((op.op, op.target))
        yield from _op(op, base, op.op in same, thresholds)
        if run.plan.device == OFFLINE and run.plan.filter is None:
            yield from _removed(op, base)


def _removed(op: StaticOp, base: StaticOp | None) -> Iterator[Judgement]:
    """Cases that only the base has; a run that times says so of what it times."""
    if base is None or op.failure:
        return
    kept = {case.case for case in op.cases}
    for case in base.cases:
        if case.case not in kept:
            yield _row(op, case.case, Verdict.REMOVED, (Reason("removed_since_base", {"op": op.op}),))


def _op(op: StaticOp, base: StaticOp | None, same: bool, thresholds: Thresholds) -> Iterator[Judgement]:
    if op.failure:
        # A Triton that perfci does not know is no fault of the op.
        unknown = op.failure.kind == "triton_unknown"
        yield _row(op, None, Verdict.INCONCLUSIVE if unknown else Verdict.ERROR, (op.failure,))
        return
    known = {case.case: case for case in base.cases} if base else {}
    fine: list[tuple[Verdict, StaticCase]] = []
    for case in op.cases:
        verdict, reasons = _case(case, known.get(case.case), same, thresholds.for_case(op.op, case.case))
        if verdict in {Verdict.PASS, Verdict.UNCHANGED} and not reasons:
            fine.append((verdict, case))
        else:
            yield _row(op, case.case, verdict, reasons)
    if fine:
        yield _row(op, None, *_gathered(op, fine, base))


def _case(
    case: StaticCase, base: StaticCase | None, same: bool, limits: CaseThresholds
) -> tuple[Verdict, tuple[Reason, ...]]:
    if case.failure:
        return Verdict.ERROR, (case.failure,)
    if same:
        return Verdict.UNCHANGED, ()
    if base is None:
        return (Verdict.INCONCLUSIVE, _unknown(case.identity)) if case.identity.unknown else (Verdict.PASS, ())
    if base.failure:
        return Verdict.PASS, (caused("base_uncompiled", base.failure),)
    return _against(case, base, limits)


def _unknown(call: Identity) -> tuple[Reason, ...]:
    return (Reason("identity_unknown"), call.unknown) if call.unknown else ()


def _against(case: StaticCase, base: StaticCase, limits: CaseThresholds) -> tuple[Verdict, tuple[Reason, ...]]:
    """Unchanged, or what changed; what grew is seen as well where a call could not be captured to its end."""
    alike = identity.same(base.identity, case.identity)
    if alike:
        return Verdict.UNCHANGED, ()
    grown = tuple(_grown(case.binaries, base.binaries, limits))
    unseen = tuple(_unseen(case.binaries, base.binaries, limits))
    changes = identity.changes(base.identity, case.identity)
    if grown:
        return Verdict.REGRESSED, (*grown, *unseen, *changes)
    if alike is None:
        return Verdict.INCONCLUSIVE, (Reason("identity_unknown"), *changes, *unseen)
    if unseen:
        return Verdict.INCONCLUSIVE, (*unseen, *_changed(case, base), *changes)
    return Verdict.PASS, (*_changed(case, base), *changes)


def _grown(now: Sequence[KernelBinary], before: Sequence[KernelBinary], limits: CaseThresholds) -> Iterator[Reason]:
    """Figures of a kernel that went beyond what is allowed."""
    for binary, old in _pairs(now, before):
        for threshold, allowed in _gates(limits):
            was, is_now = getattr(old, FIGURES[threshold]), getattr(binary, FIGURES[threshold])
            if was is not None and is_now is not None and _beyond(threshold, was, is_now, allowed):
                facts: dict[str, Fact] = {"kernel": binary.name, "what": _words(threshold), "option": threshold}
                told = {"before": _told(threshold, was), "after": _told(threshold, is_now)}
                yield Reason("compiled_grew", {**facts, **told, "allowed": _allowed(threshold, allowed)})


def _unseen(now: Sequence[KernelBinary], before: Sequence[KernelBinary], limits: CaseThresholds) -> Iterator[Reason]:
    """Figures that are gated and that no tool gave: a gate that cannot look says so."""
    for threshold, _ in _gates(limits):
        field = FIGURES[threshold]
        other = (pair for pair in _pairs(now, before) if pair[0].artefact != pair[1].artefact)
        blind = (binary for pair in other for binary in pair if getattr(binary, field) is None)
        if binary := next(blind, None):
            facts: dict[str, Fact] = {"kernel": binary.name, "what": _words(threshold), "option": threshold}
            yield Reason("compiled_unseen", facts)


def _gates(limits: CaseThresholds) -> Iterator[tuple[str, float]]:
    for threshold in FIGURES:
        allowed: float | None = getattr(limits, threshold)
        if allowed is not None:
            yield threshold, allowed


def _pairs(now: Sequence[KernelBinary], before: Sequence[KernelBinary]) -> Iterator[tuple[KernelBinary, KernelBinary]]:
    """Each kernel with the base's: the same code with itself, then by name, then what is left in order of launching.

    So neither another name nor a second variant of the same name hides what grew.
    """
    waiting, left = list(now), list(before)
    for fields in (("artefact",), ("name",), ()):
        for binary in tuple(waiting):
            old = next((old for old in left if all(getattr(old, f) == getattr(binary, f) for f in fields)), None)
            if old:
                waiting.remove(binary)
                left.remove(old)
                yield binary, old


def _beyond(threshold: str, was: float, now: float, allowed: float) -> bool:
    if threshold == SPILLS:
        return now > was + allowed
    return now < was * (1 - allowed) if threshold == OCCUPANCY else now > was * (1 + allowed)


def _words(threshold: str) -> str:
    known = {SPILLS: say("spill bytes"), "shared_memory": say("shared memory"), "instructions": say("instructions")}
    return known.get(threshold) or (say("occupancy") if threshold == OCCUPANCY else say("registers"))


def _told(threshold: str, value: float) -> str:
    return units.percent(value) if threshold == OCCUPANCY else str(value)


def _allowed(threshold: str, allowed: float) -> str:
    if threshold == SPILLS:
        return say("{bytes} B more", bytes=f"{allowed:.0f}")
    if threshold == OCCUPANCY:
        return say("{share:%} less", share=allowed)
    return say("{share:%} more", share=allowed)


def _changed(case: StaticCase, base: StaticCase) -> Iterator[Reason]:
    """How the figures of kernels with other code changed, or if they did not, their instructions by class.

    Nothing if neither did: that the code is another, and launches and arguments, are told by `identity.changes`.
    """
    same = {one.artefact for one in case.binaries} & {one.artefact for one in base.binaries}
    before, after = (tuple(b for b in each.binaries if b.artefact not in same) for each in (base, case))
    if figures(before) != figures(after):
        yield Reason("compiled_changed", {"before": figures(before), "after": figures(after)})
        return
    for new, old in _pairs(after, before):
        classes = [name for name in sorted({*old.mix, *new.mix}) if old.mix.get(name, 0) != new.mix.get(name, 0)]
        if classes:
            told = ", ".join(f"{name} {old.mix.get(name, 0)} -> {new.mix.get(name, 0)}" for name in classes)
            code: dict[str, Fact] = {"before": old.artefact[:8], "after": new.artefact[:8]}
            yield Reason("compiled_mix_changed", {"kernel": new.name, **code, "figures": _figures(new), "mix": told})


def figures(binaries: Sequence[KernelBinary]) -> str:
    """The most telling figures of a case's kernels, in words.

    >>> figures([KernelBinary("k", "", registers=32, spill_bytes=0, instructions=120)])
    'k: 32 registers, 0 B spilled, 120 instructions'
    """
    return "; ".join(_figures(binary) for binary in binaries) or "no kernels"


def _figures(binary: KernelBinary) -> str:
    parts = [
        (binary.registers, f"{binary.registers} registers"),
        (binary.spill_bytes, f"{binary.spill_bytes} B spilled"),
        (binary.shared_bytes, f"{binary.shared_bytes} B shared"),
        (binary.instructions, f"{binary.instructions} instructions"),
        (binary.occupancy, f"occupancy {100 * (binary.occupancy or 0):.0f} %"),
    ]
    told = ", ".join(text for value, text in parts if value is not None)
    return f"{binary.name}: {told}" if told else binary.name


def _gathered(
    op: StaticOp, fine: Sequence[tuple[Verdict, StaticCase]], base: StaticOp | None
) -> tuple[Verdict, tuple[Reason, ...]]:
    """All cases of an op that are fine, as one row."""
    verdict = Verdict.UNCHANGED if {verdict for verdict, _ in fine} == {Verdict.UNCHANGED} else Verdict.PASS
    binaries = {binary.artefact: binary for _, case in fine for binary in case.binaries}
    facts: dict[str, Fact] = {
        "cases": len(fine),
        "target": op.target,
        "kernels": len(binaries),
        "registers": max((binary.registers or 0 for binary in binaries.values()), default=0),
        "spilled": sum(bool(binary.spill_bytes) for binary in binaries.values()),
    }
    kind = "compiled_unchanged" if verdict is Verdict.UNCHANGED else "compiled"
    if binaries and not op.unavailable and all(binary.registers is None for binary in binaries.values()):
        # an NPU's, which has none
        kind = "compiled_alone_unchanged" if verdict is Verdict.UNCHANGED else "compiled_alone"
    lacking = (caused("base_uncompiled", base.failure),) if base and base.failure else ()
    unavailable = (op.unavailable,) if op.unavailable else ()
    return verdict, (Reason(kind, facts), *lacking, *unavailable)


def _row(op: StaticOp, case: str | None, verdict: Verdict, reasons: Sequence[Reason]) -> Judgement:
    return Judgement(op.op, Suite.COMPILED, case, verdict, tuple(reasons), target=op.target)
