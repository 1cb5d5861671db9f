"""The device that ships with perfci: deterministic, no torch, and `[tool.perfci.fake]` plants every misfortune.

Kernels written for it compute with numpy and claim with `work` how long a real device would take.
"""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import numpy as np

from perfci.core.codec import convert
from perfci.core.errors import DeviceError, RecordsLostError, UsageError
from perfci.core.model import Device, DeviceState, Identity, Launch, Limits, Reason
from perfci.device import seam
from perfci.device.arrays import leaves
from perfci.device.numpy_arrays import NumpyArrays

Array = np.ndarray[Any, Any]

VISIBLE = "FAKE_VISIBLE_DEVICES"  # variable that names the boards which a process may use
MADE = 3  # calls of a turn that are really made
TICK_US = 0.032  # times are whole ticks, as on an H200
FREE_MHZ = 1980.0  # clock of a board that its power limit does not hold down
IDLE_W = 100.0  # what the board draws at rest, and under work that does not declare it


@dataclass(frozen=True)
class FakeSpec:
    """Planted effects. Spreads are standard deviations of the logarithm."""

    launch_noise: float = 0.004  # of launches
    block_noise: float = 0.001  # of blocks, the same for every arm
    process_noise: float = 0.0  # of processes, for each arm: the allocation effect of real devices
    drift_per_block: float = 0.0  # every block is slower than the one before by this ratio
    clock_drop_per_block: float = 0.0  # the SM clock falls by this ratio every block, times of launches do not change
    spike_share: float = 0.01  # share of launches that take `spike_factor` times as long
    spike_factor: float = 1.5  # see spike_share
    warm_factor: float = 1.0  # how much of its time a launch takes that finds its data in the cache
    call_us: float = 5.0  # how long any call keeps the host
    host_noise: float = 0.01  # of turns of calls
    speed: float = 1.0  # of this board against the nominal one
    kernel_speed: float = 1.0  # of kernels alone, the base's too: what a compiler or driver may do to them
    reference_speed: float = 1.0  # of references alone
    model: str = "Fake One"  # name of the device
    models: tuple[str, ...] = ()  # of each board of the host, if they differ
    most_rounds: int = 30  # of a block: fewer make a check quicker, and its times less sure
    wall_share: float = 0.0  # how much of the time that launches claim really passes
    link_gbps: float = 400.0  # gigabytes (1e9) a second that one rank sends another
    driver: str = ""  # version of the driver
    board: str = ""  # identifier of the board, else FAKE-0, FAKE-1, ...
    lost_launches: float = 0.0  # share of launches with records that are lost
    lost_flushes: float = 0.0  # share of flushes with records that are lost, and with each the times of its session
    throttle: tuple[str, ...] = ()  # reasons why the clock is held down, in every block
    power_limit_w: float = 0.0  # what holds the clock down if launches and rests draw more together. 0: no limit
    foreign_processes: int = 0  # others on the device
    ecc_errors: int = 0  # in its memory, that could not be corrected
    memory_bytes: int = 1 << 34  # memory of the device
    devices: int = 1  # boards of the host. A process gets the one that FAKE_VISIBLE_DEVICES names, as with real ones
    locked: bool = False  # one run at a time has the board, as with real ones
    counters_refused: bool = False  # no one has the right to read counters
    gone_file: str = ""  # once it exists the board has fallen off the bus: launches raise, and no process can open it

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> FakeSpec:
        """From `[tool.perfci.fake]`. Raises UsageError for a key it does not know, and for a value of another type."""
        types = get_type_hints(cls)
        for key, value in table.items():
            if key not in types:
                raise UsageError("fake_setting_unknown", key=key, known=", ".join(sorted(types)))
            try:
                convert(value, types[key])
            except ValueError as error:
                raise UsageError("fake_setting_type", key=key, error=str(error)) from None
        values: Mapping[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in table.items()}
        return cls(**values)


_KERNELS, _REFERENCE = frozenset({"kernel", "base"}), "reference"  # names of arms


_spent: list[float] = []
"""Virtual device time of the call under way."""

_kept: list[float] = []  # the host's, likewise

_heard: list[list[float]] = []  # the same, of captures under way
_counted: dict[str, float] = {}  # counters of the call under way
group = SimpleNamespace(rank=0, ranks=1)  # in which a call is made, as the extension ranks sets it
talk: deque[tuple[str, float, int]] = deque(maxlen=10000)
"""What calls did, in order: (work, us, 0), (send, bytes, rank), (wait, 0, 0)"""
_drawn: list[float] = []  # energy of the call under way, microjoules
held = SimpleNamespace(now=0, peak=0, outside=0)  # what kernels keep, bytes


def work(us: float, watts: float = IDLE_W, **counters: float) -> None:
    """Take so many microseconds of the fake device's time, at this power. Each call counts as one activity.

    counters: what a profile finds by name, in place of what the device makes up.
    """
    _counted.update(counters)
    for spent in (_spent, *_heard):
        spent.append(us)
    _drawn.append(us * watts)
    talk.append(("work", us, 0))


def send(size: float, to: int) -> None:
    """Send so many bytes to another rank, beside what follows."""
    talk.append(("send", size, to))


def wait() -> None:
    """Wait for what the other ranks have sent to this one so far."""
    talk.append(("wait", 0.0, 0))


def keep_host(us: float) -> None:
    """Keep the host for so many microseconds, beside what any call takes."""
    _kept.append(us)


def hold(count: int, *, outside: bool = False) -> None:
    """Keep bytes of the fake device's memory for ever, or give some back. outside: the driver alone knows of them."""
    if outside:
        held.outside += count
    else:
        held.now += count
        held.peak = max(held.peak, held.now)


def crash() -> None:
    """Die of a segmentation fault, as a kernel that writes out of bounds may."""
    os.kill(os.getpid(), signal.SIGSEGV)


def hang() -> None:
    """Never return."""
    while True:
        time.sleep(60)


class _Power:
    """The board's average power, and the share of its clock that the limit leaves it."""

    def __init__(self, limit_w: float) -> None:
        self._limit_w, self._watts = limit_w, IDLE_W

    def call(self, call: Callable[[], Any], rest_us: float = 0.0) -> tuple[Any, float]:
        """Rest, then call. Returns the result and the share."""
        _spent.clear()
        _drawn.clear()
        result = call()
        if us := sum(_spent) + rest_us:
            # The limit acts on some ten milliseconds.
            self._watts += min(us / 1e4, 1.0) * ((sum(_drawn) + rest_us * IDLE_W) / us - self._watts)
        return result, min(self._limit_w / self._watts, 1.0) if self._limit_w else 1.0


class FakeSession:
    """Times launches by the time that they claim."""

    def __init__(
        self,
        spec: FakeSpec,
        rng: np.random.Generator,
        losses: np.random.Generator,
        bias: dict[object, float],
        power: _Power,
    ) -> None:
        self._spec, self._rng, self._losses, self._bias, self._power = spec, rng, losses, bias, power
        self._lost_flushes = self._blocks = 0
        self._block_effect = 0.0
        self._launches: list[Launch] = []
        self.pause()

    def launch(self, call: Callable[[], Any], *, warm: bool = False, rest_us: float = 0.0) -> Any:
        """Run the call and note the time that it claims, noise added. A warm one behind untimed ones."""
        if _is_gone(self._spec):
            raise RuntimeError("the fake device is lost")
        if warm:
            seam.warm_cache(call)
        result, share = self._power.call(call, rest_us)
        claimed = sum(_spent) * (self._spec.warm_factor if warm else 1.0) / share
        us = max(round(claimed * self._factor(call) / TICK_US), 1) * TICK_US if _spent else 0.0
        if self._spec.wall_share:
            time.sleep(us / 1e6 * self._spec.wall_share)
        self._lost_flushes += self._losses.random() < self._spec.lost_flushes
        lost = self._losses.random() < self._spec.lost_launches
        timed = Launch(us, us, None, len(_spent), clock_mhz=FREE_MHZ * share if rest_us else None)
        self._launches.append(Launch(0.0, 0.0, None, 0) if lost else timed)
        return result

    def pause(self) -> None:
        self._block_effect = self._rng.normal(0, self._spec.block_noise) + self._blocks * self._spec.drift_per_block
        self._blocks += 1

    def aside(self) -> None: ...

    @property
    def blocks(self) -> int:
        """How many have ended."""
        return self._blocks - 1

    def launches(self) -> Sequence[Launch]:
        if self._lost_flushes:
            queued = len(self._launches)
            raise RecordsLostError("records_missing", expected=queued, seen=queued - self._lost_flushes)
        return self._launches

    def _factor(self, call: Callable[[], Any]) -> float:
        spec = self._spec
        arm = getattr(call, "arm", None)
        if arm not in self._bias:
            self._bias[arm] = self._rng.normal(0, spec.process_noise)
        spike = spec.spike_factor if self._rng.random() < spec.spike_share else 1.0
        log = self._rng.normal(0, spec.launch_noise) + self._block_effect + self._bias[arm]
        factor = spec.reference_speed if arm == _REFERENCE else spec.kernel_speed if arm in _KERNELS else 1.0
        return float(np.exp(log)) * spike / (spec.speed * factor)


@dataclass(frozen=True)
class FakeCapture:
    """The work that calls claimed, microseconds."""

    spent: list[float]
    sources: tuple[str, ...] = ()  # none: fake kernels are launched by no one

    def identity(self, inputs: str) -> Identity:
        operations = tuple(f"work({round(us, 4)} us)" for us in self.spent)
        return Identity(operations, inputs=inputs, unknown=None if operations else Reason("captured_nothing"))


class FakeDevice(seam.Accelerator):
    """An accelerator made of numpy and a seeded generator."""

    timer: str | None = "virtual"

    def __init__(self, spec: FakeSpec, seed: int) -> None:
        if _is_gone(spec):
            raise DeviceError("fake_gone", file=spec.gone_file)
        index = os.environ.get(VISIBLE, "0").split(",")[0]
        listed = index.isdecimal() and int(index) < len(spec.models)
        model = spec.models[int(index)] if listed else spec.model
        self.info = Device(
            kind="fake",
            name=model,
            key=model.lower().replace(" ", "-"),
            uuid=spec.board or f"FAKE-{index}",
            driver=spec.driver or None,
            runtime="virtual",
            processors=8,
            l2_bytes=1 << 17,
            memory_bytes=spec.memory_bytes,
        )
        self.arrays = NumpyArrays()
        self._spec = spec
        self._rng = np.random.default_rng(seed)
        # Of its own, so that times stay the same whatever is lost.
        self._losses = np.random.default_rng((seed, 1))
        self._hosts = np.random.default_rng((seed, 2))
        self._bias: dict[object, float] = {}
        self._session: FakeSession | None = None
        self._power = _Power(spec.power_limit_w)
        self.most_rounds = spec.most_rounds
        self.free_mhz = FREE_MHZ if spec.power_limit_w else None

    def count(self) -> int:
        return 1 if len({*self._spec.models}) > 1 else self._spec.devices

    def visible(self) -> int:
        return self._spec.devices

    def uuids(self) -> tuple[str, ...]:
        return () if self._spec.board else tuple(f"FAKE-{index}" for index in range(self._spec.devices))

    @contextmanager
    def session(self) -> Iterator[FakeSession]:
        self._session = FakeSession(self._spec, self._rng, self._losses, self._bias, self._power)
        yield self._session

    def pad(self, seed: int) -> object:
        return nullcontext(seed)

    def state(self) -> DeviceState:
        blocks = self._session.blocks if self._session else 0
        clock = round(1980 * math.exp(-self._spec.clock_drop_per_block * blocks))
        spec = self._spec
        return DeviceState(clock, 3200, 40, 300.0, spec.throttle, spec.foreign_processes, ecc_errors=spec.ecc_errors)

    def limits(self, dtypes: Sequence[str]) -> Limits:
        """One terabyte and one hundred teraflops a second, scaled by the board's speed."""
        return Limits(1000.0 * self._spec.speed, dict.fromkeys(dtypes, 100.0 * self._spec.speed))

    def is_lost(self, error: BaseException) -> bool:
        return _is_gone(self._spec)

    def window_s(self, call: Callable[[], Any], launches: int) -> float:
        _spent.clear()
        for _ in range(launches):
            call()
        return sum(_spent) * self._spec.warm_factor / 1e6  # each call finds what the one before left in the cache

    def sustain(self, call: Callable[[], Any], seconds: float) -> seam.Sustained:
        """As if for the seconds: no time passes."""
        calls = math.ceil(seconds / max(self.window_s(call, 1), 1e-6))
        share = [self._power.call(call)[1] for _ in range(calls)][-1]
        us = sum(_spent) / share / self._spec.speed * float(np.exp(self._rng.normal(0, self._spec.block_noise)))
        return seam.Sustained(us, FREE_MHZ * share, sum(_drawn) / 1e6)

    def turn_s(
        self, call: Callable[[], Any], launches: int, returned: Callable[[], None] = lambda: None
    ) -> tuple[float, float]:
        """By what some of the calls claim: no clock decides."""
        _spent.clear()
        _kept.clear()
        made = min(launches, MADE)
        for _ in range(made):
            call()
        returned()
        more = launches / max(made, 1) / 1e6
        noise = float(np.exp(self._hosts.normal(0, self._spec.host_noise)))
        host_s = more * (sum(_kept) + made * self._spec.call_us) * noise
        return host_s, max(host_s, more * sum(_spent) * self._spec.warm_factor)

    @contextmanager
    def capture_work(self) -> Iterator[FakeCapture]:
        """Listen to what `work` claims: kernels that claim the same are the same."""
        capture = FakeCapture([])
        _heard.append(capture.spent)
        try:
            yield capture
        finally:
            # By identity, as two captures that heard the same are equal lists.
            _heard[:] = [spent for spent in _heard if spent is not capture.spent]

    def spent_us(self, capture: Any) -> Sequence[float]:
        return tuple(capture.spent)

    def spend(self, us: Sequence[float]) -> None:
        for launch_us in us:
            work(launch_us)

    def count_work(self, calls: seam.CountedCalls) -> seam.Counters:
        """Every array moves once, through a DRAM of one terabyte a second. Half of all warps are active."""
        if self._spec.counters_refused:
            return seam.Counters(note=Reason("counters_refused"))
        work = {}
        for case in calls.cases:
            call: Any = calls.make(case)
            _spent.clear()
            _counted.clear()
            moved = sum(map(self.arrays.nbytes, (*leaves(call()), *leaves(call.inputs))))
            busy = min(moved / max(sum(_spent), TICK_US) / 1e6 / self._spec.speed, 1.0)
            made_up = {"occupancy": 0.5, "l1_hit": 0.0, "l2_hit": 0.0, "dram": busy, "dram_bytes": moved}
            work[case] = made_up | _counted
        return seam.Counters("virtual", work)

    def list_namespaces(self) -> frozenset[str]:
        """Namespaces of what an op defines by `torch.library.custom_op`, if it brings torch along."""
        defined = getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", {})
        theirs = (name for name, function in defined.items() if not function._init_fn.__module__.startswith("torch"))
        return frozenset(name.partition("::")[0] for name in theirs)


def _is_gone(spec: FakeSpec) -> bool:
    return bool(spec.gone_file) and Path(spec.gone_file).exists()
