"""Whether thresholds were tightened only: each value of two sets of files, for each op as a whole and case by case."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields

from perfci.core.environment import mixed
from perfci.thresholds.earned import EarnedFile
from perfci.thresholds.layers import HIGHER, Relaxed, stricter
from perfci.thresholds.limits import CaseThresholds, Thresholds

_FIXED = frozenset({"alpha"})
"""What nobody tightens by itself: less of it is no stricter."""

_HIGHER = HIGHER - _FIXED
"""Of which more is stricter."""


@dataclass(frozen=True)
class Moved:
    """A value that is another now; None where none is set, so that anything is allowed."""

    op: str
    case: str | None
    """None: of the op as a whole"""
    key: str
    before: float | None
    after: float | None
    looser: bool


def moved(before: Thresholds, after: Thresholds, cases: Mapping[str, Iterable[str]]) -> Iterator[Moved]:
    """What differs: `default`, then every op, then those of its known cases for which more differs than for the op."""
    default = tuple(_values("default", None, before.default, after.default))
    yield from default
    for op in sorted({*before.ops, *after.ops}):
        old, new = (each.ops[op].common if op in each.ops else each.default for each in (before, after))
        own = tuple(_values(op, None, old, new))
        yield from own
        if before.expected(op) != after.expected(op):
            yield Moved(op, None, "expected", None, None, looser=True)
        if _relaxed(before, op) != _relaxed(after, op):
            yield Moved(op, None, "relaxed", None, None, looser=True)
        same = {(each.key, each.before, each.after) for each in own}
        for case in sorted(cases.get(op, ())):
            found = _values(op, case, before.for_case(op, case), after.for_case(op, case))
            yield from (each for each in found if (each.key, each.before, each.after) not in same)


def _relaxed(limits: Thresholds, op: str) -> tuple[Relaxed, ...]:
    return limits.ops[op].relaxed if op in limits.ops else ()


def earned_moved(before: EarnedFile, after: EarnedFile) -> Iterator[Moved]:
    """What differs between two files of earned values of an op on a device.

    An entry that is gone or looser is a loosening, but where all began anew in another environment, or where a loss
    was accepted and the value was rescaled by it.
    """
    old, new = ({(each.case, each.key): each for each in file.values} for file in (before, after))
    environments = before.environment, after.environment
    anew = bool(environments[0] and environments[1] and mixed(environments[0], environments[1]))
    for case, key in dict.fromkeys((*old, *new)):
        was, now = old.get((case, key)), new.get((case, key))
        values = was.value if was else None, now.value if now else None
        if values[0] == values[1]:
            continue
        rescaled = bool(now and now.rescaled and (was is None or was.rescaled != now.rescaled))
        looser = was is not None and stricter(key, values[0], values[1])
        yield Moved(after.op, case, key, *values, looser=looser and not anew and not rescaled)


def _values(op: str, case: str | None, before: CaseThresholds, after: CaseThresholds) -> Iterator[Moved]:
    starts = sorted({start for limits in (before, after) for start, _ in limits.tau})
    old, new = _flat(before, starts), _flat(after, starts)
    for key in dict.fromkeys((*old, *new)):
        was, now = old.get(key), new.get(key)
        if was != now:
            yield Moved(op, case, key, was, now, _looser(key, was, now))


def _looser(key: str, before: float | None, after: float | None) -> bool:
    if key in _FIXED:
        return True
    if key in _HIGHER:
        return (after or 0.0) < (before or 0.0)
    return (math.inf if after is None else after) > (math.inf if before is None else before)


def _flat(limits: CaseThresholds, starts: Iterable[float]) -> dict[str, float | None]:
    """Every number by name: floors by timer, tau by each length from which on either side may say otherwise."""
    found: dict[str, float | None] = {}
    for each in fields(limits):
        value = getattr(limits, each.name)
        if each.name == "tau":
            found |= {f"tau {start:g}": limits.tau_at(start) for start in starts}
        elif isinstance(value, Mapping):
            found |= {f"{each.name} {timer}": floor for timer, floor in value.items()}
        else:
            found[each.name] = value
    return found
