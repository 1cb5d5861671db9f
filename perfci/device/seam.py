"""The interface of every device to verifying and measuring."""

from __future__ import annotations

import cmath
import itertools
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import numpy as np

from perfci.core.errors import DeviceError
from perfci.core.model import CompiledKernel, Count, Device, DeviceState, Fact, Identity, Limits, Reason, as_fact
from perfci.device.targets import Target
from perfci.ops.recording import Recording

Inputs = Mapping[str, Any]  # a call's arguments by name

T = TypeVar("T")

# Untimed calls before a warm launch. On an H200 one leaves an addition that fills half of L2 at 1.23 times the time
# that it settles at, two at 1.08, three at 1.03.
WARMING = 3


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


def warm_cache(call: Callable[[], Any]) -> None:
    """Make the untimed calls before a warm launch. Each frees its output, so that all use the same memory."""
    for _ in range(WARMING):
        call()


@dataclass(frozen=True)
class ArrayFacts:
    """The form of a tensor: a kernel's output and the reference's must agree in it."""

    shape: tuple[int, ...]
    dtype: str
    device: str
    dense: bool  # laid out row by row without gaps


@dataclass(frozen=True)
class DtypeFacts:
    """Range of a floating-point type."""

    name: str
    largest: float
    smallest_normal: float
    smallest_subnormal: float
    epsilon: float


@dataclass(frozen=True)
class Launch:
    """One timed call."""

    time_us: float  # all device activities summed
    span_us: float | None = None  # from the first activity's start to the last one's end
    host_us: float | None = None  # how long the call kept the host
    activities: int | None = None
    elsewhere: bool = False  # some of it ran on another stream than the one that is timed
    fell_back: str | None = None  # an operation of it that a CPU computed in the device's place
    clock_mhz: float | None = None  # at the end of the rest before it. None if it had none


@dataclass(frozen=True)
class Sustained:
    """Calls back to back for a while. What is given is of the second half, when clock and power have settled."""

    us: float  # a call, by the host's clock
    clock_mhz: float | None = None  # behind the last call
    joules: float | None = None  # a call, by the board's energy counter
    waited: float = 1.0  # share of the time that the host waited for the device. Near 0 the host is what takes long


class NotInterpretedError(AttributeError):
    """Triton's interpreter cannot run a function that compiled kernels have. The message is its name."""


def not_interpreted(error: BaseException | None) -> str | None:
    """The function that Triton's interpreter could not run, if that is behind an error."""
    while error is not None and not isinstance(error, NotInterpretedError):
        error = error.__cause__ or error.__context__
    return str(error) if error is not None else None


OUTSIDE = "access outside"


@dataclass(frozen=True)
class Race:
    """Accesses of two programs of one launch to the same memory, or one of them to memory that is not the launch's."""

    kind: str  # two stores, load and store, or OUTSIDE
    addresses: int  # number of elements concerned
    programs: tuple[int, int]  # the pair that was seen first


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

    def upcast(self, inputs: Inputs) -> dict[str, Any]:
        """Inputs with every floating-point array in float64."""
        return self._map(self._upcast, inputs)

    def place(self, inputs: Inputs, layout: str) -> dict[str, Any]:
        """Copies of the inputs in a memory layout (`spec.LAYOUTS`), surrounded by NaN so that stray reads show.

        Each array has separate strides, so that a kernel that takes one's for another's is found.
        """
        number = itertools.count()
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


class Session(Protocol):
    """A stretch of timed launches. Their times are known when it has ended."""

    def launch(self, call: Callable[[], Any], *, warm: bool = False, rest_us: float = 0.0) -> Any:
        """Flush the cache, make WARMING untimed calls if `warm`, and time one. Gives the call's result.

        rest_us: how long the device does light work before that, so that its power stays below the limit.
        """

    def pause(self) -> None:
        """End a block: what follows, up to the next `launch`, belongs to no launch."""

    def aside(self) -> None:
        """What follows, up to the next `launch`, belongs to no launch. The block goes on."""

    def launches(self) -> Sequence[Launch]:
        """Launches in order, after the session. Raises RecordsLostError if records are lost, DeviceError if surplus."""


class Capture(Protocol):
    """The result of `capture_work`."""

    @property
    def sources(self) -> tuple[str, ...]:
        """Files of the functions that were launched, in order, each once."""

    def identity(self, inputs: str) -> Identity:
        """The work of the calls. `inputs` is the digest of `make_inputs`."""


@dataclass(frozen=True)
class Uncaptured:
    """Calls of which nothing is seen: whether two revisions compile to the same code is unknown."""

    why: Reason = field(default_factory=lambda: Reason("captured_interpreted"))
    sources: tuple[str, ...] = ()

    def identity(self, inputs: str) -> Identity:
        return Identity(inputs=inputs, unknown=self.why)


@dataclass
class PeakMemory:
    """The result of `peak_memory`, once its context has ended."""

    bytes: int | None = None  # held on the device at most, inputs included. None if unknown


@dataclass(frozen=True)
class Counters:
    """Hardware counters of one call of each case."""

    source: CounterSource = "compiled"
    cases: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    note: Reason | None = None  # why there are no counters


def average_counters(rows: Iterable[tuple[Mapping[str, float], float]]) -> dict[str, float]:
    """Means of what some kernels have, weighted."""
    sums, weights = defaultdict[str, float](float), defaultdict[str, float](float)
    for row, weight in rows:
        for name, value in row.items():
            sums[name] += weight * value
            weights[name] += weight
    return {name: total / weights[name] for name, total in sums.items() if weights[name]}


CounterSource = Literal["ncu", "aic_metrics", "virtual", "compiled"]
"""Where counters are from: Nsight Compute, torch_npu, the fake device. compiled: there are none, but code and times"""


@dataclass(frozen=True)
class CountedCalls:
    """Calls of which counters are read."""

    cases: Sequence[str]
    make: Callable[[str], Callable[[], Any]]  # gives the call of a case, warmed up
    again: Sequence[str]  # command of a process that makes each of them for `mark_call`
    warm: bool  # L2 stays as the call before left it
    alive: Callable[[], None]  # called meanwhile


class Accelerator:
    """A device that kernels run on. The defaults are those of one device that compiles and records nothing."""

    info: Device
    arrays: Arrays  # its inputs and outputs
    timer: str | None = None  # name of the timer in use, known from `start_timer` on. None if nothing can be timed
    absent: Reason | None = None  # why speed can't be measured here
    target: Target | None = None  # its architecture, if perfci has the facts of it
    most_rounds = 30  # of a block
    can_replay = False  # whether calls can be recorded, and repeated by another process
    free_mhz: float | None = None
    """the clock under light work, known from `start_timer` on. None if a power limit's effect cannot be seen"""

    def count(self) -> int:
        """Devices of this model that the process could use, this one included."""
        return 1

    def visible(self) -> int:
        """Devices of any model that the process sees, this one included."""
        return 1

    def uuids(self) -> tuple[str, ...]:
        """Of these devices in their order, empty if that is not known."""
        return ()

    def session(self) -> AbstractContextManager[Session]:
        """Open a timing session. Raises DeviceError if nothing can be timed."""
        raise DeviceError("no_accelerator")

    def start_timer(self) -> None:
        """Choose the timer and pay its first start, before anything is measured."""

    def synchronize(self) -> None:
        """Wait until the device has finished."""

    def pad(self, seed: int) -> object:
        """Occupy a random stretch of memory as long as the result lives, so that buffers land elsewhere."""
        return seed

    def state(self) -> DeviceState:
        """Clocks, temperature, power, throttling and foreign processes now."""
        return DeviceState()

    def limits(self, dtypes: Sequence[str]) -> Limits:
        """Measure the ceilings: copy bandwidth, and matrix products in these dtypes."""
        return Limits()

    def turn_s(
        self, call: Callable[[], Any], launches: int, returned: Callable[[], None] = lambda: None
    ) -> tuple[float, float]:
        """Seconds until so many calls in a row have returned, and until the device has done their work as well.

        returned: called in between.
        """
        raise DeviceError("no_accelerator")

    def window_s(self, call: Callable[[], Any], launches: int) -> float:
        """Seconds that so many launches take back to back, the host included. For warming up only."""
        raise DeviceError("no_accelerator")

    def sustain(self, call: Callable[[], Any], seconds: float) -> Sustained:
        """Keep the device at work with this call alone. Only for a device with a free clock."""
        raise NotImplementedError

    def record_kernels(self) -> AbstractContextManager[Mapping[str, CompiledKernel] | None]:
        """Collect every Triton kernel launched inside, and what the compiler made of it. Not while timing.

        None if the device does not report launches.
        """
        return nullcontext(None)

    def capture_work(self) -> AbstractContextManager[Capture]:
        """Collect what the calls inside do on the device. Not while timing, and after what they compile and tune."""
        return nullcontext(Uncaptured())

    def spent_us(self, capture: Capture) -> Sequence[float]:
        """The time that captured calls claim, of a device without hardware."""
        return ()

    def spend(self, us: Sequence[float]) -> None:
        """Take the time that another process's call claims, on a device without hardware."""

    def count_work(self, calls: CountedCalls) -> Counters:
        """Read hardware counters of one call of each case."""
        return Counters(note=Reason("counters_no_device"))

    def mark_call(self, call: Callable[[], Any]) -> None:
        """Make a call of which a profiler that watches this process reads counters, behind a mark."""
        call()

    def record(self, function: Callable[..., Any], inputs: Inputs) -> Recording | Reason | None:
        """Call a function once. Returns how to repeat it, why that cannot be, or None if this device never can."""
        return None

    def play(self, recording: Recording, folder: Path) -> Callable[..., Any] | Reason:
        """The recorded call, ready to be repeated, or why it cannot be. Binaries are written to the folder."""
        raise NotImplementedError

    def key_of(self, inputs: Inputs) -> str:
        """All that a call is given but the arrays' content: calls with one key have one recording."""
        raise NotImplementedError

    def fallbacks(self, identity: Identity) -> tuple[str, ...]:
        """Operations of a captured call that the host computes, since the device has nothing for them."""
        return ()

    def peak_memory(self) -> AbstractContextManager[PeakMemory]:
        """Find out how much memory is held at most while the calls inside run."""
        return nullcontext(PeakMemory())

    def watch_races(self) -> AbstractContextManager[Sequence[Race]]:
        """Collect data races of the launches inside, if the device can show them."""
        return nullcontext(())

    def out_of_memory(self, error: BaseException) -> bool:
        """Whether an exception means that device memory ran out."""
        return isinstance(error, MemoryError)

    def list_namespaces(self) -> frozenset[str]:
        """Namespaces in which torch operators are registered in this process."""
        return frozenset()

    def find_tampered(self) -> tuple[str, ...]:
        """Names of timing functions that are not the ones seen when the device was opened."""
        return ()


class Layer(Generic[T]):
    """A part of the seam over another: whatever a subclass does not do itself, the one below does."""

    def __init__(self, below: T) -> None:
        self.below = below

    def __getattr__(self, name: str) -> Any:
        return getattr(self.below, name)
