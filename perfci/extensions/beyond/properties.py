"""Properties that an op states: rows that depend on no other row, permutations, answers that stay the same.

A parameter of the cases, such as rows, is found in the inputs and outputs by making them with one more of it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfci.core.model import AccuracyCase, Fact, Reason, as_fact
from perfci.device.seam import Accelerator
from perfci.extensions.beyond.least import Judge, Show, Shrink, keep
from perfci.measure import closeness
from perfci.measure.bench import Describe
from perfci.measure.inputs import bound_inputs, call_fresh
from perfci.measure.search import MOST_ELEMENTS, read_constants
from perfci.measure.verify import Check, list_probes
from perfci.ops.spec import Accuracy, Params

LEAST = 5  # of what is looked at one by one: a first, a last and others between

MANY = (90, 112, 560)
"""Numbers of rows: each up to 10, and 16, divides one, as a kernel may take vectors or tiles where they do"""

MOST = 1024  # a literal of a kernel's up to which as many rows may be, say, from which it takes other tiles

Axis = tuple[int, int]
"""Where a parameter lies in an array: which axis, and how many of its places belong to one"""


SHOW = Show(
    "least_wrong",
    "from dataclasses import replace; from perfci.extensions.beyond.properties import check_properties",
    lambda params, _: (
        f"print(*check_properties(replace(suite, kernel=kernel, probe_cases=[dict({params})]), device, None, vars))"
    ),
)


@dataclass(frozen=True)
class Property:
    """One thing that an op states, and how it is checked for a case."""

    name: str  # field of the suite
    find: Callable[[Accuracy, Accelerator, Check], Reason | None]
    """returns what contradicts it. Raises UnfitError if the case cannot show it, and what the kernel raises"""

    def judge(self, device: Accelerator) -> Judge:
        """How a check of it is made."""
        return lambda suite, check: check.result(failure=self.find(suite, device, check))


class UnfitError(Exception):
    """A case that cannot show a property. The message says why."""


def list_properties(suite: Accuracy) -> list[Property]:
    """Returns the properties that a suite states."""
    along = [("invariant", find_dependent, name) for name in suite.invariant]
    along += [("permutes", find_unpermuted, name) for name in suite.permutes]
    stated = [Property(field, functools.partial(find, name)) for field, find, name in along]
    return stated + ([Property("idempotent", find_changing)] if suite.idempotent else [])


def check_properties(
    suite: Accuracy, device: Accelerator, pattern: str | None, describe: Describe, shrink: Shrink = keep
) -> Iterator[AccuracyCase]:
    """Yields a check for each property and each probe case, each seen on the same seed. `shrink` gets wrong ones."""
    for stated in list_properties(suite):
        for params in list_probes(suite, pattern):
            check = Check(params, "normal", "contiguous", 0, fresh=False)
            try:
                result = check.result(failure=stated.find(suite, device, check))
                yield result
                yield from shrink(result, check, stated.judge(device), SHOW)
            except UnfitError as error:
                why = {"case": check.case, "property": stated.name, "why": str(error)}
                yield check.result(unchecked=Reason("property_unchecked", why))
            except Exception as error:
                facts = {"case": check.case, "property": stated.name, **describe(error)}
                yield check.result(failure=Reason("property_raised", facts), raised=True)


def find_dependent(name: str, suite: Accuracy, device: Accelerator, check: Check) -> Reason | None:
    """A row, say, that is another one alone, in a smaller or larger batch, or at another place."""
    setting = Setting.make(name, suite, device, check)
    every = [*range(setting.size)]
    ways: list[tuple[str, list[list[int]]]] = [
        (as_fact("alone"), [[0], [setting.size // 2], [setting.size - 1]]),
        (as_fact("in another order"), [every[::-1]]),
        (as_fact("among fewer"), [every[::2]]),
        (as_fact("among more"), [every * 2, *setting.list_larger(read_constants(suite.kernel))]),
    ]
    if not all(setting.outputs):
        raise UnfitError(f"an output has no axis of {name}")
    for how, lists in ways:
        for places in lists:
            if differs := setting.compare(places):
                return Reason("row_depends", {"name": name, "how": how, **differs})
    return None


def find_unpermuted(name: str, suite: Accuracy, device: Accelerator, check: Check) -> Reason | None:
    """An answer to permuted inputs that is not the permuted answer: the same one, if it does not have that axis."""
    setting = Setting.make(name, suite, device, check)
    places = np.random.default_rng(check.seed).permutation(setting.size).tolist()
    differs = setting.compare(places)
    return Reason("not_permuted", {"name": name, **differs}) if differs else None


def find_changing(suite: Accuracy, device: Accelerator, check: Check) -> Reason | None:
    """An answer that changes once it is the input."""
    arrays = device.arrays
    inputs = bound_inputs(suite, check.params, arrays.device, check.seed)
    (first, *_) = call_fresh(suite.kernel, inputs, arrays, suite.mutates)
    name = next((name for name, value in inputs.items() if is_alike(device, value, first)), None)
    if name is None:
        raise UnfitError("no input has the form of the output")
    (second, *_) = call_fresh(suite.kernel, {**inputs, name: first}, arrays, suite.mutates)
    differs = compare(suite, device, check, second, first, exact=False)
    return Reason("not_idempotent", {"name": name, **differs}) if differs else None


def is_alike(device: Accelerator, value: Any, other: Any) -> bool:
    """Whether two arrays have the same shape and dtype."""
    arrays = device.arrays
    if not (arrays.is_array(value) and arrays.is_array(other)):
        return False
    one, two = arrays.facts(value), arrays.facts(other)
    return (one.shape, one.dtype) == (two.shape, two.dtype)


@dataclass(frozen=True)
class Setting:
    """A call, and where one parameter lies in its inputs and outputs."""

    suite: Accuracy
    device: Accelerator
    check: Check
    size: int
    arguments: Mapping[str, Any]
    axes: Mapping[str, Axis]
    answers: Sequence[Any]
    outputs: Sequence[Axis | None]

    @classmethod
    def make(cls, name: str, suite: Accuracy, device: Accelerator, check: Check) -> Setting:
        """Call the kernel once. Raises UnfitError if the parameter is no size that may be changed."""
        given = check.params.get(name)
        if type(given) is not int or given < 1:
            raise UnfitError(f"{name} is no size of the case")
        arrays, size = device.arrays, max(given, LEAST)
        (inputs, plain), (others, longer) = (refer(name, length, suite, device, check) for length in (size, size + 1))
        axes = {key: find_axis(device, value, others[key], size) for key, value in inputs.items()}
        answers = list(arrays.copies(dict(enumerate(call_fresh(suite.kernel, inputs, arrays, suite.mutates)))).values())
        outputs = [find_axis(device, one, other, size) for one, other in zip(plain, longer, strict=True)]
        shared = {key: axis for key, axis in axes.items() if axis}
        return cls(suite, device, check, size, inputs, shared, answers, outputs)

    def list_larger(self, numbers: Sequence[float]) -> list[list[int]]:
        """Places again and again, for which there are few elements: as many as much divides, and more than numbers.

        More than the largest of these numbers, or of the device's processors.
        """
        arrays = self.device.arrays
        elements = sum(math.prod(arrays.facts(self.arguments[key]).shape) for key in self.axes) // self.size
        most = min(MOST, MOST_ELEMENTS // max(elements, 1) - 1)
        past = [int(number) + 1 for number in (*numbers, self.device.info.processors or 0) if number <= most]
        lengths = {*MANY, max(past, default=0)}
        return [
            [place % self.size for place in range(length)]
            for length in sorted(lengths)
            if self.size < length <= most + 1
        ]

    def compare(self, places: Sequence[int]) -> dict[str, Fact] | None:
        """How the answer to inputs at these places differs from the answer at these places. None if it does not."""
        inputs = {key: take(value, self.axes.get(key), places) for key, value in self.arguments.items()}
        got = call_fresh(self.suite.kernel, inputs, self.device.arrays, self.suite.mutates)
        for actual, whole, axis in zip(got, self.answers, self.outputs, strict=True):
            exact = self.suite.deterministic and axis is not None
            if differs := compare(self.suite, self.device, self.check, actual, take(whole, axis, places), exact=exact):
                return {**differs, "size": len(places), "of": self.size}
        return None


def refer(
    name: str, length: int, suite: Accuracy, device: Accelerator, check: Check
) -> tuple[dict[str, Any], list[Any]]:
    """Returns the inputs of a case with another size, and the reference's answer."""
    arrays = device.arrays
    try:
        inputs = bound_inputs(suite, {**check.params, name: length}, arrays.device, check.seed)
        return inputs, call_fresh(suite.reference, inputs, arrays, suite.mutates)
    except Exception as error:
        raise UnfitError(f"{name}={length} raised {type(error).__name__}: {error}") from error


def find_axis(device: Accelerator, value: Any, longer: Any, size: int) -> Axis | None:
    """Returns the only axis along which an array grows with a parameter by its size. None if there is none."""
    if not device.arrays.is_array(value):
        return None
    shape, other = device.arrays.facts(value).shape, device.arrays.facts(longer).shape
    grown = [axis for axis, (one, two) in enumerate(zip(shape, other, strict=True)) if one != two]
    if len(grown) != 1 or shape[grown[0]] % size or shape[grown[0]] // size * (size + 1) != other[grown[0]]:
        return None
    return grown[0], shape[grown[0]] // size


def take(value: Any, axis: Axis | None, places: Sequence[int]) -> Any:
    """Returns an array's parts at these places of an axis, copied. The array itself without an axis."""
    if axis is None:
        return value
    at, block = axis
    return value[(slice(None),) * at + ([place * block + offset for place in places for offset in range(block)],)]


def compare(
    suite: Accuracy, device: Accelerator, check: Check, actual: Any, expected: Any, *, exact: bool
) -> dict[str, Fact] | None:
    """How two answers differ, in bits if they are to be exact, else by more than the tolerance. None if not."""
    arrays = device.arrays
    if not is_alike(device, actual, expected):
        shapes = {"got": str(arrays.facts(actual).shape), "expected": str(arrays.facts(expected).shape)}
        return {"case": check.case, "index": "-", "count": 0, **shapes}
    if arrays.same_bits(actual, expected):
        return None
    left, right = arrays.host(actual), arrays.host(expected)
    terms = suite.reduces(**check.params) if suite.reduces else 1
    rtol, atol = (0.0, 0.0) if exact else closeness.tolerance(arrays.facts(actual).dtype, suite.tolerance, terms)
    over = (closeness.excess(left, right, rtol, atol) > 0) | (np.isnan(left) != np.isnan(right))
    if not over.any():
        return None
    index = closeness.first_index(over)
    values = {"got": str(left[index]), "expected": str(right[index])}
    return {"case": check.case, "count": int(over.sum()), "index": str(index), **values}


def propose(suite: Accuracy, device: Accelerator, params: Params) -> list[str]:
    """Returns the properties that hold for a case, as lines of a suite. A person says whether they are meant."""
    check, lines = Check(params, "normal", "contiguous", 0, fresh=False), list[str]()
    sizes = [name for name, value in params.items() if type(value) is int]
    for field, find in (("invariant", find_dependent), ("permutes", find_unpermuted)):
        held = [name for name in sizes if _holds(functools.partial(find, name), suite, device, check)]
        lines += [f"{field}={tuple(held)},".replace("'", '"')] if held else []
    return lines + (["idempotent=True,"] if _holds(find_changing, suite, device, check) else [])


def _holds(
    find: Callable[[Accuracy, Accelerator, Check], Reason | None], suite: Accuracy, device: Accelerator, check: Check
) -> bool:
    """Whether nothing contradicts a property, and the op could be asked."""
    try:
        return find(suite, device, check) is None
    except Exception:  # whatever other people's code raises
        return False
