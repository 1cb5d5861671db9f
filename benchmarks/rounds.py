"""How often `perfci try` keeps a candidate that is no better than the best, over whole series of rounds.

    python benchmarks/rounds.py [--quick] [--out docs/rounds.md]    # resampled launches of an H200, no device
    python benchmarks/rounds.py --live 200 --op broadcast           # on a device, in a clone of this project

A candidate is judged by the rule of the duel over all cases of an op, with the weight of its place in the series. Its
blocks are drawn from recorded launches of one kernel twice (`resampling.py`), so it equals the best. With --live
candidates are the op's kernel under another name, which is compiled and duelled like any other change.
"""

from __future__ import annotations

import argparse
import functools
import math
import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cells import recordings
from numpy.typing import NDArray
from screen_on_traces import upper_bound
from tables import Marks, percent, table

from perfci.core import settings
from perfci.core.model import Interval
from perfci.extensions.agents.logbook import FILE
from perfci.extensions.agents.round_verdict import average_gains, find_confidence, weigh_round
from perfci.extensions.agents.rounds import try_round
from perfci.extensions.common.strays import Shown, estimate_noise
from perfci.runs.plan import Request
from perfci.statistics import duel_rule, exact, many_duels
from perfci.thresholds.case import CaseThresholds

MARKS = Marks("benchmarks/rounds.py")
ALPHA = 0.01
BIAS = math.log1p(0.015)
"""What one process in ten adds to or takes from a candidate, where processes are biased."""

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Source:
    """Where the blocks of candidates come from."""

    name: str
    buffers: str
    biased: float = 0.0
    """share of processes with a bias"""

    @functools.cached_property
    def cases(self) -> list[tuple[float, list[Floats]]]:
        """Of each case of the op its allowed change, log scale, and the shifts of each recorded process."""
        return [
            (
                math.log1p(CaseThresholds().allowed(recording.base_us, "activity")),
                [np.array([pair.shift for pair in blocks]) for blocks in recording.processes],
            )
            for recording in recordings(self.buffers)
        ]

    def draw(self, rng: np.random.Generator, count: int, case: int) -> Floats:
        """Shifts of so many candidates in one case, (count, processes, blocks), log scale: their true value is 0."""
        size, processes = (count, duel_rule.PROCESSES, duel_rule.BLOCKS), self.cases[case][1]
        chosen = rng.integers(len(processes), size=size[:2])
        blocks = (rng.random(size) * np.array([len(process) for process in processes])[chosen][..., None]).astype(int)
        padded = np.full((len(processes), max(map(len, processes))), np.nan)
        for at, process in enumerate(processes):
            padded[at, : len(process)] = process
        # The arms change places from process to process, beginning by chance.
        signs = rng.choice((-1.0, 1.0), (count, 1, 1)) * np.array([1.0, -1.0, 1.0, -1.0])[None, :, None]
        unlucky = (rng.random(size[:2]) < self.biased) * rng.choice((-BIAS, BIAS), size[:2])
        return signs * padded[chosen[..., None], blocks] + unlucky[..., None]


SOURCES = (
    Source("shared buffers", "shared"),
    Source("buffers of their own", "own"),
    Source("shared buffers, one process in ten off by 1.5 %", "shared", 0.1),
)


@dataclass(frozen=True)
class Judged:
    """Candidates of one place: what became of each, (n,)."""

    kept: Flags
    best: Flags
    """whether it is faster on average, which is what keeping the best without a test asks"""
    tested: Flags
    """whether a plain signed-rank test of its first process says so in any case, p < 5 %"""


def judge(source: Source, rng: np.random.Generator, count: int, place: int, effect: float = 0.0) -> Judged:
    """Candidates that are faster by `effect` times what is promised to be seen (twice tau) in all cases."""
    family, faster, slower = len(source.cases) * weigh_round(place), np.zeros(count, bool), np.zeros(count, bool)
    means, tested = np.zeros(count), np.zeros(count, bool)
    for case, (tau, _) in enumerate(source.cases):
        d = source.draw(rng, count, case) - effect * 2 * tau
        ends = many_duels.ends(many_duels.reading(d, family, ALPHA), tau)
        # One in doubt that looks slower keeps the others from being kept.
        doubtful = ends.undecided & (np.median(d, axis=(1, 2)) > tau)
        faster, slower = faster | ends.faster, slower | ends.slower | doubtful
        means += d[:, 0].mean(axis=1)
        tested |= np.array([exact.signed_rank_p(-shifts) < 0.05 for shifts in d[:, 0]])
    return Judged(faster & ~slower, means < 0, tested)


def cover(source: Source, rng: np.random.Generator, series: int, rounds: int, processes: int) -> tuple[float, float]:
    """The share of series in which the intervals of all rounds hold the true gain of 0: of a case, and of the mean."""
    cases_hold, means_hold = np.zeros(len(source.cases)), 0
    for _ in range(series):
        held, mean_held = np.ones(len(source.cases), bool), True
        for place in range(1, rounds + 1):
            confidence = find_confidence(place)
            drawn = [source.draw(rng, 1, case)[0, :processes] for case in range(len(source.cases))]
            seen = [Shown(tuple(map(tuple, blocks.tolist()))) for blocks in drawn]
            noise = estimate_noise(seen)
            gains = [exact.to_ratio(noise.interval(duel, confidence)) for duel in seen]
            mean = average_gains(gains, confidence)
            held &= [holds(gain) for gain in gains]
            mean_held &= mean is not None and holds(mean)
        cases_hold, means_hold = cases_hold + held, means_hold + mean_held
    return float(cases_hold.mean()) / series, means_hold / series


def holds(gain: Interval) -> bool:
    return gain.low <= 0 <= gain.high


def simulate(series: int, rounds: int, covered: int) -> str:
    """The tables of the page."""
    null, power, intervals = [], [], []
    for number, source in enumerate(SOURCES):
        rng = np.random.default_rng(number)
        tried = [judge(source, rng, series, place) for place in range(1, rounds + 1)]
        checks, kept = series * rounds, sum(int(trial.kept.sum()) for trial in tried)
        any_kept = np.any([trial.kept for trial in tried], axis=0)
        lucky = [np.any([getattr(trial, name) for trial in tried], axis=0).mean() for name in ("best", "tested")]
        counts = f"{checks:,}", kept, percent(upper_bound(kept, checks)), f"{int(any_kept.sum())} of {series:,}"
        null.append([source.name, *counts, *map(percent, map(float, lucky))])
        seen = [judge(source, rng, series // 4, place, 1.0).kept.mean() for place in (1, 5, 20)]
        power.append([source.name, *map(percent, map(float, seen))])
        held = [hit for processes in (1, 2, 4) for hit in cover(source, rng, covered, rounds, processes)]
        intervals.append([source.name, *map(percent, held)])
    head = ("buffers", "candidates", "kept", "95 % bound", "series that keep any", "by the mean alone", "by p < 5 %")
    return "\n\n".join((
        f"Candidates that equal the best, in series of {rounds} rounds. The last two columns: series that would keep "
        "any without the rule: by the mean of one process, or by a signed-rank test of it in any case.",
        table(head, null),
        "Candidates that are faster by what perfci promises to see (2 % over 40 us), kept in round",
        table(("buffers", "1", "5", "20"), power),
        f"Series of {rounds} rounds in which all intervals hold the truth (at least 95 % should): of one case, and of "
        "the mean over the cases, if each round has 1, 2 or 4 processes:",
        table(("buffers", *(f"{many}: {what}" for many in (1, 2, 4) for what in ("case", "mean"))), intervals),
    ))  # fmt: skip


# --- on a device ------------------------------------------------------------------------------------------------------


def try_live(count: int, op: str, device: str, fresh: int) -> None:
    """Tries candidates that are the op's kernel under another name. fresh: rounds of a series."""
    here = Path(__file__).resolve().parents[1]
    with tempfile.TemporaryDirectory(prefix="rounds-") as folder:
        root = Path(folder) / "project"
        subprocess.run(["git", "clone", "-q", str(here), str(root)], check=True)
        where, path = settings.load(root), root / "kernels" / op / f"{op}_triton.py"
        text = path.read_text(encoding="utf-8")
        kernels = re.findall(r"^def (_\w+)\(", text[text.index("@triton.jit") :], re.MULTILINE)
        verdicts, seconds = Counter[str](), []
        for number in range(count):
            if number % fresh == 0:
                (path.parent / FILE).unlink(missing_ok=True)
                shutil.rmtree(where.reports / "rounds", ignore_errors=True)
            path.write_text(re.sub(rf"\b({'|'.join(kernels)})\b", rf"\1_{number}", text), encoding="utf-8")
            began = time.monotonic()
            round_ = try_round(where, Request((op,), device=device), "the same under another name", lambda _: None)
            seconds.append(time.monotonic() - began)
            verdicts[str(round_.verdict)] += 1
            gain = f"{round_.gain.value:+.2%}" if round_.gain else "-"
            print(f"{number + 1}: {round_.verdict}, {gain}, {seconds[-1]:.1f} s", *round_.reasons[:1], flush=True)
    warm = sorted(seconds[1:]) or seconds
    print(dict(verdicts), f"kept at most {upper_bound(verdicts['kept'], count):.2%} (95 %)")
    print(f"first {seconds[0]:.1f} s, then median {statistics.median(warm):.1f} s, longest {warm[-1]:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a hundredth of the candidates")
    parser.add_argument("--out", type=Path, metavar="PAGE")
    parser.add_argument("--live", type=int, metavar="ROUNDS")
    parser.add_argument("--op", default="broadcast")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--fresh", type=int, default=5, help="rounds of a live series")
    options = parser.parse_args()
    if options.live:
        try_live(options.live, options.op, options.device, options.fresh)
        return
    text = simulate(*((40, 5, 5) if options.quick else (4000, 5, 300)))
    print(text)
    if options.out:
        MARKS.written(options.out, text)


if __name__ == "__main__":
    main()
