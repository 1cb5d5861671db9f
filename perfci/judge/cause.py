"""The likely cause of a case that became slower or faster: what such cases share and others lack."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from perfci.core import units
from perfci.core.model import (
    BaseArm,
    Fact,
    Judgement,
    KernelChange,
    OpRun,
    PerformanceCase,
    Reason,
    Suite,
    Verdict,
    as_fact,
)  # fmt: skip
from perfci.core.model.measured import COMPILED, PARAMETERS

SLOWER = frozenset({Verdict.REGRESSED, Verdict.EXPECTED, Verdict.TAIL})
CALM = frozenset({Verdict.PASS, Verdict.UNCHANGED})
NAMED = 3  # most changes, sizes or values that one sentence names

_NAMES = {
    "stages": "num_stages",
    "warps": "num_warps",
    "grid": as_fact("the grid"),
    "registers": as_fact("registers of a thread"),
    "spills": as_fact("spills of a thread"),
    "shared_bytes": as_fact("shared memory"),
    "launches": as_fact("the number of launches a call"),
    "kernel": as_fact("the kernel's name"),
    "operations": as_fact("the number of torch operations a call"),
    "operation": as_fact("a torch operation"),
}
"""How a change is called that is no constant of the kernel's own."""

_CALLS = {
    "launches_changed": ("launches", "count", "now"),
    "kernel_renamed": ("kernel", "before", "after"),
    "operations_changed": ("operation", "before", "after"),
    "operations_counted": ("operations", "count", "now"),
}
"""Kinds of difference between two calls: what it is called, and the facts that hold both."""


def add_causes(ops: Iterable[OpRun], rows: Sequence[Judgement]) -> list[Judgement]:
    """Returns the rows, those of slower and of faster cases with their likely cause, and with what autotuners chose."""
    reasons: dict[tuple[str, str | None], tuple[Reason, ...]] = {}
    for op in ops:
        cases = {case.case: case for case in op.performance}
        op_rows = [row for row in rows if row.op == op.op and row.suite is Suite.PERFORMANCE and row.case in cases]
        slow, fast, calm = ([cases[str(row.case)] for row in op_rows if row.verdict in side]
                            for side in (SLOWER, {Verdict.IMPROVED}, CALM))  # fmt: skip
        causes = {**find_causes(slow, fast + calm), **find_causes(fast, slow + calm)}
        for case in (cases[str(row.case)] for row in op_rows if row.verdict not in CALM):
            choice, cause = describe_choices(case), causes.get(case.case)
            causing = cause if choice is None or choice.kind != "choice_flipped" else None
            reasons[op.op, case.case] = tuple(reason for reason in (causing, choice) if reason)
    return [
        replace(row, reasons=(*row.reasons, *reasons[row.op, row.case]))
        if row.suite is Suite.PERFORMANCE and (row.op, row.case) in reasons
        else row
        for row in rows
    ]


def describe_choices(case: PerformanceCase) -> Reason | None:
    """Returns what autotuners chose in the processes of a duel. None without a choice, or of a single process."""
    if not case.chosen_again:
        return None
    processes = [case.chosen, *case.chosen_again]
    for arm, texts in zip((as_fact("kernel"), as_fact("base")), zip(*processes, strict=False), strict=False):
        (most, count), *others = Counter(texts).most_common()
        if others:
            facts: dict[str, Fact] = {"arm": arm, "count": len(texts) - count, "processes": len(texts)}
            return Reason("choice_flipped", {**facts, "most": most, "other": others[0][0]})
    kernel, base = (text or "-" for text in case.chosen)
    kind = "choice_kept" if kernel == base or "-" in (kernel, base) else "choice_differs"
    return Reason(kind, {"processes": len(processes), "kernel": kernel, "base": base})


def find_causes(concerned: Sequence[PerformanceCase], calm: Iterable[PerformanceCase]) -> Mapping[str, Reason]:
    """Returns the likely cause of each case that has one. calm: cases of the same op that kept their time.

    It is what all concerned cases share. If they share nothing, those in which the same things changed are taken
    together, whatever their values are: a grid has another size in each case.
    """
    changes_of = {case.case: dict.fromkeys(_list_all(case)) for case in concerned if case.base and not case.base.same}
    changes_of = {case: changes for case, changes in changes_of.items() if changes}
    shared = [
        change
        for change in next(iter(changes_of.values()), ())
        if all(change in changes for changes in changes_of.values())
    ]
    groups: dict[object, list[str]] = {}
    for case, changes in changes_of.items():
        roots = frozenset(change.name for change in changes if change.name not in COMPILED)
        alone = not any(change.name not in COMPILED for change in shared)
        groups.setdefault(roots if alone else None, []).append(case)
    quiet = [set(_list_all(case)) for case in calm if case.base and case.base.same is not None]
    causes: dict[str, Reason] = {}
    for key, names in groups.items():
        joined = {change: {change} for change in shared} if key is None else _join([changes_of[name] for name in names])
        if reason := _name_cause(joined, quiet):
            causes |= dict.fromkeys(names, reason)
    return causes


def _join(cases: Sequence[Iterable[KernelChange]]) -> dict[KernelChange, set[KernelChange]]:
    """Changes of what changed in all of these cases, with the values of all, and of which changes each is made."""
    kernel_changes: dict[str, list[KernelChange]] = {}
    for changed in chain.from_iterable(cases):
        kernel_changes.setdefault(changed.name, []).append(changed)
    shared = set.intersection(*({change.name for change in changes} for changes in cases))

    def write(values: Iterable[str]) -> str:
        first, *others = dict.fromkeys(values)
        return " / ".join((first, *others[: NAMED - 1], *(["..."] if len(others) >= NAMED else [])))

    return {
        KernelChange(name, write(change.was for change in named), write(change.now for change in named)): set(named)
        for name, named in kernel_changes.items()
        if name in shared
    }


def _name_cause(
    shared: Mapping[KernelChange, set[KernelChange]], quiet: Sequence[Collection[KernelChange]]
) -> Reason | None:
    """Since: no case that kept its time has it, and there are such cases. With: it may be a coincidence."""
    roots = [change for change in shared if change.name not in COMPILED]
    roots = [root for root in roots if root.name != "grid"] or roots  # which follows from the tiles
    spilled = [change for change, parts in shared.items()
               if change.name == "spills" and all(int(part.now) > int(part.was) for part in parts)]  # fmt: skip
    candidates = roots or spilled
    certain = [
        candidate
        for candidate in candidates
        if quiet and all(shared[candidate].isdisjoint(changes) for changes in quiet)
    ]
    named = certain or candidates or [change for change in shared if change.name in COMPILED]
    if not named:
        return None
    first, *others = [(_NAMES.get(one.name, one.name), *map(_write_value, (one, one), (one.was, one.now)))
                      for one in {one.name: one for one in reversed(named)}.values()][::-1][:NAMED]  # fmt: skip
    more = "".join(f", {name} {was} -> {now}" for name, was, now in others)
    facts: dict[str, Fact] = {"name": first[0], "before": first[1], "after": first[2], "more": more}
    return Reason("cause_since" if certain else "cause_with", facts)


def _write_value(change: KernelChange, value: str) -> str:
    if change.name not in {"spills", "shared_bytes"}:
        return value
    return " / ".join(units.size(int(part)) if part.isdecimal() else part for part in value.split(" / "))


def _list_all(case: PerformanceCase) -> Iterator[KernelChange]:
    """Differences from the base's call: its kernels, then how many there are and what torch does."""
    yield from list_changes([case])
    for change in case.base.changes if case.base else ():
        if change.kind in _CALLS:
            name, was, now = _CALLS[change.kind]
            # Without the arguments of an operation, among which are sizes.
            before, after = (str(change.facts[side]).partition("(")[0] for side in (was, now))
            if before != after:
                yield KernelChange(name, before, after)


def list_changes(cases: Iterable[PerformanceCase]) -> tuple[KernelChange, ...]:
    """Differences between these cases' kernels and their bases', each once: stages 4 -> 3. Constants come first.

    A kernel that only one of both has shows nothing. Grids follow from constants, so they only count alone.
    """
    changes: list[KernelChange] = []
    grids: list[KernelChange] = []
    for case in cases:
        base = case.base or BaseArm()
        for kind, facts in ((change.kind, change.facts) for change in base.changes):
            before, after = str(facts.get("before")), str(facts.get("after"))
            if kind == "launch_changed" and facts["what"] == "grid":
                grids.append(KernelChange("grid", before, after))
            # Without what the compiler made of the base, the launches show what they were given.
            elif kind == "launch_changed" and not base.compiled:
                changes.append(KernelChange(str(facts["what"]), before, after))
            elif kind == "argument_changed" and not base.compiled and "#" not in before + after:
                name = str(facts["name"])
                changes.append(KernelChange("shared_bytes" if name == "shared memory" else name, before, after))
        for kernel in dict.fromkeys(kernel_launch.name for kernel_launch in case.compiled):
            # A call may launch one kernel several times, with other constants.
            sides = (
                [launch.parameters for launch in ran if launch.name == kernel] for ran in (base.compiled, case.compiled)
            )
            for was, now in zip(*sides, strict=False):
                changes += [
                    KernelChange(name, was[name], now[name]) for name in was if now.get(name, was[name]) != was[name]
                ]
    order = {name: place for place, name in enumerate(PARAMETERS, 1)}
    return tuple(dict.fromkeys(sorted(changes, key=lambda change: order.get(change.name, 0)) or grids))
