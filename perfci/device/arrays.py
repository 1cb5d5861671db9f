"""The interface of every device's arrays: inputs and outputs of kernels."""

from __future__ import annotations

import cmath
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from perfci.core.model import Count, Fact, as_fact

Inputs = Mapping[str, Any]  # a call's arguments by name


def leaves(value: Any) -> Iterator[Any]:
    """Every single value of a call's arguments in order, those in lists and mappings too."""
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from leaves(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from leaves(inner)
    else:
        yield value


def other_number(value: Any) -> Any:
    """A number that no tolerance takes for this one.

    >>> other_number(-1.0), other_number(100.0), other_number(float("nan")), other_number(255), other_number(False)
    (1.0, 201.0, 0.0, 0, 1)
    """
    if isinstance(value, int):
        return 0 if value else 1
    return value + abs(value) + 1 if cmath.isfinite(value) else 0.0


@dataclass(frozen=True)
class ArrayFacts:
    """The form of a tensor: a kernel's output and the reference's must agree in it."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    dense: bool  # laid out without gaps, the axes in any order


@dataclass(frozen=True)
class DtypeFacts:
    """Range of a floating-point type."""

    name: str
    largest: float
    smallest_normal: float
    smallest_subnormal: float
    epsilon: float


@dataclass(frozen=True)
class Memory:
    """Where an array lies: what a process needs to lay another one over the same bytes."""

    key: int  # the same for arrays that share memory
    size: int  # bytes of the whole memory
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]  # in bytes for numpy, in elements for torch, as each has them
    offset: int  # of the first element, likewise


class Arrays(ABC):
    """Inputs and outputs of kernels: torch tensors, or numpy arrays on the fake device."""

    device: str  # what `make_inputs` gets as its device
    kind: type  # of the arrays

    def is_array(self, value: Any) -> bool:
        """Whether the value is an array of this kind."""
        return isinstance(value, self.kind)

    @abstractmethod
    def facts(self, array: Any) -> ArrayFacts:
        """Shape, dtype, device and density."""

    @abstractmethod
    def strides(self, array: Any) -> tuple[int, ...]:
        """Elements between neighbours along each axis."""

    @abstractmethod
    def dtype_facts(self, array: Any) -> DtypeFacts | None:
        """Range of a floating-point array's type. None for any other type."""

    @abstractmethod
    def host(self, array: Any) -> np.ndarray[Any, Any]:
        """A copy on the host: float64 for floating-point arrays, others in their type."""

    @abstractmethod
    def compared(self, array: Any) -> Any:
        """The array where its numbers are compared: on a device that has float64, or on the host if they are few."""

    @abstractmethod
    def like(self, values: np.ndarray[Any, Any], array: Any) -> Any:
        """Host values as a new array with another's dtype and device."""

    def in_float64(self) -> AbstractContextManager[object] | None:
        """A context in which what would be float32 is float64. None if there is none."""
        return None

    def upcast(self, inputs: Inputs) -> dict[str, Any]:
        """Inputs with every floating-point array in float64."""
        return self._map(self._upcast, inputs)

    def place(self, inputs: Inputs, layout: str) -> dict[str, Any]:
        """Copies of the inputs in a memory layout (`spec.LAYOUTS`), surrounded by NaN so that stray reads show.

        Each array has separate strides, so that a kernel that takes one's for another's is found. A layout with the
        name of an input behind it, as `strided x`, is that input's alone.
        """
        number = itertools.count()
        layout, _, name = layout.partition(" ")
        if name in inputs:
            return self.place(inputs, "contiguous") | self.place({name: inputs[name]}, layout)
        return self._map(lambda array: self._place(array, layout, next(number)), inputs)

    def copies(self, inputs: Mapping[Any, Any]) -> dict[Any, Any]:
        """Dense copies, to compare the inputs with later."""
        return self._map(self._copy, inputs)

    def refill(self, inputs: Inputs, fresh: Inputs) -> bool:
        """Write other values into the same buffers if all can be overwritten, and the calls differ in arrays alone.

        Returns whether it did.
        """
        pairs = list(itertools.zip_longest(leaves(inputs), leaves(fresh)))
        for old, new in pairs:
            plain = isinstance(old, int | float | str | None)
            if self.is_array(old) is not self.is_array(new) or (plain and old != new):
                return False
        pairs = [(old, new) for old, new in pairs if self.is_array(old)]
        if not all(self._can_overwrite(old, new) for old, new in pairs):
            return False
        self._overwrite(pairs)
        return True

    @abstractmethod
    def spoil(self, array: Any) -> None:
        """Make the last element of an array wrong."""

    @abstractmethod
    def stain(self, array: Any, first: int, step: int) -> None:
        """Change one bit of every `step`-th element of the memory that an array lies in, from element `first` on.

        It is the highest of a floating-point number's mantissa, the lowest of an integer.
        """

    @abstractmethod
    def same_bits(self, left: Any, right: Any) -> bool:
        """Whether two arrays hold the same bits. NaN equals the same NaN."""

    @abstractmethod
    def overlap(self, left: Any, right: Any) -> bool:
        """Whether two arrays share memory."""

    @abstractmethod
    def watch_allocations(self, filler: str) -> AbstractContextManager[AllocationWatch]:
        """Hand out guard-zoned memory for arrays made empty inside, filled with NaN (`nan`) or a number (`value`)."""

    @abstractmethod
    def is_filler(self, array: Any) -> np.ndarray[Any, Any]:
        """Which elements hold the number that `value` fills with."""

    def nbytes(self, value: Any) -> int:
        """Bytes of an array. 0 for anything else."""
        return int(value.nbytes) if self.is_array(value) else 0

    @abstractmethod
    def memory_of(self, array: Any) -> Memory:
        """Where an array lies."""

    @abstractmethod
    def bytes_of(self, array: Any) -> memoryview:
        """All bytes of the memory that an array on the host lies in, to be read and written."""

    @abstractmethod
    def view(self, memory: Any, place: Memory) -> Any:
        """An array laid over bytes, or over the memory of another array."""

    def twin(self, array: Any) -> Any:
        """An array laid over a copy of the same memory, on a device with memory that others can open. Else None."""
        return None

    def open_to_others(self, array: Any) -> str | None:
        """Returns a handle by which another process opens a device's memory. None for memory on the host."""
        return None

    def take_back(self) -> None:  # noqa: B027 - only a GPU's memory is open to others
        """Free memory that was open to another process, once that has closed it."""

    def open_foreign(self, handle: str) -> Any:
        """An array over the memory of another process."""
        raise NotImplementedError

    @abstractmethod
    def item_bytes(self, dtype: str) -> int:
        """Returns the bytes of an element. Raises TypeError for anything but a dtype of plain numbers."""

    @abstractmethod
    def spell(self, value: Any) -> Any:
        """A dtype or the like as JSON: a mapping with one key. None for anything else."""

    @abstractmethod
    def unspell(self, spelled: Mapping[str, Any]) -> Any:
        """The dtype or the like that was spelled. Raises TypeError for anything else."""

    def memory_in_use(self) -> int | None:
        """Bytes that the process holds on the device. None if unknown."""
        return None

    def _map(self, function: Callable[[Any], Any], inputs: Mapping[Any, Any]) -> dict[Any, Any]:
        return {name: function(value) if self.is_array(value) else value for name, value in inputs.items()}

    @abstractmethod
    def _upcast(self, array: Any) -> Any: ...

    @abstractmethod
    def _place(self, array: Any, layout: str, number: int) -> Any: ...

    @abstractmethod
    def _copy(self, array: Any) -> Any: ...

    @abstractmethod
    def _can_overwrite(self, old: Any, new: Any) -> bool: ...

    @abstractmethod
    def _overwrite(self, pairs: list[tuple[Any, Any]]) -> None: ...


class Damage(NamedTuple):
    """Guard zones that were written into, and how far from their arrays at most, in elements."""

    zones: Count = 0
    before: Count = 0
    after: Count = 0

    def join(self, other: Damage) -> Damage:
        """Returns both together."""
        return Damage(self.zones + other.zones, max(self.before, other.before), max(self.after, other.after))

    @property
    def facts(self) -> dict[str, Fact]:
        """As facts of a reason."""
        side = as_fact("past either end")
        if not (self.before and self.after):
            side = as_fact("before the start") if self.before else as_fact("past the end")
        return {"zones": self.zones, "far": max(self.before, self.after), "side": side}


class AllocationWatch(Protocol):
    """The result of `watch_allocations`."""

    def find_damage(self) -> Damage:
        """Returns what became of the guard zones."""
