"""The statistics behind every verdict: exact, free of distributional assumptions, of paired or independent blocks.

Shifts are natural logarithms of a ratio of times, positive is slower. scipy offers the tests, but neither their null
distributions, which the intervals need, nor ties broken against the alternative. Sources: Hollander, Wolfe, Chicken,
Nonparametric Statistical Methods (3rd ed. 2014), chapters 3 and 4; Mann, Whitney, Ann. Math. Stat. 18 (1947) 50; Holm,
Scand. J. Stat. 6 (1979) 65; Tukey, Exploratory Data Analysis (1977), the fence; Fisher, J. Am. Stat. Assoc. 53 (1958)
789; Ashman, Bird, Zepf, Astron. J. 108 (1994) 2348; Mann, Econometrica 13 (1945) 245; Sen, J. Am. Stat. Assoc. 63
(1968) 1379.
"""

import functools
import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perfci.core.model import Interval, Summary

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
"""Of every interval that is shown. Fewer blocks than this needs give an interval that states its lower confidence."""

MAX_WEIGHT = 1.5
"""Largest weight of the control variate: no kernel was seen to follow the clock more than 1.5 times its reference."""

LEAST_FOR_LEVELS = 6  # launches that make up two levels, three of each

_FENCE = 1.5
_APART, _SMALLEST_GROUP, _LEAST_STEP, _TICK_US = 4.5, 1 / 6, 0.01, 0.032
_FIT_BLOCKS, _FIT_RUNS, _FIT_CORRELATION = 20, 3, 0.8


def summary(launches_us: ArrayLike) -> Summary:
    """One arm's launches in a block, microseconds. Raises ValueError if there is none, or one is not positive."""
    times = _positive(launches_us)
    low, p05, p25, median, p75, p95, high = np.quantile(times, (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)).tolist()
    reach = _FENCE * (p75 - p25)
    mean = float(times.mean())
    rsd = float(times.std(ddof=1)) / mean if times.size > 1 else 0.0
    outliers = int(np.count_nonzero((times < p25 - reach) | (times > p75 + reach)))
    slowest = np.sort(times)[int(0.9 * (times.size - 1)) :].tolist()
    return Summary(times.size, median, low, p05, p25, p75, p95, high, mean, rsd, outliers, tuple(slowest))


def launch_shift(launches_us: ArrayLike, others_us: ArrayLike) -> float:
    """Median of log a - log b over all pairs (Hollander et al., eq. 4.33): a clock that switches hardly moves it."""
    differences = np.subtract.outer(np.log(_positive(launches_us)), np.log(_positive(others_us)))
    return float(np.median(differences))


def modes(launches_us: ArrayLike) -> tuple[float, ...]:
    """The levels of one block's launches, ascending, microseconds. Raises ValueError as `summary` does.

    The two groups with the least squares within (Fisher 1958) are two levels if Ashman's D (1994), the distance of
    their means over the root mean square of their spreads, is above 4.5, and above 4.5 sqrt(30 / n) for fewer than 30
    launches: normal noise exceeds that in 1 of 1,000 blocks, even noise in 1 of 20. A group holds a sixth of the
    launches, levels lie 1 % apart, and no spread is less than a tick of 32 ns. Groups are split again.
    """
    return tuple(float(np.median(group)) for group in _groups(np.sort(_positive(launches_us))))


def _groups(times: Floats) -> list[Floats]:
    """times: sorted."""
    if times.size < LEAST_FOR_LEVELS:
        return [times]
    # The total is fixed: the least within is the most between, and the centred sums of both sides are opposite.
    left, below = np.arange(1, times.size), np.cumsum(times - times.mean())[:-1]
    cut = int(np.argmax(below**2 * (1 / left + 1 / (times.size - left)))) + 1
    low, high = times[:cut], times[cut:]
    if min(low.size, high.size) < max(LEAST_FOR_LEVELS // 2, _SMALLEST_GROUP * times.size):
        return [times]
    spread = max(math.sqrt((float(low.var(ddof=1)) + float(high.var(ddof=1))) / 2), _TICK_US)
    apart = float(high.mean() - low.mean()) / spread
    step = float(np.median(high) / np.median(low)) - 1
    if apart < _APART * max(1.0, math.sqrt(30 / times.size)) or step < _LEAST_STEP:
        return [times]
    return [*_groups(low), *_groups(high)]


# --- paired blocks: signed rank ---------------------------------------------------------------------------------------


@functools.cache
def signed_rank_tail(blocks: int) -> Floats:
    """P(W+ >= w) for w = 0 .. n(n+1)/2 if each of n signs is a fair coin: the product of (1 + q^k) / 2."""
    chance = np.ones(1)
    for rank in range(1, blocks + 1):
        chance = (np.pad(chance, (0, rank)) + np.pad(chance, (rank, 0))) / 2
    return _tail(chance)


def signed_rank_p(shifts: ArrayLike, tau: float = 0.0) -> float:
    """Exact one-sided p of Wilcoxon's test of d > tau (Hollander et al., 3.1). Zeros and ties count against it."""
    # Of a few blocks plain numbers are sorted faster than arrays. Of equal ones those against it get the higher ranks.
    excess = [shift - tau for shift in np.asarray(shifts, dtype=np.float64).tolist()]
    ranked = sorted((abs(shift), shift <= 0) for shift in excess)
    ranks = sum(rank for rank, (_, negative) in enumerate(ranked, 1) if not negative)
    return float(signed_rank_tail(len(excess))[ranks])


def location(shifts: ArrayLike, confidence: float = CONFIDENCE) -> Interval:
    """Hodges-Lehmann centre of the blocks' shifts with its exact signed-rank interval (Hollander et al., 3.2 and 3.3).

    Below 6 blocks 95 % cannot be had: the interval spans all blocks and carries the confidence that it does have.
    """
    d = np.asarray(shifts, dtype=np.float64)
    first, second = walsh_pairs(d.size)
    return _order_interval(np.sort((d[first] + d[second]) / 2), signed_rank_tail(d.size), confidence)


@functools.lru_cache(maxsize=64)
def walsh_pairs(blocks: int) -> tuple[NDArray[np.intp], ...]:
    """Places of all pairs of two blocks, each with itself included. Making them takes longer than using them."""
    return np.triu_indices(blocks)


# --- independent blocks: rank sum -------------------------------------------------------------------------------------


@functools.cache
def rank_sum_tail(blocks: int, others: int) -> Floats:
    """P(U >= u) for u = 0 .. m n if every order of m + n blocks is equally likely (Mann and Whitney's recursion).

    W(i, j) = W(i, j-1) + q^j W(i-1, j), by which has the largest. Sums of positive numbers only keep the tails.
    """
    m, n = sorted((blocks, others))
    ways = np.zeros((m + 1, m * n + 1))
    ways[:, 0] = 1.0
    for j in range(1, n + 1):
        for i in range(1, m + 1):
            ways[i, j:] += ways[i - 1, : m * n + 1 - j]
    return _tail(ways[m] / math.comb(m + n, m))


def smallest_p(blocks: int, others: int) -> float:
    """The least p that the rank-sum test can give on so many blocks: 1 / C(m + n, m)."""
    return 1 / math.comb(blocks + others, blocks)


def blocks_needed(family: int, alpha: float, baseline_blocks: int) -> int:
    """Fewest blocks a case with which one of `family` comparisons could reach alpha. 0 without a baseline."""
    if baseline_blocks < 1:
        return 0
    blocks = 1
    while family * smallest_p(blocks, baseline_blocks) > alpha:
        blocks += 1
    return blocks


@dataclass(frozen=True)
class Pairs:
    """Every difference x - y of two independent sets of blocks, sorted. They answer all that is asked of the two."""

    differences: Floats
    blocks: int
    others: int

    def p_above(self, margin: float) -> float:
        """Exact one-sided Mann-Whitney p of a shift above the margin. Ties count as not above."""
        above = self.differences.size - int(np.searchsorted(self.differences, margin, side="right"))
        return float(rank_sum_tail(self.blocks, self.others)[above])

    def p_below(self, margin: float) -> float:
        """The mirror image: of a shift below the margin."""
        below = int(np.searchsorted(self.differences, margin, side="left"))
        return float(rank_sum_tail(self.blocks, self.others)[below])

    def shift(self, confidence: float = CONFIDENCE) -> Interval:
        """Hodges-Lehmann shift with the interval of the exact rank-sum distribution (Hollander et al., 4.2 and 4.3)."""
        return _order_interval(self.differences, rank_sum_tail(self.blocks, self.others), confidence)


def pairs(x: ArrayLike, y: ArrayLike) -> Pairs:
    """All m n differences of two sets of blocks, log scale.

    >>> pairs([0.05, 0.06, 0.07], [0.0, 0.01, 0.02]).p_above(0.02)
    0.05
    """
    differences = np.subtract.outer(np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64))
    return Pairs(np.sort(differences, axis=None), *differences.shape)


# --- control variate, many tests --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Weight:
    """How far a case follows its reference from block to block."""

    beta: float
    correlation: float | None  # None if it cannot be computed: fewer than two blocks, or one of the two never moves


def control_weight(kernel: Floats, reference: Floats, runs: Sequence[Hashable]) -> Weight:
    """Weight of the control variate (Lavenberg, Welch, Management Science 27 (1981) 322): cov / var, kept in [0, 1.5].

    kernel, reference: (n,) logarithms of block medians. The weight is 0 unless 20 blocks of 3 runs correlate by 0.8.
    """
    count = kernel.size
    if count < 2:
        return Weight(0.0, None)
    k, r = kernel - kernel.sum() / count, reference - reference.sum() / count
    variance, kernel_variance, covariance = float(r @ r) / count, float(k @ k) / count, float(k @ r) / count
    spread = math.sqrt(kernel_variance) * math.sqrt(variance)
    if spread == 0:
        return Weight(0.0, None)
    correlation = covariance / spread
    enough = count >= _FIT_BLOCKS and len(set(runs)) >= _FIT_RUNS and correlation >= _FIT_CORRELATION
    beta = min(max(covariance / variance, 0.0), MAX_WEIGHT)
    return Weight(beta if enough else 0.0, correlation)


def holm(p: Sequence[float], family: int) -> list[float]:
    """Holm's step-down adjustment of the p values at hand, in their order. Those not at hand count as 1.

    The k-th smallest is multiplied by family - k + 1, then made monotone and capped at 1.

    >>> holm([0.001, 0.01], family=10)
    [0.01, 0.09]
    """
    if family < len(p):
        raise ValueError(f"a family of {family} cannot hold {len(p)} p values")
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    stepped = np.maximum.accumulate(values[order] * (family - np.arange(values.size)))
    adjusted = np.empty_like(values)
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in adjusted]


# --- ratios -----------------------------------------------------------------------------------------------------------


def to_ratio(shift: Interval) -> Interval:
    """Returns a shift on the log scale as ratio - 1.

    >>> to_ratio(Interval(0.0, 0.0, 0.0)).value
    0.0
    """
    return Interval(math.expm1(shift.value), math.expm1(shift.low), math.expm1(shift.high), shift.confidence)


def average_ratios(ratios: Sequence[Interval], confidence: float = CONFIDENCE) -> Interval:
    """Geometric mean of ratios s_1 ... s_k with its interval: exp(m - L), exp(m), exp(m + H).

    m = (log s_1 + ... + log s_k) / k, the mean that does not depend on which of the two times is the unit (Fleming and
    Wallace, CACM 29(3), 1986). L = sqrt(l_1^2 + ... + l_k^2) / k of the half-widths l_i below each log s_i, and H alike
    above (JCGM 100:2008, 5.1.2), all scaled to one confidence first. Raises ValueError for none.
    """
    if not ratios:
        raise ValueError("the mean of no ratios")
    count = len(ratios)
    scales = [_quantile(confidence) / _quantile(one.confidence) for one in ratios]
    pairs = list(zip(scales, ratios, strict=True))
    middle = sum(math.log(one.value) for one in ratios) / count
    low = math.hypot(*(scale * math.log(one.value / one.low) for scale, one in pairs)) / count
    high = math.hypot(*(scale * math.log(one.high / one.value) for scale, one in pairs)) / count
    return Interval(math.exp(middle), math.exp(middle - low), math.exp(middle + high), confidence)


def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(min(0.5 + confidence / 2, 1 - 1e-9))


# --- helpers ----------------------------------------------------------------------------------------------------------


def compute_student_tail(value: ArrayLike, dof: float) -> Floats:
    """P(T > value) of Student's t."""
    from scipy.special import stdtr  # which loads quickly

    return np.asarray(stdtr(dof, -np.asarray(value, dtype=np.float64)))


def mean_reach(values: ArrayLike, share: float) -> Floats:
    """How far the mean of normal values may lie beyond theirs, one-sided, along the last axis. No bound for one."""
    sample = np.asarray(values, dtype=np.float64)
    count = sample.shape[-1]
    if count < 2:
        return np.full(sample.shape[:-1], math.inf)
    return np.asarray(find_student_quantile(share, count - 1) / math.sqrt(count) * sample.std(axis=-1, ddof=1))


@functools.cache
def find_student_quantile(share: float, dof: float) -> float:
    """The value that Student's t exceeds with a chance of 1 - share."""
    from scipy.special import stdtrit

    return float(stdtrit(dof, share))


def _positive(launches_us: ArrayLike) -> Floats:
    times = np.asarray(launches_us, dtype=np.float64)
    if not times.size or not np.all(np.isfinite(times) & (times > 0)):
        raise ValueError("launch times must be positive finite numbers, and at least one")
    return times


def _tail(chance: Floats) -> Floats:
    return np.minimum(np.cumsum(chance[::-1])[::-1], 1.0)


def _order_interval(ordered: Floats, tail: Floats, confidence: float) -> Interval:
    """From the c-th smallest to the c-th largest, for the largest c with 1 - 2 P(T < c) >= confidence. tail: of T."""
    # T is symmetric: P(T <= u) is the upper tail read backwards. The hair allows for rounding in its last digits.
    cdf = tail[::-1]
    c = max(int(np.searchsorted(cdf, (1 - confidence) / 2 * (1 + 1e-12), side="right")), 1)
    attained = max(1 - 2 * float(cdf[c - 1]), 0.0)
    # The median of what is sorted already: numpy's takes fifty times as long on a few blocks.
    middle = float(ordered[(ordered.size - 1) // 2] + ordered[ordered.size // 2]) / 2
    return Interval(middle, float(ordered[c - 1]), float(ordered[-c]), min(confidence, attained))
