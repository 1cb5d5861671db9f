"""A call's inputs and outputs: made by the op, filled with values that break kernels, flattened."""

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from perfci.device.arrays import Arrays, DtypeFacts, Inputs
from perfci.ops.spec import Accuracy, Params, Performance

Host = np.ndarray[Any, Any]

_SPECIALS = 7  # every seventh element or so is NaN or infinite: some rows have none, some have several
_STEPS = 1 << 20  # subnormal numbers are drawn from so many of the smallest


def bound_inputs(suite: Accuracy | Performance, params: Params, device: str, seed: int) -> dict[str, Any]:
    """`make_inputs` for one case. Raises TypeError if its names are not the kernel's."""
    inputs = suite.make_inputs(**params, device=device, seed=seed)
    if not isinstance(inputs, Mapping):
        raise TypeError(f"make_inputs returned {type(inputs).__name__}, not a mapping of argument names to values")
    inspect.signature(suite.kernel).bind(**inputs)
    return dict(inputs)


def fill_inputs(
    inputs: Inputs,
    arrays: Arrays,
    values: str,
    seed: int,
    products: int = 0,
    constants: Sequence[float] = (),
    domain: tuple[float | None, float | None] = (None, None),
) -> dict[str, Any]:
    """Returns inputs with every floating-point array filled anew. `normal` keeps what make_inputs made.

    products: of how many products of two inputs an output element is the sum. 0 if inputs are not multiplied.
    constants: numbers that the kernel may treat in another way than those beside them.
    """
    if values in {"normal", "edges"}:
        return dict(inputs)
    rng, filled = np.random.default_rng(seed), dict(inputs)
    facts = {name: arrays.dtype_facts(value) for name, value in inputs.items() if arrays.is_array(value)}
    floats = {name: dtype for name, dtype in facts.items() if dtype is not None}
    if values in {"one nan", "one infinity"} and floats:
        floats = dict([list(floats.items())[rng.integers(len(floats))]])
    classes = [arrays.host(inputs[name]) for name in facts if name not in floats]
    for name, dtype in floats.items():
        # Past the largest number the answer depends on the order of summation, even for PyTorch.
        largest = math.sqrt(dtype.largest / products) if products else dtype.largest
        normal = arrays.host(inputs[name])
        # A class that another input names is the one that stands out.
        fitting = (class_ for class_ in classes if class_.dtype.kind == "i" and class_.shape == normal.shape[:-1])
        bounded = dataclasses.replace(dtype, largest=largest)
        drawn = _draw(values, normal, bounded, next(fitting, None), constants, rng)
        filled[name] = arrays.like(drawn if domain == (None, None) else np.clip(drawn, *domain), inputs[name])
    return filled


def flat(output: Any) -> list[Any]:
    """An output's arrays in order: one, a sequence or a mapping of them. None stands for none."""
    if isinstance(output, Mapping):
        return [array for value in output.values() for array in flat(value)]
    if isinstance(output, list | tuple):
        return [array for value in output for array in flat(value)]
    return [] if output is None else [output]


def gather(output: Any, inputs: Inputs, mutates: Sequence[str]) -> list[Any]:
    """Returns a call's arrays: those that it returned, then the arguments that it writes into."""
    written = [inputs[name] for name in mutates]
    if not written:
        return flat(output)
    return [array for array in flat(output) if all(array is not one for one in written)] + written


def call_fresh(function: Callable[..., Any], inputs: Inputs, arrays: Arrays, mutates: Sequence[str]) -> list[Any]:
    """Call a function, with copies of the arguments that it writes into. Returns the call's arrays."""
    given = {**inputs, **arrays.copies({name: inputs[name] for name in mutates})}
    return gather(function(**given), given, mutates)


def call_exact(function: Callable[..., Any], inputs: Inputs, arrays: Arrays, mutates: Sequence[str]) -> list[Any]:
    """Call a reference with inputs in float64. If it raises, as it mixes them with float32, all that is float64 too."""
    try:
        return call_fresh(function, inputs, arrays, mutates)
    except Exception:
        if (widened := arrays.in_float64()) is None:
            raise
    with widened:
        return call_fresh(function, inputs, arrays, mutates)


def _draw(
    values: str, normal: Host, facts: DtypeFacts, named: Host | None, constants: Sequence[float],
    rng: np.random.Generator,
) -> Host:  # fmt: skip
    """float64 values that are representable in the dtype but for rounding. named: the index that each row is about."""
    shape, ends = normal.shape, (*normal.shape[:-1], 1)
    cols = shape[-1] if shape else 1
    sign: Host = rng.choice([-1.0, 1.0], shape)
    special = rng.integers(0, _SPECIALS, shape) == 0
    steps = max(int(facts.smallest_normal / facts.smallest_subnormal) - 1, 1)
    # Ops that take no negative numbers get none.
    signed = np.sign(normal)

    def cancel() -> Host:
        """Neighbours of opposite sign and nearly equal size, so that sums lose most of their digits."""
        size = rng.uniform(0.99, 1.01, shape) * 64.0
        alternating = np.where(np.arange(cols) % 2 == 0, 1.0, -1.0)
        return size * (alternating if shape else alternating[0])

    def stand_out() -> Host:
        """In each row one number above all others, so that a probability computed of it is nearly 1."""
        if not normal.size or not shape:
            return normal
        classes = rng.integers(0, cols, shape[:-1]) if named is None else named % cols
        raised: Host = normal.copy()
        top = normal.max(axis=-1) + rng.uniform(2.0, 12.0, shape[:-1])
        np.put_along_axis(raised, classes[..., None].astype(np.int64), top[..., None], axis=-1)
        return raised

    def round_off() -> Host:
        step = math.sqrt(float(np.square(normal).mean())) if normal.size else 1.0
        return np.round(normal / (step or 1.0)) * step

    def surround() -> Host:
        around = [factor * constant for constant in constants for factor in (1.0, 1 - facts.epsilon, 1 + facts.epsilon)]
        drawn: Host = rng.choice([*around, *(constant + step for constant in constants for step in (-1.0, 1.0))], shape)
        return np.where(signed < 0, -1.0, 1.0) * np.minimum(np.abs(drawn), facts.largest)

    def mask() -> Host:
        """Rows that begin with some -infinity. Of several the last has nothing else."""
        lengths = rng.integers(0, cols or 1, ends)
        if lengths.size > 1:
            lengths.flat[-1] = cols
        return np.where(np.arange(cols) < lengths, -np.inf, normal).reshape(shape)

    def replace_one(by: float) -> Host:
        one: Host = normal.copy()
        if one.size:
            one.flat[rng.integers(one.size)] = by
        return one

    draws: dict[str, Callable[[], Host]] = {
        "zeros": lambda: np.zeros(shape),
        "ones": lambda: np.ones(shape),
        "tiny": lambda: sign * facts.smallest_normal * rng.uniform(1, 4, shape),
        "large": lambda: sign * facts.largest * rng.uniform(0.125, 0.25, shape),
        "subnormal": lambda: sign * facts.smallest_subnormal * rng.integers(1, min(steps, _STEPS) + 1, shape),
        "nan": lambda: np.where(special, np.nan, normal),
        "inf": lambda: np.where(special, sign * np.inf, normal),
        "cancellation": cancel,
        "mixed": lambda: rng.choice([0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], shape),
        **dict.fromkeys(("peaked", "confident"), stand_out),
        "masked": mask,
        "ties": round_off,
        "sorted": lambda: np.sort(normal, axis=-1) if shape else normal,
        "repeated": lambda: normal[..., np.arange(cols) // 4 * 4] if shape else normal,
        "wide": lambda: signed * 2.0 ** rng.uniform(-20.0, min(10.0, math.log2(facts.largest) / 3), shape),
        "constants": surround,
        "one nan": lambda: replace_one(math.nan),
        "one infinity": lambda: replace_one(float(rng.choice([-1.0, 1.0])) * math.inf),
    }
    return draws[values]()
