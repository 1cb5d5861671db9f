"""Declarations of a chain's file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

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
