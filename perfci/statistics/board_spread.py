"""How far boards of one model differ, so that a change beyond it is no board's. docs/drift.md has the measurements."""

import math
import statistics
from collections.abc import Mapping, Sequence

RATE = 0.001  # chance with which an unseen board of a model lies beyond what boards are allowed to differ by
PRIOR_BOARDS = 8.0  # boards that the usual spread is worth beside those that were measured: it comes from many cases

SPREAD = ((0.0, 0.023), (3.0, 0.013), (10.0, 0.006), (40.0, 0.004))
"""(from this kernel length on, standard deviation between boards, log), but for matrix products: docs/drift.md."""


def usual_spread(kernel_us: float) -> float:
    """Returns the usual standard deviation of a kernel's time between boards of a model, log scale.

    >>> usual_spread(4.9), usual_spread(120.0)
    (0.013, 0.004)
    """
    return next(spread for start, spread in reversed(SPREAD) if kernel_us >= start)


def find_room(by_board: Mapping[str, Sequence[float]]) -> float:
    """How far an unseen board may be off, log. by_board: log kernel times in microseconds, of at least one board."""
    middles = [statistics.median(values) for values in by_board.values()]
    centre, count = statistics.fmean(middles), len(middles)
    seen = math.fsum((middle - centre) ** 2 for middle in middles)
    usual = usual_spread(math.exp(centre)) ** 2
    between = (PRIOR_BOARDS * usual + seen) / (PRIOR_BOARDS + count - 1)
    return statistics.NormalDist().inv_cdf(1 - RATE) * math.sqrt(between * (1 + 1 / count))
