"""How far boards of one model differ, so that a change beyond it is no board's. docs/drift.md has the measurements."""

import math
import statistics
from collections.abc import Mapping, Sequence

from perfci.statistics.exact import find_student_quantile

RATE = 0.001  # chance with which an unseen board of a model lies beyond what boards are allowed to differ by
PRIOR_BOARDS = 8.0  # boards that the usual spread is worth beside those that were measured: it comes from many cases

SPREAD = ((0.0, 0.026), (3.0, 0.015), (10.0, 0.008))
"""(from this kernel length on, standard deviation between boards, log), the largest of docs/drift.md."""

PRODUCTS, INTENSE = 0.05, 50.0
"""The same of kernels with so many operations a byte, such as matrix products: each board has its power cap's clock."""


def usual_spread(kernel_us: float) -> float:
    """Returns the usual standard deviation of a kernel's time between boards of a model, log scale.

    >>> usual_spread(4.9), usual_spread(120.0)
    (0.015, 0.008)
    """
    return next(spread for start, spread in reversed(SPREAD) if kernel_us >= start)


def find_room(by_board: Mapping[str, Sequence[float]], intensity: float = 0.0) -> float:
    """How far an unseen board may be off, log. by_board: log kernel times in microseconds, of at least one board.

    intensity: operations a byte of the kernel. The quantile is Student's, since the spread is an estimate too.
    """
    middles = [statistics.median(values) for values in by_board.values()]
    centre, count = statistics.fmean(middles), len(middles)
    seen = math.fsum((middle - centre) ** 2 for middle in middles)
    usual = (PRODUCTS if intensity >= INTENSE else usual_spread(math.exp(centre))) ** 2
    free = PRIOR_BOARDS + count - 1
    return find_student_quantile(1 - RATE, free) * math.sqrt((PRIOR_BOARDS * usual + seen) / free * (1 + 1 / count))
