"""The least allowed slow-down of a duel that its noise bears: computed by the rule itself, on simulated duels."""

from __future__ import annotations

import bisect
import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from perfci.statistics import duel_rule, many_duels
from perfci.thresholds.ratchet import noise
from perfci.thresholds.ratchet.noise import Noise, Scale

RATE = 0.001
"""False alarms a case check that are predicted at most, whatever tightens."""

FLOOR = 0.0025
"""Least tau, a ratio: below it the record of live processes, whose medians strayed by 0.36 %, says too little."""

UNDECIDED = 0.01
"""Checks of an unchanged kernel that may end INCONCLUSIVE, at most."""

MORE = 0.2
"""Checks of an unchanged kernel that may ask for another process, at most."""

SEEN = 0.95
"""Checks that must see what is promised: a slow-down of twice tau."""

_STEP = 1.01


@dataclass(frozen=True)
class Predicted:
    """What a tau does to a case, shares of its checks; from so many simulated duels that none is told as 0."""

    alarms: float
    """of an unchanged kernel: REGRESSED or IMPROVED"""
    undecided: float
    """of an unchanged kernel: INCONCLUSIVE"""
    more: float
    """of an unchanged kernel: more than one process"""
    blocks: float
    """that an unchanged kernel takes, on average"""
    seen: float
    """of a kernel that is slower by twice tau: REGRESSED"""

    @property
    def bearable(self) -> bool:
        """Neither wolf is cried, nor time wasted, nor a promise broken."""
        kept = self.undecided <= UNDECIDED and self.more <= MORE and self.seen >= SEEN
        return kept and self.alarms <= RATE


def predicted(tau: float, found: Noise, family: int, alpha: float) -> Predicted:
    """What this tau, a ratio, does to a case of this noise, duelled among so many.

    False alarms are predicted from the upper bound of the noise, the rest from the likely one: a promise that is kept
    in 94 instead of 95 of 100 checks harms nobody, false alarms end trust.
    """
    alarms = _rates(tau, found.upper, max(family, 1), alpha).alarms
    return replace(_rates(tau, found.likely, max(family, 1), alpha), alarms=alarms)


@functools.lru_cache(maxsize=1 << 16)
def _rates(tau: float, scale: Scale, family: int, alpha: float) -> Predicted:
    return rates(noise.duels(scale.ratio, family, alpha), tau, scale.block)


def rates(drawn: many_duels.Duels, tau: float, unit: float = 1.0) -> Predicted:
    """The same of any duels of an unchanged kernel; unit: log scale, what their 1 means."""
    allowed, bias, count = math.log1p(tau) / unit, duel_rule.BIAS / unit, len(drawn)
    same = many_duels.ends(drawn, allowed, 0.0, bias)
    slower = many_duels.ends(drawn, allowed, math.log1p(2 * tau) / unit, bias)
    return Predicted(
        alarms=(1 + int(np.count_nonzero(same.alarms))) / (1 + count),
        undecided=float(same.undecided.mean()),
        more=float((same.blocks > duel_rule.SECOND).mean()),
        blocks=float(same.blocks.mean()),
        seen=float(slower.slower.mean()),
    )


def least(found: Noise, family: int, alpha: float, floor: float, ceiling: float) -> float | None:
    """The least tau from the floor up to the ceiling that this noise bears; None where it bears none of them."""
    steps = math.ceil(math.log(ceiling / floor) / math.log(_STEP)) if ceiling > floor else 0
    tries = [min(floor * _STEP**step, ceiling) for step in range(steps)] + [ceiling]
    at = bisect.bisect_left(tries, True, key=lambda tau: predicted(tau, found, family, alpha).bearable)
    return tries[at] if at < len(tries) else None
