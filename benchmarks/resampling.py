"""Duels resampled from recorded launches of the same kernel twice, with slow-downs planted exactly.

A duel draws processes with replacement and, of each, blocks with replacement: what a process does to an arm stays
within it. A slow-down multiplies every launch of head, which adds its logarithm to each block's shift.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import screen_on_traces as recorded
from numpy.typing import NDArray

from perfci.measure.prepare import rounds
from perfci.statistics import duel_rule, exact

Floats = NDArray[np.float64]

LIVE = "h200-duels.jsonl.gz"
SPLITS = 8
"""Ways in which the launches of one recorded arm are dealt to two."""


@dataclass(frozen=True)
class Pair:
    """One recorded block of two arms that are the same kernel, microseconds, in the order of the rounds."""

    first: Floats
    second: Floats
    clock_mhz: float
    """SM clock as NVML gave it, mean of before and after"""

    @functools.cached_property
    def shift(self) -> float:
        """Of the second arm against the first."""
        return exact.launch_shift(self.second, self.first)


@dataclass(frozen=True)
class Recording:
    """The blocks of a case."""

    case: str
    base_us: float
    rounds: int
    """as many as the product would make; a recording has 30"""
    processes: Sequence[Sequence[Pair]]


def own_buffers() -> list[Recording]:
    """The two recorded arms, each with its buffers; the shortest kernel first."""
    return _recordings(lambda first, second, made: [(first[:made], second[:made])])


def shared_buffers(seed: int = 0) -> list[Recording]:
    """What two arms on the same buffers would be like: the launches of one recorded arm, dealt to two.

    Of each two rounds in a row one goes to base and the other to head, by a coin. That leaves 15 launches a block at
    most, half of what the product makes, so that the spread is larger than it would be.
    """
    rng = np.random.default_rng(seed)

    def dealt(first: Floats, second: Floats, made: int) -> list[tuple[Floats, Floats]]:
        return [_dealt(arm, rng, made) for arm in (first, second) for _ in range(SPLITS)]

    return _recordings(dealt)


def _dealt(arm: Floats, rng: np.random.Generator, made: int) -> tuple[Floats, Floats]:
    even, odd = arm[0::2], arm[1::2]
    coin = rng.random(even.size) < 0.5
    return np.where(coin, even, odd)[:made], np.where(coin, odd, even)[:made]


def _recordings(split) -> list[Recording]:
    rows = sorted(recorded.rows("h200-blocks.jsonl.gz"), key=lambda row: row["t"])
    recordings = [_recording(case, [row for row in rows if row["case"] == case], split) for case in _cases(rows)]
    return sorted(recordings, key=lambda recording: recording.base_us)


def _cases(rows: Sequence[Mapping]) -> list[str]:
    return sorted({row["case"] for row in rows})


def _recording(case: str, rows: Sequence[Mapping], split) -> Recording:
    base_us = float(np.median([np.median(row["ev"]["a1"]) for row in rows])) * 1000
    processes: dict[int, list[Pair]] = {}
    for row in rows:
        clock = float(np.mean([state["sm"] for state in row["nv"]]))
        arms = (np.multiply(row["ev"][arm], 1000) for arm in ("a1", "a2"))
        pairs = [Pair(*dealt, clock) for dealt in split(*arms, rounds(base_us))]
        processes.setdefault(row["proc"], []).extend(pairs)
    return Recording(case, base_us, rounds(base_us), list(processes.values()))


@dataclass(frozen=True)
class Resampled:
    """One duel of a recording. The arms change places from process to process, as the product loads them."""

    recording: Recording
    pairs: Sequence[Sequence[Pair]]
    """[process][block]"""
    swapped: bool
    """whether the first process has them the other way round"""
    effect: float = 0.0
    """planted slow-down of head, ratio - 1"""
    biases: Sequence[float] = (0.0,) * duel_rule.PROCESSES
    """what each process adds to every shift, log scale"""

    @property
    def base_us(self) -> float:
        return self.recording.base_us

    @property
    def rounds(self) -> int:
        return self.recording.rounds

    @property
    def processes(self) -> int:
        return len(self.pairs)

    def shifts(self, process: int, blocks: int) -> list[float]:
        sign = -1 if (process % 2 == 1) != self.swapped else 1
        planted = math.log1p(self.effect) + self.biases[process]
        return [sign * pair.shift + planted for pair in self.pairs[process][:blocks]]

    def process(self, process: int) -> tuple[Floats, Floats]:
        """Launches of base and head, microseconds, each of shape (blocks, rounds)."""
        arms = [np.array([pair.first for pair in self.pairs[process]])]
        arms.append(np.array([pair.second for pair in self.pairs[process]]))
        base, head = arms[::-1] if (process % 2 == 1) != self.swapped else arms
        return base, head * (1 + self.effect) * math.exp(self.biases[process])

    def launches(self) -> tuple[list[Floats], list[Floats], float]:
        """Launches of base and of head, block by block, of all processes, and the mean clock."""
        base, head = [], []
        for process, pairs in enumerate(self.pairs):
            for pair in pairs:
                arms = (pair.first, pair.second)
                slow, fast = arms if (process % 2 == 1) != self.swapped else arms[::-1]
                base.append(fast)
                head.append(slow * (1 + self.effect) * math.exp(self.biases[process]))
        clocks = [pair.clock_mhz for pairs in self.pairs for pair in pairs]
        return base, head, float(np.mean(clocks))


def draw(
    recording: Recording, rng: np.random.Generator, effect: float = 0.0, bias: float = 0.0, chance: float = 0.0
) -> Resampled:
    """A duel. bias: what an unlucky process adds to or takes from head, log scale. chance: share of unlucky ones."""
    pairs = []
    for number in rng.integers(len(recording.processes), size=duel_rule.PROCESSES):
        blocks = recording.processes[number]
        pairs.append([blocks[block] for block in rng.integers(len(blocks), size=duel_rule.BLOCKS)])
    unlucky = rng.random(duel_rule.PROCESSES) < chance
    biases = bias * unlucky * rng.choice((-1, 1), duel_rule.PROCESSES)
    return Resampled(recording, pairs, bool(rng.integers(2)), effect, biases.tolist())


# --- live -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Live:
    """A duel as a device gave it."""

    op: str
    case: str
    timer: str
    base_us: float
    found: Sequence[Sequence[float]]
    """[process][block]: d"""
    factor: float = 1.0
    """planted slow-down of the kernel"""
    effect: float = 0.0
    """slow-down planted afterwards, exactly"""
    run: str = ""
    """id of the run, which begins with its time"""
    changed: bool = False
    """whether the two revisions' kernels differ"""

    @property
    def rounds(self) -> int:
        return rounds(self.base_us)

    @property
    def processes(self) -> int:
        return len(self.found)

    @property
    def complete(self) -> bool:
        """It has every block that the rule could need."""
        return self.processes >= duel_rule.PROCESSES and all(len(blocks) >= duel_rule.BLOCKS for blocks in self.found)

    def shifts(self, process: int, blocks: int) -> list[float]:
        return [shift + math.log1p(self.effect) for shift in self.found[process][:blocks]]


def live(changed: bool = False) -> list[Live]:
    """The recorded live duels of unchanged kernels, or of changed ones. None if there is no recording."""
    if not (recorded.TRACES / LIVE).is_file():
        return []
    return [
        Live(
            row["op"],
            row["case"],
            row["timer"],
            row["kernel_us"],
            row["processes"],
            row.get("factor", 1.0),
            run=row["run"],
            changed=row.get("changed", False),
        )
        for row in recorded.rows(LIVE)
        if row.get("changed", False) == changed
    ]
