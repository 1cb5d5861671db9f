"""Is the whole right; if not, which stage is to blame? Numbers in, reasons out: nothing here calls a stage."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfci.core.model import Fact, Reason
from perfci.lab.chains.records import Error, StageResult
from perfci.lab.chains.state import ends, leading_to
from perfci.measure.closeness import RATIO, TOLERANCES, finiteness, first_index

Host = np.ndarray[Any, Any]
Where = Mapping[str, Fact]
Reads = Sequence[Sequence[int]]

NOISE = 2.0**-10
"""Errors below this share of a dtype's epsilon count as this: by how many times one of them is larger says nothing."""

MEASURES = ("l2", "max_abs")


@dataclass(frozen=True)
class Output:
    """One output of a stage as its numbers."""

    name: str
    dtype: str
    epsilon: float
    """of the dtype; 0 for integers"""
    largest: float
    """largest finite magnitude of the exact output"""
    so_far: Error
    usual: Error


@dataclass(frozen=True)
class Judged:
    """What is said of the chain's outputs."""

    whole: Error | None = None
    limit: Error | None = None
    failures: tuple[Reason, ...] = ()


def worst(errors: Sequence[Error]) -> Error:
    """Of several outputs the largest of each figure."""
    found = {name: [value for each in errors if (value := getattr(each, name)) is not None] for name in MEASURES}
    return Error(*(max(found[name], default=None) for name in MEASURES))


def with_growth(stages: Sequence[StageResult], reads: Reads) -> tuple[StageResult, ...]:
    """Stages with the growth of the relative L2 error over the stages that each reads."""
    return tuple(
        replace(
            stage,
            growth=_growth([stages[before].so_far for before in reads[at]], stage.so_far),
            usual_growth=_growth([stages[before].usual for before in reads[at]], stage.usual),
        )
        for at, stage in enumerate(stages)
    )


def _growth(before: Sequence[Error | None], now: Error | None) -> float | None:
    known = [each.l2 for each in before if each and each.l2 is not None]
    if not known or not max(known) or now is None or now.l2 is None:
        return None
    grown = now.l2 / max(known)
    return grown if math.isfinite(grown) else None


# --- NaN and infinities -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Values:
    """An output of a stage on the host, all of one shape."""

    got: Host
    """of the kernels all through"""
    exact: Host
    """in float64"""
    rounded: Host
    """that, rounded to the case's dtype"""
    usual: Host
    """of the references in the case's dtype all through"""


def introduced(values: Values) -> Host:
    """Where the kernels have NaN or an infinity, and neither the rounded exact answer nor PyTorch has one."""
    mine: Host = _bad(values) & (finiteness(values.rounded) == 0) & (finiteness(values.usual) == 0)
    return mine


def overflowed(values: Values) -> Host:
    """Where the exact answer is finite, but not PyTorch's in the same dtype, or not once it is rounded to that."""
    theirs: Host = _bad(values) & ~introduced(values)
    return theirs


def swallowed(values: Values) -> Host:
    """Where NaN or an infinity is right, PyTorch has it, and the kernels have something else."""
    kind = finiteness(values.got)
    exact = finiteness(values.rounded)
    lost: Host = (finiteness(values.exact) != 0) & (kind != exact) & (kind != finiteness(values.usual))
    return lost


def _bad(values: Values) -> Host:
    bad: Host = (finiteness(values.got) != 0) & (finiteness(values.exact) == 0)
    return bad


def not_finite(values: Values, where: Where) -> Reason | None:
    """That a stage's kernel made NaN or an infinity, or lost one."""
    mine, lost = introduced(values), swallowed(values)
    if mine.any():
        return Reason("chain_not_finite", _places(values, mine, where))
    return Reason("chain_swallowed", _places(values, lost, where)) if lost.any() else None


def overflow(values: Values, where: Where, dtype: str) -> Reason | None:
    """That the format's range is at fault, not the kernel."""
    theirs = overflowed(values)
    return Reason("chain_overflow", {**_places(values, theirs, where), "dtype": dtype}) if theirs.any() else None


def _places(values: Values, mask: Host, where: Where) -> dict[str, Fact]:
    at = first_index(mask)
    count: dict[str, Fact] = {"count": int(mask.sum()), "size": int(mask.size), "index": str(at)}
    return {**where, **count, "got": f"{values.got[at]:g}", "expected": f"{values.exact[at]:.4g}"}


# --- the whole --------------------------------------------------------------------------------------------------------


def judge(
    stages: Sequence[StageResult],
    outputs: Sequence[Sequence[Output]],
    reads: Reads,
    tolerance: Mapping[str, float] | None,
    where: Where,
) -> Judged:
    """Hold what the chain gives against its limits; every output that is too far is told once.

    stages, outputs, reads: of all stages, in order; all of them were computed.
    """
    found = [(end, output, _limit(output, tolerance)) for end in ends(reads) for output in outputs[end]]
    failures = [
        _too_far(measure, _Far(stages, outputs, reads, end), output, limit, where)
        for end, output, limit in found
        for measure in _beyond(output.so_far, limit)
    ]
    if not found:
        return Judged(failures=tuple(failures))
    _, nearest, limit = max(found, key=lambda each: _share(each[1].so_far, each[2]))
    return Judged(nearest.so_far, limit, tuple(failures))


def _limit(output: Output, tolerance: Mapping[str, float] | None) -> Error:
    """The tolerance, or RATIO times what PyTorch's own ops are off by, whichever is larger."""
    rtol = (tolerance or {}).get(output.dtype, TOLERANCES.get(output.dtype, (0.0, 0.0))[0])
    usual = output.usual
    return Error(max(rtol, RATIO * (usual.l2 or 0.0)), max(rtol * output.largest, RATIO * (usual.max_abs or 0.0)))


def _beyond(error: Error, limit: Error) -> Iterator[str]:
    """The first measure by which it is too far; one that is unknown is held by the other."""
    for measure in MEASURES:
        value, most = getattr(error, measure), getattr(limit, measure)
        if value is not None and value > most:
            yield measure
            return


def _share(error: Error, limit: Error) -> float:
    shares = [
        value / most if (most := getattr(limit, name)) else math.inf
        for name in MEASURES
        if (value := getattr(error, name))
    ]
    return max(shares, default=0.0)


@dataclass(frozen=True)
class _Far:
    """What led to an output that is too far."""

    stages: Sequence[StageResult]
    outputs: Sequence[Sequence[Output]]
    reads: Reads
    end: int

    def culprit(self, measure: str) -> int:
        """The stage that leads to the end whose error grows most beyond PyTorch's, the first of equals."""
        beyond = {at: self._beyond(at, measure) for at in leading_to(self.reads, self.end)}
        return max(beyond, key=lambda at: beyond[at])

    def before(self, at: int, which: str, measure: str) -> float:
        """Largest error of the stages that one reads; 0 where it reads inputs alone."""
        errors = (getattr(self.stages[each], which) for each in self.reads[at])
        return max((getattr(error, measure) or 0.0 for error in errors if error), default=0.0)

    def _beyond(self, at: int, measure: str) -> float:
        """By how many times the error outgrows PyTorch's; a lead that earlier stages had over PyTorch is no debt."""
        return self._ratio(at, measure) / max(1.0, *(self._ratio(each, measure) for each in self.reads[at]), 1.0)

    def _ratio(self, at: int, measure: str) -> float:
        """How many times PyTorch's error the kernels' is."""
        return max((_times(output, measure) for output in self.outputs[at]), default=1.0)


def _times(output: Output, measure: str) -> float:
    ours, theirs = getattr(output.so_far, measure), getattr(output.usual, measure)
    floor = NOISE * (output.epsilon or TOLERANCES["float64"][0])
    floor *= 1.0 if measure == "l2" else output.largest or 1.0
    return max(ours or 0.0, floor) / max(theirs or 0.0, floor)


def _too_far(measure: str, far: _Far, output: Output, limit: Error, where: Where) -> Reason:
    at = far.culprit(measure)
    stage = far.stages[at]
    assert stage.so_far is not None
    assert stage.usual is not None
    facts: dict[str, Fact] = {
        **where,
        "name": output.name,
        "stage": stage.stage,
        "error": getattr(output.so_far, measure),
        "limit": getattr(limit, measure),
        "usual": getattr(output.usual, measure),
        "before": far.before(at, "so_far", measure),
        "after": getattr(stage.so_far, measure),
        "usual_before": far.before(at, "usual", measure),
        "usual_after": getattr(stage.usual, measure),
    }
    return Reason("chain_too_far" if measure == "l2" else "chain_too_far_at", facts)
