"""Errors of a large output, computed where it lies and piece by piece: it may be as large as the memory allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from perfci.core.model import ErrorStats
from perfci.device.seam import Deviation

QUANTILES = (0.5, 0.9, 0.99)

_LOW = 16
"""Bits of a float32 that the second look tells apart; the first look tells the others."""

Pieces = Callable[[], Iterator[tuple[torch.Tensor, torch.Tensor]]]
"""Gives an output and its float64 reference in flat pieces of float64, as often as it is asked."""


def deviation(pieces: Pieces, shape: Sequence[int]) -> Deviation:
    """Errors over the elements that are finite in both.

    Quantiles are those elements of the sorted absolute errors, as float32, at or next above rank q (n - 1): found by
    counting bit patterns, whose order is that of non-negative floats, since sorting would take several times the
    output's memory. All else is summed in float64. A figure that leaves float64's range is None.
    """
    found = _Sums()
    counts = np.zeros(1 << (31 - _LOW), dtype=np.int64)
    for actual, exact in pieces():
        bits = _pattern(found.take(actual, exact))
        counts += torch.bincount(bits >> _LOW, minlength=len(counts)).cpu().numpy()
        counts[0] -= bits.numel()
    if not found.count:
        return Deviation(ErrorStats(0))
    # What was not counted is 0.
    counts[0] += found.count
    p50, p90, p99 = _quantiles(pieces, counts, found.count)
    worst = tuple(int(each) for each in np.unravel_index(found.place, tuple(shape))) if shape else ()
    error, exact = math.sqrt(found.squares), math.sqrt(found.sizes)
    stats = ErrorStats(
        count=found.count,
        max_abs=_known(found.worst),
        mean_abs=_known(found.total / found.count),
        max_rel=_known(found.worst_share) if found.shares else None,
        mean_rel=_known(found.share / found.shares) if found.shares else None,
        p50_abs=_known(p50),
        p90_abs=_known(p90),
        p99_abs=_known(p99),
        rmse=_known(error / math.sqrt(found.count)),
        l2=_known(error / exact) if exact else None if error else 0.0,
        worst_index=worst,
    )
    return Deviation(stats, error, exact)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


class _Sums:
    """What one look over all pieces adds up."""

    def __init__(self) -> None:
        self.count = self.shares = self.place = self._start = 0
        self.total = self.squares = self.sizes = self.share = 0.0
        self.worst = -1.0
        self.worst_share = 0.0

    def take(self, actual: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
        """Add a piece; gives its errors, -1 where either is not finite."""
        error = _errors(actual, exact)
        both = error >= 0
        if error.numel() and (worst := float(error.max())) > self.worst:
            self.worst, self.place = worst, self._start + int(error.argmax())
        self._start += error.numel()
        seen, size = error.clamp(min=0.0), exact.abs().masked_fill(~both, 0.0)
        share = (seen / size).masked_fill(size == 0, 0.0)
        figures = (both.sum(), (size > 0).sum(), seen.sum(), seen.square().sum(), size.square().sum(), share.sum())
        count, shares, *sums = torch.stack([figure.to(torch.float64) for figure in figures]).tolist()
        self.count, self.shares = self.count + int(count), self.shares + int(shares)
        self.total, self.squares = self.total + sums[0], self.squares + sums[1]
        self.sizes, self.share = self.sizes + sums[2], self.share + sums[3]
        if share.numel():
            self.worst_share = max(self.worst_share, float(share.max()))
        return error


def _errors(actual: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    return (actual - exact).abs().masked_fill(~(actual.isfinite() & exact.isfinite()), -1.0)


def _pattern(error: torch.Tensor) -> torch.Tensor:
    """Bit patterns of the errors above 0, which are in their order.

    Those of 0, often most of them, would all be counted in one place, one after the other.
    """
    return error[error > 0].to(torch.float32).view(torch.int32)


def _quantiles(pieces: Pieces, high: np.ndarray[tuple[int], np.dtype[np.int64]], count: int) -> list[float]:
    """The errors at the ranks of QUANTILES; high: how many errors have which upper bits."""
    below = np.concatenate(([0], np.cumsum(high)))
    ranks = [math.ceil(q * (count - 1)) for q in QUANTILES]
    upper = [int(np.searchsorted(below, rank, side="right")) - 1 for rank in ranks]
    low = {each: np.zeros(1 << _LOW, dtype=np.int64) for each in upper}
    for actual, exact in pieces() if any(upper) else ():
        bits = _pattern(_errors(actual, exact))
        for each in low:
            inside = bits[(bits >> _LOW) == each] & ((1 << _LOW) - 1)
            low[each] += torch.bincount(inside, minlength=1 << _LOW).cpu().numpy()
    if 0 in low:
        low[0][0] += high[0] - low[0].sum()
    found = []
    for rank, each in zip(ranks, upper, strict=True):
        lower = int(np.searchsorted(np.cumsum(low[each]), rank - below[each], side="right"))
        found.append(float(np.array((each << _LOW) | lower, dtype=np.int32).view(np.float32)))
    return found
