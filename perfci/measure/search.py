"""A search for inputs that a suite does not have, and on which the kernel is worse than the base's, or than PyTorch."""

import ast
import functools
import inspect
import itertools
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from perfci.core.model import AccuracyCase, Reason
from perfci.device.seam import Accelerator, LateError
from perfci.measure.bench import Describe
from perfci.measure.inputs import bound_inputs, call_fresh
from perfci.measure.verify import LEFT, Check, checks, list_probes, verify
from perfci.ops.fingerprint.reach import list_reached
from perfci.ops.spec import SEARCHED, Accuracy, Params, case_id

SHARE = 8  # one more check for so many of the suite's
MOST_ELEMENTS = 1 << 17  # of a size that is tried: Triton's interpreter is slow
MOST_LONG = 1 << 20  # of three long axes or more, of which an input lacks one
MOST_OF_INPUTS = 1 << 22  # elements that inputs have at half a size that is tried
MOST_S = 8.0  # of a core, for a case in the interpreter: far below time_limit_s, beside other work too
MOST_LATE = 2  # cases that may spend that. Those behind them of no fewer elements are not tried
SLOW_S = 0.5  # of a core, for inputs and reference at half a size that is tried, or less: each axis doubles
SMALL = 64  # a size that any op may have
SHORT = 16  # sizes up to it may be no lengths: an axis by its number, a window, a batch
BLOCKS = (8, 4096)  # least and most that a literal can mean for a block
_MOST_FILES = 100  # that are read for literals, the nearest: a library may have thousands
_LARGEST = 1e4  # literals beyond are limits of dtypes

NEEDED = {
    "confident": {"large", "cancellation"},
    "wide": {"large", "cancellation"},
    "constants": {"large", "cancellation"},
    "subnormal": {"subnormal"},
    "one nan": {"nan"},
    "one infinity": {"inf"},
}
"""Kinds of values -> those of which a suite has to have one, if there is no base to compare with."""


def plan_search(suite: Accuracy, seed: int, pattern: str | None, *, duel: bool) -> list[Check]:
    """Returns the checks of a search, others with every seed but for confident rows. A pattern gets all that fit it.

    duel: there is a base to compare with.
    """
    planned, long = list_candidates(suite, seed, pattern, duel=duel), list_long(suite, pattern)
    random.Random(seed).shuffle(planned)
    # Sizes past a large literal have it as their constant.
    planned.sort(
        key=lambda check: (
            check.values != "confident" and not (check.values == "edges" and (check.constants or check.params in long))
        )
    )
    return planned if pattern else planned[: sum(1 for _ in checks(suite, seed, pattern)) // SHARE]


def list_candidates(suite: Accuracy, seed: int, pattern: str | None, *, duel: bool) -> list[Check]:
    """Returns the checks that a search chooses from."""
    probes, numbers = list_probes(suite, pattern), read_constants(suite.kernel)
    constants = tuple(number for number in numbers if number <= _LARGEST)
    values_of_suite = set(suite.values)
    # Inputs of a suite with normal values alone may depend on each other.
    kinds = [kind for kind in SEARCHED if kind not in {"edges", *values_of_suite}] if len(values_of_suite) > 1 else []
    kinds = [kind for kind in kinds if duel or not values_of_suite.isdisjoint(NEEDED.get(kind, values_of_suite))]
    kinds = [kind for kind in kinds if constants or kind != "constants"]
    planned = [
        Check(params, values, "contiguous", seed, fresh=True, constants=constants)
        for values in kinds
        for params in probes
    ]
    # Sizes are whole numbers of the cases that differ among them.
    axes = {name for params in suite.cases for name, value in params.items() if value != suite.cases[0].get(name)}
    numbers_alone = _list_numbers(suite, probes[0]) if probes else set()
    axes -= numbers_alone
    blocks = {int(constant) for constant in constants if BLOCKS[0] <= constant <= BLOCKS[1]}
    edges = (
        {**params, axis: block + step}
        for params in probes
        for axis in sorted(axes)
        if type(params.get(axis)) is int and params[axis] > 1
        for block in sorted(blocks)
        for step in (-1, 0, 1)
    )
    ids = {case_id(params) for params in suite.cases}
    sized: list[tuple[Params, tuple[float, ...]]] = [(params, ()) for params in edges]
    # Past a literal that is large: as many elements, and as long a last axis.
    lengths = [name for name in probes[0] if type(probes[0][name]) is int] if probes else []
    lengths = [name for name in lengths if name not in numbers_alone]
    for number in [number for number in numbers if BLOCKS[1] < number < MOST_ELEMENTS] if lengths else []:
        *others, last = lengths
        fewest = int(number) // max(count_elements({**probes[0], last: 1}), 1) + 1
        sized = [
            ({**probes[0], last: fewest}, (number,)),
            ({**probes[0], **dict.fromkeys(others, 1), last: int(number) + 1}, (number,)),
            *sized,
        ]
    sized = [(params, constants) for params, constants in sized if count_elements(params) <= MOST_ELEMENTS]
    for params, constants in [*((params, ()) for params in list_long(suite, pattern)), *sized]:
        if case_id(params) not in ids:
            planned.append(Check(params, "edges", "contiguous", seed, fresh=True, constants=constants))
    return planned


def list_long(suite: Accuracy, pattern: str | None) -> list[Params]:
    """Returns the probes with several axes as long as cases have them, as the cases of a suite mostly have one.

    Blocks end along all of these axes. Of the first probe also those that blocks divide: along all axes, or all but
    one, as a kernel may have a mask for each.
    """
    seen, listed = [{**params, "dtype": None} for params in suite.cases], list[Params]()
    for number, probe in enumerate(list_probes(suite, pattern)):
        lengths = {name: _list_lengths(suite, name) for name, value in probe.items() if type(value) is int}
        lengths = {name: sizes for name, sizes in lengths.items() if sizes}
        whole = {name: [size for size in sizes if not size & (size - 1)] for name, sizes in lengths.items()}
        ways = [lengths, *({**whole, name: sizes} for name, sizes in lengths.items()), whole]
        for sizes in (ways if number == 0 else ways[:1]) if len(lengths) > 1 else ():
            params = _lengthen(probe, sizes)
            if {**params, "dtype": None} not in seen:
                seen.append({**params, "dtype": None})
                listed.append(params)
    return listed


def _list_numbers(suite: Accuracy, params: Params) -> set[str]:
    """The parameters that are no length: with one more of it all inputs have the same shapes, as of an axis' number."""

    def list_shapes(params: Params) -> list[Any]:
        with suppress(Exception):  # of sizes that do not go together
            return [getattr(value, "shape", None) for value in bound_inputs(suite, params, "cpu", 0).values()]
        return []

    short = [name for name, value in params.items() if type(value) is int and value <= SHORT]
    shapes = list_shapes(params) if short else []
    return {name for name in short if shapes and list_shapes({**params, name: params[name] + 1}) == shapes}


def _list_lengths(suite: Accuracy, name: str) -> list[int]:
    """The sizes of an axis in cases that are no short ones."""
    return [size for params in suite.cases if type(size := params.get(name)) is int and size > SHORT]


def _lengthen(probe: Params, sizes: Mapping[str, Sequence[int]]) -> Params:
    """Returns a probe with the longest sizes for which there are few elements."""
    few = MOST_LONG if len(sizes) > 2 else MOST_ELEMENTS
    for most in sorted(set(itertools.chain(*sizes.values())), reverse=True):
        fitting = {name: [size for size in listed if size <= most] for name, listed in sizes.items()}
        params = {**probe, **{name: max(listed) for name, listed in fitting.items() if listed}}
        if count_elements(params) <= few:
            return params
    return probe


def search(
    suite: Accuracy, device: Accelerator, check: Check, describe: Describe, base: Callable[..., Any] | None
) -> AccuracyCase | None:
    """Make one check of a search. None if it shows no fault, one that the base has too, or if it needs much memory.

    What takes long where no device is, is unchecked as `search_left`: a suite's owner has not asked for it. Each call
    of the base has a time of its own, so that no fault is left out for the time that finding it took.
    """
    base = _bound(base, device) if base else None
    with device.bound_calls(MOST_S):
        try:
            large = check.values == "edges" and is_too_large(suite, device, check.params)
            result = None if large else verify(suite, device, check, describe, base, bounded=True)
        except LateError:
            result = check.result(unchecked=Reason(LEFT, {"case": check.case, "count": 1}))
        if result is None or result.failure is None:
            return result if result and result.unchecked and result.unchecked.kind in {"less_exact", LEFT} else None
        kind = result.failure.kind
        if kind in {"reference_raised", "out_of_memory"}:
            return None
        if base is None:
            # No one knows which inputs the kernel refuses. By a name that a branch lacks it refuses none.
            return None if result.raised and "UnboundLocalError" not in str(result.failure.facts) else result
        if kind == "less_exact":
            return result
        before = verify(replace(suite, kernel=base), device, check, describe, base, bounded=True)
    if before.unchecked and before.unchecked.kind == LEFT:
        return before
    return None if before.failure else result


def _bound(base: Callable[..., Any], device: Accelerator) -> Callable[..., Any]:
    def call(**inputs: Any) -> Any:
        with device.bound_calls(MOST_S):
            return base(**inputs)

    return call


def is_too_large(suite: Accuracy, device: Accelerator, params: Params) -> bool:
    """Whether a case has too many elements, by making it of ever larger sizes: a matrix may square one.

    Its inputs', or what the reference gives, as where each row becomes a diagonal. Raises LateError where a CPU takes
    long for one of these sizes.
    """
    arrays, most = device.arrays, SMALL

    def count(values: Iterable[Any]) -> int:
        return sum(math.prod(arrays.facts(value).shape) for value in values if arrays.is_array(value))

    while any(type(value) is int and value > most for value in params.values()):
        smaller = {name: min(value, most) if type(value) is int else value for name, value in params.items()}
        began = time.process_time()
        with suppress(Exception):  # of sizes that do not go together
            inputs = bound_inputs(suite, smaller, arrays.device, 0)
            if count(inputs.values()) > MOST_OF_INPUTS:
                return True
            if count(call_fresh(suite.reference, inputs, arrays, suite.mutates)) > MOST_OF_INPUTS:
                return True
        if device.info.kind == "cpu" and time.process_time() - began > SLOW_S:
            raise LateError
        most *= 2
    return False


def count_elements(params: Params) -> int:
    """Of all lengths. An axis by its number, or an offset, may be 0 or less."""
    return math.prod(value for value in params.values() if type(value) is int and value > 1)


def _is_enumeration(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("Enum") for base in node.bases)


def read_constants(kernel: Callable[..., Any]) -> tuple[float, ...]:
    """Returns the numbers in the file of a kernel, and in those that it imports from, as far as it reaches them.

    Only those below MOST_ELEMENTS: a literal may be too large for a float.
    """
    try:
        file = getattr(kernel, "source_file", None) or inspect.getsourcefile(inspect.unwrap(kernel)) or ""
    except TypeError:
        return ()
    files = itertools.islice(list_reached(Path(file)), _MOST_FILES)
    nodes = (node for _, reached in files for node in reached)
    return tuple(sorted({number for node in nodes for number in _read_numbers(node)}))


@functools.lru_cache(maxsize=1 << 12)
def _read_numbers(node: ast.stmt) -> frozenset[float]:
    """The numbers of a statement. Members of an enumeration, such as the shared memory of chips, bound no tensor."""
    parts = (part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    numbers = (value for value in parts if isinstance(value, int | float) and 0 < value < MOST_ELEMENTS)
    return frozenset[float]() if _is_enumeration(node) else frozenset(map(float, numbers))
