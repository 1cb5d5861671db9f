"""The chains of a project, what their files declare, and the results of their cases, stage by stage."""

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from perfci.core.errors import UsageError
from perfci.core.model import Amount, Count, Fact, Reason, Whole
from perfci.measure.closeness import RATIO, TOLERANCES, finiteness, first_index
from perfci.ops.spec import Params


@dataclass(frozen=True)
class Stage:
    """One step of a chain: an op, or the few lines that a model has around one.

    `kernel` and `reference` take what they need by name: inputs of the chain, and what earlier stages gave. A tensor
    that they give is known to later stages by the stage's name, the tensors of a mapping by their keys.
    """

    name: str
    kernel: Callable[..., Any]
    reference: Callable[..., Any]
    takes: Mapping[str, str] = field(default_factory=dict)
    """parameter of both functions -> what it is given, such as {"a": "norm", "b": "w_out"}; no other parameter is given
    anything. If it is left out each parameter is given what has its name, unless it has a default and nothing has"""


@dataclass(frozen=True)
class Chain:
    """Several ops one behind the other, as a model calls them: checked stage by stage and as a whole.

    `make_inputs(**case, device=..., seed=...)` gives what the stages start from, by name: tensors and other values.
    """

    command: ClassVar[str] = "chain"  # that checks it, and how its file's name ends: `NAME_chain.py`

    make_inputs: Callable[..., Mapping[str, Any]]
    stages: Sequence[Stage]
    cases: Sequence[Params]
    tolerance: Mapping[str, float] | None = None
    """dtype -> error allowed in what the chain gives: relative L2 error, and largest error by the largest magnitude.
    If a dtype is missing it is the rtol of torch.testing"""
    accelerator_cases: Sequence[Params] = ()  # more cases, too large for Triton's interpreter


FOLDER = "_chains"  # In the kernels folder. It is no op, since its name begins with an underscore.

ENDING = "_chain.py"


def find_chains(kernels: Path) -> dict[str, Path]:
    """Every chain of a kernels folder, `_chains/<name>_chain.py`, by name. Nothing is imported."""
    return {path.name.removesuffix(ENDING): path for path in sorted((kernels / FOLDER).glob(f"[!._]*{ENDING}"))}


def select_chains(kernels: Path, names: Sequence[str]) -> dict[str, Path]:
    """The chains of these names, or all of them. Raises UsageError if one is missing, with the nearest name."""
    chains = find_chains(kernels)
    if not chains:
        raise UsageError("chain_none", folder=str(kernels / FOLDER))
    for name in names:
        if name not in chains:
            near = difflib.get_close_matches(name, chains, n=1, cutoff=0.0)
            raise UsageError("chain_unknown", chain=name, guess=near[0], known=", ".join(chains))
    return {name: path for name, path in chains.items() if not names or name in names}


@dataclass(frozen=True)
class Error:
    """How far outputs are from those in float64, over the elements that are finite in both: the worst of several."""

    l2: Amount | None = None
    """relative, ||output - exact|| / ||exact||, None if only ||exact|| is 0 or if nothing is finite"""
    max_abs: Amount | None = None  # largest absolute error, None if nothing is finite


MEASURES = ("l2", "max_abs")


def worst(errors: Sequence[Error]) -> Error:
    """The largest of each figure of several outputs."""
    measured = {name: [value for error in errors if (value := getattr(error, name)) is not None] for name in MEASURES}
    return Error(*(max(measured[name], default=None) for name in MEASURES))


@dataclass(frozen=True)
class Output:
    """One output of a stage as its numbers."""

    name: str
    dtype: str
    epsilon: Amount  # of the dtype, 0 for integers
    largest: Amount  # largest finite magnitude of the exact output
    so_far: Error
    usual: Error
    faults: Count = 0  # elements that are NaN or infinite and should not be, or the other way round


@dataclass(frozen=True)
class StageMeasured:
    """What the worker of a chain has measured of one stage of a case."""

    stage: str
    reads: tuple[Count, ...] = ()  # places of the stages whose outputs it takes
    usual: Error | None = None  # of the references in the case's dtype up to here
    outputs: tuple[Output, ...] = ()  # of the kernels. None if they did not come so far
    strays: Count = 0  # arrays of other stages, and guard zones, that its kernel wrote into

    @property
    def so_far(self) -> Error | None:
        """Of the kernels from the chain's inputs up to here. None if they did not come so far."""
        return worst([output.so_far for output in self.outputs]) if self.outputs else None


@dataclass(frozen=True)
class ChainMeasured:
    """What the worker of a chain reports of one case. What it means is decided from its numbers (`conclude`)."""

    case: str
    seed: Whole
    stages: tuple[StageMeasured, ...] = ()
    failures: tuple[Reason, ...] = ()  # what is wrong, the gravest first
    raised: bool = False  # a stage raised or crashed, so that there is no whole answer: ERROR instead of WRONG
    notes: tuple[Reason, ...] = ()  # what is worth knowing and no kernel's fault
    unchecked: Reason | None = None  # why it could not be checked on this machine
    lost: bool = False  # the process lost its device, so that the other cases need another process


@dataclass(frozen=True)
class ChainCase(ChainMeasured):
    """One case of a chain, judged."""

    whole: Error | None = None
    """of what the chain gives, of several outputs the one nearest to its limit, None if the kernels got no answer"""
    limit: Error | None = None  # allowed for it

    @property
    def verdict(self) -> str:
        """PASS, WRONG, ERROR or UNCHECKED."""
        if self.unchecked:
            return "UNCHECKED"
        if self.raised:
            return "ERROR"
        return "WRONG" if self.failures else "PASS"


@dataclass(frozen=True)
class ChainResult:
    """A chain, checked."""

    name: str
    cases: tuple[ChainCase, ...] = ()
    failure: Reason | None = None  # why it could not be checked at all, or not to its end

    @property
    def failed(self) -> bool:
        """Whether it, or one of its cases, is wrong or broken."""
        return self.failure is not None or any(case.failures for case in self.cases)


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
