"""Shapes beyond 2^31 elements, where 32-bit indexes overflow: one call, verified in slices against float64."""

import dataclasses
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from perfci.core.model import Fact, because
from perfci.device.arrays import Arrays, leaves
from perfci.extensions.lab.soak.subject import SoakSubject
from perfci.extensions.lab.soak.verdicts import LARGE, SoakFinding, SoakMeasured, Status
from perfci.measure.inputs import bound_inputs, flat
from perfci.measure.outputs import wrong_output
from perfci.ops.spec import Accuracy, Params

BEYOND = 1 << 31  # an array with more elements is huge: the least number that an int32 does not hold
SLICE = 1 << 20  # elements of the largest array in a slice, or one row if that has more
RANDOM = 32  # slices at random places, beside the first, the last, and those across each boundary
MARGIN = 1 << 30  # bytes beside inputs and outputs: float64 slices, workspaces
LEAST_ROWS = 3  # of a small case by which cutting is tried: one has to be in the middle
TRIALS = 3  # most small cases by which cutting is tried


def is_large(arrays: Arrays, inputs: Mapping[str, Any]) -> bool:
    """Whether an array among the inputs has more than 2^31 elements."""
    return any(_count(arrays, value) > BEYOND for value in leaves(inputs) if arrays.is_array(value))


def check_large(subject: SoakSubject, accuracy: Accuracy, beyond: int = BEYOND) -> SoakFinding | SoakMeasured:
    """Compares one call on huge arrays with float64, in slices. accuracy: its small cases show whether one can cut."""
    suite, arrays = subject.suite, subject.arrays

    def make_all() -> Any:
        inputs = suite.make_inputs(**subject.params, device=arrays.device, seed=subject.seed)
        return [dict(inputs), flat(suite.reference(**inputs))]

    footprint, free = subject.endurance.footprint(make_all), subject.endurance.room()
    if footprint is not None and free is not None and footprint + MARGIN > free:
        return subject.skip(LARGE, "soak_no_room", needed=footprint + MARGIN, free=free)
    inputs = subject.inputs()
    outputs = subject.outputs(inputs)
    subject.device.synchronize()
    every = [value for value in leaves([inputs, outputs]) if arrays.is_array(value)]
    sizes = {_count(arrays, array): arrays.nbytes(array) for array in reversed(every)}
    elements = max(sizes, default=0)
    if elements <= beyond:
        return subject.skip(LARGE, "soak_not_large", elements=elements)
    rows = _count_rows(arrays, outputs)
    # Small cases of the accuracy suite show whether the reference of a slice is a slice of the reference.
    cases = accuracy.cases if rows else ()
    trials = (_try_cut(subject, accuracy, params, len(arrays.facts(outputs[0]).shape)) for params in cases)
    cuts = list(itertools.islice((trial for trial in trials if trial is not None), TRIALS))
    if not cuts or not all(cuts):
        return subject.skip(LARGE, "soak_not_cut")

    # First, last, across every multiple of a boundary in elements and in bytes, and at random.
    per_row = max(elements // rows, 1)
    span = min(max(SLICE // per_row, 1), rows)
    width = max(sizes[elements] // elements, 1)
    marks = {mark for power in (beyond, 2 * beyond) for mark in (power, power // width) if mark < elements}
    rng = random.Random(subject.seed)
    starts = [0, rows - span, *(mark // per_row - span // 2 for mark in sorted(marks))]
    starts += [rng.randrange(rows - span + 1) for _ in range(RANDOM)]
    places = list(dict.fromkeys(min(max(start, 0), rows - span) for start in starts))

    total = sum(map(arrays.nbytes, every))
    numbers: dict[str, Fact] = {"elements": elements, "bytes": total, "slices": len(places), "rows": span}
    for done, start in enumerate(places):
        stop = start + span
        part = _cut(arrays, accuracy, inputs, outputs, start, stop)
        wrong = wrong_output(suite, arrays, subject.params, part, [output[start:stop] for output in outputs])
        if wrong is not None:
            facts: dict[str, Fact] = {**numbers, "case": subject.case, "start": start, "stop": stop}
            return subject.finding(LARGE, Status.FAIL, numbers, because("soak_large", wrong, **facts))
        subject.tick(done, len(places))
    return subject.measured(LARGE, numbers)


def _count(arrays: Arrays, array: Any) -> int:
    return math.prod(arrays.facts(array).shape)


def _count_rows(arrays: Arrays, outputs: Sequence[Any]) -> int:
    """Elements along the outputs' first axis, 0 if they have none in common."""
    shapes = [arrays.facts(output).shape if arrays.is_array(output) else () for output in outputs]
    firsts = {shape[0] if shape else 0 for shape in shapes}
    return firsts.pop() if len(firsts) == 1 else 0


def _cut(
    arrays: Arrays, accuracy: Accuracy, inputs: Mapping[str, Any], outputs: Sequence[Any], start: int, stop: int
) -> dict[str, Any]:
    """The inputs that the rows start to stop of the outputs come from."""
    if accuracy.large_part is not None:
        return dict(accuracy.large_part(inputs, start, stop))
    shape = arrays.facts(outputs[0]).shape

    def cut(value: Any) -> Any:
        sides = arrays.facts(value).shape if arrays.is_array(value) else ()
        return value[start:stop] if sides and len(sides) >= len(shape) and sides[0] == shape[0] else value

    return {name: cut(value) for name, value in inputs.items()}


def _try_cut(subject: SoakSubject, accuracy: Accuracy, params: Params, axes: int) -> bool | None:
    """Whether one small case can be cut. None if it has another number of axes, or too few rows."""
    arrays = subject.arrays
    inputs = bound_inputs(accuracy, params, arrays.device, subject.seed)
    whole = flat(accuracy.reference(**inputs))
    rows = _count_rows(arrays, whole)
    if rows < LEAST_ROWS or len(arrays.facts(whole[0]).shape) != axes or not all(_count(arrays, x) for x in whole):
        return None
    part = _cut(arrays, accuracy, inputs, whole, 1, rows - 1)
    suite = dataclasses.replace(subject.suite, reduces=accuracy.reduces, tolerance=accuracy.tolerance)
    try:
        return wrong_output(suite, arrays, params, part, [output[1 : rows - 1] for output in whole]) is None
    except Exception:  # shapes that no longer go together, whatever the reference makes of them
        return False
