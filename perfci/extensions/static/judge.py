"""Verdicts about compiled kernels: there is no noise, so what grew by more than is allowed fails at once."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfci.core import units
from perfci.core.model.basics import Fact, Reason, Suite, Verdict, as_fact, because
from perfci.core.model.compiled import KernelBinary, StaticCase, StaticOp
from perfci.core.model.decision import Judgement
from perfci.core.model.place import OFFLINE
from perfci.core.model.run import Run
from perfci.ops import identity
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import Thresholds

MORE, LESS, BYTES, COUNT = "allows_more_share", "allows_less_share", "allows_more_bytes", "allows_more_count"
"""Kinds of reasons that name what is allowed."""
SHARES = (MORE, LESS)


@dataclass(frozen=True)
class Figure:
    """A figure of a compiled kernel, and how it may get worse."""

    what: str  # what people call it
    read: Callable[[KernelBinary], float | None]
    is_beyond: Callable[[float, float, float], bool]  # by what it was, what it is, and what is allowed
    allows: str = MORE
    write: Callable[[float], str] = "{:.0f}".format


def _read_trait(name: str) -> Callable[[KernelBinary], float | None]:
    return lambda binary: binary.traits.get(name)


def _read_width(binary: KernelBinary) -> float | None:
    """Mean width of a thread's accesses of global memory, bytes."""
    accesses = binary.traits.get("global")
    return binary.traits["global_bytes"] / accesses if accesses else None


def _read_on_chip(binary: KernelBinary) -> float | None:
    """Shared memory of a program, and on an NPU the memories of its cores together, bytes."""
    more = sum(binary.traits.get(name, 0) for name in ("l1_bytes", "l0a_bytes", "l0b_bytes", "l0c_bytes"))
    return None if binary.shared_bytes is None else binary.shared_bytes + more


def _grows(was: float, now: float, allowed: float) -> bool:
    return now > was * (1 + allowed)


def _adds(was: float, now: float, allowed: float) -> bool:
    return now > was + allowed


def _shrinks(was: float, now: float, allowed: float) -> bool:
    return now < was * (1 - allowed)


def _begins(was: float, now: float, allowed: float) -> bool:
    return not was and now > allowed


def _grows_clearly(was: float, now: float, allowed: float) -> bool:
    return now > was * (1 + allowed) and now > was + FEW


FEW = 16  # instructions of a class, which are nothing of a small kernel


FIGURES: dict[str, Figure] = {
    "registers": Figure(as_fact("registers"), lambda binary: binary.registers, _grows),
    "spill_bytes": Figure(as_fact("spill bytes"), lambda binary: binary.spill_bytes, _adds, BYTES),
    "local_bytes": Figure(as_fact("bytes of local memory"), lambda binary: binary.local_bytes, _adds, BYTES),
    "shared_memory": Figure(as_fact("shared memory"), _read_on_chip, _grows),
    "barriers": Figure(as_fact("barriers"), _read_trait("barriers"), _grows),
    "instructions": Figure(as_fact("instructions"), lambda binary: binary.instructions, _grows),
    "occupancy": Figure(as_fact("occupancy"), lambda binary: binary.occupancy, _shrinks, LESS, units.percent),
    "double_instructions": Figure(as_fact("double-precision instructions"), _read_trait("double"), _begins, COUNT),
    "tensor_instructions": Figure(as_fact("matrix instructions"), _read_trait("tensor"), _shrinks, LESS),
    "warpgroup_instructions": Figure(as_fact("warpgroup instructions"), _read_trait("warpgroup"), _shrinks, LESS),
    "asynchronous_copies": Figure(as_fact("asynchronous copies"), _read_trait("asynchronous"), _shrinks, LESS),
    "access_width": Figure(as_fact("bytes of a memory access"), _read_width, _shrinks, LESS, "{:.1f}".format),
    "double_buffers": Figure(as_fact("double buffers"), _read_trait("double_buffers"), _shrinks, LESS),
}
"""Threshold -> the figure that it limits."""

CLASSES: dict[str, Figure] = {
    "memory": Figure(as_fact("memory instructions"), lambda binary: binary.mix.get("memory"), _grows_clearly),
    "float": Figure(as_fact("float instructions"), lambda binary: binary.mix.get("float"), _grows_clearly),
    "integer": Figure(as_fact("integer instructions"), lambda binary: binary.mix.get("integer"), _grows_clearly),
}
"""Class of instructions -> the figure, which no threshold limits."""

UNMEANT: dict[str, float] = {
    "spill_bytes": 0.0, "local_bytes": 0.0, "double_instructions": 0.0, "tensor_instructions": 0.99,
    "warpgroup_instructions": 0.99, "double_buffers": 0.99, "occupancy": 0.49,
}  # fmt: skip
"""Limits without a key: what lies beyond is nearly never meant."""

UPGRADE: Mapping[str, float] = {
    "spill_bytes": 16, "local_bytes": 16, "occupancy": 0.0, "instructions": 0.1, "shared_memory": 0.1,
    "asynchronous_copies": 0.5, "access_width": 0.25, **dict.fromkeys(CLASSES, 0.1),
}  # fmt: skip
"""Limits of another toolchain's work on the same source, of which nothing worse is meant. A stricter one holds."""


def judge_static(run: Run, thresholds: Thresholds) -> Iterator[Judgement]:
    """One row an op and target for all cases that are fine, and one for each other case."""
    if run.static is None:
        return
    before = {(op.op, op.target): op for op in run.static.base_ops}
    same = {op.op for op in run.plan.ops if op.base and op.base.same}
    base = run.plan.base
    stricter = UPGRADE if base and base.python and base.commit == run.environment.commit else {}
    for op in run.static.ops:
        old = before.get((op.op, op.target))
        yield from _judge_op(op, old, op.op in same, thresholds, stricter)
        # A run that times names the removed cases by what it times.
        if run.plan.device == OFFLINE and run.plan.filter is None and old and not op.failure:
            kept = {case.case for case in op.cases}
            for case in (case.case for case in old.cases if case.case not in kept):
                yield _row(op, case, Verdict.REMOVED, (Reason("removed_since_base", {"op": op.op}),))


def _row(op: StaticOp, case: str | None, verdict: Verdict, reasons: Sequence[Reason]) -> Judgement:
    return Judgement(op.op, Suite.COMPILED, case, verdict, tuple(reasons), target=op.target)


def _judge_op(
    op: StaticOp, base: StaticOp | None, same: bool, thresholds: Thresholds, stricter: Mapping[str, float]
) -> Iterator[Judgement]:
    if op.failure:
        # A Triton that perfci does not know is no fault of the op.
        unknown = op.failure.kind == "triton_unknown"
        yield _row(op, None, Verdict.INCONCLUSIVE if unknown else Verdict.ERROR, (op.failure,))
        return
    base_cases = {case.case: case for case in base.cases} if base else {}
    fine: list[tuple[Verdict, StaticCase]] = []
    for case in op.cases:
        limits = thresholds.for_case(op.op, case.case)
        verdict, reasons = _judge_case(case, base_cases.get(case.case), same, limits, stricter)
        if verdict in {Verdict.PASS, Verdict.UNCHANGED} and not reasons:
            fine.append((verdict, case))
        else:
            yield _row(op, case.case, verdict, reasons)
    if not fine:
        return

    # All cases that are fine are one row.
    verdict = Verdict.UNCHANGED if {verdict for verdict, _ in fine} == {Verdict.UNCHANGED} else Verdict.PASS
    if any(case.identity.unknown for _, case in fine):
        yield _row(op, None, verdict, (Reason("compiled_same_files", {"cases": len(fine), "target": op.target}),))
        return
    binaries = {binary.artefact: binary for _, case in fine for binary in case.binaries}.values()
    facts: dict[str, Fact] = {
        "cases": len(fine),
        "target": op.target,
        "kernels": len(binaries),
        "registers": max((binary.registers or 0 for binary in binaries), default=0),
        "spilled": max((_spills(binary) for binary in binaries), default=0),
    }
    # Kernels of an NPU have no registers.
    without_tool = op.unavailable is not None and op.unavailable.kind == "static_tool_missing"
    bare = binaries and not without_tool and all(binary.registers is None for binary in binaries)
    kinds = ("compiled_alone", "compiled_alone_unchanged") if bare else ("compiled", "compiled_unchanged")
    if bare and (plans := [binary for binary in binaries if "barriers" in binary.traits]):
        kinds = "compiled_on_chip", "compiled_on_chip_unchanged"
        facts |= {"memory": max(binary.shared_bytes or 0 for binary in plans)}
        facts |= {"barriers": max(binary.traits["barriers"] for binary in plans)}
    kind = kinds[verdict is Verdict.UNCHANGED]
    lacking = (because("base_uncompiled", base.failure),) if base and base.failure else ()
    unavailable = (op.unavailable,) if op.unavailable else ()
    yield _row(op, None, verdict, (Reason(kind, facts), *lacking, *unavailable))


def _spills(binary: KernelBinary) -> int:
    """Bytes of a thread that did not fit into registers, or its stack where no tool tells them apart."""
    return (binary.local_bytes if binary.spill_bytes is None else binary.spill_bytes) or 0


def _judge_case(
    case: StaticCase, base: StaticCase | None, same: bool, limits: CaseThresholds, stricter: Mapping[str, float]
) -> tuple[Verdict, tuple[Reason, ...]]:
    if case.failure:
        return Verdict.ERROR, (case.failure,)
    if same:
        return Verdict.UNCHANGED, ()
    if base is None:
        unknown = case.identity.unknown
        if unknown:
            return Verdict.INCONCLUSIVE, (Reason("identity_unknown"), unknown)
        return Verdict.PASS, tuple(_explain_unbuffered(case))
    if base.failure:
        return Verdict.PASS, (because("base_uncompiled", base.failure),)
    alike = identity.same_work(base.identity, case.identity)
    if alike:
        return Verdict.UNCHANGED, ()

    # What grew is seen as well if a call could not be captured to its end (alike is None).
    grown, unseen = _compare_figures(case, base, limits, stricter)
    changes = identity.list_changes(base.identity, case.identity)
    if stricter:  # every binary is another one, and how does not matter
        changes = ()
    if grown:
        return Verdict.REGRESSED, (*grown, *unseen, *changes)
    if alike is None:
        return Verdict.INCONCLUSIVE, (Reason("identity_unknown"), *changes, *unseen)
    verdict = Verdict.INCONCLUSIVE if unseen else Verdict.PASS
    return verdict, (
        *unseen, *_explain_unbuffered(case), *(() if stricter else _describe_changes(case, base)), *changes
    )  # fmt: skip


def _explain_unbuffered(case: StaticCase) -> Iterator[Reason]:
    """Names kernels that fit their chip only without double buffering."""
    for binary in case.binaries:
        if binary.traits.get("unbuffered"):
            yield Reason("compiled_unbuffered", {"kernel": binary.name, "memory": binary.shared_bytes})


def _compare_figures(
    case: StaticCase, base: StaticCase, limits: CaseThresholds, stricter: Mapping[str, float]
) -> tuple[list[Reason], list[Reason]]:
    """Returns figures of kernels beyond what is allowed, and those that are limited and that no tool gave."""
    written = {name: float(getattr(limits, name)) for name in FIGURES if getattr(limits, name) is not None}
    gates = UNMEANT | written
    pairs = list(_pair(case.binaries, base.binaries))
    grown, unseen = [], []
    for new, old in pairs:
        for name, figure in (FIGURES | CLASSES).items():
            was, is_now = figure.read(old), figure.read(new)
            gate = gates.get(name, math.inf)
            if name not in written and _is_meant(name, was, new.name, case, base):
                gate = math.inf
            allowed = min(gate, stricter.get(name, math.inf))
            if was is not None and is_now is not None and figure.is_beyond(was, is_now, allowed):
                facts: dict[str, Fact] = {"kernel": new.name, "what": figure.what, "option": name}
                facts |= {"before": figure.write(was), "after": figure.write(is_now)}
                limit = Reason(figure.allows, {"allowed": allowed if figure.allows in SHARES else round(allowed)})
                meant = allowed == gate
                grown.append(because("compiled_grew", limit, **facts) if meant else Reason("compiled_worse", facts))
    changed = [binary for pair in pairs if pair[0].artefact != pair[1].artefact for binary in pair]
    for name in written:
        if blind := next((binary for binary in changed if FIGURES[name].read(binary) is None), None):
            facts = {"kernel": blind.name, "what": FIGURES[name].what, "option": name}
            unseen.append(Reason("compiled_unseen", facts))
    return grown, unseen


def _is_meant(name: str, was: float | None, kernel: str, case: StaticCase, base: StaticCase) -> bool:
    """Whether a limit that no one wrote lets a figure get worse: more spills than before, or another configuration."""
    if name != "occupancy":
        return bool(was) and name in {"spill_bytes", "local_bytes"}
    now, before = (
        next((launch for launch in side.identity.launches if launch.kernel == kernel), None) for side in (case, base)
    )
    if now is None or before is None or (now.warps, now.stages) != (before.warps, before.stages):
        return True
    # Constants and other numbers. Tensors have a # before their storage.
    shared = now.arguments.keys() & before.arguments.keys()
    return any(now.arguments[name] != before.arguments[name] for name in shared if "#" not in now.arguments[name])


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
    before, after = (tuple(b for b in side.binaries if b.artefact not in same) for side in (base, case))
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
    """The most important figures of a case's kernels, in words.

    >>> figures([KernelBinary("k", "", registers=32, spill_bytes=0, instructions=120)])
    'k: 32 registers, 0 B spilled, 120 instructions'
    """
    lines = []
    for binary in binaries:
        parts = [
            (binary.registers, f"{binary.registers} registers"),
            (binary.spill_bytes, f"{binary.spill_bytes} B spilled"),
            (binary.shared_bytes, f"{binary.shared_bytes} B shared"),
            (binary.instructions, f"{binary.instructions} instructions"),
            (binary.occupancy, f"occupancy {100 * (binary.occupancy or 0):.0f} %"),
            *(
                (binary.traits.get(name), f"{binary.traits.get(name)} {what}")
                for name, what in (
                    ("l1_bytes", "B of L1"),
                    ("l0c_bytes", "B of L0C"),
                    ("barriers", "barriers"),
                    ("double_buffers", "double buffers"),
                )
            ),
        ]
        shown = ", ".join(text for value, text in parts if value is not None)
        lines.append(f"{binary.name}: {shown}" if shown else binary.name)
    return "; ".join(lines) or "no kernels"
