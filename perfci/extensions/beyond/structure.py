"""Calls that follow from how a kernel is built rather than from its suite, the same for every op.

Pointers that are aligned to 2 to 16 bytes, gaps along each axis, axes in another order, and rows or columns that lie so
far apart that places beyond 2^31 are reached by few elements.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from perfci.core.model import AccuracyCase, as_fact, because
from perfci.device.seam import Accelerator
from perfci.measure.bench import Describe
from perfci.measure.verify import Check, make_inputs, verify
from perfci.ops.spec import Accuracy, Params

OFFSETS = {
    2: as_fact("arrays 2 bytes past an aligned address"),
    4: as_fact("arrays 4 bytes past an aligned address"),
    8: as_fact("arrays 8 bytes past an aligned address"),
    16: as_fact("arrays 16 bytes past an aligned address"),
}
GAPS = (
    as_fact("gaps along the first axis"),
    as_fact("gaps along the second axis"),
    as_fact("gaps along the third axis"),
)
FAR = 1 << 30  # elements from one row to the next: the third lies past 2^31
FAR_ROWS = 5
BEYOND = 1 << 31  # places that take more than 32 bits
MOST_FAR = 1 << 34  # bytes of such an array that are asked for. Of a CPU's only the few that hold rows become real

Form = Callable[[Any], Any]
"""Returns an array with the same values that lies in memory otherwise. Raises UnfitError if it cannot lie so."""


class UnfitError(Exception):
    """An array that cannot lie in memory as it should."""


@dataclass(frozen=True)
class Placed:
    """How all arrays of a call lie."""

    name: str
    form: Form
    far: bool = False  # it needs much address space


def list_placed(suite: Accuracy) -> Iterator[Placed]:
    """Yields the ways that an op takes: dense arrays at any address, and others if its suite has such layouts.

    A suite that is pitched but not strided says that the elements of rows lie side by side.
    """
    yield from (Placed(name, functools.partial(shift, offset)) for offset, name in OFFSETS.items())
    if {"strided", "pitched"}.isdisjoint(suite.layouts):
        return
    fixed = 0 if "strided" in suite.layouts else 1  # last axes that have to stay dense
    yield from (Placed(name, functools.partial(stretch, axis, fixed)) for axis, name in enumerate(GAPS))
    if not fixed:
        yield Placed(as_fact("the last two axes in another order in memory"), turn)
        yield Placed(as_fact("columns that reach past 2^31"), spread_columns, far=True)
    yield Placed(as_fact("rows 2^30 elements apart"), functools.partial(spread, fixed), far=True)


def reach_far(params: Params) -> Params:
    """Returns a case with few of what its first size counts: rows that lie far apart."""
    first = next((name for name, value in params.items() if type(value) is int), None)
    return {**params, first: FAR_ROWS} if first else params


def check_placed(
    suite: Accuracy, device: Accelerator, params: Params, placed: Placed, describe: Describe
) -> AccuracyCase | None:
    """Make one check. None if the op is right, refuses such arrays, or the case has none."""
    check = Check(params, "normal", "contiguous", 0, fresh=False)
    try:
        suite = place_suite(suite, device, check, placed)
    except Exception:  # of a size that the op does not have
        return None
    result = verify(suite, device, check, describe)
    if result.failure is None or result.raised:
        return None
    return check.result(failure=because("wrong_placed", result.failure, placed=placed.name))


def place_suite(suite: Accuracy, device: Accelerator, check: Check, placed: Placed) -> Accuracy:
    """Returns a suite with a kernel that gets a check's arrays so. Raises UnfitError if none can lie so."""
    moved = dict(place_arrays(make_inputs(suite, device.arrays, check), placed.form))
    if not moved:
        raise UnfitError
    # Memory is allocated here, not inside the check, which fills all of it.
    return replace(suite, kernel=give(suite.kernel, moved))


def place_arrays(inputs: Mapping[str, Any], form: Form) -> Iterator[tuple[str, torch.Tensor]]:
    """Yields the inputs that can lie so, by name."""
    for name, value in inputs.items():
        if isinstance(value, torch.Tensor) and value.dim() and value.numel():
            with suppress(UnfitError):
                yield name, form(value)


def give(kernel: Callable[..., Any], moved: Mapping[str, Any]) -> Callable[..., Any]:
    """The kernel on these in the place of inputs with the same values."""

    def call(**inputs: Any) -> Any:
        return kernel(**{**inputs, **moved})

    return call


def shift(offset: int, value: torch.Tensor) -> torch.Tensor:
    """Returns an array so many bytes past an aligned address. Raises UnfitError if these are no whole elements."""
    if offset % value.element_size():
        raise UnfitError
    size = sum((length - 1) * stride for length, stride in zip(value.shape, value.stride(), strict=True)) + 1
    room = torch.empty(size + offset, dtype=value.dtype, device=value.device)
    return room.as_strided(value.shape, value.stride(), offset // value.element_size()).copy_(value)


def stretch(axis: int, fixed: int, value: torch.Tensor) -> torch.Tensor:
    """Returns an array of which each second place along an axis is a gap. Raises UnfitError without that axis.

    fixed: so many of the last axes have no gap.
    """
    if axis >= value.dim() - fixed:
        raise UnfitError
    shape = [length * (2 if place == axis else 1) for place, length in enumerate(value.shape)]
    room = torch.zeros(shape, dtype=value.dtype, device=value.device)
    index = tuple(slice(None, None, 2) if place == axis else slice(None) for place in range(value.dim()))
    room[index] = value
    return room[index]


def turn(value: torch.Tensor) -> torch.Tensor:
    """Returns an array with another dense axis than the last. Raises UnfitError with a single axis."""
    if value.dim() < 2:
        raise UnfitError
    return value.transpose(-1, -2).contiguous().transpose(-1, -2)


def spread(fixed: int, value: torch.Tensor) -> torch.Tensor:
    """Returns an array with steps of 2^30 elements along its first axis. Raises UnfitError if that is too much memory.

    fixed: so many of the last axes stay as they are.
    """
    if value.dim() <= fixed or not 2 < len(value) <= FAR_ROWS:
        raise UnfitError
    inner = value[0].contiguous()
    step = max(FAR, inner.numel())
    return _lay(value, (step, *inner.stride()), (len(value) - 1) * step + inner.numel())


def spread_columns(value: torch.Tensor) -> torch.Tensor:
    """Returns an array of which the last column lies past 2^31, in smaller steps. Raises UnfitError as spread does.

    A kernel that multiplies column and stride in 32 bits reads elsewhere, also if its row is counted in 64.
    """
    columns = value.shape[-1]
    if value.dim() < 2 or columns < 3:
        raise UnfitError
    inner = value[..., 0].contiguous()
    step = max(BEYOND // (columns - 1) + 1, inner.numel())
    return _lay(value, (*inner.stride(), step), (columns - 1) * step + inner.numel())


def _lay(value: torch.Tensor, strides: tuple[int, ...], size: int) -> torch.Tensor:
    """Returns an array with these strides in so many elements, of which no others are written."""
    if size * value.element_size() > MOST_FAR:
        raise UnfitError
    try:
        room = torch.empty(size, dtype=value.dtype, device=value.device)
    except RuntimeError as error:
        raise UnfitError from error
    return room.as_strided(value.shape, strides).copy_(value)
