"""The interface of every device to verifying and measuring."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from perfci.core.errors import DeviceError
from perfci.core.model import CompiledKernel, Device, DeviceState, Fact, Identity, Launch, Limits, Reason
from perfci.device.arrays import Arrays, Inputs
from perfci.ops.recording import Recording

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)

# Untimed calls before a warm launch. On an H200 one leaves an addition that fills half of L2 at 1.23 times the time
# that it settles at, two at 1.08, three at 1.03.
WARMING = 3


def warm_cache(call: Callable[[], Any]) -> None:
    """Make the untimed calls before a warm launch. Each frees its output, so that all use the same memory."""
    for _ in range(WARMING):
        call()


@dataclass(frozen=True)
class Sustained:
    """Calls back to back for a while. What is given is of the second half, when clock and power have settled."""

    us: float  # a call, by the host's clock
    clock_mhz: float | None = None  # behind the last call
    joules: float | None = None  # a call, by the board's energy counter
    waited: float = 1.0  # share of the time that the host waited for the device. Near 0 the host is what takes long


class NotInterpretedError(AttributeError):
    """Triton's interpreter cannot run a function that compiled kernels have. The message is its name."""


class LateError(TimeoutError):
    """Triton's interpreter takes longer for a call than it is given."""


def find_cause(error: BaseException | None, kind: type[E]) -> E | None:
    """The exception of a kind that is behind an error, or that it is: Triton's interpreter raises one of its own."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def not_interpreted(error: BaseException) -> str | None:
    """The function that Triton's interpreter could not run, if that is behind an error."""
    cause = find_cause(error, NotInterpretedError)
    return str(cause) if cause else None


OUTSIDE = "access outside"


@dataclass(frozen=True)
class Race:
    """Accesses of two programs of one launch to the same memory, or one of them to memory that is not the launch's."""

    kind: str  # two stores, load and store, or OUTSIDE
    addresses: int  # number of elements concerned
    programs: tuple[int, int]  # the pair that was seen first
    facts: Mapping[str, Fact] = field(default_factory=dict)  # about an access outside


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
    most_rounds = 30  # of a block
    unheard: Reason | None = None  # why calls in this process may launch what no capture sees
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

    def note_launches(self, names: Sequence[str]) -> None:
        """Add the launches of another process's call to what is captured here, where that call is not repeated here."""

    def count_work(self, calls: CountedCalls) -> Counters:
        """Read hardware counters of one call of each case."""
        return Counters(note=Reason("counters_no_device"))

    def mark_call(self, call: Callable[[], Any]) -> None:
        """Make a call of which a profiler that watches this process reads counters, behind a mark."""
        call()

    def hear_driver(self) -> None:
        """Hear what any compiler's kernels do from now on, for `record`. Meanwhile nothing is timed in this process."""

    def hear_no_more(self) -> None:
        """Hear nothing any more, so that a call takes as long as in a user's process."""

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

    def bound_calls(self, seconds: float) -> AbstractContextManager[None]:
        """Inside, calls raise LateError once so many seconds of a core are over, if they are interpreted."""
        return nullcontext()

    def watch_races(self) -> AbstractContextManager[Sequence[Race]]:
        """Collect data races of the launches inside, if the device can show them."""
        return nullcontext(())

    def out_of_memory(self, error: BaseException) -> bool:
        """Whether an exception means that device memory ran out."""
        return isinstance(error, MemoryError)

    def is_lost(self, error: BaseException) -> bool:
        """Whether, after an exception, the device does nothing more for this process: an illegal address, say."""
        return False

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
