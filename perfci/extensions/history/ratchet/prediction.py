"""Where the next accepted run's figure will lie, from those so far: bounds that it passes with a small, stated chance.

Values are such that more is worse, on a log scale if the figure is a ratio, a time or an error. Two forms:

- by moments: mean + t sqrt(variance of the next run and of the mean), Student's t. For one board mean + t(n - 1) s
  sqrt(1 + 1 / n) (Hahn, Meeker, Statistical Intervals, 1991, section 4.7). Boards are a random effect (one-way analysis
  of variance, Satterthwaite's degrees of freedom), with a prior for the boards not seen
- robust: median + k MAD, with k simulated for Student's t with few degrees of freedom, so that one odd run does little
"""

import functools
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfci.statistics.board_spread import PRIOR_BOARDS
from perfci.statistics.exact import compute_student_tail, find_student_quantile

Floats = NDArray[np.float64]

RUNS = 8  # fewest runs that bound the next
_SAMPLES = 4_000


@dataclass(frozen=True)
class Prediction:
    """Of the next value. More is worse."""

    centre: float
    unit: float  # by moments: standard error of the next value about the centre. Robust: the MAD
    runs: float  # degrees of freedom. Robust: runs, autocorrelation taken out
    tails: int | None = None  # robust: degrees of freedom of the tails that are assumed. None: by moments

    def bound(self, chance: float) -> float:
        """The value that the next run exceeds with this chance."""
        if self.tails is None:
            return self.centre - find_student_quantile(chance, self.runs) * self.unit
        return self.centre + find_robust_factor(int(self.runs), chance, self.tails) * self.unit

    def exceeded(self, value: float) -> float:
        """Chance that the next run's value is above this one."""
        if self.unit == 0:
            return float(value < self.centre)
        away = (value - self.centre) / self.unit
        if self.tails is None:
            return float(compute_student_tail(away, self.runs))
        return _compute_robust_tail(int(self.runs), away, self.tails)


def predict_by_moments(values: Sequence[float], boards: Sequence[str | None], board: float = 0.0) -> Prediction:
    """values, boards: of the runs in their order, 2 at least. board: prior standard deviation between boards."""
    groups = [
        [value for value, board in zip(values, boards, strict=True) if board == name] for name in dict.fromkeys(boards)
    ]
    count, many = len(values), len(groups)
    means = [statistics.fmean(group) for group in groups]
    squares = math.fsum((value - mean) ** 2 for group, mean in zip(groups, means, strict=True) for value in group)
    worth = count_independent(values)
    dof = max(worth - many, 1.0)
    # Runs that follow each other spread less than runs do: what their mean takes along is given back.
    within = squares / dof if squares else 0.0
    seen = 0.0
    if many > 1:  # the variance between boards, by moments
        sizes = [len(group) for group in groups]
        overall = math.fsum(size * mean for size, mean in zip(sizes, means, strict=True)) / count
        apart = math.fsum(size * (mean - overall) ** 2 for size, mean in zip(sizes, means, strict=True))
        size = (count - sum(size * size for size in sizes) / count) / (many - 1)
        seen = max((apart / (many - 1) - within) / size, 0.0)
    between = (PRIOR_BOARDS * board**2 + (many - 1) * seen) / (PRIOR_BOARDS + many - 1)
    parts = (within * (1 + 1 / worth), dof), (between * (1 + 1 / many), PRIOR_BOARDS + many - 1)
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return Prediction(values[0], 0.0, count - 1.0)
    return Prediction(
        statistics.fmean(values), math.sqrt(variance), variance**2 / sum(v**2 / size for v, size in parts)
    )


def predict_robustly(values: Sequence[float], dof: int) -> Prediction:
    """Median and MAD of the values in their order, 3 at least. dof: of the tails."""
    centre = statistics.median(values)
    mad = statistics.median(abs(value - centre) for value in values)
    return Prediction(centre, mad, max(math.floor(count_independent(values)), 3), dof)


def count_independent(values: Sequence[float]) -> float:
    """How many independent runs these are worth: n (1 - r) / (1 + r) where neighbours correlate by r.

    r is corrected for its bias (Kendall 1954), and counts from one standard error on, up to 0.9. Never above n.
    """
    count, mean = len(values), statistics.fmean(values)
    away = [value - mean for value in values]
    total = math.fsum(one * one for one in away)
    if total == 0:
        return float(count)
    r = math.fsum(one * next_ for one, next_ in itertools.pairwise(away)) / total
    r = min((r * count + 1) / (count - 3) if count > 3 else r, 0.9)
    return count * (1 - r) / (1 + r) if r > 1 / math.sqrt(count) else float(count)


@functools.cache
def find_robust_factor(runs: int, chance: float, dof: int) -> float:
    """MADs above the median of so many values that one more exceeds with this chance, if all have such tails."""
    low, high = 0.0, 1e4
    while high - low > 1e-3 * max(low, 1.0):
        middle = (low + high) / 2
        low, high = (middle, high) if _compute_robust_tail(runs, middle, dof) > chance else (low, middle)
    return high


def _compute_robust_tail(runs: int, away: float, dof: int) -> float:
    """Chance to exceed the median by so many MADs: over samples of the median and MAD, exact for the value itself."""
    medians, mads = _draw_samples(runs, dof)
    return float(compute_student_tail(medians + away * mads, dof).mean())


@functools.cache
def _draw_samples(runs: int, dof: int) -> tuple[Floats, Floats]:
    values = np.random.default_rng((3, runs, dof)).standard_t(dof, (_SAMPLES, runs))
    medians = np.median(values, axis=1)
    mads = np.median(np.abs(values - medians[:, None]), axis=1)
    return medians, mads


def find_gamma_quantile(chance: float, shape: ArrayLike) -> Floats:
    """The value below which a gamma variable of mean 1 falls with this chance."""
    from scipy.special import gammaincinv

    shapes = np.asarray(shape, dtype=np.float64)
    return np.asarray(gammaincinv(shapes, chance) / shapes)
