"""What perfci sees of slow-downs that a median does not: some launches, some blocks, some processes.

    python benchmarks/tails.py [--quick] [--out docs/how-good-is-perfci.md]

Every check is a whole duel of `duels`, with the second rule of perfci that looks at more than the medians
(`perfci.statistics.tail_rule`). With --out the tables replace the part between the two marks of that page.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import resampling
import simulation
from cells import recordings
from duels import FAMILY, LIMITS, Outcome, play
from numpy.typing import NDArray
from screen_on_traces import upper_bound
from tables import Marks, percent, table

from perfci.core.model import ArmBlock, Block, Verdict
from perfci.core.model.measured import BASE, DUEL, KERNEL
from perfci.statistics import duel_rule, exact
from perfci.statistics.duel_rule import Ruling

Floats = NDArray[np.float64]

MARKS = Marks("benchmarks/tails.py")

BUFFERS = {"own": "Arms with buffers of their own", "shared": "Arms that share their buffers, half as many launches"}

QUIET = "noise alone"
"""The simulated trouble in which slow-downs are planted too, since no recording is under 3 us."""


@dataclass(frozen=True)
class Plant:
    """A part of what head does is slower."""

    of: str = "launches"
    """launches, blocks or processes"""
    share: float = 0.0
    by: float = 0.0
    """ratio - 1"""

    @property
    def name(self) -> str:
        times = f"{1 + self.by:g} times as long" if self.of == "launches" else f"{100 * self.by:g} % slower"
        return f"{100 * self.share:g} % of {self.of} {times}" if self.share else "unchanged"


NOTHING = Plant()

PLANTS = (
    Plant("launches", 0.02, 2.0), Plant("launches", 0.1, 0.5), Plant("launches", 0.2, 0.25),
    Plant("blocks", 0.25, 0.2), Plant("processes", 0.5, 0.1),
    Plant("launches", 0.01, 2.0), Plant("launches", 0.1, 0.25), Plant("launches", 0.2, 0.125),
    Plant("blocks", 0.25, 0.1), Plant("processes", 0.5, 0.05),
)  # fmt: skip
"""The first half slows the mean by 4 to 5 %, the others by half of that."""


class Planted:
    """A duel with its launches, head's partly slower."""

    processes = duel_rule.PROCESSES

    def __init__(self, duel: resampling.Resampled | simulation.Simulated, plant: Plant, seed: tuple[int, ...]) -> None:
        self.duel, self.plant = duel, plant
        self.base_us, self.rounds = duel.base_us, duel.rounds
        self._rng = np.random.default_rng(seed)
        slow = round(plant.share * self.processes) if plant.of == "processes" else 0
        self._slow = frozenset(self._rng.permutation(self.processes)[:slow].tolist())
        self._made: dict[int, list[Block]] = {}

    def shifts(self, process: int, blocks: int) -> list[float]:
        return [block.shifts[DUEL] for block in self.blocks(process, blocks)]

    def blocks(self, process: int, blocks: int) -> list[Block]:
        if process not in self._made:
            base, head = self.duel.process(process)
            arms = zip(base, self._slow_down(process, head), strict=True)
            self._made[process] = [_block(process, index, *launches) for index, launches in enumerate(arms)]
        return self._made[process][:blocks]

    def _slow_down(self, process: int, head: Floats) -> Floats:
        if self.plant.of == "processes":
            return head * (1 + self.plant.by * (process in self._slow))
        drawn = self._rng.random((len(head), 1) if self.plant.of == "blocks" else head.shape)
        return np.where(drawn < self.plant.share, head * (1 + self.plant.by), head)


def _block(process: int, index: int, base: Floats, head: Floats) -> Block:
    modes = exact.modes(head)
    slower = ArmBlock(exact.summary(head), modes_us=modes if len(modes) > 1 else ())
    arms = {KERNEL: slower, BASE: ArmBlock(exact.summary(base))}
    return Block(index, process, 0.0, arms, {DUEL: exact.launch_shift(head, base)})


def verdict(ended: Outcome) -> Verdict:
    """What the judge makes of it. A test compares the two."""
    if ended.answer is Ruling.SLOWER:
        return Verdict.REGRESSED
    if ended.tail is Ruling.SLOWER:
        return Verdict.TAIL
    if {Ruling.UNDECIDED, Ruling.OPEN} & {ended.answer, ended.tail}:
        return Verdict.INCONCLUSIVE
    return Verdict.IMPROVED if ended.answer is Ruling.FASTER else Verdict.PASS


@dataclass(frozen=True)
class Cell:
    """Many checks of one kind."""

    source: str
    """own, shared, or a trouble of the simulation"""
    number: int
    """of the case, the shortest first"""
    plant: Plant
    checks: int
    tails: bool = True
    """False: by the medians alone"""


def lengths(source: str) -> list[float]:
    """Microseconds of each of the source's kernels."""
    return [one.base_us for one in recordings(source)] if source in BUFFERS else list(simulation.LENGTHS_US)


@dataclass(frozen=True)
class Tally:
    verdicts: Counter[Verdict]
    further: int
    """checks that took more than the first blocks"""
    blocks: int

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.verdicts + other.verdicts, self.further + other.further, self.blocks + other.blocks)

    @property
    def checks(self) -> int:
        return self.verdicts.total()

    def share(self, *wanted: Verdict) -> float:
        return sum(self.verdicts[verdict] for verdict in wanted) / self.checks


def played(cell: Cell) -> Tally:
    place = [*BUFFERS, *simulation.TROUBLES].index(cell.source)
    planted = [NOTHING, *PLANTS].index(cell.plant)
    rng = np.random.default_rng((place, cell.number))
    ended: list[Outcome] = []
    for start in range(0, cell.checks, FAMILY):
        duels = []
        for number in range(start, min(start + FAMILY, cell.checks)):
            if cell.source in BUFFERS:
                duel = resampling.draw(recordings(cell.source)[cell.number], rng)
            else:
                us, seed = simulation.LENGTHS_US[cell.number], (place, cell.number, number)
                duel = simulation.Simulated(simulation.TROUBLES[cell.source], us, seed)
            duels.append(Planted(duel, cell.plant, (place, cell.number, planted, number)))
        # An effect is in a run with 29 cases that show nothing.
        runs = [duels] if cell.plant == NOTHING else [[duel] for duel in duels]
        for run in runs:
            ended += play(run, LIMITS, FAMILY, tails=cell.tails)
    further = sum(duel.blocks > duel_rule.FIRST for duel in ended)
    return Tally(Counter(map(verdict, ended)), further, sum(duel.blocks for duel in ended))


# --- tables -----------------------------------------------------------------------------------------------------------


def unchanged_text(tallies: dict[Cell, Tally]) -> str:
    rows = []
    names = {**BUFFERS, **{name: f"simulated: {name}" for name in simulation.TROUBLES}}
    for source, name in names.items():
        with_tails, alone = (
            [
                tally
                for cell, tally in tallies.items()
                if (cell.source, cell.plant, cell.tails) == (source, NOTHING, tails)
            ]
            for tails in (True, False)
        )
        if with_tails:
            tailed, before = functools.reduce(Tally.__add__, with_tails), functools.reduce(Tally.__add__, alone)
            alarms = tailed.verdicts[Verdict.TAIL]
            counts = [f"{tailed.checks:,}", alarms, f"at most {percent(upper_bound(alarms, tailed.checks))}"]
            doubted = [tally.verdicts[Verdict.INCONCLUSIVE] for tally in (tailed, before)]
            further = [percent(tally.further / tally.checks) for tally in (tailed, before)]
            pairs = [f"{full} ({medians})" for full, medians in (doubted, further)]
            rows.append([name, *counts, *pairs, f"{tailed.blocks / tailed.checks:.1f}"])
    head = ("unchanged kernels", "checks", "TAIL", "nominal 95 % bound", "INCONCLUSIVE", "more than 4 blocks", "blocks")
    return table(head, rows)


def power_text(tallies: dict[Cell, Tally], source: str) -> str:
    numbers = range(len(lengths(source)))
    head = ["slow-down", *(f"{us:.0f} us" for us in lengths(source)), "PASS", "PASS by medians alone"]
    rows = []
    for plant in PLANTS:
        tailed, alone = (
            {cell.number: tally for cell, tally in tallies.items() if (cell.source, cell.plant, cell.tails) == key}
            for key in ((source, plant, True), (source, plant, False))
        )
        cells = []
        for number in numbers:
            seen = tailed[number].share(Verdict.TAIL, Verdict.REGRESSED)
            doubted = tailed[number].share(Verdict.INCONCLUSIVE)
            cells.append(f"{100 * seen:.0f} + {100 * doubted:.0f} %")
        passed = [functools.reduce(Tally.__add__, tallies.values()).share(Verdict.PASS) for tallies in (tailed, alone)]
        rows.append([plant.name, *cells, *(f"{100 * share:.0f} %" for share in passed)])
    return table(head, rows)


def run(quick: bool, workers: int) -> str:
    null, simulated, planted = (30, 30, 4) if quick else (300, 120, 100)
    cells = [
        Cell(source, number, plant, count, tails)
        for source in (*BUFFERS, *simulation.TROUBLES)
        for number in range(len(lengths(source)))
        for plant in (NOTHING, *(PLANTS if source in (*BUFFERS, QUIET) else ()))
        for tails in (True, False)
        if (count := planted if plant.share else null if source in BUFFERS else simulated)
    ]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        results = dict(zip(cells, pool.map(played, cells, chunksize=4), strict=True))
    parts = ["By the medians alone in brackets:", unchanged_text(results)]
    for source, name in {**BUFFERS, QUIET: f"Simulated, {QUIET}"}.items():
        parts += [f"{name}. TAIL or REGRESSED + INCONCLUSIVE, by the kernel's length:", power_text(results, source)]
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few checks: shows that it works, says little")
    parser.add_argument("--out", type=Path, metavar="PAGE", help="page with the two marks")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that play duels")
    options = parser.parse_args(arguments)
    text = run(options.quick, options.workers)
    if options.out:
        MARKS.written(options.out, text)
    print(text)


if __name__ == "__main__":
    main()
