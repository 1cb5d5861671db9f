"""Changes of an op beside its kernel: suites that got weaker, and the kind of change, by evidence."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from perfci.core.model.basics import Fact, Reason, Suite, Verdict, as_fact, because
from perfci.core.model.decision import Judgement
from perfci.core.model.measured import OpRun
from perfci.core.model.run import Expected, PlannedOp, Run
from perfci.core.units import name_some
from perfci.judge.expected import Standing, day_of, stage, why_of
from perfci.ops.backends import DEFAULT, MARK, is_kernel

PARTS = ("baseline", "triton", "accuracy", "performance")
"""Files of an op that all belong to a change of its interface or logic, in the order in which they are written."""

_PART = re.compile(r"(->|\*{0,2}\w+|[*/])(?:: | )?(?P<annotation>[^=]*)(?P<default>=.*)?", re.DOTALL)
"""A part of a signature: what an argument may be given as, what it has to be, and what it is without one"""

_OTHER_ANSWERS = frozenset({"answers_differ", "answers_raise"})


@dataclass(frozen=True)
class Kind:
    """The kind of a change."""

    name: str  # tuning, suites, shared, interface or logic
    proof: Reason
    missing: tuple[str, ...] = ()  # files that belong to such a change, and that it leaves as they are

    @property
    def answers(self) -> bool:
        """Whether it answers otherwise than its base, in values or form. Another signature alone leaves the answers."""
        return self.proof.kind in {*_OTHER_ANSWERS, "answers_formed"}


def have_one_interface(before: Sequence[str], after: Sequence[str]) -> bool:
    """Returns whether callers of two signatures are served alike. An annotation that only one has changes nothing.

    >>> have_one_interface(["x"], ["x: Tensor", "-> Tensor"]), have_one_interface(["x"], ["*", "x"])
    (True, False)
    >>> have_one_interface(["x: Tensor"], ["x: Array"]), have_one_interface(["x=1"], ["x=2"])
    (False, False)
    """
    was, now = ({part[1]: part for part in filter(None, map(_PART.fullmatch, texts))} for texts in (before, after))
    given = [[(name, part["default"]) for name, part in parts.items() if name != "->"] for parts in (was, now)]
    annotated = [name for name in was if name in now and was[name]["annotation"] and now[name]["annotation"]]
    return given[0] == given[1] and all(was[name]["annotation"] == now[name]["annotation"] for name in annotated)


def find_kind(op: PlannedOp, outcome: OpRun | None) -> Kind | None:
    """Returns the kind of a change. None if the op's files are the base's, or no one could compare them."""
    base, change = op.base, outcome.change if outcome else None
    if base is None or base.same or base.lent or change is None or outcome is None:
        return None
    name, _, backend = op.op.partition(MARK)
    changed = {part for part in PARTS if any(path.endswith(f"/{name}_{part}.py") for path in base.changed)}
    changed |= {DEFAULT} if any(is_kernel(path, op.op) for path in base.changed) else set()
    missing = tuple(
        f"{name}_{backend if backend and part == DEFAULT else part}.py" for part in PARTS if part not in changed
    )
    wrong = any(check.of_base and check.failure for check in outcome.accuracy)
    for proof in change.differs:
        if proof.kind == "answers_formed":
            return Kind(as_fact("interface"), proof, missing)
        if proof.kind in _OTHER_ANSWERS and wrong:
            return Kind(as_fact("logic"), proof, missing)
    if base.signature and not have_one_interface(base.signature, op.signature):
        before, after = ", ".join(base.signature), ", ".join(op.signature)
        return Kind(as_fact("interface"), Reason("proof_signature", {"before": before, "after": after}), missing)
    checks = sum(not check.failure and not check.unchecked for check in outcome.accuracy)
    proof = Reason("proof_same", {"checks": checks}) if checks else Reason("proof_unchecked")
    is_inside = any(f"/{name}/" in f"/{path}" for path in base.changed)
    is_tuning = DEFAULT in changed or (is_inside and not changed)
    return Kind("tuning" if is_tuning else "suites" if changed else "shared", proof)


def take_own(op: PlannedOp, outcome: OpRun | None) -> OpRun | None:
    """Returns the record of an op by its suites alone, if the base's suites are about something else."""
    kind = find_kind(op, outcome)
    if outcome is None or kind is None or kind.missing or not kind.answers:
        return outcome
    checks = tuple(check for check in outcome.accuracy if not check.of_base)
    return replace(outcome, accuracy=checks) if checks else outcome


def list_weaker(run: Run, op: PlannedOp, outcome: OpRun | None) -> tuple[Reason, ...]:
    """Returns what a change's suites ask less of: cases that are gone, by the plan, and what its processes report."""
    kind, gone = find_kind(op, outcome), tuple(_find_gone(run, op))
    if outcome is None or outcome.change is None or kind is None:
        return gone
    other = (
        [differ for differ in outcome.change.differs if differ.kind in _OTHER_ANSWERS] if kind.name != "logic" else []
    )
    answers = [because("weaker_answers", reason, op=op.op, what="answers") for reason in other]
    said = tuple(Reason(weakness.kind, {**weakness.facts, "op": op.op}) for weakness in outcome.change.weaker)
    return (*(lost for lost in gone if lost not in said), *said, *answers)


def list_gone(run: Run, op: PlannedOp) -> list[str]:
    """Returns performance cases that only the base has. A --case filter, or an op that did not load, shows none."""
    if run.plan.filter is not None or op.failure or op.unlisted or op.base is None:
        return []
    return [case for case in op.base.performance if case not in op.performance]


def _find_gone(run: Run, op: PlannedOp) -> Iterator[Reason]:
    """Cases that the base's process has described and the change's has not, whatever that claims."""
    if run.plan.base and run.plan.base.suites and op.base and (gone := list_gone(run, op)):
        facts: dict[str, Fact] = {"op": op.op, "what": as_fact("cases"), "suite": as_fact("performance")}
        facts |= {"count": len(gone), "of": len(op.base.performance), "names": name_some(gone)}
        yield Reason("weaker_fewer", facts)


def judge_change(run: Run, op: PlannedOp, outcome: OpRun | None) -> Judgement | None:
    """Returns the row about an op's suites and files. None if nothing has to be agreed to."""
    kind, weaker = find_kind(op, outcome), list_weaker(run, op, outcome)
    if (kind is None and not weaker) or run.plan.base is None or not run.plan.base.suites:
        return None
    entries = {entry.weaker: entry for entry in _list_entries(run, op.op)}
    open_ = [weakness for weakness in weaker if weakness.facts.get("what") not in entries]
    told = tuple(declare(entries[str(weakness.facts["what"])]) for weakness in weaker if weakness not in open_)
    facts: dict[str, Fact] = {"op": op.op, "kind": kind.name if kind else None}
    if kind and kind.missing and kind.name in {"interface", "logic"}:
        lacks = Reason("change_lacks_files", {**facts, "files": ", ".join(kind.missing)})
        return _row(op, Verdict.WEAKENED, (lacks, kind.proof, *open_, *told))
    if open_:
        what = [*dict.fromkeys(str(reason.facts.get("what")) for reason in open_)]
        example = f"- {{weaker: {what[0]}, why: ..., until: 2027-01-31}}"
        weakened = Reason("weakened", {"op": op.op, "what": ", ".join(what), "entry": example})
        return _row(op, Verdict.WEAKENED, (weakened, *open_, *told))
    if kind and kind.answers:
        if entry := entries.get("answers"):
            return _row(op, Verdict.EXPECTED, (declare(entry), kind.proof, *told))
        return _row(op, Verdict.INCONCLUSIVE, (Reason("change_other_answers", facts), kind.proof, *told))
    return _row(op, Verdict.EXPECTED, (*told, *weaker)) if weaker else None


def _list_entries(run: Run, op: str) -> Sequence[Expected]:
    """The change's declarations that hold on the day of the run. Those of its base were about other changes."""
    entries, day = run.plan.base.expected if run.plan.base else (), day_of(run)
    mine = [entry for entry in entries if entry.op == op and entry.weaker and entry.added]
    return [entry for entry in mine if stage(entry, day) is Standing.HOLDS]


def declare(entry: Expected) -> Reason:
    """Returns who agreed to what."""
    facts: Mapping[str, Fact] = {"file": entry.file, "line": entry.line, "until": entry.until}
    return Reason("weaker_declared", {**facts, "what": entry.weaker, "why": why_of(entry)})


def _row(op: PlannedOp, verdict: Verdict, reasons: tuple[Reason, ...]) -> Judgement:
    return Judgement(op.op, Suite.SUITES, None, verdict, reasons)
