"""A call's inputs and outputs: made by the op, filled with values that break kernels, flattened."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfci.device.seam import Arrays, DtypeFacts, Inputs
from perfci.spec import Accuracy, Params, Performance

Host = np.ndarray[Any, Any]

_SPECIALS = 7
"""Every seventh element or so is NaN or infinite: some rows have none, some have several."""


def bound_inputs(suite: Accuracy | Performance, params: Params, device: str, seed: int) -> dict[str, Any]:
    """`make_inputs` for one case; raises TypeError where its names are not the kernel's."""
    inputs = suite.make_inputs(**params, device=device, seed=seed)
    if not isinstance(inputs, Mapping):
        raise TypeError(f"make_inputs returned {type(inputs).__name__}, not a mapping of argument names to values")
    inspect.signature(suite.kernel).bind(**inputs)
    return dict(inputs)


@dataclass(frozen=True)
class Filling:
    """What inputs are filled with."""

    values: str
    """one of `spec.VALUES`"""
    seed: int
    products: int = 0
    """of how many products of two inputs an output element is the sum; 0 where inputs are not multiplied"""


def filled(inputs: Inputs, arrays: Arrays, filling: Filling) -> dict[str, Any]:
    """Inputs with every floating-point array filled anew; `normal` keeps what make_inputs made."""
    if filling.values == "normal":
        return dict(inputs)
    rng = np.random.default_rng(filling.seed)
    return {name: _fill(value, arrays, filling, rng) for name, value in inputs.items()}


def flat(output: Any) -> list[Any]:
    """An output's arrays in order: one, a sequence or a mapping of them."""
    if isinstance(output, Mapping):
        return [array for value in output.values() for array in flat(value)]
    if isinstance(output, list | tuple):
        return [array for value in output for array in flat(value)]
    return [output]


def _fill(value: Any, arrays: Arrays, filling: Filling, rng: np.random.Generator) -> Any:
    facts = arrays.dtype_facts(value) if arrays.is_array(value) else None
    if facts is None:
        return value
    if filling.products:
        # Past the largest number the answer depends on the order of summation, even for PyTorch.
        facts = dataclasses.replace(facts, largest=math.sqrt(facts.largest / filling.products))
    return arrays.like(_draw(filling.values, arrays.host(value), facts, rng), value)


def _draw(values: str, normal: Host, facts: DtypeFacts, rng: np.random.Generator) -> Host:  # noqa: PLR0911 - one a kind
    """float64 values that are representable in the dtype but for rounding."""
    shape = normal.shape
    sign = rng.choice([-1.0, 1.0], shape)
    if values == "zeros":
        return np.zeros(shape)
    if values == "ones":
        return np.ones(shape)
    if values == "tiny":
        return sign * facts.smallest_normal * rng.uniform(1, 4, shape)
    if values == "large":
        return sign * facts.largest * rng.uniform(0.125, 0.25, shape)
    if values == "subnormal":
        steps = max(int(facts.smallest_normal / facts.smallest_subnormal) - 1, 1)
        return sign * facts.smallest_subnormal * rng.integers(1, min(steps, 1 << 20) + 1, shape)
    if values == "nan":
        return np.where(rng.integers(0, _SPECIALS, shape) == 0, np.nan, normal)
    if values == "inf":
        return np.where(rng.integers(0, _SPECIALS, shape) == 0, sign * np.inf, normal)
    if values == "cancellation":
        return _cancelling(shape, rng)
    raise ValueError(f"unknown kind of values: {values}")


def _cancelling(shape: tuple[int, ...], rng: np.random.Generator) -> Host:
    """Neighbours of opposite sign and nearly equal size, so that sums lose most of their digits."""
    size = rng.uniform(0.99, 1.01, shape) * 64.0
    alternating = np.where(np.arange(shape[-1] if shape else 1) % 2 == 0, 1.0, -1.0)
    return size * (alternating if shape else alternating[0])
