"""A trend in a series, whatever its numbers are."""

import numpy as np
from numpy.typing import ArrayLike

from perfci.core.model import Interval


def trend_p(values: ArrayLike) -> float:
    """One-sided p of the Mann-Kendall test (Mann 1945) that a series rises, exact without ties. 1 if it never moves.

    >>> round(trend_p([1.0, 2.0, 3.0, 4.0]), 4), trend_p([1.0, 1.0, 1.0])
    (0.0417, 1.0)
    """
    from scipy.stats import kendalltau  # which takes half a second

    series = np.asarray(values, dtype=np.float64)
    return float(np.nan_to_num(kendalltau(np.arange(series.size), series, alternative="greater").pvalue, nan=1.0))


def trend(values: ArrayLike) -> Interval:
    """Theil-Sen slope, a step, with Sen's 95 % interval (1968)."""
    from scipy.stats import theilslopes

    slopes = theilslopes(values)
    return Interval(float(slopes.slope), float(slopes.low_slope), float(slopes.high_slope))
