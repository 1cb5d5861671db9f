"""How often each way of finding steps in a history errs, on runs resampled from real traces.

    python benchmarks/changepoints.py [--quick] [--out docs/drift.md]
    python benchmarks/changepoints.py --thresholds

A series is 100 accepted runs of a case: each draws a recorded process and 12 of its blocks, and is the median of their
medians. Steps are planted exactly, at a place between the 15th and the 85th run. perfci's method is compared
with ruptures, asv and Apache Otava, if Python finds them (PYTHONPATH may name their folders). A line names the missing
ones. The tables are Markdown. With --out they replace the part between the two marks of
that page. --thresholds makes the table in perfci/extensions/history/changepoints.py. All seeds are fixed.
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import resampling
import screen_on_traces as recorded
from duels import FAMILY, play
from numpy.typing import NDArray
from screen_on_traces import upper_bound
from tables import Marks, percent, table

from perfci.core.model import Device, Environment
from perfci.extensions.common.accepted_runs import HistoryCase, HistoryRun, Spread
from perfci.extensions.history import boards, changepoints
from perfci.statistics import exact
from perfci.statistics.duel_rule import Ruling

Floats = NDArray[np.float64]
Way = Callable[[Floats], Sequence[int]]

MARKS = Marks("benchmarks/changepoints.py")

RUNS, BLOCKS = 100, 12
EDGE = 15
EFFECTS = (0.01, 0.02, 0.05)

LENGTHS = (20, 22, 24, 26, 28, 30, 33, 36, 40, 45, 50, 60, 70, 80, 90, 100)
ORDERS = 200_000


@dataclass(frozen=True)
class Size:
    """How many series are tried."""

    own: int
    """without a step, of each case, by perfci's way"""
    others: int
    """the same by each of the others"""
    steps: int
    """of each case and effect"""


WHOLE, QUICK = Size(5000, 400, 200), Size(100, 20, 10)


# --- noise ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Recording:
    """Log medians of a case's blocks, process by process."""

    case: str
    kernel_us: float
    processes: Sequence[Floats]

    def series(self, rng: np.random.Generator, count: int = RUNS) -> Floats:
        """So many runs."""
        drawn = (self.processes[at] for at in rng.integers(len(self.processes), size=count))
        return np.array([np.median(rng.choice(blocks, BLOCKS)) for blocks in drawn])


@functools.cache
def recordings() -> tuple[Recording, ...]:
    """Returns both arms of the recorded blocks, which are the same kernel. The shortest kernel comes first."""
    by_case: dict[str, dict[int, list[float]]] = {}
    for row in recorded.rows("h200-blocks.jsonl.gz"):
        medians = [float(np.median(row["ev"][arm])) for arm in ("a1", "a2")]
        by_case.setdefault(row["case"], {}).setdefault(row["proc"], []).extend(map(math.log, medians))
    made = [
        Recording(case, 1e3 * math.exp(np.median(np.concatenate([*these.values()]))), [*map(np.array, these.values())])
        for case, these in by_case.items()
    ]
    return tuple(sorted(made, key=lambda recording: recording.kernel_us))


# --- ways -------------------------------------------------------------------------------------------------------------


def ways() -> tuple[dict[str, Way], list[str]]:
    """Returns every installed way by its name, and the missing ones."""
    installed: dict[str, Way] = {"**perfci**: windows of normal scores": changepoints.find_cuts}
    missing = []
    for name, make in (("ruptures", _ruptures), ("asv", _asv), ("otava", _otava)):
        try:
            installed |= make()
        except ImportError:
            missing.append(name)
    return installed, missing


def _ruptures() -> dict[str, Way]:
    import ruptures

    def pelt(penalty: float, series: Floats) -> Sequence[int]:
        return ruptures.Pelt("l2", min_size=3, jump=1).fit(series / _sigma(series)).predict(pen=penalty)[:-1]

    def binseg(penalty: float, series: Floats) -> Sequence[int]:
        return ruptures.Binseg("l2", min_size=3, jump=1).fit(series / _sigma(series)).predict(pen=penalty)[:-1]

    named = "ruptures " + ruptures.__version__.removeprefix("v")
    return {
        f"{named}, Pelt, penalty 2 log n": functools.partial(pelt, 2 * math.log(RUNS)),
        f"{named}, Pelt, penalty calibrated on normal noise": functools.partial(pelt, calibrated()),
        f"{named}, Binseg, the same": functools.partial(binseg, calibrated()),
    }


def _asv() -> dict[str, Way]:
    from importlib.metadata import version

    from asv import step_detect

    def detect(series: Floats) -> Sequence[int]:
        return [step[0] for step in step_detect.detect_steps([*np.exp(series)])][1:]

    return {f"asv {version('asv')}": detect}


def _otava() -> dict[str, Way]:
    from otava.analysis import compute_change_points

    def detect(series: Floats) -> Sequence[int]:
        points, _ = compute_change_points([*np.exp(series)], window_len=50, max_pvalue=0.001, min_magnitude=0.0)
        return [int(point.index) for point in points]

    return {"Otava 0.8.0, p 0.001": detect}


def _sigma(series: Floats) -> float:
    """Spread of a run from its neighbours, by the median: few of them are steps."""
    return float(np.median(np.abs(np.diff(series)))) / 0.954 or 1e-9


@functools.cache
def calibrated(count: int = 20_000) -> float:
    """Penalty that perfci's rate of normal series exceed: by one cut, or by two of half the gain each."""
    rng = np.random.default_rng(11)
    needed = []
    for _ in range(count):
        series = rng.normal(size=RUNS)
        scaled = series / _sigma(series)
        centred = scaled - scaled.mean()
        ends = np.arange(changepoints.SHORTEST, RUNS - changepoints.SHORTEST + 1)
        one = (np.cumsum(centred)[ends - 1] ** 2 * RUNS / (ends * (RUNS - ends))).max()
        needed.append(max(one, greatest(centred[None])[0] ** 2 / 2))
    return float(np.quantile(needed, 1 - changepoints.RATE / 2, method="higher"))


# --- what is counted --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tally:
    """Of one way and kind of series."""

    series: int
    alarmed: int
    """without a step: any cut. With one: a cut more than a run away from it, or a second one"""
    found: int = 0
    """a cut within a run of the step"""


def without_a_step(way: Way, recording: Recording, count: int) -> Tally:
    """False alarms."""
    rng = np.random.default_rng((1, *recording.case.encode()))
    made = [recording.series(rng) for _ in range(count)]
    return Tally(count, sum(bool(len(way(series))) for series in made))


def with_a_step(way: Way, recording: Recording, effect: float, count: int) -> Tally:
    """Steps found within a run."""
    rng = np.random.default_rng((2, *recording.case.encode()))
    seen = alarmed = 0
    for _ in range(count):
        series, at = recording.series(rng), int(rng.integers(EDGE, RUNS - EDGE))
        series[at:] += math.log1p(effect)
        near = [abs(cut - at) <= 1 for cut in way(series)]
        seen += any(near)
        alarmed += len(near) > any(near)
    return Tally(count, alarmed, seen)


def needed(recording: Recording, effect: float, count: int, before: int = 60) -> list[float]:
    """Returns runs after a step until perfci finds it, in series that grow run by run; infinite for none of 40."""
    rng = np.random.default_rng((3, *recording.case.encode()))
    waits = []
    for _ in range(count):
        series = recording.series(rng)
        series[before:] += math.log1p(effect)
        told = (after for after in range(3, RUNS - before + 1) if changepoints.find_cuts(series[: before + after]))
        waits.append(float(next(told, math.inf)))
    return waits


# --- tables -----------------------------------------------------------------------------------------------------------


def compared(size: Size) -> str:
    """Compares all ways, and shows perfci's on each kernel."""
    installed, missing = ways()
    rows, alone = [], []
    for name, way in installed.items():
        is_perfci = way is changepoints.find_cuts
        nulls = [without_a_step(way, recording, size.own if is_perfci else size.others) for recording in recordings()]
        steps = {
            effect: [with_a_step(way, recording, effect, size.steps) for recording in recordings()]
            for effect in EFFECTS
        }
        rows.append(_row(name, nulls, steps))
        if is_perfci:
            alone = [
                _case(one, nulls[at], [steps[e][at] for e in EFFECTS], size) for at, one in enumerate(recordings())
            ]
        print(rows[-1], file=sys.stderr, flush=True)
    heads = (
        "way",
        "series without a step",
        "with an alarm",
        *(f"{e:.0%} found within a run" for e in EFFECTS),
        "with a cut elsewhere",
    )
    own_heads = (
        "kernel",
        "sd of a run",
        "alarms",
        *(f"{e:.0%} found" for e in EFFECTS),
        "runs until 2 % is found",
        "until 5 %",
    )
    left = [f"Left out, since not installed: {', '.join(missing)}.", ""] if missing else []
    parts = [table(heads, rows), "", *left, "perfci's way, kernel by kernel:", "", table(own_heads, alone)]
    return "\n".join(parts)


def _row(name: str, nulls: Sequence[Tally], steps: dict[float, Sequence[Tally]]) -> list[str]:
    series, alarmed = sum(null.series for null in nulls), sum(null.alarmed for null in nulls)
    every = [tally for tallies in steps.values() for tally in tallies]
    return [
        name,
        str(series),
        f"{percent(alarmed / series)} (at most {percent(upper_bound(alarmed, series))})",
        *(percent(sum(t.found for t in tallies) / sum(t.series for t in tallies)) for tallies in steps.values()),
        percent(sum(t.alarmed for t in every) / sum(t.series for t in every)),
    ]


def _case(recording: Recording, null: Tally, steps: Sequence[Tally], size: Size) -> list[str]:
    rng = np.random.default_rng(4)
    spread = float(np.std(np.concatenate([recording.series(rng) for _ in range(20)])))
    return [
        f"{recording.case}, {recording.kernel_us:.0f} us",
        percent(spread),
        f"{null.alarmed} of {null.series}",
        *(percent(step.found / step.series) for step in steps),
        *(_waits(needed(recording, effect, max(size.steps // 4, 5))) for effect in (0.02, 0.05)),
    ]


def _waits(waits: Sequence[float]) -> str:
    median, late = np.quantile(waits, (0.5, 0.95), method="higher")
    return ", 95 %: ".join("more than 40" if math.isinf(runs) else f"{runs:.0f}" for runs in (median, late))


def outside(looks: int) -> str:
    """How often an equal board is named, and how often one whose duels spread more."""
    heads = (
        "boards",
        "runs of each",
        "looks",
        "named though equal",
        "named: 1.5 times the spread",
        "2 times",
        "3 times",
    )
    rows = []
    for count, runs in ((2, 10), (4, 10), (4, 25), (8, 12)):
        nulls = sum(_named(np.random.default_rng((5, count, runs, at)), count, runs, 1.0) for at in range(looks))
        cells = [
            percent(
                sum(_named(np.random.default_rng((6, count, runs, at)), count, runs, times) for at in range(100)) / 100
            )
            for times in (1.5, 2.0, 3.0)
        ]
        told = f"{nulls} (at most {percent(upper_bound(nulls, looks))})"
        rows.append([str(count), str(runs), str(looks), told, *cells])
    return table(heads, rows)


def _named(rng: np.random.Generator, count: int, runs: int, times: float) -> bool:
    """Returns True if any board stands out when the first one's A/A duels spread so many times as much.

    A run's duels spread like recorded ones: block noise with the tails of Student's t of 4 degrees of
    freedom, and a share that is common to all duels of a run.
    """
    spreads = {
        f"GPU-{board}": [
            float(
                np.log(np.abs(rng.standard_t(4, 6)).mean()) + 0.3 * rng.normal() + (math.log(times) if not board else 0)
            )
            for _ in range(runs)
        ]
        for board in range(count)
    }
    named = boards.compare_spreads(spreads)
    adjusted = exact.holm([test.p if test else 1.0 for test in named.values()], 3 * count)
    return any(
        test is not None and p <= boards.ALPHA and test.ratio.value >= boards.LEAST_RATIO
        for test, p in zip(named.values(), adjusted, strict=True)
    )


# --- lives ------------------------------------------------------------------------------------------------------------

EVERY = 5
"""Nights between two looks at a history."""

WHITE = 0.003
"""Standard deviation of a run by itself, log scale."""


def wander(rng: np.random.Generator, r: float) -> Floats:
    """A walk that returns, each night r of the one before, as wide as the white noise on top."""
    steps = rng.normal(0, WHITE, RUNS)
    for at in range(1, RUNS):
        steps[at] = r * steps[at - 1] + math.sqrt(1 - r * r) * steps[at]
    return steps


def change_states(rng: np.random.Generator) -> Floats:
    """Two thermal states 1 % apart, each for some twenty nights."""
    return 0.01 * (np.cumsum(rng.random(RUNS) < 0.05) % 2)


LIVES: dict[str, Callable[[np.random.Generator], Floats]] = {
    "white noise": lambda _: np.zeros(RUNS),
    "a walk of 0.7 a night and white noise": lambda rng: wander(rng, 0.7),
    "a walk of 0.9 a night and white noise": lambda rng: wander(rng, 0.9),
    "two thermal states": change_states,
}
BOARD = "a second board, 2 % slower, in two of three nights from the 40th on"


def live(name: str, rng: np.random.Generator) -> list[HistoryRun]:
    """The accepted runs of one unchanged case, night by night."""
    second = (name == BOARD) & (np.arange(RUNS) >= 40) & (rng.random(RUNS) < 2 / 3)
    series = rng.normal(0, WHITE, RUNS) + (0.02 * second if name == BOARD else LIVES[name](rng))
    runs = []
    for night, (value, other) in enumerate(zip(series, second, strict=True)):
        us = 100 * math.exp(value)
        device = Device("cuda", "H", "h", f"GPU-{int(other)}")
        place = Environment(device, "activity", "3.11", {}, "host", "Linux", commit=f"{night:040x}")
        case = HistoryCase("n=1", BLOCKS, Spread(us, us, us), None)
        runs.append(HistoryRun(f"{night}", f"2026-01-01T00:00:{night:02}Z", place, (case,)))
    return runs


def count_lives(count: int) -> str:
    """In how many lives of an unchanged case a step is ever called the kernel's, and what a duel makes of it."""
    rows = []
    for place, name in enumerate((*LIVES, BOARD)):
        proposed = confirmed = 0
        for number in range(count):
            rng = np.random.default_rng((9, place, number))
            runs = live(name, rng)
            looks = (changepoints.index_cases(runs[:night])["n=1"] for night in range(20, RUNS + 1, EVERY))
            if any(step.unexplained for look in looks for step in changepoints.find_changes(look)):
                proposed += 1
                recording = duelled()[number % len(duelled())]
                (ended,) = play([resampling.draw(recording, rng)], family=FAMILY)
                confirmed += ended.answer is Ruling.SLOWER
        cells = [f"{count_of} (at most {percent(upper_bound(count_of, count))})" for count_of in (proposed, confirmed)]
        rows.append([name, str(count), *cells])
    heads = ("100 nights of an unchanged kernel", "lives", "with a step that is proposed", "that a duel confirms")
    return table(heads, rows)


@functools.cache
def duelled() -> list[resampling.Recording]:
    """Recorded launches of the same kernel twice."""
    return resampling.own_buffers()


def greatest(scores: changepoints.Floats) -> changepoints.Floats:
    """Of series of scores, shaped (series, runs): the greatest absolute standardised sum over a window of each.

    A window and the rest each have at least SHORTEST runs. A single step is a window that reaches an end.
    """
    count = scores.shape[1]
    sums = np.concatenate([np.zeros((len(scores), 1)), np.cumsum(scores, axis=1)], axis=1)
    zeros = np.zeros(len(scores))
    for size in range(changepoints.SHORTEST, count - changepoints.SHORTEST + 1):
        apart = np.abs(sums[:, size:] - sums[:, :-size]).max(axis=1) / math.sqrt(size * (count - size) / count)
        np.maximum(zeros, apart, out=zeros)
    return zeros


def thresholds() -> None:
    """The table of perfci/extensions/history/changepoints.py."""
    for length in LENGTHS:
        rng, scores = np.random.default_rng((7, length)), changepoints.normal_scores(length)
        batches = [np.broadcast_to(scores, (2000, length)) for _ in range(ORDERS // 2000)]
        most = np.concatenate([greatest(rng.permuted(batch, axis=1)) for batch in batches])
        print(f"{length}: {np.quantile(most, 1 - changepoints.RATE / 2, method='higher'):.3f},", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few series, to try it out")
    parser.add_argument("--out", type=Path, help="page to replace the part between the marks of")
    parser.add_argument("--thresholds", action="store_true", help="print the table of thresholds instead")
    parser.add_argument("--lives", action="store_true", help="print the table of whole lives alone")
    given = parser.parse_args()
    if given.thresholds:
        thresholds()
        return
    lives = count_lives(10 if given.quick else 200)
    if given.lives:
        print(lives)
        return
    boards_text = outside(40 if given.quick else 2000)
    text = "\n\n".join([compared(QUICK if given.quick else WHOLE), "Lives:", lives, "Boards:", boards_text])
    if given.out is None:
        print(text)
        return
    MARKS.written(given.out, text)


if __name__ == "__main__":
    main()
