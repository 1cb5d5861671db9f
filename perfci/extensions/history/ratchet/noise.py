"""The noise that an environment's A/A duels show, as an upper bound that holds at every look, and the tau it bears.

The model of an unchanged kernel's duel, log scale: d = s g + s' b + sigma e, with e of a block, b of a process and g of
the whole duel: Student's t with 4 degrees of freedom for blocks and 8 for the others. s and s' share the spread of a
process. All are on the cautious side of the traces: docs/how-thresholds-tighten.md.
"""

import bisect
import functools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from perfci.extensions.history.ratchet.prediction import find_gamma_quantile
from perfci.statistics import duel_rule, many_duels

Floats = NDArray[np.float64]

DOF, PROCESS_DOF = 4, 8  # degrees of freedom of the tails: of blocks, and of what a process or a duel has in common
SHARED = 0.2  # share of a process's variance that all processes of a duel have in common
NULLS = 20  # fewest A/A duels of a case that a bound is computed from
MISSED = 0.05  # chance that any of the bounds of a case, over all the times that it is computed, is below the truth
LIKELY = 0.5  # chance that either of a look's likely bounds is below the truth
GROWTH = 1.25  # each time the nulls have become so many more, the bounds share what is left of that chance
DRAWS = 10_000  # simulated duels behind every predicted rate
RATE = 0.001  # false alarms a case check that are predicted at most, whatever tightens

FLOOR = 0.0025
"""Least tau, a ratio: below it the record of live processes, whose medians strayed by 0.36 %, shows too little."""

UNDECIDED = 0.01  # checks of an unchanged kernel that may end INCONCLUSIVE, at most
MORE = 0.2  # checks of an unchanged kernel that may ask for another process, at most
SEEN = 0.95  # checks that must see what is promised: a slow-down of twice tau
_TAU_STEP = 1.01  # between the values of tau that are tried

_RATIOS = np.concatenate([[0.0], 0.1 * 1.1 ** np.arange(62)])
"""Spread of processes over that of blocks, up to 33: what is simulated, the next one above the bound."""

_STEP = 1.02  # between the spreads of blocks that are kept apart


@dataclass(frozen=True)
class Scale:
    """Scale parameters of the tails, log scale."""

    block: float
    ratio: float  # of a process's scale to a block's

    @property
    def process(self) -> float:
        """Scale of what a process has in common."""
        return self.ratio * self.block


@dataclass(frozen=True)
class NullNoise:
    """The noise that a case's A/A duels show."""

    upper: Scale  # a bound that holds at every look: what false alarms are predicted from
    likely: Scale  # a looser bound, of this look alone: what costs and power are predicted from
    nulls: int  # A/A duels that it comes from


def select_usable(nulls: Sequence[Sequence[Sequence[float]]]) -> list[Sequence[float]]:
    """Of each A/A duel with a whole first look the first process: later ones exist only if the first strayed."""
    return [null[0] for null in nulls if null and len(null[0]) >= duel_rule.FIRST]


def bound_scales(nulls: Sequence[Sequence[float]]) -> NullNoise:
    """Returns the upper bound of both spreads. nulls: d of the first process of 20 A/A duels at least, log scale.

    Of each as many blocks are read as the shortest has, since a duel stops by what it saw.
    """
    count = len(nulls)
    if count < NULLS:
        raise ValueError(f"{count} A/A duels are fewer than {NULLS}")
    blocks = min(*map(len, nulls), duel_rule.BLOCKS)
    medians = [statistics.median(null[:blocks]) for null in nulls]
    within = [
        math.fsum(abs(d - median) for d in null[:blocks]) / blocks for null, median in zip(nulls, medians, strict=True)
    ]
    return bound_by_means(math.fsum(within) / count, math.fsum(map(abs, medians)) / count, count, blocks)


def bound_by_means(within: float, between: float, count: int, blocks: int) -> NullNoise:
    """The same from the mean absolute deviations of so many nulls: within processes, and of their medians."""
    upper, likely = (_find_scale(within, between, count, blocks, missed) for missed in (allot_chance(count), LIKELY))
    return NullNoise(upper, likely, count)


def _find_scale(within: float, between: float, count: int, blocks: int, missed: float) -> Scale:
    """missed: chance of a scale below the truth, a third of it for blocks and two for processes."""
    shape, chance = measure_shapes(blocks), missed / 6
    if between == 0:
        return Scale(_round_up(max(within, 1e-9)), 0.0)
    low, high = (
        max(within / (shape.within * float(find_gamma_quantile(part, count / shape.within_cv2))), 1e-9)
        for part in (1 - chance, chance)
    )
    reached = shape.between * find_gamma_quantile(4 * chance, count / shape.between_cv2)
    at = int(np.count_nonzero(reached <= between / low))
    process = low * float(_RATIOS[max(at - 1, 0)])
    block = _round_up(max(high, process / float(_RATIOS[-1])))
    return Scale(block, float(_RATIOS[np.searchsorted(_RATIOS, process / block * (1 - 1e-9))]))


def _round_up(block: float) -> float:
    """The next of the spreads that are kept apart, so that simulations are made once."""
    return float(_STEP ** math.ceil(math.log(block) / math.log(_STEP) - 1e-9))


def allot_chance(count: int) -> float:
    """Chance that this many nulls may use: 20 begin, each quarter more is another look, and all sum up to MISSED."""
    look = 1 + math.floor(math.log(max(count, NULLS) / NULLS) / math.log(GROWTH) + 1e-9)
    return MISSED / (look * (look + 1))


@dataclass(frozen=True)
class Shapes:
    """Mean and squared coefficient of variation of absolute deviations, if a block's scale is 1."""

    within: float
    within_cv2: float
    between: Floats  # for each of the ratios
    between_cv2: Floats


@functools.cache
def measure_shapes(blocks: int) -> Shapes:
    """For processes of so many blocks, seeded."""
    rng = np.random.default_rng((1, blocks))
    e = rng.standard_t(DOF, (4 * DRAWS, blocks))
    medians = np.median(e, axis=1)
    within = np.abs(e - medians[:, None]).mean(axis=1)
    strayed = [np.abs(medians + ratio * rng.standard_t(PROCESS_DOF, len(e))) for ratio in _RATIOS]
    between = np.array([draws.mean() for draws in strayed])
    cv2 = np.array([draws.var() for draws in strayed]) / between**2
    return Shapes(float(within.mean()), float(within.var() / within.mean() ** 2), np.maximum.accumulate(between), cv2)


@functools.lru_cache(maxsize=128)
def simulate_duels(ratio: float, family: int, alpha: float) -> many_duels.Duels:
    """Simulated duels of an unchanged kernel. A block's scale is 1."""
    return many_duels.reading(draw_duels(np.random.default_rng(2), DRAWS, ratio), family, alpha)


def draw_duels(rng: np.random.Generator, count: int, ratio: float) -> Floats:
    """So many duels' d, shaped (count, processes, blocks), if a block's scale is 1."""
    e = rng.standard_t(DOF, (count, duel_rule.PROCESSES, duel_rule.BLOCKS))
    apart = math.sqrt(1 - SHARED) * rng.standard_t(PROCESS_DOF, (count, duel_rule.PROCESSES, 1))
    shared = math.sqrt(SHARED) * rng.standard_t(PROCESS_DOF, (count, 1, 1))
    both: Floats = e + ratio * (apart + shared)
    return both


@dataclass(frozen=True)
class Predicted:
    """The effect of a tau on a case, shares of its checks. From so many simulated duels that none is reported as 0."""

    alarms: float  # of an unchanged kernel: REGRESSED or IMPROVED
    undecided: float  # of an unchanged kernel: INCONCLUSIVE
    more: float  # of an unchanged kernel: more than one process
    blocks: float  # that an unchanged kernel takes, on average
    seen: float  # of a kernel that is slower by twice tau: REGRESSED

    @property
    def bearable(self) -> bool:
        """Whether false alarms, undecided checks, more processes and what is seen stay within their limits."""
        kept = self.undecided <= UNDECIDED and self.more <= MORE and self.seen >= SEEN
        return kept and self.alarms <= RATE


def predict_rates(tau: float, null_noise: NullNoise, family: int, alpha: float) -> Predicted:
    """The effect of this tau, a ratio, on a case: alarms, by the noise's upper bound, else the likely."""
    alarms = _predict(tau, null_noise.upper, max(family, 1), alpha).alarms
    return replace(_predict(tau, null_noise.likely, max(family, 1), alpha), alarms=alarms)


@functools.lru_cache(maxsize=1 << 16)
def _predict(tau: float, scale: Scale, family: int, alpha: float) -> Predicted:
    return count_ends(simulate_duels(scale.ratio, family, alpha), tau, scale.block)


def count_ends(drawn: many_duels.Duels, tau: float, unit: float = 1.0) -> Predicted:
    """The same of any duels of an unchanged kernel. unit: log scale, what their 1 means."""
    allowed, bias, count = math.log1p(tau) / unit, duel_rule.BIAS / unit, len(drawn)
    same = many_duels.ends(drawn, allowed, 0.0, bias)
    slower = many_duels.ends(drawn, allowed, math.log1p(2 * tau) / unit, bias)
    return Predicted(
        alarms=(1 + int(np.count_nonzero(same.alarms))) / (1 + count),
        undecided=float(same.undecided.mean()),
        more=float((same.blocks > duel_rule.BLOCKS).mean()),
        blocks=float(same.blocks.mean()),
        seen=float(slower.slower.mean()),
    )


def find_least_tau(null_noise: NullNoise, family: int, alpha: float, floor: float, ceiling: float) -> float | None:
    """The least tau from the floor up to the ceiling that this noise bears. None if it bears none of them."""
    steps = math.ceil(math.log(ceiling / floor) / math.log(_TAU_STEP)) if ceiling > floor else 0
    tries = [min(floor * _TAU_STEP**step, ceiling) for step in range(steps)] + [ceiling]
    at = bisect.bisect_left(tries, True, key=lambda tau: predict_rates(tau, null_noise, family, alpha).bearable)
    return tries[at] if at < len(tries) else None
