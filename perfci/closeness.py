"""How close is close: tolerances by dtype, errors against float64, and where an output is not finite."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from perfci.model import ErrorStats

Host = np.ndarray[Any, Any]

TOLERANCES: dict[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    # torch.testing has none for float8; one unit in the last place of each format.
    "float8_e4m3fn": (2.0**-3, 2.0**-9),
    "float8_e5m2": (2.0**-2, 2.0**-16),
}
"""dtype -> (rtol, atol) of torch.testing.assert_close."""

RATIO = 2.0
"""An output also passes with at most so many times the reference's own errors in the same dtype."""


def tolerance(dtype: str, overrides: Mapping[str, tuple[float, float]] | None, terms: int) -> tuple[float, float]:
    """(rtol, atol) of a dtype; atol grows with the square root of the terms that one element sums."""
    rtol, atol = (overrides or {}).get(dtype) or TOLERANCES.get(dtype, (0.0, 0.0))
    return rtol, atol * math.sqrt(max(terms, 1))


def error_stats(actual: Host, expected: Host) -> ErrorStats:
    """Errors over the elements that are finite in both."""
    finite = np.isfinite(actual) & np.isfinite(expected)
    if not finite.any():
        return ErrorStats(0)
    error = np.where(finite, np.abs(np.where(finite, actual, 0) - np.where(finite, expected, 0)), -1.0)
    worst = np.unravel_index(int(error.argmax()), error.shape)
    absolute, size = error[finite], np.abs(expected[finite])
    relative = absolute[size > 0] / size[size > 0]
    p50, p90, p99 = np.quantile(absolute, (0.5, 0.9, 0.99))
    return ErrorStats(
        count=int(finite.sum()),
        max_abs=float(absolute.max()),
        mean_abs=float(absolute.mean()),
        max_rel=float(relative.max()) if relative.size else None,
        mean_rel=float(relative.mean()) if relative.size else None,
        p50_abs=float(p50),
        p90_abs=float(p90),
        p99_abs=float(p99),
        # scaled, since the squares of subnormal and of huge errors leave float64's range
        rmse=float(absolute.max() * np.sqrt(np.mean((absolute / absolute.max()) ** 2))) if absolute.max() else 0.0,
        worst_index=tuple(int(i) for i in worst),
    )


def beyond(actual: Host, expected: Host, rtol: float, atol: float) -> int:
    """Number of finite elements with |actual - expected| > atol + rtol |expected|."""
    finite = np.isfinite(actual) & np.isfinite(expected)
    error = np.abs(actual[finite] - expected[finite])
    return int((error > atol + rtol * np.abs(expected[finite])).sum())


def within_ratio(errors: ErrorStats, usual: ErrorStats) -> bool:
    """Whether root mean square and largest error are at most RATIO times the reference's own in the same dtype."""
    if None in (errors.rmse, usual.rmse, errors.max_abs, usual.max_abs):
        return False
    return bool(errors.rmse <= RATIO * usual.rmse and errors.max_abs <= RATIO * usual.max_abs)  # type: ignore[operator]


def finiteness(values: Host) -> Host:
    """0 finite, 1 NaN, 2 plus infinity, 3 minus infinity."""
    kinds: Host = np.isnan(values) * 1 + np.isposinf(values) * 2 + np.isneginf(values) * 3
    return kinds


def first_index(mask: Host) -> tuple[int, ...]:
    """Index of the first true element."""
    return tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))
