"""The three distributions that bounds need, from scipy.special, which loads quickly."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def student_quantile(chance: float, dof: float) -> float:
    """The value that Student's t with so many degrees of freedom exceeds with this chance.

    >>> round(student_quantile(0.001, 7), 3)
    4.785
    """
    from scipy.special import stdtrit

    return -float(stdtrit(dof, chance))


def student_tail(value: ArrayLike, dof: float) -> Floats:
    """P(T > value) of Student's t."""
    from scipy.special import stdtr

    return np.asarray(stdtr(dof, -np.asarray(value, dtype=np.float64)))


def gamma_quantile(chance: float, shape: ArrayLike) -> Floats:
    """The value below which a gamma variable of mean 1 falls with this chance."""
    from scipy.special import gammaincinv

    shapes = np.asarray(shape, dtype=np.float64)
    return np.asarray(gammaincinv(shapes, chance) / shapes)
