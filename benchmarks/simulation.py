"""Simulated duels: what devices do to timings, one trouble at a time, with fixed seeds.

Every launch is simulated, in the order in which a block makes them: rounds of base and head in random order. What the
device does (clock, drift, correlated noise) is a path in time for both arms; the effect of an allocation stays with
its arm for a block or a process. Times are then rounded to the timer's tick of 32 ns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perfci.measure.prepare import rounds
from perfci.statistics import duel_rule, exact

Floats = NDArray[np.float64]

TICK_US = 0.032

LENGTHS_US = (2.0, 5.0, 20.0, 100.0)
"""One kernel of each class of length."""

DELAY_US = 5.0
"""Mean of a spike: an absolute time, so that it is more than twice a short kernel."""

NOISE = {2.0: 0.04, 5.0: 0.03, 20.0: 0.02, 100.0: 0.01}
"""Standard deviation of a launch, log scale, as the recorded launches have it."""


@dataclass(frozen=True)
class Trouble:
    """What a device does to launches. path: shape (blocks, launches), log scale, felt by anyone who launches then."""

    path: Callable[[np.random.Generator, int, int], Floats] | None = None
    spikes: float = 0.0
    """share of launches that something else delays"""
    block_sd: float = 0.0
    """what an allocation does to one arm for a block, log scale"""
    process_sd: float = 0.0
    """and for a process"""
    bias: float = 0.0
    """added to one arm in one of the four processes, log scale"""


def drifting(_: np.random.Generator, blocks: int, launches: int) -> Floats:
    """10 % over the blocks of a process, 2 % within each."""
    return np.linspace(0, 0.1, blocks)[:, None] + np.linspace(0, 0.02, launches)


def switching(rng: np.random.Generator, blocks: int, launches: int) -> Floats:
    """Two clocks 25 % apart, with a chance of one in ten to change before any launch."""
    flips = rng.random((blocks, launches)) < 0.1
    return np.log(1.25) * (np.cumsum(flips.ravel()).reshape(flips.shape) % 2)


def correlated(rng: np.random.Generator, blocks: int, launches: int) -> Floats:
    """AR(1) from launch to launch, coefficient 0.95, standard deviation 2 %."""
    steps = rng.normal(0, 0.02 * np.sqrt(1 - 0.95**2), blocks * launches)
    path = np.empty(steps.size)
    level = rng.normal(0, 0.02)
    for number, step in enumerate(steps):
        path[number] = level = 0.95 * level + step
    return path.reshape(blocks, launches)


def everything(rng: np.random.Generator, blocks: int, launches: int) -> Floats:
    paths = (drifting, switching, correlated)
    return np.sum([path(rng, blocks, launches) for path in paths], axis=0)


TROUBLES: Mapping[str, Trouble] = {
    "noise alone": Trouble(),
    "drift": Trouble(drifting),
    "two clocks, switching within blocks": Trouble(switching),
    "spikes": Trouble(spikes=0.05),
    "correlated launches": Trouble(correlated),
    "allocation effects": Trouble(block_sd=0.005, process_sd=0.003),
    "one process of four biased by 1.5 %": Trouble(bias=0.015),
    "all of these but the bias": Trouble(everything, spikes=0.05, block_sd=0.005, process_sd=0.003),
}


class Simulated:
    """One duel. Processes start on demand, each from its seed."""

    processes = duel_rule.PROCESSES

    def __init__(self, trouble: Trouble, base_us: float, seed: tuple[int, ...], effect: float = 0.0) -> None:
        self.trouble, self.base_us, self.effect, self.seed = trouble, base_us, effect, seed
        self.rounds = rounds(base_us)
        rng = np.random.default_rng(seed)
        self._biased = int(rng.integers(duel_rule.PROCESSES))
        self._bias = trouble.bias * float(rng.choice((-1, 1)))
        self._made: dict[int, tuple[Floats, Floats]] = {}
        self._known: dict[tuple[int, int], float] = {}

    def shifts(self, process: int, blocks: int) -> list[float]:
        return [self._shift(process, block) for block in range(blocks)]

    def _shift(self, process: int, block: int) -> float:
        if (process, block) not in self._known:
            base, head = self.process(process)
            self._known[process, block] = exact.launch_shift(head[block], base[block])
        return self._known[process, block]

    def process(self, process: int) -> tuple[Floats, Floats]:
        """Launches of base and head, microseconds, each of shape (blocks, rounds)."""
        if process not in self._made:
            self._made[process] = self._launches(process)
        return self._made[process]

    def _launches(self, process: int) -> tuple[Floats, Floats]:
        rng = np.random.default_rng((*self.seed, process))
        shape = (duel_rule.BLOCKS, self.rounds)
        order = rng.random(shape) < 0.5
        path = self._path(rng).reshape(*shape, 2)
        first, second = path[..., 0], path[..., 1]
        bias = self._bias if process == self._biased else 0.0
        base = self._arm(rng, np.where(order, first, second), 0.0)
        head = self._arm(rng, np.where(order, second, first), float(np.log1p(self.effect)) + bias)
        return base, head

    def _path(self, rng: np.random.Generator) -> Floats:
        shape = (duel_rule.BLOCKS, 2 * self.rounds)
        return self.trouble.path(rng, *shape) if self.trouble.path else np.zeros(shape)

    def _arm(self, rng: np.random.Generator, path: Floats, planted: float) -> Floats:
        trouble, shape = self.trouble, path.shape
        level = rng.normal(0, trouble.process_sd) + rng.normal(0, trouble.block_sd, (shape[0], 1)) + planted
        times = self.base_us * np.exp(path + level + rng.normal(0, NOISE[self.base_us], shape))
        times += np.where(rng.random(shape) < trouble.spikes, rng.exponential(DELAY_US, shape), 0.0)
        return np.maximum(np.round(times / TICK_US), 1) * TICK_US
