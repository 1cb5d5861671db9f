"""Is the whole right? If not, which stage is to blame? Numbers in, reasons out: nothing here calls a stage."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfci.core.model import Fact, Reason
from perfci.extensions.lab.chains.records import MEASURES, ChainCase, ChainMeasured, Error, StageMeasured
from perfci.measure.closeness import RATIO, TOLERANCES, finiteness, first_index

Host = np.ndarray[Any, Any]
Where = Mapping[str, Fact]
NOISE = 2.0**-10  # errors below this share of a dtype's epsilon count as this: the ratio of two of them means nothing

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
    stages, failures, whole, limit = measured.stages, measured.failures, None, None
    leads_back = all(read < at for at, stage in enumerate(stages) for read in stage.reads)
    if stages and leads_back and all(stage.outputs and stage.usual for stage in stages):
        whole, limit, too_far = judge(stages, tolerance, where)
        failures = (*failures, *too_far)
    faults = sum(stage.strays + sum(output.faults for output in stage.outputs) for stage in stages)
    if not (failures or measured.unchecked) and (whole is None or faults):
        failures = (Reason("chain_unproven", {**where, "stages": len(stages), "faults": faults}),)
    unchecked = None if failures else measured.unchecked
    return ChainCase(**{**vars(measured), "failures": failures, "unchecked": unchecked}, whole=whole, limit=limit)


# --- the whole --------------------------------------------------------------------------------------------------------


def judge(
    stages: Sequence[StageMeasured], tolerance: Mapping[str, float] | None, where: Where
) -> tuple[Error | None, Error | None, tuple[Reason, ...]]:
    """Returns the error nearest to its limit, that limit, and a reason for each output of the chain that is too far."""
    nearest: tuple[float, Error | None, Error | None] = (-1.0, None, None)
    failures = []
    taken = {read for stage in stages for read in stage.reads}
    for end in (at for at in range(len(stages)) if at not in taken):  # what they give is what the chain gives
        for output in stages[end].outputs:
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
                facts = _blame(stages, end, beyond[0])
                facts |= {"name": output.name, "limit": getattr(limit, beyond[0]), **where}
                facts |= {"error": getattr(ours, beyond[0]), "usual": getattr(usual, beyond[0])}
                failures.append(Reason("chain_too_far" if beyond[0] == "l2" else "chain_too_far_at", facts))
    return nearest[1], nearest[2], tuple(failures)


def _blame(stages: Sequence[StageMeasured], end: int, measure: str) -> dict[str, Fact]:
    """The stage that leads to the end whose error grows most beyond PyTorch's, the first of equals, and both errors."""

    def lead(at: int) -> float:
        """How many times PyTorch's error the kernels' is."""
        ratios = []
        for output in stages[at].outputs:
            floor = NOISE * (output.epsilon or TOLERANCES["float64"][0])
            floor *= 1.0 if measure == "l2" else output.largest or 1.0
            ours, theirs = getattr(output.so_far, measure), getattr(output.usual, measure)
            ratios.append(max(ours or 0.0, floor) / max(theirs or 0.0, floor))
        return max(ratios, default=1.0)

    leading = {end}
    for at in range(end, -1, -1):  # a stage reads earlier ones alone
        leading |= set(stages[at].reads) if at in leading else set()
    # If earlier stages were better than PyTorch, a stage that only loses that lead is not to blame.
    grown = {at: lead(at) / max(1.0, *map(lead, stages[at].reads), 1.0) for at in sorted(leading)}
    culprit = max(grown, key=lambda at: grown[at])

    def find_before(which: str) -> float:
        errors = (getattr(stages[read], which) for read in stages[culprit].reads)
        return max((getattr(error, measure) or 0.0 for error in errors if error), default=0.0)

    blame = stages[culprit]
    facts = {"stage": blame.stage, "before": find_before("so_far"), "after": getattr(blame.so_far, measure)}
    return {**facts, "usual_before": find_before("usual"), "usual_after": getattr(blame.usual, measure)}
