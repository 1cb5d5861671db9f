"""A call's inputs and outputs: made by the op, filled with values that break kernels, flattened."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from perfci.device.seam import Arrays, DtypeFacts, Inputs
from perfci.measure.closeness import Host
from perfci.ops.spec import Accuracy, Params, Performance

_SPECIALS = 7  # every seventh element or so is NaN or infinite: some rows have none, some have several
_STEPS = 1 << 20  # subnormal numbers are drawn from so many of the smallest


def bound_inputs(suite: Accuracy | Performance, params: Params, device: str, seed: int) -> dict[str, Any]:
    """`make_inputs` for one case. Raises TypeError if its names are not the kernel's."""
    inputs = suite.make_inputs(**params, device=device, seed=seed)
    if not isinstance(inputs, Mapping):
        raise TypeError(f"make_inputs returned {type(inputs).__name__}, not a mapping of argument names to values")
    inspect.signature(suite.kernel).bind(**inputs)
    return dict(inputs)


def fill_inputs(inputs: Inputs, arrays: Arrays, values: str, seed: int, products: int = 0) -> dict[str, Any]:
    """Returns inputs with every floating-point array filled anew. `normal` keeps what make_inputs made.

    products: of how many products of two inputs an output element is the sum. 0 if inputs are not multiplied.
    """
    if values == "normal":
        return dict(inputs)
    rng, found = np.random.default_rng(seed), {}
    for name, value in inputs.items():
        found[name] = value
        facts = arrays.dtype_facts(value) if arrays.is_array(value) else None
        if facts is not None:
            if products:
                # Past the largest number the answer depends on the order of summation, even for PyTorch.
                facts = dataclasses.replace(facts, largest=math.sqrt(facts.largest / products))
            found[name] = arrays.like(_draw(values, arrays.host(value), facts, rng), value)
    return found


def flat(output: Any) -> list[Any]:
    """An output's arrays in order: one, a sequence or a mapping of them."""
    if isinstance(output, Mapping):
        return [array for value in output.values() for array in flat(value)]
    if isinstance(output, list | tuple):
        return [array for value in output for array in flat(value)]
    return [output]


def _draw(values: str, normal: Host, facts: DtypeFacts, rng: np.random.Generator) -> Host:
    """float64 values that are representable in the dtype but for rounding."""
    shape = normal.shape
    sign: Host = rng.choice([-1.0, 1.0], shape)
    special = rng.integers(0, _SPECIALS, shape) == 0
    steps = max(int(facts.smallest_normal / facts.smallest_subnormal) - 1, 1)

    def cancel() -> Host:
        """Neighbours of opposite sign and nearly equal size, so that sums lose most of their digits."""
        size = rng.uniform(0.99, 1.01, shape) * 64.0
        alternating = np.where(np.arange(shape[-1] if shape else 1) % 2 == 0, 1.0, -1.0)
        return size * (alternating if shape else alternating[0])

    draws: dict[str, Callable[[], Host]] = {
        "zeros": lambda: np.zeros(shape),
        "ones": lambda: np.ones(shape),
        "tiny": lambda: sign * facts.smallest_normal * rng.uniform(1, 4, shape),
        "large": lambda: sign * facts.largest * rng.uniform(0.125, 0.25, shape),
        "subnormal": lambda: sign * facts.smallest_subnormal * rng.integers(1, min(steps, _STEPS) + 1, shape),
        "nan": lambda: np.where(special, np.nan, normal),
        "inf": lambda: np.where(special, sign * np.inf, normal),
        "cancellation": cancel,
    }
    return draws[values]()
