"""What the benchmark plays: cells of many checks of one kind, spread over processes."""

from __future__ import annotations

import contextlib
import functools
import math
import multiprocessing
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from unittest import mock

import numpy as np
import resampling
import simulation
from duels import FAMILY, LIMITS, Duel, Tally, play, tally, tightened

from perfci.statistics import duel_rule
from perfci.statistics.exact import Floats

EFFECTS = (0.0, 0.01, 0.02, 0.03, 0.05, 0.10)

CLASSES = {"under 3 us": (0.0, 3.0), "3-10 us": (3.0, 10.0), "10-40 us": (10.0, 40.0), "over 40 us": (40.0, np.inf)}
"""Kernels by length; each length allows its slow-down."""


def length_class(us: float) -> str:
    return next(name for name, (start, end) in CLASSES.items() if start <= us < end)


def promised(us: float) -> float:
    """The slow-down that perfci promises to see: twice what it allows."""
    return 2 * LIMITS.tau_at(us)


PROMISES = {name: promised(start) for name, (start, _) in CLASSES.items()}


@dataclass(frozen=True)
class Cell:
    """Many checks of one kind."""

    source: str
    """own, shared, or a trouble of the simulation"""
    number: int
    """of the case, the shortest first"""
    effect: float
    checks: int
    """a multiple of the family if nothing is planted"""
    share: float = 1.0
    """of tau that it is judged by"""
    bias: float = 0.0
    """what an unlucky process adds to head or takes from it, log scale"""
    chance: float = 0.0
    """of a process to be unlucky"""
    variant: str = ""
    """another rule than perfci's"""

    @property
    def base_us(self) -> float:
        if self.source in simulation.TROUBLES:
            return simulation.LENGTHS_US[self.number]
        return recordings(self.source)[self.number].base_us

    @property
    def length(self) -> str:
        return length_class(self.base_us)


@functools.cache
def recordings(source: str) -> list[resampling.Recording]:
    return resampling.own_buffers() if source == "own" else resampling.shared_buffers()


def made(cell: Cell) -> list[Duel]:
    """Returns the cell's duels, the same ones for every rule."""
    planted = round(cell.effect * 1e4)
    if cell.source in simulation.TROUBLES:
        trouble, place = simulation.TROUBLES[cell.source], list(simulation.TROUBLES).index(cell.source)
        seeds = [(place, cell.number, planted, number) for number in range(cell.checks)]
        return [simulation.Simulated(trouble, cell.base_us, seed, cell.effect) for seed in seeds]
    rng = np.random.default_rng((cell.source == "own", cell.number, planted))
    recording = recordings(cell.source)[cell.number]
    return [resampling.draw(recording, rng, cell.effect, cell.bias, cell.chance) for _ in range(cell.checks)]


def played(cell: Cell) -> Tally:
    """Unchanged cases are played as whole runs of 30. A slow-down is in a run with 29 cases that show nothing."""
    size = 1 if cell.effect else FAMILY
    duels, limits = made(cell), tightened(cell.share)
    with variant(cell.variant):
        runs = (play(duels[start : start + size], limits, FAMILY) for start in range(0, len(duels), size))
        return tally(outcome for ended in runs for outcome in ended)


Played = Mapping[Cell, Tally]


def all_played(cells: Iterable[Cell], workers: int) -> Played:
    """Every cell once. Results do not depend on the number of workers."""
    wanted = list(dict.fromkeys(cells))
    if workers == 1:
        return dict(zip(wanted, map(played, wanted), strict=True))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return dict(zip(wanted, pool.map(played, wanted, chunksize=4), strict=True))


# --- other rules ------------------------------------------------------------------------------------------------------

RULE = "the rule"


def _every_process(medians: Floats, tau: float, *_: object) -> duel_rule.Flags:
    return np.asarray(medians.min(axis=-1) > tau / 2)


VARIANTS: Mapping[str, Mapping[str, object]] = {
    RULE: {},
    "24 blocks decide without regard to bias": {"BIAS": 0.0},
    "all four processes must agree": {"AGREEING": 4},
    "4 and 12 blocks clear, up to tau / 2 and 3/4 of tau": {"EARLY": {4: 0.5, 12: 0.75}},
    "the same, whatever the noise leaves possible": {"EARLY": {4: 0.5, 12: 0.75}, "PROMISE": math.inf},
    "4 to 12 blocks clear up to tau / 4": {"EARLY": dict.fromkeys(duel_rule.EARLY, 0.25)},
    "every process beyond tau / 2 at 24 and 48 blocks": {"agree": _every_process},
}
"""perfci's rule and its neighbours: what of `perfci.statistics.duel_rule` is another."""


@contextlib.contextmanager
def variant(name: str) -> Iterator[None]:
    """Judges duels by this rule in its block; empty: by perfci's."""
    changes = VARIANTS[name or RULE]
    with mock.patch.multiple(duel_rule, **changes) if changes else contextlib.nullcontext():
        yield
