"""The device that ships with perfci: deterministic, no torch, and every misfortune can be planted.

Kernels written for it compute with numpy and say with `work` how long a real device would take. `[tool.perfci.fake]`
plants noise, drift, spikes, throttling and foreign processes; `crash` and `hang` are for kernels that go wrong.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from perfci.device.numpy_arrays import NumpyArrays
from perfci.device.seam import Launch, Race
from perfci.errors import UsageError
from perfci.model import CompiledKernel, Device, DeviceState, Limits, Reason

TICK_US = 0.032
"""Times are whole ticks, as on an H200."""


@dataclass(frozen=True)
class FakeSpec:
    """What is planted; spreads are standard deviations of the logarithm."""

    launch_noise: float = 0.004
    block_noise: float = 0.001
    """differs by block, the same for every arm"""
    process_noise: float = 0.0
    """differs by process and arm: the allocation effect of real devices"""
    drift_per_block: float = 0.0
    """every block is slower than the one before by this ratio"""
    spike_share: float = 0.01
    """share of launches that take `spike_factor` times as long"""
    spike_factor: float = 1.5
    speed: float = 1.0
    """of this board against the nominal one"""
    model: str = "Fake One"
    throttle: tuple[str, ...] = ()
    foreign_processes: int = 0
    memory_bytes: int = 1 << 34

    @classmethod
    def read(cls, table: Mapping[str, Any]) -> FakeSpec:
        """From `[tool.perfci.fake]`; raises UsageError for a key it does not know."""
        known = {f.name for f in fields(cls)}
        for key in table:
            if key not in known:
                raise UsageError("fake_setting_unknown", key=key, known=", ".join(sorted(known)))
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
        }
        return cls(**values)


class _Clock:
    """Virtual device time spent by the call under way."""

    def __init__(self) -> None:
        self.spent: list[float] = []


_clock = _Clock()


def work(us: float) -> None:
    """Take so many microseconds of the fake device's time; each call counts as one activity."""
    _clock.spent.append(us)


def crash() -> None:
    """Die of a segmentation fault, as a kernel that writes out of bounds may."""
    os.kill(os.getpid(), signal.SIGSEGV)


def hang() -> None:
    """Never return."""
    while True:
        time.sleep(60)


class FakeSession:
    """Times launches by what they say that they take."""

    def __init__(self, spec: FakeSpec, rng: np.random.Generator, bias: dict[object, float]) -> None:
        self._spec = spec
        self._rng = rng
        self._bias = bias
        self._block_effect = 0.0
        self._blocks = 0
        self._launches: list[Launch] = []
        self.pause()

    def launch(self, call: Callable[[], Any]) -> Any:
        """Run the call and note the time that it claims, noise added."""
        _clock.spent.clear()
        result = call()
        us = _ticks(sum(_clock.spent) * self._factor(call)) if _clock.spent else 0.0
        self._launches.append(Launch(us, us, None, len(_clock.spent)))
        return result

    def pause(self) -> None:
        """Draw the next block's common effect."""
        self._block_effect = self._rng.normal(0, self._spec.block_noise) + self._blocks * self._spec.drift_per_block
        self._blocks += 1

    def launches(self) -> Sequence[Launch]:
        """All launches so far."""
        return self._launches

    def busy_s(self) -> float:
        """Virtual seconds."""
        return sum(launch.time_us for launch in self._launches) / 1e6

    def _factor(self, call: Callable[[], Any]) -> float:
        spec = self._spec
        arm = getattr(call, "arm", None)
        if arm not in self._bias:
            self._bias[arm] = self._rng.normal(0, spec.process_noise)
        spike = spec.spike_factor if self._rng.random() < spec.spike_share else 1.0
        log = self._rng.normal(0, spec.launch_noise) + self._block_effect + self._bias[arm]
        return float(np.exp(log)) * spike / spec.speed


class FakeDevice:
    """An accelerator made of numpy and a seeded generator."""

    timer: str | None = "virtual"
    absent: Reason | None = None

    def __init__(self, spec: FakeSpec, seed: int) -> None:
        self.info = Device(
            kind="fake",
            name=spec.model,
            key=spec.model.lower().replace(" ", "-"),
            uuid=f"FAKE-{seed}",
            runtime="virtual",
            processors=8,
            l2_bytes=1 << 20,
            memory_bytes=spec.memory_bytes,
        )
        self.arrays = NumpyArrays()
        self._spec = spec
        self._rng = np.random.default_rng(seed)
        self._bias: dict[object, float] = {}

    @contextmanager
    def session(self) -> Iterator[FakeSession]:
        """Open a session on the virtual clock."""
        yield FakeSession(self._spec, self._rng, self._bias)

    def start_timer(self) -> None:
        """Cost nothing."""

    def synchronize(self) -> None:
        """Have nothing to wait for."""

    def pad(self, seed: int) -> object:
        """Occupy nothing."""
        return nullcontext(seed)

    def state(self) -> DeviceState:
        """What the specification plants."""
        return DeviceState(1980, 3200, 40, 300.0, self._spec.throttle, self._spec.foreign_processes)

    def limits(self, dtypes: Sequence[str]) -> Limits:
        """One terabyte and one hundred teraflops a second, scaled by the board's speed."""
        return Limits(1000.0 * self._spec.speed, dict.fromkeys(dtypes, 100.0 * self._spec.speed))

    def window_s(self, call: Callable[[], Any], launches: int) -> float:
        """Virtual seconds, free of noise."""
        _clock.spent.clear()
        for _ in range(launches):
            call()
        return sum(_clock.spent) / 1e6

    def recorded(self) -> AbstractContextManager[Mapping[str, CompiledKernel]]:
        """Compile nothing."""
        return nullcontext({})

    def watch_races(self) -> AbstractContextManager[Sequence[Race]]:
        """Have no programs that could race."""
        return nullcontext(())

    def out_of_memory(self, error: BaseException) -> bool:
        """Whether numpy could not allocate."""
        return isinstance(error, MemoryError)

    def tampered(self) -> tuple[str, ...]:
        """Offer nothing to tamper with."""
        return ()


def _ticks(us: float) -> float:
    return max(round(us / TICK_US), 1) * TICK_US
