"""The pattern of answers that are wrong: what they have in common."""

import re
from collections.abc import Mapping, Sequence

from perfci.core.model import AccuracyCase, Fact, Reason
from perfci.judge.cause import NAMED

_WIDE = tuple(2**power for power in range(1, 14))  # widths of a block along an axis, elements

_DIGITS = 18  # of a size. Python reads no text of more than 4300 as a number
_NUMBER = rf"\d{{1,{_DIGITS}}}"

_HOW = {
    "wrote_outside": "pattern_outside", "not_written": "pattern_unwritten", "used_outside": "pattern_strays",
    "race": "pattern_race", "differs_from_itself": "pattern_race",
}  # fmt: skip
"""Kinds of failure that are a pattern by themselves. Each explains those behind it: strays race with their owners."""

_BY_VALUE = frozenset({"wrong_values", "not_finite", "less_exact"})
"""Kinds of failure that other cases may not have. All others show by themselves what to change."""


def find_pattern(op: str, checks: Sequence[AccuracyCase]) -> Reason | None:
    """Returns what wrong answers have in common. None if nothing was found, or nothing is wrong.

    First how they are wrong, then with which inputs, then where in the output, then in which cases.
    """
    # One that was shrunk has the fault of another, and no sizes that show where it is.
    plain = [check for check in checks if not (check.failure and check.failure.kind == "least_wrong")]
    made = [check for check in plain if check.unchecked is None and not check.case.startswith("rejects=")]
    failed = [(check, check.failure) for check in made if check.failure and not check.raised]
    kinds = {why.kind for _, why in failed}
    if not failed:
        return None
    if first := next((kind for kind in _HOW if kind in kinds), None):
        same = [why.facts for _, why in failed if why.kind == first]
        farthest = max(same, key=lambda facts: _whole(facts.get("far"))) if first == "wrote_outside" else {}
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
    dtypes, right = ({str(params.get("dtype")) for params in group} for group in (bad, good))
    if dtypes.isdisjoint(right):
        return Reason("pattern_dtypes", {"op": op, "dtypes": ", ".join(sorted(dtypes))})
    return next(filter(None, (_find_sizes(op, name, bad, good) for name in bad[0])), None)


def _whole(fact: Fact) -> int:
    """A whole number of a reason. 0 for what is none: an op may have made it up."""
    return fact if isinstance(fact, int) else 0


def _read(case: str) -> dict[str, int | str]:
    """The parameters of a case's id."""
    pairs = (part.partition("=") for part in case.split(",") if "=" in part)
    return {name: int(value) if value.isdecimal() and len(value) <= _DIGITS else value for name, _, value in pairs}


def _find_end(op: str, places: Sequence[tuple[Mapping[str, int | str], Reason]]) -> Reason | None:
    """Whether all wrong elements lie in the last block along an axis, or are its last element.

    Records have one index and the number of wrong elements, which is at most that of the elements in the block.
    """
    for axis in (-1, 0):
        for name in (name for name, length in places[0][0].items() if isinstance(length, int)):
            causes = []
            for params, why in places:
                length, size, count = params.get(name), why.facts.get("size"), why.facts.get("count")
                index = [*map(int, re.findall(_NUMBER, str(why.facts.get("index"))))]
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
    """Whether all answers that can differ are those of inputs without their last elements along one axis."""
    left = {str(why.facts["left_out"]) for _, why in places if why.facts.get("left_out")}
    for params, why in places:
        for name in left:
            length = params.get(name)
            told = isinstance(length, int) and length > 1 and [*params.values()].count(length) == 1
            if told and why.facts.get("left_out", name) != name:
                return None
    if len(left) != 1:
        return None
    most = max(_whole(why.facts.get("left")) for _, why in places if why.facts.get("left_out"))
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
    wrong, right = ({size for params in group if isinstance(size := params.get(name), int)} for group in (bad, good))
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
