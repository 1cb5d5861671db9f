"""Whether thresholds that tighten themselves stay right: whole lives of cases, on noise resampled from real traces.

    python benchmarks/ratchet.py [--quick] [--out docs/how-thresholds-tighten.md]

Every life is a case over 120 merges: duels, A/A duels, first looks and their figures are drawn from recorded processes
and blocks, boards are simulated, and the thresholds in force at the time judge. The steps, bounds and the rule are the
functions of `perfci.extensions.history.ratchet` and `perfci.extensions.history.changepoints`. The tables are printed as
Markdown; with --out they replace the part between the two marks of that page. All seeds are fixed.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import resampling
import screen_on_traces as recorded
from duels import FAMILY, LIMITS, TIMER
from numpy.typing import NDArray
from screen_on_traces import upper_bound
from tables import Marks, lower_bound, percent, sections_text, table

from perfci.core.model import Device, Environment
from perfci.extensions.common.accepted_runs import HistoryCase, HistoryRun, Spread
from perfci.extensions.history import changepoints
from perfci.extensions.history.ratchet import noise, prediction, steps
from perfci.statistics import board_spread, duel_rule, exact, many_duels
from perfci.thresholds.layers import STORED_KEYS

Floats = NDArray[np.float64]

MARKS = Marks("benchmarks/ratchet.py")

MERGES = 120
"""Of a life, each an accepted run of main unless it alarms."""

KEPT = 100
"""Accepted runs in a history."""

LONG = 1000
"""Merges of a long life."""

WINDOW = 20
"""A/A duels that the naive tau looks back at: three standard deviations of their medians, and only ever tighter."""

NULL_BLOCKS = 6
"""Of an A/A duel, one process: what live controls had at their first look."""

LOOK_BLOCKS = 6
"""Of a first look, and of each fresh process, if a case has a speedup target."""

BOARDS = 3
"""That share the runs of a life at random."""

SPEEDUP_BOARD, TIME_BOARD = 0.006, 0.004
"""Standard deviation between boards, log scale: of a speedup, whose reference adds the 0.5 % that PyTorch's operators
have in this repository's histories, and of a kernel's time, as the live duels of seven boards have it at most (but for
matrix products)."""

SETTLED = 60
"""Accepted runs after which the thresholds should be near their final values, and a creep begins."""

LOOKED = SETTLED + 10
"""Merges before the first look for steps."""

CREEP = 0.001
"""Slow-down a merge that no duel sees."""

STEP, LATER = 0.06, 50
"""A slow-down that no one accepted, and the runs after it."""

SHOWN = 50
"""Slow-downs of twice tau that a life is shown at its end."""

NEWCOMERS, NOISIER = 28, 2.5
"""New boards that a target earned on one board is tested on, a run each, and how much more their blocks spread."""

LOSS = 0.08
"""A slow-down that people accepted."""


@dataclass(frozen=True)
class Size:
    """Lives of a recorded case, of a live one, and duels behind a true rate."""

    lives: int
    live: int
    truth: int
    long: int
    """lives of 1,000 merges, a recorded case"""


FULL = Size(lives=140, live=30, truth=20_000, long=6)
QUICK = Size(lives=2, live=1, truth=500, long=1)


# --- noise ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """A case's recorded noise, log scale."""

    name: str
    base_us: float
    processes: Sequence[Floats]
    """d of the blocks of each recorded process, of an unchanged kernel on shared buffers"""
    kernel: Floats | None = None
    """(processes, blocks): log of block medians, microseconds"""
    shift: Floats | None = None
    """(processes, blocks): of kernel against reference"""
    rsd: Floats | None = None
    """(processes, blocks): log of relative standard deviations"""

    @property
    def tau(self) -> float:
        """The design's."""
        return LIMITS.tau_at(self.base_us)

    @property
    def floor(self) -> float:
        return max(noise.FLOOR, LIMITS.floor(TIMER) / self.base_us)

    def duels(self, rng: np.random.Generator, count: int, processes: int, blocks: int) -> Floats:
        """Draws d of so many duels. The arms change places from process to process, as in the product."""
        empty = np.empty((count, processes, blocks))
        which = rng.integers(len(self.processes), size=(count, processes))
        for number, draws in enumerate(self.processes):
            mine = which == number
            empty[mine] = draws[rng.integers(len(draws), size=(int(mine.sum()), blocks))]
        signs = np.where((np.arange(processes) + rng.integers(2, size=(count, 1))) % 2 == 1, -1, 1)
        return empty * signs[:, :, None]


@functools.cache
def recorded_worlds() -> tuple[World, ...]:
    """Returns the six recorded cases, timed by events, with figures of whole runs."""
    rows = sorted(recorded.rows("h200-blocks.jsonl.gz"), key=lambda row: row["t"])
    made = []
    for recording in resampling.shared_buffers():
        mine = [row for row in rows if row["case"] == recording.case]
        groups = [
            [row["ev"] for row in mine if row["proc"] == process] for process in dict.fromkeys(r["proc"] for r in mine)
        ]
        kernel, shift, rsd = (
            np.array([[figure(launches) for launches in group] for group in groups])
            for figure in (_kernel, _shift, _rsd)
        )
        shifts = [np.array([pair.shift for pair in process]) for process in recording.processes]
        made.append(World(recording.case, recording.base_us, shifts, kernel, shift, rsd))
    return tuple(made)


def _kernel(launches: Mapping[str, Sequence[float]]) -> float:
    return math.log(1000 * statistics.median(launches["a1"]))


def _shift(launches: Mapping[str, Sequence[float]]) -> float:
    return exact.launch_shift(launches["a1"], launches["ref"])


def _rsd(launches: Mapping[str, Sequence[float]]) -> float:
    return math.log(exact.summary(launches["a1"]).rsd)


LAST_LIVE = "20261121T170103Z-46a14e"
"""The last run on one of the seven boards."""


@functools.cache
def live_worlds() -> tuple[World, ...]:
    """The cases of this repository on seven boards, timed by activity records: d alone.

    Duels recorded later are one of a case, from whose single process nothing can be drawn.
    """
    by_case: dict[tuple[str, str], list[resampling.Live]] = {}
    for duel in resampling.live():
        if duel.factor == 1 and duel.run <= LAST_LIVE:
            by_case.setdefault((duel.op, duel.case), []).append(duel)
    return tuple(
        World(
            f"{op} {case}",
            statistics.median(duel.base_us for duel in duels),
            [np.array(process) for duel in duels for process in duel.found],
        )
        for (op, case), duels in sorted(by_case.items(), key=lambda item: item[1][0].base_us)
    )


SOURCES = ("recorded", "live", "long")


def worlds(source: str) -> tuple[World, ...]:
    return live_worlds() if source == "live" else recorded_worlds()


# --- a life -----------------------------------------------------------------------------------------------------------

SYNTHETIC: Mapping[str, Callable[[np.random.Generator, int], Floats]] = {
    "compile_s": lambda rng, count: 0.03 * rng.standard_t(4, count),
    "mean_abs": lambda rng, count: rng.normal(0, 0.01, count),
    "rmse": lambda rng, count: rng.normal(0, 0.01, count),
    "p99_abs": lambda rng, count: rng.normal(0, 0.01, count),
    "max_abs": lambda rng, count: rng.gumbel(0, 0.14, count),
    "peak_memory": lambda _, count: np.zeros(count),
}
"""Figures that no trace has, log scale. Errors spread over seeds like those of a softmax in float16."""

WARNING = {"rsd"}
"""Reported, and gates nothing."""

KEYS = {key.name: key for key in steps.KEYS if key.name not in STORED_KEYS}
"""Without those of storage in low precision: their inputs are of a fixed seed, so there is no noise to simulate."""


@dataclass
class Runs:
    """Measurements of all merges of a life, drawn beforehand; log scale, more is worse."""

    boards: NDArray[np.int64]
    nulls: Floats
    """(merges, blocks)"""
    looks: Floats
    """(merges, 3 processes, blocks): of kernel against reference"""
    values: Mapping[str, Floats]
    """key -> (merges,)"""
    kernel: Floats
    """(merges, 3 processes): log of the kernel's time"""
    base_us: float


def runs(world: World, rng: np.random.Generator, merges: int, many: int = BOARDS) -> Runs:
    on = rng.integers(many, size=merges)
    level = rng.normal(0, SPEEDUP_BOARD, many)[on]
    shifts = _looks(world.shift, rng, merges, 3) + level[:, None, None]
    slower = rng.normal(0, TIME_BOARD, many)[on]
    kernel = np.median(_looks(world.kernel, rng, merges, 3), axis=2) + slower[:, None]
    rsd = np.median(_looks(world.rsd, rng, merges, 1)[:, 0], axis=1)
    values = {
        "speedup": np.array([exact.location(look[0]).value for look in shifts]),
        "bandwidth_share": kernel[:, 0],
        "span_margin": kernel[:, 0],
        "rsd": rsd,
        **{name: make(rng, merges) for name, make in SYNTHETIC.items()},
    }
    return Runs(on, world.duels(rng, merges, 1, NULL_BLOCKS)[:, 0], shifts, values, kernel, world.base_us)


def _looks(blocks: Floats, rng: np.random.Generator, merges: int, processes: int) -> Floats:
    which = rng.integers(blocks.shape[0], size=(merges, processes, 1))
    return blocks[which, rng.integers(blocks.shape[1], size=(merges, processes, LOOK_BLOCKS))]


@dataclass
class State:
    """Thresholds in force, and what they were learnt from."""

    tau: float
    targets: dict[str, float | None]
    within: list[float] = field(default_factory=list)
    between: list[float] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)
    """merges, of this epoch"""


def began(world: World) -> State:
    return State(world.tau, {name: getattr(LIMITS, name, None) for name in KEYS})


def learn(world: World, state: State, seen: Runs, merge: int) -> None:
    """What an accepted run adds, and the step that follows: as `ratchet.propose` makes it."""
    state.accepted.append(merge)
    learn_tau(world, state, seen.nulls[merge])
    if len(state.accepted) < prediction.RUNS:
        return
    for name, key in KEYS.items():
        change = steps.tighten_figure(series(seen, name, state.accepted), key, state.targets[name])
        if change:
            state.targets[name] = change.after


def series(seen: Runs, name: str, accepted: Sequence[int]) -> steps.FigureSeries:
    values = seen.values[name][accepted].tolist()
    return steps.FigureSeries(tuple(values), tuple(map(str, seen.boards[accepted].tolist())), ("",) * len(values))


def learn_tau(world: World, state: State, null: Floats) -> None:
    """Adds an A/A duel; only the last hundred count, as many as a history has."""
    median = statistics.median(null)
    state.within.append(float(np.abs(null - median).mean()))
    state.between.append(abs(median))
    within, between = state.within[-KEPT:], state.between[-KEPT:]
    count = len(within)
    if count < noise.NULLS:
        return
    spread = noise.bound_by_means(math.fsum(within) / count, math.fsum(between) / count, count, len(null))
    bound = noise.find_least_tau(spread, FAMILY, LIMITS.alpha, world.floor, min(state.tau, world.tau))
    state.tau = (bound and steps.step(state.tau, bound)) or state.tau


def target_alarms(state: State, seen: Runs, merge: int, effect: float = 0.0) -> list[str]:
    """Returns keys with a target that this merge misses. Timed ones have to miss it in two fresh processes too."""
    names = []
    for name, target in state.targets.items():
        value = seen.values[name][merge] + (effect if KEYS[name].confirmed else 0.0)
        if target is None or value <= _place(name, target, state, seen):
            continue
        if not KEYS[name].confirmed or _again(name, target, state, seen, merge, effect):
            names.append(name)
    return names


def _again(name: str, target: float, state: State, seen: Runs, merge: int, effect: float) -> bool:
    """Returns True if both fresh processes agree. A span also has to be longer by 5 us."""
    place = _place(name, target, state, seen)
    if name == "speedup":
        return confirmed(seen.looks[merge] + effect, place)
    far = name != "span_margin" or math.exp(place) * -math.expm1(-math.log1p(target)) > LIMITS.span_floor_us
    return far and float(seen.kernel[merge, 1:].min()) + effect > place


def _place(name: str, target: float, state: State, seen: Runs) -> float:
    """Returns a target, log scale. A growth counts from the median of the accepted runs, as from a baseline."""
    key = KEYS[name]
    centre = (
        statistics.median(seen.values[name][state.accepted].tolist()) if key.growth and state.accepted else math.inf
    )
    return key.place(target, centre)


def confirmed(look: Floats, target: float) -> bool:
    """True if shifts (processes, blocks) are TOO_SLOW: the interval of all and each fresh median exceed the target."""
    low = exact.location(look.ravel()).low
    return low > target and float(np.median(look[1:], axis=1).min()) > target


# --- unchanged kernels ------------------------------------------------------------------------------------------------


@dataclass
class Lives:
    """What some lives of a case came to."""

    world: str
    base_us: float
    merges: int = 0
    alarms: dict[str, int] = field(default_factory=dict)
    """key -> case-merges with a false alarm; "any" counts a merge once"""
    settled: list[float] = field(default_factory=list)
    """tau after 60 accepted runs, a life"""
    last: list[float] = field(default_factory=list)
    """and at the end"""
    targets: dict[str, list[float]] = field(default_factory=dict)
    """key -> room of the bound in force after 60 runs over the least room that keeps the rate"""
    undecided: int = 0
    more: int = 0
    blocks: int = 0
    late: int = 0
    """merges after the 60th, to which the three before belong"""
    drift_checks: int = 0
    drift_alarms: int = 0
    creep: dict[str, list[float]] = field(default_factory=dict)
    """who caught it -> sum of the creep by then, in promises (2 tau); inf: not in 60 merges"""
    red: dict[str, list[bool]] = field(default_factory=dict)
    """who -> whether the step was still red 50 runs later"""
    naive_tau: dict[str, int] = field(default_factory=dict)
    naive: dict[str, list[int]] = field(default_factory=dict)
    """rule -> [false alarms, merges]"""
    shown: int = 0
    seen: int = 0
    """slow-downs of twice tau planted at the end, and those REGRESSED"""
    rooms: list[float] = field(default_factory=list)
    """of the speedup target after an accepted loss, over the room before"""
    after_loss: list[int] = field(default_factory=list)
    """[false alarms of the next run, lives]"""


def life_tau(world: World, rng: np.random.Generator, lives: Lives, merges: int = MERGES) -> None:
    """The duel's gate alone, on d, and the answer of a naive tau."""
    drawn = many_duels.reading(world.duels(rng, merges, duel_rule.PROCESSES, duel_rule.BLOCKS), FAMILY, LIMITS.alpha)
    nulls = world.duels(rng, merges, 1, NULL_BLOCKS)[:, 0]
    medians, naive = np.median(nulls, axis=1), world.tau
    state = began(world)
    for merge in range(merges):
        _duelled(world, state, drawn, merge, lives)
        learn_tau(world, state, nulls[merge])
        if merge >= WINDOW:
            naive = min(naive, 3 * float(medians[merge - WINDOW : merge].std(ddof=1)))
            ended = many_duels.ends(_one(drawn, merge), math.log1p(naive))
            for name, flags in (("alarms", ended.alarms), ("undecided", ended.undecided)):
                lives.naive_tau[name] = lives.naive_tau.get(name, 0) + int(flags[0])
            lives.naive_tau["checks"] = lives.naive_tau.get("checks", 0) + 1
        if merge + 1 == SETTLED:
            lives.settled.append(state.tau)
    lives.last.append(state.tau)
    promised(world, state, rng, lives)


def promised(world: World, state: State, rng: np.random.Generator, lives: Lives) -> None:
    """Slow-downs of twice the tau that the life ended with."""
    drawn = many_duels.reading(world.duels(rng, SHOWN, duel_rule.PROCESSES, duel_rule.BLOCKS), FAMILY, LIMITS.alpha)
    tau = max(state.tau, world.floor)
    lives.shown += SHOWN
    lives.seen += int(np.count_nonzero(many_duels.ends(drawn, math.log1p(tau), math.log1p(2 * tau)).slower))


def _duelled(world: World, state: State, drawn: many_duels.Duels, merge: int, lives: Lives) -> bool:
    """Checks an unchanged kernel once. Returns True for a false alarm."""
    ended = many_duels.ends(_one(drawn, merge), math.log1p(max(state.tau, LIMITS.floor(TIMER) / world.base_us)))
    alarm = bool(ended.alarms[0])
    lives.merges += 1
    lives.alarms["tau"] = lives.alarms.get("tau", 0) + alarm
    if merge >= SETTLED:
        lives.late += 1
        lives.undecided += bool(ended.undecided[0])
        lives.more += bool(ended.blocks[0] > duel_rule.BLOCKS)
        lives.blocks += int(ended.blocks[0])
    return alarm


def _one(drawn: many_duels.Duels, number: int) -> many_duels.Duels:
    slot = slice(number, number + 1)
    early = {count: many_duels.Cleared(look.centre[slot], look.reach[slot]) for count, look in drawn.early.items()}
    tested = {
        count: many_duels.Tested(tested.centre[slot], tested.reach[slot], tested.above[slot], tested.below[slot])
        for count, tested in drawn.tested.items()
    }
    return many_duels.Duels(early, drawn.medians[slot], tested)


def life(world: World, rng: np.random.Generator, lives: Lives) -> None:
    """A whole life: every gate, drift, and then what slow-downs do to the thresholds that it ended with."""
    drawn = many_duels.reading(world.duels(rng, MERGES, duel_rule.PROCESSES, duel_rule.BLOCKS), FAMILY, LIMITS.alpha)
    seen, state = runs(world, rng, MERGES + LATER + 10), began(world)
    made = kept_runs(seen.kernel[:, 0], seen.values["speedup"], seen.boards)
    for merge in range(MERGES):
        missed = target_alarms(state, seen, merge)
        alarm = _duelled(world, state, drawn, merge, lives) or bool({*missed} - WARNING)
        for name in missed:
            lives.alarms[name] = lives.alarms.get(name, 0) + 1
        lives.alarms["any"] = lives.alarms.get("any", 0) + alarm
        if not alarm:
            learn(world, state, seen, merge)
        if merge + 1 == SETTLED:
            lives.settled.append(state.tau)
            _rooms(world, state, seen, lives)
            after_loss(world, state, seen, rng, merge + 1, lives)
        if merge + 1 >= LOOKED:
            lives.drift_checks += 1
            lives.drift_alarms += drifted(made, merge)
    lives.last.append(state.tau)
    creeping(world, seen, state, rng, lives)
    stepped(world, seen, state, rng, lives)
    naive_ratchets(world, seen, lives)
    promised(world, state, rng, lives)


def _rooms(world: World, state: State, seen: Runs, lives: Lives) -> None:
    """How far the targets in force are from the middle, over the least distance that keeps the rate in all runs."""
    for name, target in state.targets.items():
        if target is None or target == getattr(LIMITS, name, None):
            continue
        values = truth(world.name, name)
        centre = float(np.median(values)) if name not in SYNTHETIC else 0.0
        least = max(float(np.quantile(values, 1 - noise.RATE / steps.FIGURES)) - centre, KEYS[name].least)
        place = _place(name, target, state, seen)
        middle = statistics.median(seen.values[name][state.accepted].tolist())
        lives.targets.setdefault(name, []).append((place - middle) / least)


@functools.cache
def truth(world: str, name: str) -> Floats:
    """So many runs' values of a key, boards included."""
    rng, many = np.random.default_rng(11), 300_000
    if name in SYNTHETIC:
        return SYNTHETIC[name](rng, many)
    recorded = next(candidate for candidate in recorded_worlds() if candidate.name == world)
    blocks = {"speedup": recorded.shift, "rsd": recorded.rsd}.get(name, recorded.kernel)
    board = {"speedup": SPEEDUP_BOARD, "rsd": 0.0}.get(name, TIME_BOARD)
    return np.median(_looks(blocks, rng, many, 1)[:, 0], axis=1) + rng.normal(0, board, many)


def newcomers(work: tuple[int, int]) -> list[bool]:
    """Whether an earned speedup target fails runs of new, noisier boards. work: number of the world, lives."""
    world, confirmations = recorded_worlds()[work[0]], []
    for life_ in range(work[1]):
        rng = np.random.default_rng((16, work[0], life_))
        seen, target = runs(world, rng, SETTLED, 1), None
        for count in range(prediction.RUNS, SETTLED + 1):
            change = steps.tighten_figure(series(seen, "speedup", range(count)), KEYS["speedup"], target)
            target = change.after if change else target
        if target is None:
            continue
        looked, centre = _looks(world.shift, rng, NEWCOMERS, 3), float(np.median(world.shift))
        looked = centre + NOISIER * (looked - centre) + rng.normal(0, SPEEDUP_BOARD, (NEWCOMERS, 1, 1))
        confirmations += [confirmed(look, -math.log(target)) for look in looked]
    return confirmations


# --- drift ------------------------------------------------------------------------------------------------------------


ENVIRONMENT = Environment(Device("cuda", "made up", "made-up"), "activity", "3.12.0", {}, "host", "Linux")
NOTHING = Spread(1.0, 1.0, 1.0)


def kept_runs(kernel: Floats, shift: Floats | None, on: NDArray[np.int64]) -> list[HistoryRun]:
    """Returns accepted runs of a case as in a history. kernel: log of its time in microseconds."""
    history = []
    for number, value in enumerate(np.exp(kernel).tolist()):
        time_us, speedup = Spread(value, value, value), None if shift is None else float(shift[number])
        case = HistoryCase("case", LOOK_BLOCKS, time_us, NOTHING, speedup, board=f"GPU-{on[number]}")
        history.append(HistoryRun(f"run{number}", "2026-01-01T00:00:00Z", ENVIRONMENT, (case,)))
    return history


def drifted(made: Sequence[HistoryRun], merge: int) -> bool:
    """Returns True if the history's runs by this merge show a loss that nothing explains."""
    series = changepoints.index_cases(made[max(merge + 1 - KEPT, 0) : merge + 1])["case"]
    return any(change.unexplained for change in changepoints.find_changes(series))


@dataclass(frozen=True)
class Trouble:
    """What may move accepted runs of an unchanged kernel from the release on."""

    on: Callable[[np.random.Generator, int], NDArray[np.int64]]
    """generator, merges -> the board of each"""
    r: float = 0.0
    """by which neighbouring runs correlate"""


def _later(share: float) -> Callable[[np.random.Generator, int], NDArray[np.int64]]:
    """One board, and from the first look on another that takes this share of the runs."""

    def boards(rng: np.random.Generator, merges: int) -> NDArray[np.int64]:
        return (rng.random(merges) < share) & (np.arange(merges) >= LOOKED - 5)

    return boards


TROUBLES: Mapping[str, Trouble] = {
    "one board": Trouble(_later(0.0)),
    "three boards": Trouble(lambda rng, merges: rng.integers(3, size=merges)),
    "a second board beside the first": Trouble(_later(0.5)),
    "the same, with four of five runs": Trouble(_later(0.8)),
    "a new board alone": Trouble(_later(1.0)),
    "runs that correlate by 0.7": Trouble(_later(0.0), 0.7),
    "runs that correlate by 0.9": Trouble(_later(0.0), 0.9),
}

QUIET = (0.001, 0.003, 0.01)
"""Standard deviation of a run, log scale: the quieter a kernel, the more of its drift is boards."""

TROUBLED_US = 100.0


@dataclass
class Troubled:
    """What lives in a trouble came to."""

    checks: int = 0
    alarms: int = 0
    lives: list[bool] = field(default_factory=list)
    """whether each had any alarm"""
    caught: list[float] = field(default_factory=list)
    """sum of a creep of 0.1 % a merge when it was seen, in promises; inf: not in 60 merges"""


def troubled(work: tuple[str, int]) -> Troubled:
    """work: name of the trouble, lives of each noise."""
    name, lives = work
    tally, trouble = Troubled(), TROUBLES[name]
    sums = np.concatenate([np.zeros(SETTLED), CREEP * np.arange(1, MERGES - SETTLED + 1)])
    ready = range(LOOKED - 1, MERGES)
    for sd, number in itertools.product(QUIET, range(lives)):
        rng = np.random.default_rng((15, round(1e4 * sd), number))
        on = trouble.on(rng, MERGES).astype(int)
        level = rng.normal(0, board_spread.usual_spread(TROUBLED_US), on.max() + 1)
        noise_ = _correlated(rng, 1, trouble.r)[0] if trouble.r else rng.standard_t(8, MERGES) / math.sqrt(8 / 6)
        values = math.log(TROUBLED_US) + sd * noise_ + level[on]
        made, crept = kept_runs(values, None, on), kept_runs(values + sums, None, on)
        alarms = [drifted(made, merge) for merge in ready]
        tally.checks += len(alarms)
        tally.alarms += sum(alarms)
        tally.lives.append(any(alarms))
        first = next((merge for merge in ready if drifted(crept, merge)), None)
        tally.caught.append(_caught(sums, first, LIMITS.tau_at(TROUBLED_US)))
    return tally


def creeping(world: World, seen: Runs, state: State, rng: np.random.Generator, lives: Lives) -> None:
    """0.1 % more with every merge after the release. Every run is accepted, and nothing tightens."""
    sums = np.concatenate([np.zeros(SETTLED), CREEP * np.arange(1, MERGES - SETTLED + 1)])
    made = kept_runs(seen.kernel[:MERGES, 0] + sums, seen.values["speedup"][:MERGES] + sums, seen.boards)
    first = next((merge for merge in range(LOOKED - 1, MERGES) if drifted(made, merge)), None)
    lives.creep.setdefault("change points", []).append(_caught(sums, first, world.tau))
    missed = (m for m in range(SETTLED, MERGES) if "speedup" in target_alarms(state, seen, m, float(sums[m])))
    lives.creep.setdefault("speedup target", []).append(_caught(sums, next(missed, None), world.tau))
    drawn = many_duels.reading(world.duels(rng, MERGES, duel_rule.PROCESSES, duel_rule.BLOCKS), FAMILY, LIMITS.alpha)
    for name, tau in (("duel with the release", world.tau), ("duel with the release, tau in force", state.tau)):
        red = (
            m
            for m in range(SETTLED, MERGES)
            if many_duels.ends(_one(drawn, m), math.log1p(tau), float(sums[m])).slower[0]
        )
        lives.creep.setdefault(name, []).append(_caught(sums, next(red, None), tau))


def _caught(sums: Floats, merge: int | None, tau: float) -> float:
    return math.inf if merge is None else float(sums[merge]) / (2 * tau)


def stepped(world: World, seen: Runs, state: State, rng: np.random.Generator, lives: Lives) -> None:
    """Whether 6 % that no one accepts are still red 50 runs later: what is red teaches nothing."""
    effect = math.log1p(STEP)
    drawn = many_duels.reading(world.duels(rng, LATER + 1, duel_rule.PROCESSES, duel_rule.BLOCKS), FAMILY, LIMITS.alpha)
    red = False
    for number in range(LATER + 1):
        ended = many_duels.ends(_one(drawn, number), math.log1p(state.tau), effect)
        red = bool(ended.slower[0]) or bool(target_alarms(state, seen, MERGES + number, effect))
    lives.red.setdefault("ratchet", []).append(red)
    figure = _steadier(seen)[: MERGES + LATER + 1].copy()
    figure[MERGES:] += effect
    for name, limit in NAIVE.items():
        lives.red.setdefault(name, []).append(bool(figure[-1] > limit(figure[:-1], math.log1p(world.tau))))


def after_loss(world: World, state: State, seen: Runs, rng: np.random.Generator, merge: int, lives: Lives) -> None:
    """Whether the next run passes after 8 % were accepted, and how much room the target leaves it."""
    target = state.targets["speedup"]
    if target is None:
        return
    effect = math.log1p(LOSS)
    measured = exact.location((world.duels(rng, 1, 2, duel_rule.BLOCKS)[0] + effect).ravel()).value
    scaled = target * math.exp(-measured)
    centre = statistics.median(seen.values["speedup"][state.accepted].tolist())
    before, after = -math.log(target) - centre, -math.log(scaled) - (centre + effect)
    lives.rooms.append(after / before)
    value = seen.values["speedup"][merge] + effect
    alarm = value > -math.log(scaled) and confirmed(seen.looks[merge] + effect, -math.log(scaled))
    lives.after_loss.append(int(alarm))


# --- naive ratchets ---------------------------------------------------------------------------------------------------

NAIVE: Mapping[str, Callable[[Floats, float], float]] = {
    "last run": lambda past, tau: float(past[-1]) + tau,
    "best ever": lambda past, tau: float(past.min()) + tau,
    "rolling mean + 3 sd": lambda past, _: float(past[-10:].mean() + 3 * past[-10:].std(ddof=1)),
}
"""The limit of the next run's time, log scale, from all runs so far, accepted or not."""


def _steadier(seen: Runs) -> Floats:
    return min(
        (seen.kernel[:, 0], seen.values["speedup"]), key=lambda values: float(np.abs(np.diff(values[:30])).mean())
    )


def naive_ratchets(world: World, seen: Runs, lives: Lives) -> None:
    figure, allowed = _steadier(seen)[:MERGES], math.log1p(world.tau)
    crept = figure + np.concatenate([np.zeros(SETTLED), CREEP * np.arange(1, MERGES - SETTLED + 1)])
    sums = crept - figure
    for name, limit in NAIVE.items():
        tally = lives.naive.setdefault(name, [0, 0])
        tally[0] += sum(bool(figure[merge] > limit(figure[:merge], allowed)) for merge in range(10, MERGES))
        tally[1] += MERGES - 10
        red = (merge for merge in range(SETTLED, MERGES) if crept[merge] > limit(crept[:merge], allowed))
        lives.creep.setdefault(name, []).append(_caught(sums, next(red, None), world.tau))


# --- all lives --------------------------------------------------------------------------------------------------------


def lived(work: tuple[str, int, int, int]) -> Lives:
    """work: source, number of the world, first life, lives."""
    source, number, first, count = work
    world = worlds(source)[number]
    lives = Lives(world.name, world.base_us)
    for index in range(first, first + count):
        rng = np.random.default_rng((SOURCES.index(source), number, index))
        if source == "recorded":
            life(world, rng, lives)
        else:
            life_tau(world, rng, lives, LONG if source == "long" else MERGES)
    return lives


def all_lived(size: Size, workers: int) -> dict[str, list[Lives]]:
    """By source, a row a world."""
    lives = {"recorded": size.lives, "live": size.live, "long": size.long}
    work = [(source, number, 0, lives[source]) for source in SOURCES for number in range(len(worlds(source)))]
    results = _all(lived, work, workers)
    return {source: [life for life, (of, *_) in zip(results, work, strict=True) if of == source] for source in SOURCES}


def _all(function, work, workers: int) -> list:
    if workers == 1:
        return list(map(function, work))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(function, work))


@dataclass(frozen=True)
class Least:
    """The least tau, no less than the floor, that a case's true noise bears."""

    alarms: float
    """for the rate of false alarms alone"""
    bearable: float
    """for all that is asked"""


def least(world: World, count: int) -> Least:
    rng = np.random.default_rng(12)
    drawn = many_duels.reading(world.duels(rng, count, duel_rule.PROCESSES, duel_rule.BLOCKS), FAMILY, LIMITS.alpha)
    tries = [world.floor * 1.02**step for step in range(400) if world.floor * 1.02**step < world.tau] + [world.tau]
    rates = {tau: noise.count_ends(drawn, tau) for tau in tries}
    alarms = next(tau for tau in tries if tau == world.tau or rates[tau].alarms <= noise.RATE)
    return Least(alarms, next(tau for tau in tries if tau == world.tau or rates[tau].bearable))


# --- tables -----------------------------------------------------------------------------------------------------------


def rate_row(name: str, alarms: int, checks: int) -> list[str]:
    return [name, f"{checks:,}", f"{alarms}", percent(alarms / checks), f"at most {fine(upper_bound(alarms, checks))}"]


def fine(rate: float) -> str:
    return f"{100 * rate:.3f} %"


HEAD = ("case-merges", "false alarms", "rate", "95 % bound")


def alarms_text(lives: Mapping[str, Sequence[Lives]], size: Size, workers: int) -> str:
    recorded, live = lives["recorded"], lives["live"]
    merges = sum(life.merges for life in recorded)
    names = ["any", "tau", *(name for name in KEYS)]
    rows = [
        rate_row(NAMES.get(name, name), sum(life.alarms.get(name, 0) for life in recorded), merges) for name in names
    ]
    rows.append(
        rate_row(
            "tau, live duels of seven boards",
            sum(life.alarms["tau"] for life in live),
            sum(life.merges for life in live),
        )
    )
    works = [(number, size.lives) for number in range(len(recorded_worlds()))]
    fails = [flag for flags in _all(newcomers, works, workers) for flag in flags]
    rows.append(rate_row("earned speedup target, new boards with 2.5 times the noise", sum(fails), len(fails)))
    rows.append(
        rate_row(
            "steps that nothing explains", sum(e.drift_alarms for e in recorded), sum(e.drift_checks for e in recorded)
        )
    )
    for name in NAIVE:
        rows.append(rate_row(f"naive: {name}", *(sum(life.naive[name][at] for life in recorded) for at in (0, 1))))
    return table(("gate", *HEAD), rows)


NAMES = {"any": "**all gates together**", "rsd": "rsd, only reported: a default below what events give"}


def tau_text(lives: Sequence[Lives], source: str, size: Size) -> str:
    rows = []
    for life, world in zip(lives, worlds(source), strict=True):
        true, settled = least(world, size.truth), statistics.median(life.settled)
        within = [tau / true.bearable <= 1.5 or tau <= 1.5 * world.floor for tau in life.settled]
        strict = [tau / true.alarms <= 1.5 or tau <= 1.5 * world.floor for tau in life.settled]
        counts = f"{sum(within)} of {len(within)}", f"{sum(strict)} of {len(strict)}"
        costs = (
            percent(life.undecided / life.late),
            percent(life.more / life.late),
            f"{life.blocks / life.late:.1f}",
            percent(life.seen / life.shown),
        )
        shown = (
            world.tau,
            min(world.floor, world.tau),
            true.alarms,
            true.bearable,
            settled,
            statistics.median(life.last),
        )
        rows.append([world.name, f"{world.base_us:.0f} us", *(f"{100 * tau:.2f} %" for tau in shown), *counts, *costs])
    head = (
        "case", "kernel", "default", "floor", "least for the rate", "least for all", "after 60 runs", "after 120",
        "within 1.5 of the least for all", "of the least for the rate", "INCONCLUSIVE", "more than one process",
        "blocks", "twice tau seen",
    )  # fmt: skip
    return table(head, rows)


def targets_text(lives: Sequence[Lives]) -> str:
    rows = []
    for name, key in KEYS.items():
        rooms = [room for live in lives for room in live.targets.get(name, [])]
        within = sum(room <= 1.5 for room in rooms)
        rows.append(
            [
                name,
                "moments" if key.confirmed else "robust",
                f"{statistics.median(rooms):.2f}",
                f"{within} of {len(rooms)}",
            ]
        )
    return table(("threshold", "bound", "room after 60 runs over the least (median)", "within 1.5"), rows)


def creep_text(lives: Sequence[Lives]) -> str:
    rows = []
    for name in lives[0].creep:
        rows.append([name, *_creep_cells([crept for live in lives for crept in live.creep[name]])])
    return table(("who sees it", "caught by 1.5 promises", "95 % bound", "caught by 1 promise", "median"), rows)


def creep_by_case(lives: Sequence[Lives]) -> str:
    names = ("change points", "duel with the release, tau in force")
    rows = [
        [live.world, *(percent(statistics.fmean(passed <= 1.5 for passed in live.creep[name])) for name in names)]
        for live in lives
    ]
    return table(("case", *names), rows)


def _creep_cells(sums: Sequence[float]) -> list[str]:
    seen, early = sum(passed <= 1.5 for passed in sums), sum(passed <= 1 for passed in sums)
    middle = statistics.median(sums)
    shown = f"{middle:.2f} promises" if math.isfinite(middle) else "never"
    return [
        f"{seen} of {len(sums)} ({percent(seen / len(sums))})",
        f"at least {percent(lower_bound(seen, len(sums)))}",
        percent(early / len(sums)),
        shown,
    ]


def troubled_text(size: Size, workers: int) -> str:
    rows = []
    for name, tally in zip(TROUBLES, _all(troubled, [(name, size.lives) for name in TROUBLES], workers), strict=True):
        seen = _creep_cells(tally.caught)
        lives = f"{sum(tally.lives)} of {len(tally.lives)} ({percent(statistics.fmean(tally.lives))})"
        rows.append([*rate_row(name, tally.alarms, tally.checks), lives, seen[0], seen[3]])
    return table(("life", *HEAD, "lives with any", "a creep is caught by 1.5 promises", "median"), rows)


def red_text(lives: Sequence[Lives]) -> str:
    rows = []
    for name in lives[0].red:
        flags = [flag for live in lives for flag in live.red[name]]
        rows.append([name, f"{sum(flags)} of {len(flags)}", f"at least {percent(lower_bound(sum(flags), len(flags)))}"])
    return table(("rule", "still red", "95 % bound"), rows)


def loss_text(lives: Sequence[Lives]) -> str:
    rooms = sorted(room for live in lives for room in live.rooms)
    low, middle, high = np.quantile(rooms, (0.025, 0.5, 0.975))
    alarms = [alarm for live in lives for alarm in live.after_loss]
    line = f"Room of the speedup target after over before: median {middle:.3f}, 95 % of lives {low:.2f} to {high:.2f}."
    bound = percent(upper_bound(sum(alarms), len(alarms)))
    return f"{line} False alarms of the next run: {sum(alarms)} of {len(alarms):,} (at most {bound}). tau stays."


def long_text(lives: Sequence[Lives]) -> str:
    """Lives of 1,000 merges, with the last hundred in the history."""
    rows = []
    for life, world in zip(lives, worlds("long"), strict=True):
        naive = life.naive_tau
        shown = (statistics.median(life.settled), statistics.median(life.last), min(life.last))
        rows.append(
            [
                world.name,
                f"{life.alarms['tau']} of {life.merges:,}",
                *(f"{100 * tau:.2f} %" for tau in shown),
                percent(life.seen / life.shown),
                percent(life.undecided / life.late),
                f"{naive['alarms']} of {naive['checks']:,}",
                percent(naive["undecided"] / naive["checks"]),
            ]
        )
    head = ("case", "false alarms", "tau after 60", "after 1,000", "the least of all lives", "twice tau seen")
    return table((*head, "INCONCLUSIVE", "naive tau: false alarms", "INCONCLUSIVE"), rows)


def tails_text() -> str:
    """The tails of blocks and processes in live duels: Student's t, fitted to all cases together."""
    from scipy.stats import t as student

    blocks, medians, units = [], [], {}
    for world in live_worlds():
        within = np.concatenate([process - np.median(process) for process in world.processes])
        medians_of = np.array([np.median(process) for process in world.processes])
        units[world.name] = math.sqrt(float(np.mean(medians_of**2)))
        blocks.append(within / math.sqrt(float(np.mean(within**2))))
        medians.append(medians_of / units[world.name])
    pairs = [
        (one / units[f"{duel.op} {duel.case}"], two / units[f"{duel.op} {duel.case}"])
        for duel in resampling.live()
        if duel.factor == 1 and duel.run <= LAST_LIVE
        for one, two in itertools.combinations([statistics.median(process) for process in duel.found], 2)
    ]
    squares = statistics.fmean((one * one + two * two) / 2 for one, two in pairs)
    correlation = statistics.fmean(one * two for one, two in pairs) / squares
    rows = [
        [
            name,
            f"{len(values):,}",
            f"{student.fit(values, floc=0)[0]:.1f}",
            f"{float(np.mean(values**4)) - 3:.2f}",
            used,
        ]
        for name, values, used in (
            ("d of blocks about their process", np.concatenate(blocks), noise.DOF),
            ("medians of processes", np.concatenate(medians), noise.PROCESS_DOF),
        )
    ]
    shape = table(("live duels of seven boards", "values", "degrees of freedom", "excess kurtosis", "assumed"), rows)
    line = f"Correlation of two processes of a duel: {correlation:.3f} ({len(pairs)} pairs)"
    return f"{shape}\n\n{line}; assumed: {noise.SHARED:g}."


def repeated_text(size: Size) -> str:
    """How often the next run passes a bound, and how often the tightest of all so far, by quarter steps."""
    lives, rng = 50 * size.lives, np.random.default_rng(14)
    rows = [
        ["moments", "normal", *_repeated(rng.normal(size=(lives, MERGES)), steps.CONFIRMED, None)],
        ["moments", "Student's t, 8", *_repeated(rng.standard_t(8, (lives, MERGES)), steps.CONFIRMED, None)],
        [
            "moments",
            "normal, neighbours correlate by 0.3",
            *_repeated_one_by_one(_correlated(rng, 3 * size.lives, 0.3)),
        ],
        ["robust, 8", "normal", *_repeated(rng.normal(size=(lives // 2, MERGES)), steps.CHANCE, 8)],
        ["robust, 8", "Student's t, 8", *_repeated(rng.standard_t(8, (lives // 2, MERGES)), steps.CHANCE, 8)],
        ["robust, 8", "Student's t, 4", *_repeated(rng.standard_t(4, (lives // 2, MERGES)), steps.CHANCE, 8)],
    ]
    return table(("bound", "runs", "asked for", "next runs", "beyond its bound", "beyond the threshold in force"), rows)


def _repeated(values: Floats, chance: float, dof: int | None) -> list[str]:
    """values: (lives, runs); dof: of the robust bound."""
    force, single, kept = np.full(len(values), np.inf), 0, 0
    for count in range(prediction.RUNS, values.shape[1]):
        past = values[:, :count]
        if dof is None:
            centre, unit = past.mean(axis=1), past.std(axis=1, ddof=1)
            room = -prediction.find_student_quantile(chance, count - 1) * math.sqrt(1 + 1 / count) * unit
        else:
            centre = np.median(past, axis=1)
            room = prediction.find_robust_factor(count, chance, dof) * np.median(np.abs(past - centre[:, None]), axis=1)
        force = _stepped(force, centre, room)
        single += int(np.count_nonzero(values[:, count] > centre + room))
        kept += int(np.count_nonzero(values[:, count] > force))
    return _repeated_cells(chance, values[:, prediction.RUNS :].size, single, kept)


def _stepped(force: Floats, centre: Floats, room: Floats) -> Floats:
    first = np.isinf(force)
    moved = np.where(first, 0.0, force) + steps.STEP * (centre + room - np.where(first, 0.0, force))
    return np.where(first, centre + room / steps.STEP, np.minimum(force, moved))


def _repeated_one_by_one(values: Floats) -> list[str]:
    """The same by the product's function, which sees that neighbours correlate."""
    single = kept = 0
    for life_ in values:
        force = np.full(1, np.inf)
        for count in range(prediction.RUNS, len(life_)):
            predict = prediction.predict_by_moments(life_[:count].tolist(), ["board"] * count)
            bound = predict.bound(steps.CONFIRMED)
            force = _stepped(force, np.array([predict.centre]), np.array([bound - predict.centre]))
            single += bool(life_[count] > bound)
            kept += bool(life_[count] > force[0])
    return _repeated_cells(steps.CONFIRMED, values[:, prediction.RUNS :].size, single, kept)


def _repeated_cells(chance: float, checks: int, single: int, kept: int) -> list[str]:
    asked = f"1 in {1 / chance:,.0f}"
    return [asked, f"{checks:,}", *(f"{count} ({100 * count / checks:.3f} %)" for count in (single, kept))]


def _correlated(rng: np.random.Generator, lives: int, r: float) -> Floats:
    values = rng.normal(size=(lives, MERGES))
    for at in range(1, MERGES):
        values[:, at] = r * values[:, at - 1] + math.sqrt(1 - r * r) * values[:, at]
    return values


def bounds_text(size: Size) -> str:
    """How often any of the bounds of a life, from 20 to 100 nulls, is below the truth of the model."""
    rows = []
    lives = 20 * size.lives
    for ratio in (0.0, 0.3, 1.0, 3.0):
        rng = np.random.default_rng((13, int(10 * ratio)))
        d = np.stack([noise.draw_duels(rng, 100, ratio)[:, 0, :NULL_BLOCKS] for _ in range(lives)])
        medians = np.median(d, axis=2)
        within = np.abs(d - medians[..., None]).mean(axis=2).cumsum(axis=1)
        between = np.abs(medians).cumsum(axis=1)
        low = [[False, False] for _ in range(lives)]
        for number in range(lives):
            for count in range(noise.NULLS, 101, 2):
                bound = noise.bound_by_means(
                    within[number, count - 1] / count, between[number, count - 1] / count, count, NULL_BLOCKS
                )
                low[number][0] |= bound.upper.block < 1
                low[number][1] |= bound.upper.process < ratio
        counts = [sum(flags[at] for flags in low) for at in (0, 1)]
        rows.append([f"{ratio:g}", f"{lives:,}", *(f"{count} ({percent(count / lives)})" for count in counts)])
    return table(("processes over blocks", "lives", "blocks ever too low", "processes ever too low"), rows)


DETAILS = (
    "tau, live by activity records",
    "What only ever tightening costs",
    "A step of 6 % that no one accepted, 50 runs later",
    "A loss of 8 % that was accepted",
)
"""Tables that are printed, and not put on the page: its text has what they show."""


def run(size: Size, workers: int) -> dict[str, str]:
    """All tables."""
    lives = all_lived(size, workers)
    recorded = lives["recorded"]
    return {
        "False alarms": alarms_text(lives, size, workers),
        "tau, recorded by events": tau_text(recorded, "recorded", size),
        "tau, live by activity records": tau_text(lives["live"], "live", size),
        "The other thresholds": targets_text(recorded),
        "What only ever tightening costs": repeated_text(size),
        "A creep of 0.1 % a merge": (
            f"{creep_text(recorded)}\n\nBy 1.5 promises, case by case:\n\n{creep_by_case(recorded)}"
        ),
        "Drift of unchanged kernels, life by life": troubled_text(size, workers),
        "A step of 6 % that no one accepted, 50 runs later": red_text(recorded),
        "A loss of 8 % that was accepted": loss_text(recorded),
        "Long lives": long_text(lives["long"]),
        "The bounds of the noise, over a whole life": bounds_text(size),
        "The tails of the traces": tails_text(),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few lives: shows that it works, says little")
    parser.add_argument("--out", type=Path, metavar="PAGE", help="page with the two marks")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that live lives")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    sections = run(QUICK if options.quick else FULL, options.workers)
    if options.out:
        MARKS.written(options.out, sections_text(sections, DETAILS))
    print(sections_text(sections))
    print(f"\n{time.perf_counter() - started:.0f} s on {options.workers} processes", file=sys.stderr)


if __name__ == "__main__":
    main()
