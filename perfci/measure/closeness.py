"""How close is close: tolerances by dtype, errors against float64, and elements that are not finite."""

import functools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfci.core.model import ErrorStats, Fact, Reason, as_fact
from perfci.device.seam import LOWEST, PLACES, Deviation, DtypeFacts, ErrorsBySize

Host = np.ndarray[Any, Any]

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


def tolerance(dtype: str, overrides: Mapping[str, tuple[float, float]] | None, terms: int) -> tuple[float, float]:
    """Returns (rtol, atol) of a dtype. The second grows with the square root of the terms that one element sums."""
    rtol, atol = (overrides or {}).get(dtype) or TOLERANCES.get(dtype, (0.0, 0.0))
    return rtol, atol * math.sqrt(max(terms, 1))


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


def find_rms(sizes: Host) -> float:
    """Root mean square of a vector of finite magnitudes, of which squares may leave float64's range. 0 of none."""
    scale = float(sizes.max(initial=0.0))
    # Not multiplied by 1 / scale, which is infinite for a subnormal one.
    return scale * (float(np.linalg.norm(sizes / scale)) / math.sqrt(sizes.size)) if scale else 0.0


@np.errstate(over="ignore", invalid="ignore")  # what leaves float64's range has no value
def errors_of(actual: Host, expected: Host) -> Deviation:
    """Returns errors over the elements that are finite in both."""
    finite = np.isfinite(actual) & np.isfinite(expected)
    if not finite.any():
        return Deviation(ErrorStats(0))
    error = np.where(finite, np.abs(np.where(finite, actual, 0) - np.where(finite, expected, 0)), -1.0)
    worst = np.unravel_index(int(error.argmax()), error.shape)
    absolute, size = error[finite], np.abs(expected[finite])
    relative = absolute[size > 0] / size[size > 0]
    p50, p90, p99 = np.quantile(absolute, (0.5, 0.9, 0.99))
    stats = ErrorStats(
        count=int(finite.sum()), max_abs=float(absolute.max()), mean_abs=float(absolute.mean()),
        max_rel=float(relative.max()) if relative.size else None,
        mean_rel=float(relative.mean()) if relative.size else None,
        p50_abs=float(p50), p90_abs=float(p90), p99_abs=float(p99),
        rmse=find_rms(absolute), worst_index=tuple(int(i) for i in worst),
    )  # fmt: skip
    errors = Deviation(stats, find_rms(size))
    return replace(errors, stats=replace(stats, l2=relative_l2([errors])))


def excess(actual: Host, expected: Host, rtol: float, atol: Host | float) -> Host:
    """|actual - expected| - (atol + rtol |expected|) of each element, -inf if one of the two is not finite."""
    finite = np.isfinite(actual) & np.isfinite(expected)
    got, right = np.where(finite, actual, 0), np.where(finite, expected, 0)
    over: Host = np.where(finite, np.abs(got - right) - (atol + rtol * np.abs(right)), -np.inf)
    return over


@dataclass(frozen=True)
class Standard:
    """What an output is compared with."""

    exact: Host  # the reference in float64
    rounded: Host  # the same in the output's dtype
    usual: Host  # the reference in that dtype
    usual_errors: ErrorStats
    rtol: float
    atol: float
    summed: bool = False  # each element is a sum of terms that may cancel
    peak: float = RATIO  # of single elements
    slack: Host | float = 0.0  # further errors of each element that are allowed

    # Broken answers are compared one after the other, so what the reference alone decides is computed once.
    @functools.cached_property
    def kinds(self) -> tuple[Host, Host]:
        """`finiteness` of the rounded float64 answer and of the reference."""
        return finiteness(self.rounded), finiteness(self.usual)

    @functools.cached_property
    def usual_by_size(self) -> ErrorsBySize:
        """The reference's errors."""
        return sort_errors(self.usual, self.exact, 0.0, 0.0, summed=self.summed)

    def misplaced(self, got: Host) -> Host:
        """NaN or an infinity that neither the rounded float64 answer nor the reference has, or the other way round."""
        kinds, (rounded, usual) = finiteness(got), self.kinds
        strayed: Host = (kinds != rounded) & (kinds != usual)
        return strayed

    def find_share(self, got: Host) -> float:
        """See `ErrorStats.of_allowed`: 1 at most if an output is right."""
        if self.misplaced(got).any():
            return math.inf
        atol = self.atol + self.slack
        finite = np.isfinite(got) & np.isfinite(self.exact)
        numbers, right = np.where(finite, got, 0.0), np.where(finite, self.exact, 0.0)
        share = largest_share(np.abs(numbers - right), atol + self.rtol * np.abs(right))
        if share <= 1:
            return share
        errors = sort_errors(got, self.exact, self.rtol, atol, summed=self.summed)
        return share_of_usual(errors, self.usual_by_size, self.peak)

    def accepts(self, got: Host) -> bool:
        """Whether an output is right."""
        return self.find_share(got) <= 1


def sort_errors(actual: Host, exact: Host, rtol: float, atol: Host | float, *, summed: bool) -> ErrorsBySize:
    """What `Arrays.errors_by_size` gives, on the host."""
    finite = np.isfinite(actual) & np.isfinite(exact)
    left, right = np.where(finite, actual, 0.0), np.where(finite, exact, 0.0)
    rows = np.sqrt(np.square(right).mean(axis=-1, keepdims=True)) if summed and right.ndim else 0.0
    error, size = np.abs(left - right), np.abs(right) + rows
    place = np.frexp(np.where(size > 0, size, 2.0**LOWEST))[1] - LOWEST
    largest, beyond = np.zeros(PLACES), error > atol + rtol * np.abs(right)
    np.maximum.at(largest, place[beyond], error[beyond])
    return ErrorsBySize(np.bincount(place[finite], minlength=PLACES), largest, find_rms(error[finite]))


@np.errstate(over="ignore", divide="ignore", invalid="ignore")
def largest_share(errors: Host, allowed: Host) -> float:
    """The largest of errors / allowed. An error of 0 is none of nothing."""
    return float(np.where(errors > 0, errors / allowed, 0.0).max(initial=0.0))


def share_of_usual(errors: ErrorsBySize, usual: ErrorsBySize, peak: float) -> float:
    """An output's errors as a share of what is allowed beside those of the reference in the same dtype.

    Its root mean square error is at most RATIO times, and of each element beyond the tolerance the error at most
    `peak` times the reference's largest on elements that are up to 2^NEAR times as large, or among the next
    FEW_NEAR by size. Errors of large elements excuse none of small ones.
    """
    most, through = np.maximum.accumulate(usual.largest), np.cumsum(usual.counts)
    few = np.searchsorted(through, through - usual.counts + FEW_NEAR)
    reach = np.minimum(np.maximum(np.arange(PLACES) + NEAR, few), PLACES - 1)
    return largest_share(np.append(errors.largest, errors.rms), np.append(peak * most[reach], RATIO * usual.rms))


VACUOUS = 0.1  # a broken answer differs by at least this share of the answer's root mean square in one element
NO_ROW, NO_COLUMN = as_fact("an answer without its last row"), as_fact("an answer without its last column")
ONE_ELEMENT, ROUNDED = as_fact("an answer with one wrong element"), as_fact("an answer rounded to bfloat16")
EXCUSED = frozenset({NO_ROW, NO_COLUMN, ONE_ELEMENT, ROUNDED})
"""A tolerance that a person gave a reason for may accept these: elements that are small beside the tolerance."""
_LEAST_ROUNDING = 2.0**-10  # of the root mean square: less is what rounding to bfloat16 changes by chance


@np.errstate(over="ignore", invalid="ignore")
def break_answer(standard: Standard, dtype: str, rms: float) -> dict[str, Host]:
    """Returns wrong answers made of the right one, by name, the gravest first. Those that hardly differ are left out.

    rms: root mean square of the right answer's elements that are finite.
    """
    right = standard.rounded
    finite, rows = np.isfinite(right), max(right.ndim - 2, 0)
    wrong = {name: right.copy() for name in (NO_ROW, NO_COLUMN, ONE_ELEMENT)}
    wrong[as_fact("zeros")] = np.zeros_like(right)
    if right.ndim:
        wrong[as_fact("an answer with its rows in another order")] = np.roll(right, 1, rows)
        np.moveaxis(wrong[NO_ROW], rows, 0)[-1] = 0.0
        wrong[NO_COLUMN][..., -1] = 0.0
    # One of usual size, by more than the narrowest dtypes round off, and than the reference is wrong by itself.
    usual = np.abs(np.where(finite, np.abs(right), np.inf) - rms).argmin()
    share = max(VACUOUS, 2 * TOLERANCES.get(dtype, (0.0, 0.0))[0])
    wrong[ONE_ELEMENT].flat[usual] += max(rms * share, 2 * standard.peak * (standard.usual_errors.max_abs or 0.0))
    if dtype in {"float32", "float64"}:
        bits = right.astype(np.float32).view(np.uint32)
        bits = (bits + np.uint32(0x7FFF) + (bits >> np.uint32(16) & np.uint32(1))) & np.uint32(0xFFFF0000)
        wrong[ROUNDED] = np.where(finite, bits.view(np.float32), right)

    def change(name: str) -> float:
        """The largest, as a multiple of the least that shows."""
        most = np.abs(wrong[name] - right).max(where=finite, initial=0.0)
        return float(most / (rms * (_LEAST_ROUNDING if name == ROUNDED else VACUOUS)))

    order = sorted(wrong, key=lambda name: (name in EXCUSED, name == ROUNDED))
    return {name: wrong[name] for name in order if change(name) > 0.99}


FEW = 8  # fewer different numbers may all be near 0 by chance


def find_accepted(standard: Standard, got: Host, dtype: str, rms: float, *, stated: bool) -> str | None:
    """Returns a wrong answer that would pass too. stated: a person gave a reason for the tolerance."""
    if rms and np.unique(standard.rounded[np.isfinite(standard.rounded)]).size >= FEW:
        excused = EXCUSED if stated else ()
        # How much rounding changes depends on the numbers, so it has to pass by a clear margin.
        half = replace(standard, rtol=standard.rtol / 2, atol=standard.atol / 2)
        for name, wrong in break_answer(standard, dtype, rms).items():
            if name not in excused and (half if name == ROUNDED else standard).accepts(wrong):
                return name
        return None
    # Few numbers may all be near 0 by chance: what passes only by too large a tolerance says nothing.
    narrow = replace(standard, atol=min(standard.atol, VACUOUS * rms))
    return None if stated or narrow.accepts(got) else ONE_ELEMENT


GROWTH = 6.0  # honest kernels that sum or take exponentials in another way differ by less
_SUMMED = 4.0
_FLOAT32 = 2.0**-24  # unit roundoff of what kernels sum in


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def find_growth(
    head: Host, base: Host, exact: Host, usual: Host, facts: DtypeFacts, terms: int, largest: float,
    moved: Sequence[Host] = (),
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
    every = (head, base, exact, usual, *moved)
    finite = functools.reduce(operator.and_, map(np.isfinite, every))
    if not finite.any():
        return None
    right = np.where(finite, exact, 0.0)
    narrow = facts.epsilon > 2 * _FLOAT32
    compared = (head, base, *moved) if narrow else (head, base, usual, *moved)
    errors = [np.where(finite, np.abs(answer - right), 0.0) for answer in compared]
    unit = facts.epsilon / 2
    unit += (_FLOAT32 if narrow else unit) * (_SUMMED * math.sqrt(terms) + min(largest, 128.0))
    # Kernels may take numbers below float32's normal ones for 0.
    least = max(facts.smallest_subnormal, 2.0**-126)
    rows = np.sqrt(np.square(right).mean(axis=-1, keepdims=True)) if right.ndim else np.abs(right)
    size = np.where(rows > least, np.abs(right) + rows, np.inf)
    shares = [np.maximum(error - least, 0.0) / size for error in errors]
    index = tuple(int(i) for i in np.unravel_index(int(shares[0].argmax()), right.shape))
    whole, most = float(np.linalg.norm(right)), least * math.sqrt(right.size)
    norms = [max(float(np.linalg.norm(error)) - most, 0.0) / whole if whole > most else 0.0 for error in errors]
    of_element = as_fact("the element's size and its row's"), [float(share.max()) for share in shares]
    for scale, (ours, *others) in ((as_fact("the answer's norm"), norms), of_element):
        if ours > (limit := GROWTH * max(others) + unit):
            return {"value": ours, "other": others[0], "limit": limit, "index": str(index), "scale": scale}
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


def finiteness(values: Host) -> Host:
    """0 finite, 1 NaN, 2 plus infinity, 3 minus infinity."""
    kinds: Host = np.zeros(values.shape, np.int8)
    kinds[np.isnan(values)] = 1
    kinds[np.isinf(values)] = 2
    kinds[values == -np.inf] = 3
    return kinds


def first_index(mask: Host) -> tuple[int, ...]:
    """Index of the first true element."""
    return tuple(int(i) for i in np.unravel_index(int(mask.argmax()), mask.shape))
