"""The likely cause of a verdict: what slower cases share and others lack, and the pattern of answers that are wrong."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from perfci.core import units
from perfci.core.model import (
    AccuracyCase,
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

_WIDE = tuple(2**power for power in range(1, 14))  # widths of a block along an axis, elements


def add_causes(ops: Iterable[OpRun], rows: Sequence[Judgement]) -> list[Judgement]:
    """Returns the rows, those of slower and of faster cases with their likely cause as the last reason."""
    reasons: dict[tuple[str, str | None], Reason] = {}
    for op in ops:
        cases = {case.case: case for case in op.performance}
        own = [row for row in rows if row.op == op.op and row.suite is Suite.PERFORMANCE and row.case in cases]
        slow, fast, calm = ([cases[str(row.case)] for row in own if row.verdict in side]
                            for side in (SLOWER, {Verdict.IMPROVED}, CALM))  # fmt: skip
        causes = {**find_causes(slow, fast + calm), **find_causes(fast, slow + calm)}
        reasons |= {(op.op, case): reason for case, reason in causes.items()}
    return [
        replace(row, reasons=(*row.reasons, reasons[row.op, row.case]))
        if row.suite is Suite.PERFORMANCE and (row.op, row.case) in reasons
        else row
        for row in rows
    ]


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
        own = {change: {change} for change in shared} if key is None else _join([changes_of[name] for name in names])
        if reason := _name_cause(own, quiet):
            causes |= dict.fromkeys(names, reason)
    return causes


def _join(cases: Sequence[Iterable[KernelChange]]) -> dict[KernelChange, set[KernelChange]]:
    """Changes of what changed in all of these cases, with the values of all, and of which changes each is made."""
    kernel_changes: dict[str, list[KernelChange]] = {}
    for each in chain.from_iterable(cases):
        kernel_changes.setdefault(each.name, []).append(each)
    shared = set.intersection(*({change.name for change in changes} for changes in cases))

    def write(values: Iterable[str]) -> str:
        first, *others = dict.fromkeys(values)
        return " / ".join((first, *others[: NAMED - 1], *(["..."] if len(others) >= NAMED else [])))

    return {
        KernelChange(name, write(each.was for each in own), write(change.now for change in own)): set(own)
        for name, own in kernel_changes.items()
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
                [launch.parameters for launch in own if launch.name == kernel] for own in (base.compiled, case.compiled)
            )
            for was, now in zip(*sides, strict=False):
                changes += [
                    KernelChange(name, was[name], now[name]) for name in was if now.get(name, was[name]) != was[name]
                ]
    order = {name: place for place, name in enumerate(PARAMETERS, 1)}
    return tuple(dict.fromkeys(sorted(changes, key=lambda change: order.get(change.name, 0)) or grids))


_HOW = {
    "wrote_outside": "pattern_outside", "not_written": "pattern_unwritten", "used_outside": "pattern_strays",
    "race": "pattern_race", "differs_from_itself": "pattern_race",
}  # fmt: skip
"""Kinds of failure that are a pattern by themselves. Each explains those behind it: strays race with their owners."""

_BY_VALUE = frozenset({"wrong_values", "not_finite", "less_exact"})
"""Kinds of failure that other cases may not have. All others say by themselves what to change."""


def find_pattern(op: str, checks: Sequence[AccuracyCase]) -> Reason | None:
    """Returns what wrong answers have in common. None if nothing was found, or nothing is wrong.

    First how they are wrong, then with which inputs, then where in the output, then in which cases.
    """
    made = [check for check in checks if check.unchecked is None and not check.case.startswith("rejects=")]
    failed = [(check, check.failure) for check in made if check.failure and not check.raised]
    kinds = {why.kind for _, why in failed}
    if not failed:
        return None
    if first := next((kind for kind in _HOW if kind in kinds), None):
        same = [why.facts for _, why in failed if why.kind == first]
        farthest = max(same, key=_reach) if first == "wrote_outside" else {}
        return Reason(_HOW[first], {**farthest, "op": op})
    if kinds == {"less_exact"}:
        return Reason("pattern_imprecise", {"op": op})
    if not kinds <= _BY_VALUE:
        return None
    ordinary = [check for check in made if check.values == "normal" and check.layout == "contiguous"]
    broken = {check.case for check in ordinary if check.failure and not check.raised}
    if not broken:
        layouts, values = ({getattr(check, name) for check, _ in failed} for name in ("layout", "values"))
        if "contiguous" not in layouts:
            return Reason("pattern_layouts", {"op": op, "layouts": ", ".join(sorted(layouts))})
        return None if "normal" in values else Reason("pattern_values", {"op": op, "values": ", ".join(sorted(values))})
    places = [(_read(check.case), why) for check, why in failed if check.case in broken and check.values == "normal"]
    if end := _find_end(op, places) or _find_left_out(op, places):
        return end
    # A case without elements cannot be wrong.
    cases = {case: params for case in dict.fromkeys(check.case for check in ordinary)
             if 0 not in (params := _read(case)).values()}  # fmt: skip
    if broken >= cases.keys():
        return _describe_everywhere(op, cases)
    bad, good = ([params for case, params in cases.items() if (case in broken) is wrong] for wrong in (True, False))
    dtypes, right = ({str(params.get("dtype")) for params in own} for own in (bad, good))
    if dtypes.isdisjoint(right):
        return Reason("pattern_dtypes", {"op": op, "dtypes": ", ".join(sorted(dtypes))})
    return next(filter(None, (_find_sizes(op, name, bad, good) for name in bad[0])), None)


def _reach(facts: Mapping[str, Fact]) -> int:
    """How far outside its arrays a kernel wrote, in elements."""
    return int(str(facts.get("far") or 0))


def _read(case: str) -> dict[str, int | str]:
    """The parameters of a case's id."""
    pairs = (part.partition("=") for part in case.split(",") if "=" in part)
    return {name: int(value) if value.isdecimal() else value for name, _, value in pairs}


def _find_end(op: str, places: Sequence[tuple[Mapping[str, int | str], Reason]]) -> Reason | None:
    """Whether all wrong elements lie in the last block along an axis, or are its last element.

    Records have one index and the number of wrong elements, which is at most that of the elements in the block.
    """
    for axis in (-1, 0):
        for name in (name for name, length in places[0][0].items() if isinstance(length, int)):
            causes = []
            for params, why in places:
                length, size, count = params.get(name), why.facts.get("size"), why.facts.get("count")
                index = [*map(int, re.findall(r"\d+", str(why.facts.get("index"))))]
                if not (
                    isinstance(length, int) and isinstance(size, int) and isinstance(count, int) and size and index
                ):
                    break
                causes.append((length, index[axis], count * length / size))
            for width in _WIDE if len(causes) == len(places) else ():
                # The last block is cut, unless it is a single element.
                last = [(length, length % width or 1) for length, _, _ in causes]
                inside = all(
                    length - rest <= at < length and wrong <= rest
                    for (length, rest), (_, at, wrong) in zip(last, causes, strict=True)
                )
                if inside and any(2 * rest < length for length, rest in last):
                    return Reason("pattern_end", {"op": op, "name": name})
    return None


def _find_left_out(op: str, places: Sequence[tuple[Mapping[str, int | str], Reason]]) -> Reason | None:
    """Whether all answers that can tell are those of inputs without their last elements along one axis."""
    left = {str(why.facts["left_out"]) for _, why in places if why.facts.get("left_out")}
    for params, why in places:
        for name in left:
            length = params.get(name)
            told = isinstance(length, int) and length > 1 and [*params.values()].count(length) == 1
            if told and why.facts.get("left_out", name) != name:
                return None
    if len(left) != 1:
        return None
    most = max(int(str(why.facts["left"])) for _, why in places if why.facts.get("left_out"))
    return Reason("pattern_left_out", {"op": op, "name": next(iter(left)), "most": most})


def _describe_everywhere(op: str, cases: Mapping[str, Mapping[str, int | str]]) -> Reason:
    """That all cases are wrong: sizes and dtypes only if there are several of both."""
    if len(cases) == 1:
        return Reason("pattern_one", {"op": op, "case": next(iter(cases))})
    dtypes = {params.get("dtype") for params in cases.values()}
    sizes = {tuple(size for name, size in params.items() if name != "dtype") for params in cases.values()}
    if len(dtypes) > 1 and len(sizes) > 1:
        return Reason("pattern_everywhere", {"op": op})
    return Reason("pattern_all", {"op": op, "cases": len(cases)})


def _find_sizes(
    op: str, name: str, bad: Sequence[Mapping[str, Fact]], good: Sequence[Mapping[str, Fact]]
) -> Reason | None:
    """Whether one parameter separates the cases that are wrong from those that are right."""
    wrong, right = ({size for params in own if isinstance(size := params.get(name), int)} for own in (bad, good))
    if not wrong or not right:
        return None
    facts: dict[str, Fact] = {"op": op, "name": name, "least": min(wrong), "most": max(wrong)}
    facts["sizes"] = ", ".join(map(str, sorted(wrong)[:NAMED])) + (", ..." if len(wrong) > NAMED else "")
    if min(wrong) > max(right):
        return Reason("pattern_from", facts)
    if max(wrong) < min(right):
        return Reason("pattern_up_to", facts)
    for width in _WIDE:
        cut = {size for size in wrong | right if size % width}
        if wrong <= cut and right - cut and 2 * len(wrong) > len(cut) and not wrong & right:
            return Reason("pattern_ragged", facts)
    return None
