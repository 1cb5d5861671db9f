"""Thresholds of cases, by the files of a thresholds folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perfci.core.model import Expected
from perfci.ops.spec import matches
from perfci.thresholds import layers
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.layers import Relaxed

WORK = "work"  # what a declaration names that a kernel leaves to others, such as a library


@dataclass(frozen=True)
class OpThresholds:
    """Thresholds of one op, with the overrides of its cases in file order."""

    common: CaseThresholds
    cases: tuple[tuple[str, Mapping[str, Any]], ...] = ()  # (--case pattern, fields of CaseThresholds)
    expected: tuple[Expected, ...] = ()  # slow-downs that were agreed on, in file order
    dropped: tuple[Expected, ...] = ()
    """of the base's entries those that the change takes out, which it is judged by still"""
    relaxed: tuple[Relaxed, ...] = ()  # what is looser for a time, in file order


@dataclass(frozen=True)
class Thresholds:
    """Everything in a thresholds folder."""

    default: CaseThresholds = field(default_factory=CaseThresholds)
    ops: Mapping[str, OpThresholds] = field(default_factory=dict)
    folder: str = field(default="thresholds", compare=False)  # as people know it: relative to the project's root
    excusing: int | None = None
    """place of the expected entry, among those of each case, whose slow-down is allowed too"""
    earned: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    """op -> case id -> key -> value that accepted runs have earned in the environment that is judged"""
    loosened: Mapping[str, tuple[Relaxed, ...]] = field(default_factory=dict)
    """op -> relaxed entries that hold on the device and day that are judged"""
    commanded: Mapping[str, float] = field(default_factory=dict)  # key -> value of --threshold
    former: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """op -> case id -> its id in the files. Expected entries are those of the change, by the ids of now"""
    model: Mapping[str, float] = field(default_factory=dict)  # workload -> growth of a step that is allowed, ratio
    step_us: float = 0.0  # between two ticks of the run's timer, if it is more than the floor: a floor itself

    @property
    def alpha(self) -> float:
        """Of the run: see CaseThresholds."""
        return self.commanded.get(layers.ALPHA, self.default.alpha)

    def for_case(self, op: str, case: str) -> CaseThresholds:
        """The thresholds of a case."""
        of_op, filed = self.ops.get(op), self.former.get(op, {}).get(case, case)
        overlay = of_op.common if of_op else self.default
        for pattern, overrides in of_op.cases if of_op else ():
            if matches(filed, pattern):
                overlay = override(overlay, overrides)
        if self.earned or self.loosened or self.commanded:
            entries = [entry for entry in self.loosened.get(op, ()) if entry.about(None, filed)]
            overlay = layers.overlay(overlay, self.earned.get(op, {}).get(filed, {}), entries, self.commanded)
        if self.step_us:
            floors = {timer: max(floor, self.step_us) for timer, floor in overlay.floor_us.items()}
            overlay = replace(overlay, floor_us=floors)
        excuses = () if self.excusing is None else self.expected(op, case)[self.excusing :]
        return overlay.widen(excuses[0].up_to) if excuses else overlay

    def origin(self, op: str, case: str, key: str, device: str) -> str:
        """Where a case's value of a key comes from: a file, --threshold, or `default.yaml` if no one set it."""
        written = replace(self, earned={}, loosened={}, commanded={}).for_case(op, case)
        asked = replace(self, loosened={}, commanded={}).for_case(op, case)
        if key in self.commanded:
            return "--threshold"
        relaxed = getattr(replace(self, commanded={}).for_case(op, case), key) != getattr(asked, key)
        if not relaxed and getattr(asked, key) != getattr(written, key):
            return f"{self.folder}/{device}/{op}.json"
        of_op = self.ops.get(op)
        filed = self.former.get(op, {}).get(case, case)
        of_case = of_op and any(key in fields and matches(filed, pattern) for pattern, fields in of_op.cases)
        by_op = of_op and getattr(of_op.common, key) != getattr(self.default, key)
        return f"{self.folder}/{op if relaxed or of_case or by_op else 'default'}.yaml"

    def expected(self, op: str, case: str | None = None) -> tuple[Expected, ...]:
        """The op's expected entries, or those of them that are about one case."""
        of_op = self.ops.get(op)
        entries = (*of_op.expected, *of_op.dropped) if of_op else ()
        if case is None:
            return entries
        return tuple(entry for entry in entries if not entry.weaker and matches(case, entry.case))

    def with_change(self, entries: Sequence[Expected]) -> Thresholds:
        """These rules with all expected entries of the change that they judge."""
        ops = {}
        for op in sorted({*self.ops, *(entry.op for entry in entries)}):
            of_op = self.ops.get(op, OpThresholds(self.default))
            theirs = tuple(entry for entry in entries if entry.op == op)
            dropped = tuple(entry for entry in of_op.expected if entry not in theirs)
            ops[op] = replace(of_op, expected=theirs, dropped=dropped)
        return replace(self, ops=ops)


def override(limits: CaseThresholds, fields: Mapping[str, Any]) -> CaseThresholds:
    """The limits with the fields of a file in their place. A floor that the file leaves out stays."""
    merged = {**fields, "floor_us": {**limits.floor_us, **fields["floor_us"]}} if "floor_us" in fields else fields
    return replace(limits, **merged)
