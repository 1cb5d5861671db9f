"""Shapes beyond 2^31 elements, where 32-bit indexes overflow: one call, verified in slices against float64."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from perfci.core.model import Fact, Reason
from perfci.core.wording import caused
from perfci.device.seam import Arrays, leaves
from perfci.lab.soak.findings import LARGE, Finding, Status
from perfci.lab.soak.subject import Subject
from perfci.measure.inputs import bound_inputs, flat
from perfci.measure.outputs import wrong_output
from perfci.ops.spec import Accuracy, Params, case_id

BEYOND = 1 << 31
"""Elements that an array has to have more of: the least number that an int32 does not hold."""

SLICE = 1 << 20
"""Elements of the largest array that a slice has, or one row where that has more."""

RANDOM = 32
"""Slices at random places, beside the first, the last, and those across each boundary."""

MARGIN = 1 << 30
"""Bytes beside inputs and outputs: float64 slices, workspaces."""

LEAST_ROWS = 3
"""Of the small case by which cutting is tried: there has to be one in the middle."""

TRIALS = 3
"""Small cases by which it is tried at most."""


def is_large(arrays: Arrays, inputs: Mapping[str, Any]) -> bool:
    """Whether an array among the inputs has more than 2^31 elements."""
    return any(_elements(arrays, value) > BEYOND for value in leaves(inputs) if arrays.is_array(value))


def large(subject: Subject, accuracy: Accuracy, beyond: int = BEYOND) -> Finding:
    """One call on huge arrays, against the reference in float64 slice by slice; no float64 copy of all is made.

    accuracy: the op's suite, whose small cases show whether its reference can be cut into slices. beyond: how many
    elements count as huge.
    """
    needed, free = _needed(subject), subject.endurance.room()
    if needed is not None and free is not None and needed > free:
        return subject.skipped(LARGE, "soak_no_room", needed=needed, free=free)
    inputs = subject.inputs()
    outputs = subject.outputs(inputs)
    subject.device.synchronize()
    rows = _rows(subject, outputs)
    arrays = [value for value in leaves([inputs, outputs]) if subject.arrays.is_array(value)]
    elements = max((_elements(subject.arrays, each) for each in arrays), default=0)
    if elements <= beyond:
        return subject.skipped(LARGE, "soak_not_large", elements=elements)
    if not rows or not _can_be_cut(subject, accuracy, len(subject.arrays.facts(outputs[0]).shape)):
        return subject.skipped(LARGE, "soak_not_cut")
    return _verified(subject, accuracy, inputs, outputs, _places(subject, arrays, rows, elements, beyond), elements)


def _needed(subject: Subject) -> int | None:
    """Bytes of inputs and outputs with a margin; None where shapes can't be told without memory."""
    suite = subject.suite

    def made() -> Any:
        inputs = suite.make_inputs(**subject.params, device=subject.arrays.device, seed=subject.seed)
        return [dict(inputs), flat(suite.reference(**inputs))]

    found = subject.endurance.footprint(made)
    return None if found is None else found + MARGIN


def _elements(arrays: Arrays, array: Any) -> int:
    return math.prod(arrays.facts(array).shape)


def _rows(subject: Subject, outputs: Sequence[Any]) -> int:
    """Elements along the outputs' first axis; 0 where they have none in common."""
    shapes = [subject.arrays.facts(each).shape for each in outputs if subject.arrays.is_array(each)]
    firsts = {shape[0] if shape else 0 for shape in shapes}
    return firsts.pop() if len(firsts) == 1 and len(shapes) == len(outputs) else 0


# --- slices -----------------------------------------------------------------------------------------------------------


def _part(
    subject: Subject, accuracy: Accuracy, inputs: Mapping[str, Any], outputs: Sequence[Any], start: int, stop: int
) -> dict[str, Any]:
    """The inputs that the rows start to stop of the outputs come from."""
    if accuracy.large_part is not None:
        return dict(accuracy.large_part(inputs, start, stop))
    shape = subject.arrays.facts(outputs[0]).shape

    def cut(value: Any) -> Any:
        if not subject.arrays.is_array(value):
            return value
        own = subject.arrays.facts(value).shape
        return value[start:stop] if len(own) >= len(shape) and own[:1] == shape[:1] else value

    return {name: cut(value) for name, value in inputs.items()}


def _can_be_cut(subject: Subject, accuracy: Accuracy, axes: int) -> bool:
    """Whether the reference of a slice is a slice of the reference.

    Tried on small cases of the accuracy suite whose outputs have as many axes.
    """
    tried = 0
    for params in accuracy.cases:
        found = _cut_like(subject, accuracy, params, axes)
        if found is False:
            return False
        tried += found is True
        if tried == TRIALS:
            break
    return tried > 0


def _cut_like(subject: Subject, accuracy: Accuracy, params: Params, axes: int) -> bool | None:
    """Of one small case; None where it has another number of axes, or too few rows to tell."""
    inputs = bound_inputs(accuracy, params, subject.arrays.device, subject.seed)
    whole = flat(accuracy.reference(**inputs))
    rows = _rows(subject, whole)
    alike = rows and len(subject.arrays.facts(whole[0]).shape) == axes
    if not alike or rows < LEAST_ROWS or not all(_elements(subject.arrays, each) for each in whole):
        return None
    start, stop = 1, rows - 1
    part = _part(subject, accuracy, inputs, whole, start, stop)
    slices = [each[start:stop] for each in whole]
    suite = dataclasses.replace(subject.suite, reduces=accuracy.reduces, tolerance=accuracy.tolerance)
    try:
        return wrong_output(suite, subject.arrays, params, part, slices) is None
    except Exception:  # shapes that no longer go together, whatever the reference makes of them
        return False


def _places(subject: Subject, arrays: Sequence[Any], rows: int, elements: int, beyond: int) -> list[tuple[int, int]]:
    """First, last, across every multiple of a boundary in elements and in bytes, and at random."""
    per_row = max(elements // rows, 1)
    span = min(max(SLICE // per_row, 1), rows)
    largest = max(arrays, key=lambda each: _elements(subject.arrays, each))
    width = max(subject.arrays.nbytes(largest) // elements, 1)
    marks = {mark for power in (beyond, 2 * beyond) for mark in (power, power // width) if mark < elements}
    rng = random.Random(subject.seed)
    starts = [0, rows - span, *(mark // per_row - span // 2 for mark in sorted(marks))]
    starts += [rng.randrange(rows - span + 1) for _ in range(RANDOM)]
    starts = [min(max(start, 0), rows - span) for start in starts]
    return [(start, start + span) for start in dict.fromkeys(starts)]


def _verified(
    subject: Subject,
    accuracy: Accuracy,
    inputs: Mapping[str, Any],
    outputs: Sequence[Any],
    places: Sequence[tuple[int, int]],
    elements: int,
) -> Finding:
    numbers: dict[str, Fact] = {
        "elements": elements,
        "bytes": sum(subject.arrays.nbytes(each) for each in leaves([inputs, outputs])),
        "slices": len(places),
        "rows": places[0][1] - places[0][0],
    }
    for done, (start, stop) in enumerate(places):
        part = _part(subject, accuracy, inputs, outputs, start, stop)
        slices = [each[start:stop] for each in outputs]
        wrong: Reason | None = wrong_output(subject.suite, subject.arrays, subject.params, part, slices)
        if wrong is not None:
            facts: dict[str, Fact] = {**numbers, "case": case_id(subject.params), "start": start, "stop": stop}
            return subject.finding(LARGE, Status.FAIL, numbers, caused("soak_large", wrong, **facts))
        subject.tick(done, len(places))
    return subject.finding(LARGE, Status.PASS, numbers)
