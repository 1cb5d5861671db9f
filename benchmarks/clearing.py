"""What a PASS says where noise is unlike the recordings': processes that stray, modes, losses that add up.

    python benchmarks/clearing.py [--quick] [--out docs/how-good-is-perfci.md]

A row is a kind of noise with a slow-down planted in it: of twice tau in the mean of all launches, unless the row says
otherwise. Every check is a whole duel of `duels`, judged by both rules of perfci, and by the same as if nothing were
planted. Launches are simulated (`simulation`): nothing recorded is as bad. With --out the table replaces the part
between the two marks of that page.
"""

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from duels import FAMILY, LIMITS, TIMER, Outcome, play
from numpy.typing import NDArray
from screen_on_traces import upper_bound
from simulation import NOISE
from tables import Marks, percent, table
from tails import NOTHING, Planted, verdict

from perfci.core.model import Verdict
from perfci.measure.prepare import rounds
from perfci.statistics import duel_rule, exact
from perfci.statistics.duel_rule import Ruling
from perfci.thresholds.case import CaseThresholds

Floats = NDArray[np.float64]

MARKS = Marks("benchmarks/clearing.py")

TICK_US = 0.032
PROMISE = 2.0  # times tau


@dataclass(frozen=True)
class Process:
    """One process of a duel, for which launches are made."""

    rng: np.random.Generator
    shape: tuple[int, int]
    """blocks, rounds"""
    tau: float
    """allowed slow-down, ratio - 1"""
    place: int
    """among the duel's processes in random order"""

    def normal(self, sd: float, *shape: int) -> Floats:
        """Noise of so many tau."""
        return self.rng.normal(0, sd * self.tau, shape)


Arms = tuple[Floats, Floats]
Make = Callable[[Process, float], Arms]
"""Log levels of base and head, that can be added to launches. The number: tau that are planted, 0 for none."""


def _even(process: Process, loss: float) -> Floats:
    return np.full((process.shape[0], 1), math.log1p(loss * process.tau))


def noisy_blocks(sd: float) -> Make:
    return lambda process, loss: (np.zeros((1, 1)), _even(process, loss) + process.normal(sd, process.shape[0], 1))


def correlated_blocks(sd: float, r: float) -> Make:
    def make(process: Process, loss: float) -> Arms:
        steps = process.normal(sd, process.shape[0], 1)
        for at in range(1, len(steps)):
            steps[at] = r * steps[at - 1] + math.sqrt(1 - r * r) * steps[at]
        return np.zeros((1, 1)), _even(process, loss) + steps

    return make


def straying_processes(sd: float) -> Make:
    return lambda process, loss: (np.zeros((1, 1)), _even(process, loss) + process.normal(sd, 1, 1))


def two_modes(apart: float, *, of_blocks: bool = False, shared: bool = False) -> Make:
    """The slow mode has half of base's launches, or blocks, and of head's so many more that the mean shows the loss."""

    def make(process: Process, loss: float) -> Arms:
        shape = (process.shape[0], 1) if of_blocks else process.shape
        base = process.rng.random(shape)
        head = base if shared else process.rng.random(shape)
        more = loss * process.tau * (1 + apart / 2) / apart
        return math.log1p(apart) * (base < 0.5), math.log1p(apart) * (head < 0.5 + more)

    return make


def losses_that_add_up(share: float) -> Make:
    """Half of the loss in all launches, the other half in a share of them."""

    def make(process: Process, loss: float) -> Arms:
        half = loss * process.tau / 2
        slow = process.rng.random(process.shape) < share
        return np.zeros((1, 1)), math.log1p(half) + math.log1p(half / share) * slow

    return make


def from_block(first: int, times: float) -> Make:
    """So many times the loss from a block of each process on."""

    def make(process: Process, loss: float) -> Arms:
        late = np.arange(process.shape[0])[:, None] >= first
        return np.zeros((1, 1)), math.log1p(times * loss * process.tau) * late

    return make


def some_processes(count: int) -> Make:
    def make(process: Process, loss: float) -> Arms:
        return np.zeros((1, 1)), _even(process, duel_rule.PROCESSES / count * loss * (process.place < count))

    return make


@dataclass(frozen=True)
class Row:
    """A kind of noise."""

    make: Make
    loss: float = PROMISE
    us: float = 100.0
    noise: float | None = None  # of a launch, log. None: as in the simulation
    rounds: int | None = None
    tick_us: float = TICK_US

    @property
    def limits(self) -> CaseThresholds:
        """As a run with such ticks is judged: its timer's floor is a tick at least."""
        return replace(LIMITS, floor_us={TIMER: max(LIMITS.floor(TIMER), self.tick_us)})


ROWS: Mapping[str, Row] = {
    "blocks that vary by 2 tau": Row(noisy_blocks(2)),
    "blocks that vary by 3 tau": Row(noisy_blocks(3)),
    "blocks that vary by 6 tau": Row(noisy_blocks(6)),
    "blocks that vary by 1.5 tau, correlated by 0.8": Row(correlated_blocks(1.5, 0.8)),
    "processes that vary by tau / 2": Row(straying_processes(0.5)),
    "processes that vary by tau": Row(straying_processes(1)),
    "processes that vary by 1.5 tau": Row(straying_processes(1.5)),
    "8 launches a block that vary by 6 %": Row(noisy_blocks(0), us=800.0, noise=0.06),
    "launches in two modes 10 % apart": Row(two_modes(0.10)),
    "launches in two modes 17 % apart": Row(two_modes(0.17)),
    "launches in two modes 25 % apart": Row(two_modes(0.25)),
    "blocks in two modes 10 % apart": Row(two_modes(0.10, of_blocks=True)),
    "blocks in two modes 25 % apart": Row(two_modes(0.25, of_blocks=True)),
    "blocks in two modes 25 % apart, the same of both arms": Row(two_modes(0.25, of_blocks=True, shared=True)),
    "0.9 tau, and 0.9 tau by 5 % of the launches": Row(losses_that_add_up(0.05), loss=1.8),
    "0.7 tau, and 0.7 tau by 5 % of the launches": Row(losses_that_add_up(0.05), loss=1.4),
    "the same of 20 us": Row(losses_that_add_up(0.05), loss=1.4, us=20.0),
    "4 tau from the 3rd block of a process on": Row(from_block(2, 2)),
    "4 tau from the 7th block of a process on": Row(from_block(6, 2)),
    "8 tau in one of four processes": Row(some_processes(1)),
    "2 us, a timer of 1 us, which is tau": Row(noisy_blocks(0), us=2.0, tick_us=1.0),
    "5 us, a timer of 1 us, which is tau": Row(noisy_blocks(0), us=5.0, tick_us=1.0),
}


class Noisy:
    """One duel. Processes start on demand, each from its seed."""

    processes = duel_rule.PROCESSES

    def __init__(self, row: Row, loss: float, seed: tuple[int, ...]) -> None:
        self.row, self.loss, self.seed = row, loss, seed
        self.base_us, self.rounds = row.us, row.rounds or rounds(row.us)
        self._order = np.random.default_rng(seed).permutation(self.processes)

    def process(self, process: int) -> Arms:
        """Launches of base and head, microseconds, each of shape (blocks, rounds)."""
        rng, shape = np.random.default_rng((*self.seed, process)), (duel_rule.BLOCKS, self.rounds)
        tau = self.row.limits.allowed(self.base_us, TIMER)
        levels = self.row.make(Process(rng, shape, tau, int(self._order[process])), self.loss)
        noise = NOISE.get(self.base_us, 0.01) if self.row.noise is None else self.row.noise
        base, head = (self.base_us * np.exp(level + rng.normal(0, noise, shape)) for level in levels)
        tick = self.row.tick_us
        return np.maximum(np.round(base / tick), 1) * tick, np.maximum(np.round(head / tick), 1) * tick


@dataclass(frozen=True)
class Tally:
    verdicts: Counter[Verdict]
    blocks: int

    @property
    def checks(self) -> int:
        return self.verdicts.total()

    def share(self, *wanted: Verdict) -> float:
        return sum(self.verdicts[one] for one in wanted) / self.checks


def play_row(name: str, loss: float, checks: int) -> Tally:
    place = list(ROWS).index(name)
    ended: list[Outcome] = []
    for number in range(checks):
        seed = (place, round(100 * loss), number)
        duel = Planted(Noisy(ROWS[name], loss, seed), NOTHING, seed)
        ended += play([duel], ROWS[name].limits, FAMILY, tails=True)
    return Tally(Counter(map(verdict, ended)), sum(one.blocks for one in ended))


HEAD = (
    "noise, and a loss of twice tau unless another is given", "PASS", "nominal 95 % bound", "REGRESSED or TAIL",
    "INCONCLUSIVE", "blocks", "unchanged: REGRESSED, IMPROVED or TAIL", "INCONCLUSIVE", "blocks",
)  # fmt: skip


def write_row(name: str, slower: Tally, same: Tally) -> list[str]:
    passed = slower.verdicts[Verdict.PASS] + slower.verdicts[Verdict.IMPROVED]
    blamed = sum(same.verdicts[one] for one in (Verdict.REGRESSED, Verdict.IMPROVED, Verdict.TAIL))
    return [
        name,
        percent(passed / slower.checks),
        f"at most {percent(upper_bound(passed, slower.checks))}",
        percent(slower.share(Verdict.REGRESSED, Verdict.TAIL)),
        percent(slower.share(Verdict.INCONCLUSIVE)),
        f"{slower.blocks / slower.checks:.1f}",
        f"{blamed} of {same.checks}",
        percent(same.share(Verdict.INCONCLUSIVE)),
        f"{same.blocks / same.checks:.1f}",
    ]


def run(checks: int, workers: int, only: str = "") -> str:
    names = [name for name in ROWS if only in name]
    tasks = [(name, loss, checks) for name in names for loss in (ROWS[name].loss, 0.0)]
    if workers == 1:
        tallies = itertools.starmap(play_row, tasks)
        return table(HEAD, [write_row(name, next(tallies), next(tallies)) for name in names])
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        tallies = pool.map(play_row, *zip(*tasks, strict=True))
        return table(HEAD, [write_row(name, next(tallies), next(tallies)) for name in names])


# --- the other questions ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """What else is duelled, in blocks that go with those of the device's time."""

    tau: float
    looks: Sequence[Sequence[int]]
    """blocks of each process at each look"""
    guard: float | None = None
    early: Sequence[int] = ()
    """blocks of the first process after which no more are taken if they clear it"""


EARLY = tuple(duel_rule.EARLY)

QUESTIONS: Mapping[str, Question] = {
    "span": Question(LIMITS.span_margin, ([4], [4, 12], [4, 12, 12, 12])),
    "host time": Question(LIMITS.host_margin, ([12], [12] * 2, [12] * 4), duel_rule.HOST_BIAS, EARLY),
    "sustained time": Question(LIMITS.tau_at(100.0), ([12], [12, 6], [12, 6, 6, 6]), early=EARLY),
}

STRAYS = {"blocks that vary by half of what is allowed": (0.5, 0.0), "by all of it": (1.0, 0.0), "by twice": (2.0, 0.0),
          "by three times": (3.0, 0.0), "and processes by half": (0.5, 0.5)}  # fmt: skip
"""Standard deviations of blocks and of processes, in what is allowed."""


def ask(question: Question, d: Floats) -> Verdict:
    """How a duel about it ends. d: (processes, blocks), log scale."""
    first = next((n for n in question.early if duel_rule.early(d[0, :n].tolist(), question.tau) is Ruling.CLEARED), 0)
    for sizes in [[first]] if first else question.looks:
        shifts = [process[:size].tolist() for process, size in zip(d, sizes, strict=False)]
        seen = replace(duel_rule.look(shifts, question.tau), guard=question.guard)
        answer = duel_rule.answer(seen, min(seen.p_slower * FAMILY, 1.0), 1.0, LIMITS.alpha)
        if answer is Ruling.SLOWER:
            return Verdict.REGRESSED
        if answer is Ruling.CLEARED or not duel_rule.may_be_longer(seen):
            return Verdict.PASS
    return Verdict.INCONCLUSIVE


def screen(y: Floats, before: Floats) -> Verdict:
    """How the screen ends. y: (processes, blocks) of now, before: of the baseline, log scale."""
    margin = math.log1p(LIMITS.margin)
    looks = [exact.pairs(process, before) for process in y]
    if looks[0].p_above(margin) * FAMILY <= LIMITS.alpha:
        agreed = sum(look.p_above(margin) <= LIMITS.alpha for look in looks[1:])
        return (Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.REGRESSED)[agreed]
    return Verdict.INCONCLUSIVE if looks[0].shift().value > margin else Verdict.PASS


def ask_all(checks: int) -> str:
    """A row a question and noise."""
    rows = []
    for place, name in enumerate((*QUESTIONS, "screen, ten blocks against thirty")):
        tau = QUESTIONS[name].tau if name in QUESTIONS else LIMITS.margin
        for number, (noise, (block, process)) in enumerate(STRAYS.items()):
            rng, cells = np.random.default_rng((1, place, number)), []
            for loss in (PROMISE, 0.0):
                shape = (checks, 6, 12)
                d = rng.normal(0, block * tau, shape) + rng.normal(0, process * tau, shape[:2])[..., None]
                d[:, :3] += math.log1p(loss * tau)
                if name in QUESTIONS:
                    d[:, 3] += math.log1p(loss * tau)
                    ended = Counter(ask(QUESTIONS[name], one[:4]) for one in d)
                else:  # of three processes of now, and three of the baseline
                    ended = Counter(screen(one[:3, :10], one[3:, :10].ravel()) for one in d)
                cells += [percent(ended[verdict] / checks) for verdict in ENDS]
            rows.append([name, noise, *cells])
    return table(("question", "noise", "PASS", "REGRESSED", "INCONCLUSIVE", *(f"unchanged: {v}" for v in ENDS)), rows)


HOST_BLOCK = 0.054
"""Standard deviation of a block of host time, log scale: the median of 75 processes of an H200's host."""


def stray(checks: int) -> str:
    """Host times of processes that stray: blamed with the guard, and without it."""
    rows, host = [], QUESTIONS["host time"]
    for number, sd in enumerate((0.0, 0.0175, 0.04, 0.06, 0.08)):
        cells = []
        for loss in (0.0, 1.0, PROMISE):
            rng = np.random.default_rng((2, number, round(loss)))
            d = rng.normal(0, HOST_BLOCK, (checks, 4, 12)) + rng.normal(0, sd, (checks, 4, 1))
            d += math.log1p(loss * host.tau)
            for question in (host, replace(host, guard=None)):
                cells.append(percent(sum(ask(question, one) is Verdict.REGRESSED for one in d) / checks))
        rows.append(
            [percent(sd), *(f"{guarded} ({plain})" for guarded, plain in zip(cells[::2], cells[1::2], strict=True))]
        )
    return table(("processes stray by", "unchanged", "15 %, which is allowed", "30 %"), rows)


ENDS = (Verdict.PASS, Verdict.REGRESSED, Verdict.INCONCLUSIVE)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few checks: shows that it works, says little")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows with it in their names")
    parser.add_argument("--others", action="store_true", help="the other questions alone")
    parser.add_argument("--checks", type=int, default=400, help="of a row")
    parser.add_argument("--out", type=Path, metavar="PAGE", help="page with the two marks")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that play duels")
    options = parser.parse_args(arguments)
    checks = 20 if options.quick else options.checks
    others = (
        f"The other questions, at twice of what they allow:\n\n{ask_all(checks)}\n\n"
        f"Host times that are REGRESSED, and without a guard to themselves in brackets:\n\n{stray(checks)}"
    )
    text = others if options.others else f"{run(checks, options.workers, options.only)}\n\n{others}"
    if options.out:
        MARKS.written(options.out, text)
    print(text)


if __name__ == "__main__":
    main()
