"""The chains of a project, and the results of their cases, stage by stage."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import UsageError
from perfci.core.model import Amount, Count, Reason, Whole

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
