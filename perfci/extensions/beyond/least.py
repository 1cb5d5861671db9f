"""A wrong case shrunk: other sizes, dtype, layout, kind of values, seed, then fewer values, as long as it stays wrong.

Greedy descent by single steps, as of Zeller and Hildebrandt, Simplifying and isolating failure-inducing input, IEEE
Trans. Softw. Eng. 28 (2002): what cannot be taken away any more is what the fault needs.
"""

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from perfci.core.model import AccuracyCase, Fact, Reason
from perfci.device.seam import Accelerator
from perfci.measure.bench import Describe
from perfci.measure.inputs import bound_inputs, fill_inputs
from perfci.measure.search import list_candidates
from perfci.measure.verify import Check, checks, verify
from perfci.ops.spec import Accuracy

AGAIN = 5  # calls in which a fault has to show again, before it counts as one that shows seldom
FEW = 4  # elements of an input that may differ from all others, so that a person can read them
MOST_FILLED = 1 << 22  # elements of an input in which single values are looked for

Judge = Callable[[Accuracy, Check], AccuracyCase | None]
"""Makes a check in another way than a suite does. None, and what it raises: it cannot be made"""


@dataclass(frozen=True)
class Show:
    """How a case that is no suite's is told, and the last two of the lines of Python that show it."""

    kind: str  # of its reason
    imports: str
    call: Callable[[str, str], str]  # of its parameters, and of its check, as they are spelled
    facts: Mapping[str, Fact] = field(default_factory=dict)


Shrink = Callable[[AccuracyCase, Check, Judge, Show], Iterator[AccuracyCase]]
"""Yields the smallest case that is wrong in the way of a result, if that is wrong"""


def keep(*_: object) -> Iterator[AccuracyCase]:
    """Yields none, where nothing is shrunk."""
    yield from ()


UNFIT = frozenset({"reference_raised", "out_of_memory"})
"""Failures that say nothing of the kernel"""


@dataclass(frozen=True)
class Filling:
    """An input with one number everywhere but at a few places."""

    number: float
    others: Mapping[tuple[int, ...], float] = field(default_factory=dict)


@dataclass(frozen=True)
class Least:
    """The smallest case found that is wrong."""

    check: Check
    failure: Reason
    fillings: Mapping[str, Filling] = field(default_factory=dict)
    tries: int = 0


class Shrinker:
    """Makes one wrong case smaller until no step keeps it wrong, or time is up."""

    def __init__(
        self, suite: Accuracy, device: Accelerator, wrong: AccuracyCase, describe: Describe, until_s: float,
        judge: Judge | None = None, *, fills: bool = True,
    ) -> None:  # fmt: skip
        """`until_s`: seconds of the monotonic clock. `fills`: values become ones, zeros and a few others."""
        self._suite, self._device, self._until_s, self._fills = suite, device, until_s, fills
        self._judge: Judge = judge or (lambda suite, check: verify(suite, device, check, describe))
        self._wrong, self.tries = wrong, 0

    def shrink(self, check: Check | None = None) -> Least | None:
        """Returns the smallest case found. None if the fault does not show again in this process.

        check: the wrong one, if neither the suite nor a search has it.
        """
        check = check or find_check(self._suite, self._wrong)
        if check is None:
            return None
        # Of memory that is not filled a fault may show in the second call alone, and a race in one of many.
        least = next(filter(None, (self._try(check) for _ in range(AGAIN))), None)
        if least is None:
            return None
        least = self._descend(least)
        for name in self._list_floats(least.check) if self._fills else ():
            least = self._fill(least, name)
        return dataclasses.replace(least, tries=self.tries)

    def _descend(self, least: Least) -> Least:
        """Take the first step that stays wrong, again and again."""
        keeps_dtype = self._suite.uses_dot  # its tolerance in float32 is not that of TF32, by which kernels multiply
        while smaller := next(filter(None, map(self._try, list_steps(least.check, keeps_dtype=keeps_dtype))), None):
            least = smaller
        return least

    def _try(self, check: Check, fillings: Mapping[str, Filling] | None = None) -> Least | None:
        """Returns a case that is wrong in the way of the first one. None if it is not, or time is up."""
        if time.monotonic() > self._until_s:
            return None
        self.tries += 1
        suite = fill_suite(self._suite, self._device, check, fillings) if fillings else self._suite
        made = dataclasses.replace(check, values="normal") if fillings else check
        try:
            result = self._judge(suite, made)
        except Exception:  # of a size that the op does not have, or whose arrays cannot lie so
            return None
        why = result.failure if result else None
        if result is None or why is None or why.kind in UNFIT or result.raised != self._wrong.raised:
            return None
        return Least(check, why, fillings or {})

    # --- values -------------------------------------------------------------------------------------------------------

    def _list_floats(self, check: Check) -> list[str]:
        arrays = self._device.arrays
        inputs = bound_inputs(self._suite, check.params, arrays.device, check.seed)
        return [name for name, value in inputs.items() if arrays.is_array(value) and arrays.dtype_facts(value)]

    def _fill(self, least: Least, name: str) -> Least:
        """Fill one input with ones or zeros, all of it or but for the few places that the fault needs."""
        for number in (1.0, 0.0):
            if filled := self._try(least.check, {**least.fillings, name: Filling(number)}):
                return filled
        return self._isolate(least, name) or least

    def _isolate(self, least: Least, name: str) -> Least | None:
        """Halve the places that keep their values, zeros elsewhere, until they are few. None if they stay many."""
        arrays, isolated = self._device.arrays, None
        values = arrays.host(draw(self._suite, self._device, least.check)[name])
        if values.size > MOST_FILLED:
            return None
        kept = [index for index in np.ndindex(values.shape) if values[index] != 0.0]
        if len(kept) == 1:
            whole = {kept[0]: float(values[kept[0]])}
            return self._try(least.check, {**least.fillings, name: Filling(0.0, whole)})
        while len(kept) > 1:
            middle = len(kept) // 2
            halves = ({index: float(values[index]) for index in part} for part in (kept[:middle], kept[middle:]))
            tried = (self._try(least.check, {**least.fillings, name: Filling(0.0, half)}) for half in halves)
            smaller = next(filter(None, tried), None)
            if smaller is None:
                break
            isolated, kept = smaller, list(smaller.fillings[name].others)
        return isolated if isolated and len(kept) <= FEW else None


def find_check(suite: Accuracy, wrong: AccuracyCase) -> Check | None:
    """Returns the check of a result, with its parameters as the suite, or a search beyond it, has them."""
    name = wrong.case, wrong.values, wrong.layout, wrong.seed
    listed = (*checks(suite, wrong.seed, None), *list_candidates(suite, wrong.seed, None, duel=True))
    return next((check for check in listed if check.name == name), None)


def list_steps(check: Check, *, keeps_dtype: bool = False) -> Iterator[Check]:
    """Yields simpler checks: the simplest layout, kind of values, seed and dtype, then smaller sizes."""
    plain: dict[str, Any] = {"layout": "contiguous", "values": "normal", "seed": 0}
    for name, simplest in plain.items():
        if getattr(check, name) != simplest:
            yield dataclasses.replace(check, **{name: simplest})
    for name, value in check.params.items():
        for smaller in list_smaller(value) if isinstance(value, int | tuple) or not keeps_dtype else ():
            yield dataclasses.replace(check, params={**check.params, name: smaller})


def list_smaller(value: Any) -> Iterator[Any]:
    """Yields what may take a parameter's place, the smallest first.

    >>> list(list_smaller(100))
    [1, 2, 25, 50, 75, 99]
    >>> list(list_smaller((2, 3)))
    [(3,), (2,), (1, 3), (2, 1), (2, 2)]
    >>> list(list_smaller("float16")), list(list_smaller("causal"))
    (['float32'], [])
    """
    if isinstance(value, bool):
        return
    if isinstance(value, int):
        yield from dict.fromkeys(
            size for size in (1, 2, value // 4, value // 2, value * 3 // 4, value - 1) if 0 < size < value
        )
    elif isinstance(value, tuple):
        yield from (value[:at] + value[at + 1 :] for at in range(len(value)))
        for at, part in enumerate(value):
            yield from ((*value[:at], smaller, *value[at + 1 :]) for smaller in list_smaller(part))
    elif str(value).removeprefix("torch.") in {"float16", "bfloat16", "float64"}:
        yield value_like(value, "float32")


def value_like(value: Any, name: str) -> Any:
    """Returns a dtype by its name, in the form of another: text, or torch's.

    >>> value_like("float16", "float32")
    'float32'
    """
    if isinstance(value, str):
        return str(value).replace(str(value).removeprefix("torch."), name)
    import importlib

    return getattr(importlib.import_module(type(value).__module__), name)


def draw(suite: Accuracy, device: Accelerator, check: Check) -> dict[str, Any]:
    """Returns a check's inputs with its values, before they are laid out."""
    arrays = device.arrays
    made = bound_inputs(suite, check.params, arrays.device, check.seed)
    terms = suite.reduces(**check.params) if suite.reduces else 1
    return fill_inputs(
        made, arrays, check.values, check.seed, terms if suite.uses_dot else 0, check.constants, suite.domain
    )


def fill_suite(suite: Accuracy, device: Accelerator, check: Check, fillings: Mapping[str, Filling]) -> Accuracy:
    """Returns a suite with inputs filled, for one check."""

    def make(**_: Any) -> Mapping[str, Any]:
        inputs = draw(suite, device, check)
        return {**inputs, **{name: fill(device, inputs[name], filling) for name, filling in fillings.items()}}

    return dataclasses.replace(suite, make_inputs=make)


def fill(device: Accelerator, array: Any, filling: Filling) -> Any:
    """Returns an array in the form of another, filled."""
    values = np.full(device.arrays.facts(array).shape, filling.number)
    for index, number in filling.others.items():
        values[index] = number
    return device.arrays.like(values, array)
