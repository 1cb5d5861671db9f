"""Is the whole right? If not, which stage is to blame? Numbers in, reasons out: nothing here calls a stage."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfci.core.model import Fact, Reason
from perfci.extensions.lab.chains.records import ChainCase, ChainMeasured, Error, Output, StageResult
from perfci.measure.closeness import RATIO, TOLERANCES, finiteness, first_index

Host = np.ndarray[Any, Any]
Where = Mapping[str, Fact]
Reads = Sequence[Sequence[int]]  # for each stage the places of the stages that it takes outputs of
NOISE = 2.0**-10  # errors below this share of a dtype's epsilon count as this: the ratio of two of them means nothing

MEASURES = ("l2", "max_abs")


def worst(errors: Sequence[Error]) -> Error:
    """The largest of each figure of several outputs."""
    measured = {name: [value for error in errors if (value := getattr(error, name)) is not None] for name in MEASURES}
    return Error(*(max(measured[name], default=None) for name in MEASURES))


# --- NaN and infinities -----------------------------------------------------------------------------------------------


def judge_finiteness(
    values: tuple[Host, Host, Host, Host], where: Where, dtype: str
) -> tuple[Reason | None, Reason | None]:
    """Returns the kernel's fault with NaN and infinities, and what is only a limit of the format.

    values: of the kernels all through, exact, exact rounded to the case's dtype, and PyTorch's in this dtype.
    """
    got, exact, rounded, usual = map(finiteness, values)
    bad = (got != 0) & (exact == 0)
    made = bad & (rounded == 0) & (usual == 0)
    lost = (exact != 0) & (got != rounded) & (got != usual)
    beyond = bad & ~made

    def place(kind: str, mask: Host, **more: Fact) -> Reason | None:
        if not mask.any():
            return None
        at = first_index(mask)
        facts: dict[str, Fact] = {"count": int(mask.sum()), "size": int(mask.size), "index": str(at)}
        shown = {"got": f"{values[0][at]:g}", "expected": f"{values[1][at]:.4g}"}
        return Reason(kind, {**where, **facts, **shown, **more})

    fault = place("chain_not_finite", made) or place("chain_swallowed", lost)
    return fault, place("chain_overflow", beyond, dtype=dtype)


# --- from what a worker has measured to a verdict ---------------------------------------------------------------------


def conclude(measured: ChainMeasured, tolerance: Mapping[str, float] | None, where: Where) -> ChainCase:
    """Returns what a case's numbers mean. One that lacks numbers, or the reason for what they show, has not passed."""
    reads, outputs = [stage.reads for stage in measured.stages], [stage.outputs for stage in measured.stages]
    so_far = [worst([output.so_far for output in gave]) if gave else None for gave in outputs]
    stages = tuple(StageResult(one.stage, error, one.usual) for one, error in zip(measured.stages, so_far, strict=True))
    whole = limit = None
    failures = measured.failures
    leads_back = all(read < at for at, places in enumerate(reads) for read in places)
    if stages and all(outputs) and all(stage.usual for stage in stages) and leads_back:
        whole, limit, too_far = judge(stages, outputs, reads, tolerance, where)
        failures = (*failures, *too_far)
    faults = sum(stage.strays + sum(output.faults for output in stage.outputs) for stage in measured.stages)
    if not (failures or measured.unchecked) and (whole is None or faults):
        failures = (Reason("chain_unproven", {**where, "stages": len(stages), "faults": faults}),)
    unchecked = None if failures else measured.unchecked
    case, seed, raised, notes = measured.case, measured.seed, measured.raised, measured.notes
    return ChainCase(case, seed, stages, whole, limit, failures, raised, notes, unchecked)


# --- the whole --------------------------------------------------------------------------------------------------------


def judge(
    stages: Sequence[StageResult],
    outputs: Sequence[Sequence[Output]],
    reads: Reads,
    tolerance: Mapping[str, float] | None,
    where: Where,
) -> tuple[Error | None, Error | None, tuple[Reason, ...]]:
    """Returns the error nearest to its limit, that limit, and a reason for each output of the chain that is too far."""
    nearest: tuple[float, Error | None, Error | None] = (-1.0, None, None)
    failures = []
    taken = {at for read in reads for at in read}
    for end in (at for at in range(len(reads)) if at not in taken):  # what they give is what the chain gives
        for output in outputs[end]:
            # The tolerance, or RATIO times the error of PyTorch's own ops, whichever is larger.
            rtol = (tolerance or {}).get(output.dtype, TOLERANCES.get(output.dtype, (0.0, 0.0))[0])
            ours, usual = output.so_far, output.usual
            limit = Error(
                max(rtol, RATIO * (usual.l2 or 0.0)), max(rtol * output.largest, RATIO * (usual.max_abs or 0.0))
            )
            shares = {
                name: value / most if (most := getattr(limit, name)) else math.inf
                for name in MEASURES
                if (value := getattr(ours, name))
            }
            share = max(shares.values(), default=0.0)
            if share > nearest[0]:
                nearest = share, ours, limit
            # An error that is unknown in one measure is judged by the other.
            beyond = [name for name in shares if getattr(ours, name) > getattr(limit, name)]
            if beyond:
                facts = _blame(stages, outputs, reads, end, beyond[0])
                facts |= {"name": output.name, "limit": getattr(limit, beyond[0]), **where}
                facts |= {"error": getattr(ours, beyond[0]), "usual": getattr(usual, beyond[0])}
                failures.append(Reason("chain_too_far" if beyond[0] == "l2" else "chain_too_far_at", facts))
    return nearest[1], nearest[2], tuple(failures)


def _blame(
    stages: Sequence[StageResult], outputs: Sequence[Sequence[Output]], reads: Reads, end: int, measure: str
) -> dict[str, Fact]:
    """The stage that leads to the end whose error grows most beyond PyTorch's, the first of equals, and both errors."""

    def lead(at: int) -> float:
        """How many times PyTorch's error the kernels' is."""
        ratios = [1.0] if not outputs[at] else []
        for output in outputs[at]:
            floor = NOISE * (output.epsilon or TOLERANCES["float64"][0])
            floor *= 1.0 if measure == "l2" else output.largest or 1.0
            ours, theirs = getattr(output.so_far, measure), getattr(output.usual, measure)
            ratios.append(max(ours or 0.0, floor) / max(theirs or 0.0, floor))
        return max(ratios)

    leading = {end}
    for at in range(end, -1, -1):  # a stage reads earlier ones alone
        leading |= set(reads[at]) if at in leading else set()
    # If earlier stages were better than PyTorch, a stage that only loses that lead is not to blame.
    grown = {at: lead(at) / max(1.0, *map(lead, reads[at]), 1.0) for at in sorted(leading)}
    culprit = max(grown, key=lambda at: grown[at])

    def find_before(which: str) -> float:
        errors = (getattr(stages[read], which) for read in reads[culprit])
        return max((getattr(error, measure) or 0.0 for error in errors if error), default=0.0)

    blame = stages[culprit]
    facts = {"stage": blame.stage, "before": find_before("so_far"), "after": getattr(blame.so_far, measure)}
    return {**facts, "usual_before": find_before("usual"), "usual_after": getattr(blame.usual, measure)}
