"""How close is close: tolerances by dtype, errors against float64, and elements that are not finite.

Arrays are NumPy's or torch's, and are compared where they are: on a device, or on the host if they are few. Whatever
may be large is read in blocks of a bounded size.
"""

import functools
import math
import operator
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfci.core.model import ErrorStats, Fact, Reason, as_fact
from perfci.device.arrays import DtypeFacts

Numbers = Any  # an array of NumPy or of torch

TOLERANCES: dict[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    # torch.testing has none for float8. One unit in the last place of each format.
    "float8_e4m3fn": (2.0**-3, 2.0**-9),
    "float8_e5m2": (2.0**-2, 2.0**-16),
}
"""dtype -> (rtol, atol) of torch.testing.assert_close."""

RATIO = 2.0  # an output also passes with at most so many times the reference's errors in the same dtype
PEAK_RATIOS = {"float32": 6.0, "float64": 6.0}
"""The same of single elements in dtypes in which kernels sum, where bad conditioning leaves errors to chance: of 80
float32 outputs of layer_norm, 16384 x 8192, the largest was up to 3.0 times the reference's, their root mean square up
to 1.2 times. In narrower dtypes rounding the answer errs most, and RATIO holds."""
NEAR, FEW_NEAR = 3, 32  # elements that the reference's error is taken of: 2^3 times as large, or the next ones

BLOCK = 1 << 24  # elements that are read at once
SORTED = 1 << 14  # elements of which quantiles are exact. Of more they are cut, by less than 1 part in 500
QUANTILES = (0.5, 0.9, 0.99)
_CUT = 14  # lowest bits of a float32 that such quantiles lack

MOST_OF_RMS = 2.0**-11  # of an answer, that an atol nobody stated may be: rounding to bfloat16 changes more
STEADY = 4.0  # units of the dtype by which the answer of a sum errs, if its terms do not cancel; atol may be as much

PLACES, LOWEST = 2100, -1074  # of powers of two that float64 has
_LANES = 64  # counters of a place: many elements of one place would wait for each other on a device


@dataclass(frozen=True)
class Mismatch:
    """Elements of an output that break the tolerance."""

    count: int
    worst_abs: float
    worst_index: tuple[int, ...]
    share: float = 0.0  # largest error / tolerance of an element, if none breaks it


@dataclass(frozen=True)
class Deviation:
    """Errors of an output against the float64 reference."""

    stats: ErrorStats
    exact: float = 0.0  # root mean square of the reference's elements that are finite in both


@dataclass(frozen=True)
class ErrorsBySize:
    """Errors of an output by the size of what is right: place i is of sizes from 2^(LOWEST + i - 1) to twice that."""

    counts: np.ndarray[Any, Any]  # elements that are finite in both
    largest: np.ndarray[Any, Any]  # errors, of elements beyond the tolerance
    rms: float


def library(array: Numbers) -> Any:
    """NumPy or torch, whichever an array is of. Both have the functions that are used here, by the same names."""
    return np if isinstance(array, np.ndarray | np.generic) else sys.modules["torch"]


def widen(array: Numbers) -> Numbers:
    """The same numbers in float64."""
    lib = library(array)
    if "float8" in str(array.dtype):  # which converts through float32 only
        array = lib.asarray(array, dtype=lib.float32)
    return lib.asarray(array, dtype=lib.float64)


@np.errstate(over="ignore")
def round_like(exact: Numbers, like: Numbers) -> Numbers:
    """The numbers rounded to another array's dtype."""
    return library(exact).asarray(exact, dtype=like.dtype)


def is_same(left: Numbers, right: Numbers) -> bool:
    """Whether two arrays of one dtype and shape have the same bits."""
    lib = library(left)
    bits = getattr(lib, f"int{8 * left.dtype.itemsize}")
    one, other = (array.reshape(-1).view(bits) for array in (left, right))
    return bool(np.array_equal(one, other) if lib is np else lib.equal(one, other))


def walk(*given: Any) -> Iterator[tuple[int, tuple[Numbers, ...]]]:
    """Yields a place, and what arrays of one shape have there in float64: whole rows, or a part of one that is long.

    One with a last axis of 1 has a number for each row, and what is no array is the same everywhere.
    """
    shape = tuple(given[0].shape)
    columns, rows = shape[-1] if shape else 1, math.prod(shape[:-1])
    if not rows * columns:
        return
    shapes = [tuple(getattr(array, "shape", (None,))) for array in given]
    whole = [laid == shape or (bool(shape) and laid == (*shape[:-1], 1)) for laid in shapes]
    flat = [array.reshape(rows, -1) if whole[at] else array for at, array in enumerate(given)]
    high, wide = max(BLOCK // columns, 1), min(columns, BLOCK)
    for row in range(0, rows, high):
        for column in range(0, columns, wide):
            part, of_row = (slice(row, row + high), slice(column, column + wide)), slice(row, row + high)
            yield (
                row * columns + column,
                tuple(
                    widen(one[part if one.shape[1] == columns else of_row]) if whole[at] else one
                    for at, one in enumerate(flat)
                ),
            )


def tolerance(dtype: str, overrides: Mapping[str, tuple[float, float]] | None, terms: int) -> tuple[float, float]:
    """Returns (rtol, atol) of a dtype. The second grows with the square root of the terms that one element sums.

    Not for integers, of which it is the step that a kernel may be off by.
    """
    rtol, atol = (overrides or {}).get(dtype) or TOLERANCES.get(dtype, (0.0, 0.0))
    return rtol, atol * math.sqrt(max(terms, 1) if dtype in TOLERANCES else 1)


def bound_atol(atol: float, rms: float, usual: ErrorStats, limits: DtypeFacts) -> float:
    """Returns atol for an answer of a size: that of torch.testing is for numbers near 1, and may be most of small ones.

    rms: root mean square of what is right. usual: the reference's errors in this dtype. Where these are large beside
    the answer, its terms cancel, and another order of them errs otherwise.
    """
    steady = usual.rmse is not None and usual.rmse <= STEADY * limits.epsilon * rms
    most = max(max(MOST_OF_RMS, STEADY * limits.epsilon) * rms, 2 * limits.smallest_subnormal)
    return min(atol, most) if rms and steady else atol


# --- how large errors are ---------------------------------------------------------------------------------------------


def relative_l2(outputs: Iterable[Deviation]) -> float | None:
    """||output - exact||_2 / ||exact||_2 of all outputs of a call as one vector. See `ErrorStats.l2`."""
    counted = [output for output in outputs if output.stats.count]
    shares = [math.sqrt(deviation.stats.count / sum(one.stats.count for one in counted)) for deviation in counted]
    errors = [one.stats.rmse for one in counted if one.stats.rmse is not None]
    if not counted or len(errors) < len(counted):
        return None
    error = math.hypot(*map(operator.mul, shares, errors))
    exact = math.hypot(*map(operator.mul, shares, (one.exact for one in counted)))
    ratio = error / exact if exact else math.inf if error else 0.0
    return ratio if math.isfinite(ratio) else None


@np.errstate(over="ignore")
def _find_rms(sizes: Numbers, count: int) -> float:
    """Root of the mean of so many squares: those of these finite magnitudes and others. Squares may leave the range."""
    norm = float(library(sizes).linalg.norm(sizes)) if math.prod(sizes.shape) else 0.0
    if 1e-100 < norm < 1e150:
        return norm / math.sqrt(count)
    scale = float(sizes.max()) if math.prod(sizes.shape) else 0.0
    # Not multiplied by 1 / scale, which is infinite for a subnormal one.
    return scale * (float(library(sizes).linalg.norm(sizes / scale)) / math.sqrt(count)) if scale else 0.0


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # what leaves float64's range has no value
def errors_of(actual: Any, exact: Any) -> Deviation:
    """Returns errors over the elements that are finite in both. A figure that leaves float64's range is None."""
    count, sized, sums, shares = 0, 0, 0.0, 0.0
    rmse, size_rms, worst, worst_share, place = 0.0, 0.0, -1.0, 0.0, 0
    every = math.prod(exact.shape)
    sort, few, patterns = every <= SORTED, list[Numbers](), np.zeros(1 << (31 - _CUT), np.int64)
    for start, (left, right) in walk(actual, exact):
        lib = library(left)
        error, size, marked = lib.abs(left - right), lib.abs(right), None
        many, total = math.prod(error.shape), float(error.sum())
        if not math.isfinite(total):
            finite = lib.isfinite(left) & lib.isfinite(right)
            marked = lib.where(finite, error, -1.0)
            error, size = lib.where(finite, error, 0.0), lib.where(finite, size, 0.0)
            few, many, total = [*few, error[finite]] if sort else few, int(finite.sum()), float(error.sum())
        elif sort:
            few = [*few, error]
        if not many:
            continue
        share = lib.where(size > 0, error / size, 0.0)
        at = int((error if marked is None else marked).argmax())
        if (largest := float(error.reshape(-1)[at])) > worst:
            worst, place = largest, start + at
        count, sized = count + many, sized + int((size > 0).sum())
        sums, shares = sums + total, shares + float(share.sum())
        rmse, size_rms = math.hypot(rmse, _find_rms(error, every)), math.hypot(size_rms, _find_rms(size, every))
        worst_share = max(worst_share, float(share.max()))
        if not sort:  # those of 0 would all be counted in one place
            bits = lib.asarray(error[error > 0], dtype=lib.float32).view(lib.int32) >> _CUT
            patterns += np.asarray(_host(lib.bincount(bits.reshape(-1), minlength=len(patterns))))
    if not count:
        return Deviation(ErrorStats(0))
    if sort:
        errors = np.concatenate([_host(part).reshape(-1) for part in few])
        p50, p90, p99 = (float(value) for value in np.quantile(errors, QUANTILES))
    else:
        patterns[0] += count - patterns.sum()
        ranks = [math.ceil(share * (count - 1)) for share in QUANTILES]
        places = np.searchsorted(np.cumsum(patterns), ranks, side="right")
        p50, p90, p99 = (places << _CUT).astype(np.int32).view(np.float32).tolist()
    rmse, size_rms = rmse * math.sqrt(every / count), size_rms * math.sqrt(every / count)
    stats = ErrorStats(
        count=count, max_abs=_or_none(worst), mean_abs=_or_none(sums / count),
        max_rel=_or_none(worst_share) if sized else None, mean_rel=_or_none(shares / sized) if sized else None,
        p50_abs=_or_none(p50), p90_abs=_or_none(p90), p99_abs=_or_none(p99), rmse=_or_none(rmse),
        worst_index=find_index(place, exact),
    )  # fmt: skip
    errors_seen = Deviation(stats, size_rms)
    return replace(errors_seen, stats=replace(stats, l2=relative_l2([errors_seen])))


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _host(array: Numbers) -> Any:
    return array if isinstance(array, np.ndarray) else array.cpu().numpy()


def find_index(place: int, array: Any) -> tuple[int, ...]:
    """The index of the element at a place in row-major order."""
    return tuple(int(i) for i in np.unravel_index(place, tuple(array.shape)))


def find_mean_size(array: Numbers) -> float | None:
    """The mean magnitude of an array's finite elements. None if there are none."""
    count, total = 0, 0.0
    for _, (numbers,) in walk(array):
        sizes = _keep_finite(numbers)
        count, total = count + math.prod(sizes.shape), total + float(sizes.sum())
    return total / count if count else None


def find_largest_size(array: Numbers) -> float:
    """The largest magnitude of an array's finite elements. 0 if there are none."""
    parts = (_keep_finite(numbers) for _, (numbers,) in walk(array))
    return max((float(sizes.max()) for sizes in parts if math.prod(sizes.shape)), default=0.0)


def count_unfinite(array: Numbers) -> int:
    """How many of an array's elements are infinite or NaN."""
    return sum(int((~library(numbers).isfinite(numbers)).sum()) for _, (numbers,) in walk(array))


def _keep_finite(numbers: Numbers) -> Numbers:
    """Magnitudes of the finite elements."""
    sizes = library(numbers).abs(numbers)
    return sizes if math.isfinite(float(sizes.sum())) else sizes[library(sizes).isfinite(sizes)]


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def largest_share(actual: Any, right: Any, rtol: float, atol: Any) -> float:
    """The largest of error / (atol + rtol |right|) of all elements. NaN if that of some element has no value."""
    worst = None
    for _, (left, due, more) in walk(actual, right, atol):
        lib = library(left)
        error, allowed = left - due, lib.abs(due)
        lib.abs(error, out=error)
        allowed *= rtol
        allowed += more
        error /= allowed
        most = error.max()
        worst = most if worst is None else lib.maximum(worst, most)
    return 0.0 if worst is None else float(worst)


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def find_mismatch(actual: Any, exact: Any, rtol: float, atol: float) -> Mismatch:
    """Compare an output with the reference in float64, rounded to its dtype."""
    right = round_like(exact, actual)
    if is_same(actual, right):
        return Mismatch(0, 0.0, ())
    if (share := largest_share(actual, right, rtol, atol)) <= 1:
        return Mismatch(0, 0.0, (), share)
    count, worst, place, share = 0, -1.0, 0, 0.0
    for start, (left, due) in walk(actual, right):
        lib = library(left)
        error, allowed = lib.abs(left - due), atol + rtol * lib.abs(due)
        # Beside an infinite value any distance would be within rtol of it.
        near = (error <= allowed) & lib.isfinite(due)
        bad = ~(near | (left == due) | (lib.isnan(left) & lib.isnan(due)))
        share = max(share, float(lib.where(near & (error > 0), error / allowed, 0.0).max()))
        if found := int(bad.sum()):
            error = lib.where(bad, lib.where(lib.isnan(error), math.inf, error), -1.0)
            at = int(error.argmax())
            if (largest := float(error.reshape(-1)[at])) > worst:
                worst, place = largest, start + at
        count += found
    return Mismatch(count, worst, find_index(place, exact)) if count else Mismatch(0, 0.0, (), share)


def excess(actual: Numbers, expected: Numbers, rtol: float, atol: Any) -> Numbers:
    """|actual - expected| - (atol + rtol |expected|) of each element, -inf if one of the two is not finite."""
    lib = library(actual)
    finite = lib.isfinite(actual) & lib.isfinite(expected)
    got, right = lib.where(finite, actual, 0.0), lib.where(finite, expected, 0.0)
    return lib.where(finite, lib.abs(got - right) - (atol + rtol * lib.abs(right)), -math.inf)


# --- what an output is compared with ----------------------------------------------------------------------------------


def keep_limits(exact: Numbers, usual: Any) -> Numbers:
    """Returns an answer in float64 with the largest number of the dtype in the place of float64's, as of nan_to_num."""
    lib, right, limited = library(exact), widen(exact), widen(usual)
    limits = lib.isfinite(right) & (lib.abs(right) >= 2.0**1023) & lib.isfinite(limited)
    return lib.where(limits, limited, right) if bool(limits.any()) else exact


@dataclass(frozen=True)
class Standard:
    """The answers that an output is compared with. Arrays lie where they are compared, in their dtypes."""

    exact: Any  # the reference in float64
    rounded: Any  # the same in the output's dtype
    usual: Any  # the reference in that dtype
    usual_errors: ErrorStats
    rtol: float
    atol: float
    summed: bool = False  # each element is a sum of terms that may cancel
    peak: float = RATIO  # of single elements
    slack: Any = 0.0  # further errors of each element that are allowed
    infinite: bool = False  # there are infinities among the inputs, of which another formula may make no NaN
    others: Sequence[tuple[Any, Any]] = ()  # answers to further draws of the inputs, as `usual` and `exact`

    # Broken answers are compared one after the other, so what the reference alone decides is computed once.
    @functools.cached_property
    def usual_by_size(self) -> ErrorsBySize:
        """The reference's errors, of all draws."""
        pairs = ((self.usual, self.exact), *self.others)
        draws = [sort_errors(usual, exact, 0.0, 0.0, summed=self.summed) for usual, exact in pairs]
        largest = functools.reduce(np.maximum, (draw.largest for draw in draws))
        counts = functools.reduce(np.add, (draw.counts for draw in draws))
        return ErrorsBySize(counts, largest, max(draw.rms for draw in draws))

    @functools.cached_property
    def is_finite(self) -> bool:
        """Whether the rounded answer has numbers alone."""
        parts = (library(part).isfinite(part).all() for _, (part,) in walk(self.rounded))
        return all(map(bool, parts))

    @property
    def is_strict(self) -> bool:
        """Whether one answer alone passes: the reference's, which is exact."""
        lenient = self.rtol or self.usual_errors.max_abs != 0.0
        return not lenient and isinstance(self.slack, float) and not self.atol + self.slack

    def misplaced(self, got: Any) -> Numbers:
        """NaN or an infinity that neither the rounded float64 answer nor the reference has, or the other way round."""
        kinds, rounded, usual = (finiteness(widen(one)) for one in (got, self.rounded, self.usual))
        wrong = (kinds != rounded) & (kinds != usual)
        return wrong & ((rounded != 1) | (kinds < 2)) if self.infinite else wrong  # inf * x - inf is NaN or infinite

    def find_share(self, got: Any) -> float:
        """See `ErrorStats.of_allowed`: 1 at most if an output is right."""
        if self.is_strict and is_same(got, self.rounded):
            return 0.0
        share = self._find_tolerated(got)
        if share <= 1 or share == math.inf:
            return share
        ours = sort_errors(got, self.exact, self.rtol, self.atol + self.slack, summed=self.summed)
        return share_of_usual(ours, self.usual_by_size, self.peak)

    def accepts(self, got: Any) -> bool:
        """Whether an output is right. Of one that is far off it takes less time than to find its share."""
        share = self._find_tolerated(got)
        return share <= 1 or (share < math.inf and not self._is_far(got) and self.find_share(got) <= 1)

    @np.errstate(over="ignore", invalid="ignore")
    def _is_far(self, got: Any) -> bool:
        """Whether one error is beyond what is allowed for any size, or their root mean square is."""
        usual, squares, count = self.usual_errors, 0.0, math.prod(self.exact.shape)
        for _, (numbers, exact, more) in walk(got, self.exact, self.atol + self.slack):
            lib = library(numbers)
            finite = lib.isfinite(numbers) & lib.isfinite(exact)
            error = lib.where(finite, lib.abs(numbers - exact), 0.0)
            beyond = lib.where(error > more + self.rtol * lib.abs(exact), error, 0.0)
            if float(beyond.max()) > self.peak * (usual.max_abs or 0.0):
                return True
            squares = math.hypot(squares, _find_rms(error, count))
        return squares * math.sqrt(count / max(usual.count, 1)) > RATIO * (usual.rmse or 0.0)

    def _find_tolerated(self, got: Any) -> float:
        """The largest error as a share of the tolerance. Infinity if something is NaN or infinite in its place."""
        atol = self.atol + self.slack
        share = largest_share(got, self.exact, self.rtol, atol)
        if math.isfinite(share) and self.is_finite:
            return share
        if self.misplaced(got).any():
            return math.inf
        return self._find_finite_share(got, atol)

    @np.errstate(over="ignore", divide="ignore", invalid="ignore")
    def _find_finite_share(self, got: Any, atol: Any) -> float:
        """The same of elements that are finite in both. An error of 0 is none of nothing."""
        worst = 0.0
        for _, (numbers, exact, more) in walk(got, self.exact, atol):
            lib = library(numbers)
            finite = lib.isfinite(numbers) & lib.isfinite(exact)
            error = lib.where(finite, lib.abs(numbers - exact), 0.0)
            shares = lib.where(error > 0, error / (more + self.rtol * lib.abs(exact)), 0.0)
            worst = max(worst, float(shares.max()))
        return worst if worst < math.inf else sys.float_info.max  # beyond what is allowed, and in its place


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def sort_errors(actual: Any, exact: Any, rtol: float, atol: Any, *, summed: bool) -> ErrorsBySize:
    """Returns errors by the size of what is right, to which summed adds its row's root mean square."""
    counts, largest, rms = np.zeros(PLACES, np.int64), np.zeros(PLACES), 0.0
    every = math.prod(exact.shape)
    rows = _spread_rows(exact) if summed and exact.shape else 0.0
    for _, (left, right, more, row) in walk(actual, exact, atol, rows):
        lib = library(left)
        error, size = lib.abs(left - right), lib.abs(right)
        beyond, finite = error > more + rtol * size, ...
        if not math.isfinite(float(error.sum())):
            finite = lib.isfinite(left) & lib.isfinite(right)
            error, size, beyond = lib.where(finite, error, 0.0), lib.where(finite, size, 0.0), beyond & finite
        size = size + row
        place = lib.frexp(lib.where(size > 0, size, 2.0**LOWEST))[1] - LOWEST
        counts += _count(place[finite].reshape(-1))
        np.maximum(largest, _find_largest(place[beyond], error[beyond]), out=largest)
        rms = math.hypot(rms, _find_rms(error, every))
    return ErrorsBySize(counts, largest, rms * math.sqrt(every / max(int(counts.sum()), 1)))


def _spread_rows(exact: Numbers) -> Numbers:
    """The root mean square of each row's finite elements."""
    lib = library(exact)
    squares = lib.square(exact).mean(axis=-1, keepdims=True)
    if not bool(lib.isfinite(squares).all()):
        squares = lib.square(lib.where(lib.isfinite(exact), exact, 0.0)).mean(axis=-1, keepdims=True)
    return lib.sqrt(squares)


def _count(place: Numbers) -> Any:
    """How many elements each place has."""
    if isinstance(place, np.ndarray):
        return np.bincount(place, minlength=PLACES)
    return _host(library(place).bincount(_spread(place), minlength=PLACES * _LANES).reshape(PLACES, _LANES).sum(1))


def _find_largest(place: Numbers, error: Numbers) -> Any:
    """The largest error of each place."""
    if isinstance(place, np.ndarray):
        largest = np.zeros(PLACES)
        np.maximum.at(largest, place, error)
        return largest
    lib, spread = library(place), _spread(place)
    # As whole numbers they have the same order, and a device has one instruction for the larger of two.
    peaks = error.new_zeros(PLACES * _LANES, dtype=lib.int64).scatter_reduce_(0, spread, error.view(lib.int64), "amax")
    return _host(peaks.view(lib.float64).reshape(PLACES, _LANES).amax(1))


def _spread(place: Numbers) -> Numbers:
    """A counter of each element of torch, of several for a place."""
    return place.long() * _LANES + library(place).arange(len(place), device=place.device) % _LANES


def share_of_usual(errors: ErrorsBySize, usual: ErrorsBySize, peak: float) -> float:
    """An output's errors as a share of what is allowed beside those of the reference in the same dtype.

    Its root mean square error is at most RATIO times, and of each element beyond the tolerance the error at most
    `peak` times the reference's largest on elements that are up to 2^NEAR times as large, or among the next
    FEW_NEAR by size. Errors of large elements excuse none of small ones.
    """
    most, through = np.maximum.accumulate(usual.largest), np.cumsum(usual.counts)
    few = np.searchsorted(through, through - usual.counts + FEW_NEAR)
    reach = np.minimum(np.maximum(np.arange(PLACES) + NEAR, few), PLACES - 1)
    ours, allowed = np.append(errors.largest, errors.rms), np.append(peak * most[reach], RATIO * usual.rms)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        return float(np.where(ours > 0, ours / allowed, 0.0).max(initial=0.0))


# --- wrong answers that must not pass ---------------------------------------------------------------------------------

VACUOUS = 0.1  # a broken answer differs by at least this share of the answer's root mean square in one element
NO_ROW, NO_COLUMN = as_fact("an answer without its last row"), as_fact("an answer without its last column")
ONE_ELEMENT, ROUNDED = as_fact("an answer with one wrong element"), as_fact("an answer rounded to bfloat16")
EXCUSED = frozenset({NO_ROW, NO_COLUMN, ONE_ELEMENT, ROUNDED})
"""A tolerance that a person gave a reason for may accept these: elements that are small beside the tolerance."""
_LEAST_ROUNDING = 2.0**-10  # of the root mean square: less is what rounding to bfloat16 changes by chance


def break_answer(standard: Standard, dtype: str, rms: float) -> Iterator[tuple[str, Numbers]]:
    """Yields wrong answers made of the right one, by name, the gravest first. Those that hardly differ are left out.

    rms: root mean square of the right answer's elements that are finite.
    """
    right = widen(standard.rounded)
    lib, rows = library(right), max(len(right.shape) - 2, 0)
    finite = lib.isfinite(right)

    def differs(wrong: Numbers, least: float = VACUOUS) -> bool:
        """Whether it does by more than what shows."""
        with np.errstate(invalid="ignore"):
            change = lib.where(finite, lib.abs(wrong - right), 0.0)
        return math.prod(change.shape) > 0 and float(change.max()) / (rms * least) > 0.99

    def change(index: Any, value: Any) -> Numbers:
        wrong = lib.where(finite, right, right)
        wrong[index] = value
        return wrong

    makers: dict[str, Any] = {as_fact("zeros"): lambda: lib.zeros_like(right)}
    if right.shape:
        makers[as_fact("an answer with its rows in another order")] = lambda: lib.roll(right, 1, rows)
        makers[NO_ROW] = lambda: change((slice(None),) * rows + (-1,), 0.0)
        makers[NO_COLUMN] = lambda: change((..., -1), 0.0)
    makers[ONE_ELEMENT] = lambda: _spoil_element(standard, right, finite, dtype, rms)
    for name, make in makers.items():
        if differs(wrong := make()):
            yield name, wrong
    if dtype in {"float32", "float64"} and differs(wrong := _round_narrow(right, finite), _LEAST_ROUNDING):
        yield ROUNDED, wrong


def _spoil_element(standard: Standard, right: Numbers, finite: Numbers, dtype: str, rms: float) -> Numbers:
    """One of usual size, by more than the narrowest dtypes round off, and than the reference is wrong by itself."""
    lib = library(right)
    usual = int(lib.abs(lib.where(finite, lib.abs(right), math.inf) - rms).argmin())
    share = max(VACUOUS, 2 * TOLERANCES.get(dtype, (0.0, 0.0))[0])
    wrong = lib.where(finite, right, right)
    wrong.reshape(-1)[usual] += max(rms * share, 2 * standard.peak * (standard.usual_errors.max_abs or 0.0))
    return wrong


@np.errstate(over="ignore", invalid="ignore")
def _round_narrow(right: Numbers, finite: Numbers) -> Numbers:
    """Numbers with the 8 bits that bfloat16 keeps: what a product's upper bits leave (Veltkamp)."""
    lib = library(right)
    upper = right * (2.0**45 + 1)
    upper -= upper - right
    return lib.where(finite & lib.isfinite(upper), upper, right)


FEW = 8  # fewer different numbers may all be near 0 by chance


def find_accepted(standard: Standard, got: Any, dtype: str, rms: float, *, stated: bool) -> str | None:
    """Returns a wrong answer that would pass too. stated: a person gave a reason for the tolerance."""
    if standard.is_strict:
        return None
    if rms and _has_many_numbers(widen(standard.rounded)):
        excused = EXCUSED if stated else ()
        # How much rounding changes depends on the numbers, so it has to pass by a clear margin.
        half = replace(standard, rtol=standard.rtol / 2, atol=standard.atol / 2)
        for name, wrong in break_answer(standard, dtype, rms):
            if name not in excused and (half if name == ROUNDED else standard).accepts(wrong):
                return name
        return None
    # Few numbers may all be near 0 by chance: what passes only by too large a tolerance proves nothing.
    narrow = replace(standard, atol=min(standard.atol, VACUOUS * rms))
    return None if stated or narrow.accepts(got) else ONE_ELEMENT


def _has_many_numbers(answer: Numbers) -> bool:
    """Whether an answer has enough different ones. Most have among their first."""
    lib = library(answer)
    flat = answer.reshape(-1)
    return any(lib.unique(part[lib.isfinite(part)]).shape[0] >= FEW for part in (flat[:SORTED], flat))


# --- is it as exact as before? ----------------------------------------------------------------------------------------

GROWTH = 6.0  # honest kernels that sum or take exponentials in another way differ by less
_SUMMED = 4.0
_FLOAT32 = 2.0**-24  # unit roundoff of what kernels sum in


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def find_growth(
    head: Any, base: Any, exact: Any, usual: Any, facts: DtypeFacts, terms: int, largest: float,
    moved: Sequence[Any] = (),
) -> dict[str, Fact] | None:  # fmt: skip
    """Returns in facts how the error of head's output grew beyond rounding, relative to the answer. None if it did not.

    Each output is rounded once to its dtype, with unit roundoff u. A sum of n terms in float32 errs by a multiple of
    sqrt(n) u32 relative to its terms (Higham and Mary, A new approach to probabilistic rounding error analysis, SIAM J.
    Sci. Comput. 41, 2019, theorem 2.4), the exponential of x by |x| u32, its condition number. So an error may be
    GROWTH times the base's, plus s (u + (_SUMMED sqrt(n) + |x|) u32). For s, the whole answer's norm and, for the
    worst element, its size plus its row's root mean square: rows of small numbers are judged by themselves.
    In float32 the error of the reference, `usual`, counts as the base's does: one order may be exact by chance. So do
    `moved`, exact answers to inputs that are off by rounding.
    """
    narrow = facts.epsilon > 2 * _FLOAT32
    unit = facts.epsilon / 2
    unit += (_FLOAT32 if narrow else unit) * (_SUMMED * math.sqrt(terms) + min(largest, 128.0))
    # Kernels may take numbers below float32's normal ones for 0.
    least = max(facts.smallest_subnormal, 2.0**-126)
    compared = (head, base, *moved) if narrow else (head, base, usual, *moved)
    shares, norms, place, whole, any_finite = [-1.0] * len(compared), [0.0] * len(compared), 0, 0.0, False
    if any(map(count_unfinite, (usual, *compared))):
        finite = functools.reduce(operator.and_, (library(exact).isfinite(widen(one)) for one in (usual, *compared)))
        exact = library(exact).where(finite, exact, math.nan)
    rows = _spread_rows(exact) if exact.shape else abs(exact)
    for start, (numbers, row, *answers) in walk(exact, rows, *compared):
        lib = library(numbers)
        finite = lib.isfinite(numbers)
        if not bool(finite.any()):
            continue
        any_finite, right = True, lib.where(finite, numbers, 0.0)
        size = lib.where(row > least, lib.abs(right) + row, math.inf)
        for number, answer in enumerate(answers):
            error = lib.where(finite, lib.abs(answer - right), 0.0)
            share = lib.where(error > least, error - least, 0.0) / size
            at = int(share.argmax())
            if (most := float(share.reshape(-1)[at])) > shares[number]:
                shares[number], place = most, start + at if number == 0 else place
            norms[number] = math.hypot(norms[number], _find_rms(error, 1))
        whole = math.hypot(whole, _find_rms(lib.abs(right), 1))
    if not any_finite:
        return None
    floor = least * math.sqrt(math.prod(exact.shape))
    of_answer = [max(norm - floor, 0.0) / whole if whole > floor else 0.0 for norm in norms]
    of_element = as_fact("the element's size and its row's"), shares
    for scale, (ours, *others) in ((as_fact("the answer's norm"), of_answer), of_element):
        if ours > (limit := GROWTH * max(others) + unit):
            index = str(find_index(place, exact))
            return {"value": ours, "other": others[0], "limit": limit, "index": index, "scale": scale}
    return None


def times_allowed(why: Reason) -> float:
    """How many times as large as allowed the error of a reason is. Infinity if it has none, as for a wrong shape.

    >>> times_allowed(Reason("wrong_values", {"error": 0.3, "expected": -5.0, "rtol": 0.01, "atol": 0.05}))
    3.0
    """
    facts = why.facts
    error, allowed = facts.get("value"), facts.get("limit")
    if "error" in facts:
        error, expected = facts["error"], facts.get("expected")
        size = abs(expected) if isinstance(expected, int | float) else 0.0
        rtol, atol = (value if isinstance(value := facts.get(name), int | float) else 0.0 for name in ("rtol", "atol"))
        allowed = atol + rtol * size
    if not isinstance(error, int | float) or not isinstance(allowed, int | float):
        return math.inf
    return error / allowed if allowed and not math.isnan(error) else math.inf


def finiteness(values: Numbers) -> Numbers:
    """0 finite, 1 NaN, 2 plus infinity, 3 minus infinity."""
    lib = library(values)
    return lib.isnan(values) + 2 * (values == math.inf) + 3 * (values == -math.inf)


def first_index(mask: Numbers) -> tuple[int, ...]:
    """Index of the first true element."""
    return find_index(int((mask + 0).argmax()), mask)
