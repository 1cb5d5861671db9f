"""The array half of the seam for numpy: what the fake device computes with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from perfci.device.seam import ArrayFacts, DtypeFacts, Inputs, Mismatch, other_number, pairs_to_refill

Array = np.ndarray[Any, Any]

GUARD = 64
"""Elements of NaN on either side of a guarded input."""


FILLER = 77.0
"""What never-written elements hold in the second of two calls."""


class _NoWatch:
    """numpy offers no hook for guard zones."""

    def damaged(self) -> int:
        return 0


class NumpyArrays:
    """Arrays on the host; see `seam.Arrays` for what each method is for."""

    device = "fake"

    def is_array(self, value: Any) -> bool:
        """Whether it is a numpy array."""
        return isinstance(value, np.ndarray)

    def facts(self, array: Array) -> ArrayFacts:
        """Shape, dtype, device and density."""
        return ArrayFacts(tuple(array.shape), str(array.dtype), self.device, bool(array.flags.c_contiguous))

    def dtype_facts(self, array: Array) -> DtypeFacts | None:
        """Range of a floating-point array's type."""
        if not np.issubdtype(array.dtype, np.floating):
            return None
        info = np.finfo(array.dtype)
        return DtypeFacts(
            str(array.dtype),
            float(info.max),
            float(info.smallest_normal),
            float(info.smallest_subnormal),
            float(info.eps),
        )

    def host(self, array: Array) -> Array:
        """A float64 copy of floating-point arrays; others as they are."""
        return array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array.copy()

    def rounded(self, values: Array, like: Array) -> Array:
        """Values rounded to an array's dtype, as float64."""
        with np.errstate(over="ignore"):
            return values.astype(like.dtype).astype(np.float64)

    def like(self, values: Array, array: Array) -> Array:
        """Values as a new array of another's dtype."""
        with np.errstate(over="ignore"):
            return np.asarray(values, dtype=array.dtype)

    def upcast(self, inputs: Inputs) -> dict[str, Any]:
        """Floating-point arrays in float64."""
        return {name: self.host(value) if self.is_array(value) else value for name, value in inputs.items()}

    def placed(self, inputs: Inputs, layout: str) -> dict[str, Any]:
        """Copies in a memory layout, surrounded by NaN."""
        return {name: self._place(value, layout) if self.is_array(value) else value for name, value in inputs.items()}

    def copies(self, inputs: Mapping[Any, Any]) -> dict[Any, Any]:
        """Dense copies."""
        return {name: value.copy() if self.is_array(value) else value for name, value in inputs.items()}

    def refill(self, inputs: Inputs, fresh: Inputs) -> None:
        """All arrays or none: values of one call may depend on each other."""
        pairs = pairs_to_refill(self, inputs, fresh)
        if all(_can_overwrite(old, new) for old, new in pairs):
            for old, new in pairs:
                np.copyto(old, new)

    def spoil(self, array: Array) -> None:
        """Put another number there."""
        if array.size:
            place = (-1,) * array.ndim
            with np.errstate(over="ignore"):
                array[place] = other_number(array[place].item())

    def same_bits(self, left: Array, right: Array) -> bool:
        """Whether both hold the same bytes."""
        return left.shape == right.shape and left.dtype == right.dtype and left.tobytes() == right.tobytes()

    def overlap(self, left: Array, right: Array) -> bool:
        """Whether both share memory."""
        return bool(np.may_share_memory(left, right))

    @contextmanager
    def watch_allocations(self, filler: str) -> Iterator[_NoWatch]:
        """Fill what `numpy.empty` and `numpy.empty_like` give; guard nothing."""
        value = np.nan if filler == "nan" else FILLER
        empty, empty_like = np.empty, np.empty_like
        module: Any = np
        module.empty = lambda *args, **kwargs: _full(empty(*args, **kwargs), value)
        module.empty_like = lambda *args, **kwargs: _full(empty_like(*args, **kwargs), value)
        try:
            yield _NoWatch()
        finally:
            module.empty, module.empty_like = empty, empty_like

    def is_filler(self, array: Array) -> Array:
        """Elements that hold the filler."""
        return np.asarray(array == FILLER)

    def mismatch(self, actual: Array, expected: Array, rtol: float, atol: float) -> Mismatch:
        """Count elements beyond the tolerance."""
        left, right = self.host(actual), self.rounded(self.host(expected), actual)
        with np.errstate(invalid="ignore"):
            error = np.abs(left - right)
            # Beside an infinite value any distance would be within rtol of it.
            near = (error <= atol + rtol * np.abs(right)) & np.isfinite(right)
            good = near | (left == right) | (np.isnan(left) & np.isnan(right))
        if good.all():
            return Mismatch(0, 0.0, ())
        error = np.where(good, -1.0, np.where(np.isnan(error), np.inf, error))
        worst = np.unravel_index(np.argmax(error), error.shape)
        return Mismatch(int((~good).sum()), float(error[worst]), tuple(int(i) for i in worst))

    def unfinite(self, array: Array) -> int:
        """Values that are infinite or NaN."""
        return int((~np.isfinite(self.host(array))).sum())

    def deviation(self, actual: Array, expected: Array) -> None:
        """Never: the host has them."""

    def nbytes(self, value: Any) -> int:
        """Bytes of an array."""
        return int(value.nbytes) if self.is_array(value) else 0

    def memory_in_use(self) -> int | None:
        """Unknown."""
        return None

    def _place(self, array: Array, layout: str) -> Array:
        if layout == "expanded" and array.ndim and array.shape[0]:
            return np.broadcast_to(self._place(array[:1], "contiguous"), array.shape)
        step = 2 if layout == "strided" and array.ndim else 1
        room = np.full(array.size * step + 2 * GUARD, _filler(array.dtype), dtype=array.dtype)
        middle = room[GUARD : GUARD + array.size * step]
        inner = middle.reshape(*array.shape[:-1], -1)[..., ::step] if array.size else middle
        inner = inner.reshape(array.shape) if step == 1 or not array.size else inner
        inner[...] = array
        return inner


def _filler(dtype: np.dtype[Any]) -> Any:
    return np.nan if np.issubdtype(dtype, np.floating) else 0


def _can_overwrite(old: Array, new: Array) -> bool:
    """Same shape and dtype, and no element stands for several."""
    apart = all(stride != 0 for size, stride in zip(old.shape, old.strides, strict=True) if size > 1)
    return old.shape == new.shape and old.dtype == new.dtype and apart and bool(old.flags.writeable)


def _full(array: Array, value: float) -> Array:
    if np.issubdtype(array.dtype, np.floating):
        array.fill(value)
    return array
