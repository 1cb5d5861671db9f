"""Inputs and outputs on the fake device: arrays of numpy."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from perfci.device.arrays import ArrayFacts, Arrays, Damage, DtypeFacts, Memory, other_number

Array = np.ndarray[Any, Any]
_name = functools.cache(str)  # of a dtype, which NumPy makes anew each time

NUMBERS = "biufc"  # kinds of dtypes of numbers, as numpy has them
GUARD = 64  # elements of NaN on either side of a guarded input
FILLER = 77.0  # what never-written elements hold in the second of two calls


def _root(array: Array) -> Array:
    """The array that the memory belongs to."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class NumpyArrays(Arrays):
    """Arrays on the host."""

    device = "fake"
    kind = np.ndarray

    def facts(self, array: Array) -> ArrayFacts:
        rows = np.transpose(array, np.argsort([-stride for stride in array.strides], kind="stable"))
        dense = bool(array.flags.c_contiguous or rows.flags.c_contiguous)
        return ArrayFacts(tuple(array.shape), _name(array.dtype), self.device, dense)

    def strides(self, array: Array) -> tuple[int, ...]:
        return tuple(stride_bytes // array.itemsize for stride_bytes in array.strides)

    def dtype_facts(self, array: Array) -> DtypeFacts | None:
        if not np.issubdtype(array.dtype, np.floating):
            return None
        info = np.finfo(array.dtype)
        figures = (info.max, info.smallest_normal, info.smallest_subnormal, info.eps)
        return DtypeFacts(str(array.dtype), *map(float, figures))

    def host(self, array: Array) -> Array:
        return array.astype(np.float64) if np.issubdtype(array.dtype, np.floating) else array.copy()

    def compared(self, array: Array) -> Array:
        return np.asarray(array)

    def like(self, values: Array, array: Array) -> Array:
        with np.errstate(over="ignore"):
            return np.asarray(values, dtype=array.dtype)

    def spoil(self, array: Array) -> None:
        if array.size:
            place = (-1,) * array.ndim
            with np.errstate(over="ignore"):
                array[place] = other_number(array[place].item())

    def stain(self, array: Array, first: int, step: int) -> None:
        if array.flags.c_contiguous and array.flags.writeable and array.dtype.kind in "fiub":
            bit = 1 << (np.finfo(array.dtype).nmant - 1) if array.dtype.kind == "f" else 1
            words = array.reshape(-1).view(f"u{array.itemsize}")[first::step]
            words ^= words.dtype.type(bit)

    def same_bits(self, left: Array, right: Array) -> bool:
        return left.shape == right.shape and left.dtype == right.dtype and left.tobytes() == right.tobytes()

    def overlap(self, left: Array, right: Array) -> bool:
        return bool(np.may_share_memory(left, right))

    @contextmanager
    def watch_allocations(self, filler: str) -> Iterator[Any]:
        """Fill what `numpy.empty` and `numpy.empty_like` give. Guard nothing: numpy offers no hook for that."""
        from unittest import mock  # which imports much

        value = np.nan if filler == "nan" else FILLER

        def fill(make: Callable[..., Array]) -> Callable[..., Array]:
            def made(*args: Any, **kwargs: Any) -> Array:
                array = make(*args, **kwargs)
                if np.issubdtype(array.dtype, np.floating):
                    array.fill(value)
                return array

            return made

        with mock.patch.multiple(np, empty=fill(np.empty), empty_like=fill(np.empty_like)):
            yield SimpleNamespace(find_damage=Damage)

    def is_filler(self, array: Array) -> Array:
        return np.asarray(array == FILLER)

    def memory_of(self, array: Array) -> Memory:
        root = _root(array)
        offset = array.__array_interface__["data"][0] - root.__array_interface__["data"][0]
        return Memory(
            root.__array_interface__["data"][0], root.nbytes, str(array.dtype), array.shape, array.strides, offset
        )

    def bytes_of(self, array: Array) -> memoryview:
        root = _root(array)
        flat = root if root.flags.c_contiguous else root.T
        return flat.reshape(-1).view(np.uint8).data if root.size else memoryview(bytearray())

    def item_bytes(self, dtype: str) -> int:
        """Not of objects, of which an array holds addresses."""
        if (kind := np.dtype(dtype)).kind not in NUMBERS:
            raise TypeError(f"an array of dtype {dtype}")
        return kind.itemsize

    def view(self, memory: Any, place: Memory) -> Array:
        given = self.bytes_of(memory) if isinstance(memory, np.ndarray) else memory
        return np.ndarray(place.shape, np.dtype(place.dtype), given, place.offset, place.strides)

    def spell(self, value: Any) -> Any:
        spelled = isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic))
        return {"numpy": str(np.dtype(value))} if spelled else None

    def unspell(self, spelled: Mapping[str, Any]) -> Any:
        return np.dtype(spelled["numpy"])

    def _upcast(self, array: Array) -> Array:
        return self.host(array)

    def _place(self, array: Array, layout: str, number: int) -> Array:
        if layout == "expanded" and array.ndim and array.shape[0]:
            return np.broadcast_to(self._place(array[:1], "contiguous", number), array.shape)
        step, gap = 2 + number if layout == "strided" else 1, GUARD * (1 + number) if layout == "pitched" else 0
        filler = np.nan if np.issubdtype(array.dtype, np.floating) else 0
        *lead, cols = array.shape or (1,)
        width = cols * step + gap
        room = np.full(math.prod(lead) * width + 2 * GUARD, filler, dtype=array.dtype)
        rows = room[GUARD : len(room) - GUARD].reshape(*lead, width)
        inner = (
            rows[..., : cols * step : step].reshape(array.shape) if not array.ndim else rows[..., : cols * step : step]
        )
        inner[...] = array
        return inner

    def _copy(self, array: Array) -> Array:
        return array.copy()

    def _can_overwrite(self, old: Array, new: Array) -> bool:
        apart = all(stride != 0 for size, stride in zip(old.shape, old.strides, strict=True) if size > 1)
        return old.shape == new.shape and old.dtype == new.dtype and apart and bool(old.flags.writeable)

    def _overwrite(self, pairs: list[tuple[Any, Any]]) -> None:
        for old, new in pairs:
            np.copyto(old, new)
