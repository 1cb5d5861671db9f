"""Calls handed to another process: values as JSON, arrays through memory that both map, or by a driver's handles."""

from __future__ import annotations

import math
import mmap
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from perfci.core.codec import convert
from perfci.core.errors import HandoverError
from perfci.core.model import Amount, CompiledKernel, Count, Fact, Reason, Whole
from perfci.device.arrays import Arrays, Damage, Memory
from perfci.ops.recording import Recording, UnspelledError, spell, unspell

SIZE = 1 << 33  # bytes that one call may hand over. Pages that no one writes take no memory
_PAGE = 4096

READY, GO, RETURNED, DONE = range(4)
"""Places of a turn's marks: the process waits for GO, its calls have returned, the device has done their work."""

MARKS = 4

VIRTUAL = "virtual"
"""Timer of the device without hardware: it believes what kernels claim, and no clock decides."""

LOST = "DeviceLost"
"""Among the kinds of an exception after which the device does nothing more for that process."""


_yield: Callable[[], None] = getattr(os, "sched_yield", lambda: None)


def rest(timer: str | None) -> None:
    """Let others have the core and the interpreter for a moment. Without sleeping, if a clock decides."""
    if timer == VIRTUAL:
        time.sleep(1e-5)
    else:
        _yield()


class HostLostError(HandoverError):
    """The op's process has ended. The reason has how, and `answering` whether it was ready for calls."""

    def __init__(self, reason: Reason, *, answering: bool = False) -> None:
        super().__init__(reason)
        self.answering = answering


class UnsharedError(HandoverError):
    """A call that cannot be handed to another process."""


class Arena:
    """Memory that two processes map. Neither can change its size."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._memory = memoryview(mmap.mmap(descriptor, SIZE + _PAGE))
        self.marks = self._memory[SIZE : SIZE + MARKS]
        """of a turn, set in this order: one process waits for the other's without sleeping"""

    @classmethod
    def create(cls) -> Arena:
        """A new one. A child process inherits its descriptor."""
        import fcntl  # which Windows lacks

        descriptor = os.memfd_create("perfci", os.MFD_ALLOW_SEALING)
        os.ftruncate(descriptor, SIZE + _PAGE)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        return cls(descriptor)

    def part(self, place: int, size: int) -> memoryview:
        """Returns bytes of it. Raises ValueError for what lies outside."""
        if not 0 <= place <= place + size <= SIZE:
            raise ValueError(f"{size} bytes at {place} do not fit")
        return self._memory[place : place + size]


@dataclass(frozen=True)
class Lent:
    """The memory behind one or several arrays of a call."""

    size: Count
    place: Count = 0  # in the arena
    handle: str = ""  # of a GPU's memory, by which another process opens it


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel that another process is asked to make."""

    suite: str  # accuracy or performance: whose kernel
    wrapped: bool  # the kernel that the suite names. False: the function that users call
    inputs: Mapping[str, Any]  # values, arrays as {"array": {...}}
    memory: tuple[Lent, ...]
    free: int  # where in the arena the answer may begin
    filler: str | None = None  # what fresh memory is filled with
    races: bool = False
    most_s: Amount | None = None  # seconds of a core that it may take in Triton's interpreter
    record: bool = False  # answer with a recording, if the call can be repeated from one
    calls: int | None = None
    """a turn of so many calls in a row, whose outputs no one wants. Without inputs: with those of the turn before"""


@dataclass(frozen=True)
class Called:
    """What came of it."""

    output: Any = None
    memory: tuple[Lent, ...] = ()  # behind the outputs, where it is not that of inputs
    again: tuple[Count, ...] = ()  # number of each: the same as in the answer before if it is the same memory
    error: Mapping[str, Fact] | None = None  # what the kernel raised
    kinds: tuple[str, ...] = ()  # names of the exception's classes
    damage: Damage = field(default_factory=Damage)  # to guard zones
    races: tuple[tuple[str, Count, tuple[Whole, Whole], Mapping[str, Fact]], ...] = ()
    spent_us: tuple[Amount, ...] = ()  # what it claims on a device without hardware
    turn_s: tuple[Amount, Amount] | None = None  # seconds of a turn. Believed on a device without hardware alone
    in_use: Count | None = None  # bytes of device memory
    launched: tuple[str, ...] = ()  # names of the Triton kernels that the call launched
    recording: Recording | None = None
    refusal: Reason | None = None  # why there is no recording
    compile_s: Amount | None = None
    compiled: tuple[CompiledKernel, ...] = ()


@dataclass
class Lender:
    """Puts a call's arrays into memory that the other process sees, each memory once."""

    arrays: Arrays
    arena: Arena
    free: int = 0
    copied: bool = False  # lend copies of memory that would stay open to the other process
    known: dict[int, int] = field(default_factory=dict)  # key of a memory -> its number
    lent: list[Lent] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)  # an array of each

    def spell(self, value: Any) -> Any:
        """A value as JSON. Raises UnspelledError for what cannot be handed over."""
        return spell(value, self._spell_array)

    def _spell_array(self, value: Any) -> Any:
        if not self.arrays.is_array(value):
            return self.arrays.spell(value)
        memory = self.arrays.memory_of(value)
        try:
            self.arrays.item_bytes(memory.dtype)
        except TypeError as error:
            raise UnspelledError(str(error)) from None
        if memory.key not in self.known:
            self.known[memory.key] = len(self.lent)
            self.held.append(value)
            self.lent.append(self._lend(value, memory))
        numbers = {"dtype": memory.dtype, "shape": memory.shape, "strides": memory.strides, "offset": memory.offset}
        return {"array": {"memory": self.known[memory.key], **numbers}}

    def _lend(self, value: Any, memory: Memory) -> Lent:
        if self.copied and (twin := self.arrays.twin(value)) is not None:
            value = self.held[-1] = twin
        if handle := self.arrays.open_to_others(value):
            return Lent(memory.size, handle=handle)
        place, self.free = self.free, -(-(self.free + memory.size) // _PAGE) * _PAGE
        self.arena.part(place, memory.size)[:] = self.arrays.bytes_of(value)
        return Lent(memory.size, place)

    def take_back(self) -> None:
        """Take over what the other process wrote into the memory that was lent."""
        for lent, value in zip(self.lent, self.held, strict=True):
            if not lent.handle and not (content := self.arrays.bytes_of(value)).readonly:
                content[:] = self.arena.part(lent.place, lent.size)


@dataclass(frozen=True)
class _SpelledArray:
    """An array as the other process describes it."""

    memory: Count  # number of the memory that it lies in
    dtype: str
    shape: tuple[Count, ...]
    strides: tuple[Whole, ...]
    offset: Count


def borrow(value: Any, arrays: Arrays, find: Callable[[int], Any]) -> Any:
    """A value from JSON. `find` gives a memory by its number: bytes, or an array that lies in it.

    Raises ValueError or TypeError, among others, for what no sound process spells: the other one may be of any code.
    """

    def unspell_array(spelled: Mapping[str, Any]) -> Any:
        if "array" not in spelled:
            return arrays.unspell(spelled)
        inner = convert(spelled["array"], _SpelledArray)
        size = math.prod(inner.shape) * arrays.item_bytes(inner.dtype)
        if size > SIZE and not all(inner.strides):  # of memory that has less, an element for many
            raise ValueError(f"an array of {size} bytes")
        part = Memory(0, 0, inner.dtype, inner.shape, inner.strides, inner.offset)
        return arrays.view(find(inner.memory), part)

    return unspell(value, unspell_array)
