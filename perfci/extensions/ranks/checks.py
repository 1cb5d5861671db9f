"""One rank's part of a check: how far its output is from float64."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfci.device.arrays import Arrays
from perfci.device.seam import OUTSIDE, Accelerator
from perfci.extensions.ranks.progress import Step
from perfci.extensions.ranks.records import KERNEL, REFERENCE, RankError
from perfci.measure import closeness
from perfci.measure.inputs import call_fresh
from perfci.ops.spec import Accuracy, Params

CALLS = (KERNEL, KERNEL, REFERENCE, REFERENCE)
"""What a check calls, in this order on all ranks: the reference in the case's dtype, then in float64."""

MOST = 1e18
"""That an error in a message may be."""


def check(
    suite: Accuracy,
    params: Params,
    inputs: Mapping[str, Any],
    device: Accelerator,
    note: Callable[[Step, int], None] = lambda *_: None,
) -> Mapping[str, Any]:
    """Make the CALLS of a check. `note` hears before each call, and before its end is awaited, how many have ended."""
    arrays, calls = device.arrays, itertools.count()
    before = arrays.copies(inputs)

    def call(function: Callable[..., Any], given: Mapping[str, Any]) -> Any:
        number = next(calls)
        note(Step.CALLING, number)
        got = call_fresh(function, given, arrays, suite.mutates)
        note(Step.WAITING, number)
        device.synchronize()
        return got

    with arrays.watch_allocations("nan") as watch, device.watch_races() as races:
        got = call(suite.kernel, inputs)
    outside = watch.find_damage().zones + sum(race.addresses for race in races if race.kind == OUTSIDE)
    first = list(arrays.copies(dict(enumerate(got))).values())
    again = call(suite.kernel, inputs)
    kept = all(arrays.same_bits(inputs[name], before[name]) for name in before if arrays.is_array(before[name]))
    usual = call(suite.reference, before)
    exact = call(suite.reference, arrays.upcast(before))
    repeats = len(again) == len(first) and all(map(arrays.same_bits, again, first))
    terms = suite.reduces(**params) if suite.reduces else 1
    rtol, atol = closeness.tolerance(arrays.facts(usual[0]).dtype, suite.tolerance, terms)
    common = {"rtol": rtol, "atol": atol, "repeats": suite.deterministic}
    if form := _compare_forms(got, usual, arrays):
        return {"error": RankError(repeats=repeats, kept=kept, form=form, outside=outside), **common}
    errors = [
        _measure(arrays.compared(ours), arrays.compared(theirs), arrays.compared(right), suite, terms)
        for ours, theirs, right in zip(first, usual, exact, strict=True)
    ]
    worst = max(errors, key=lambda error: error.share)
    whole = RankError(
        error=_bound(math.hypot(*(error.error for error in errors))),
        exact=_bound(math.hypot(*(error.exact for error in errors))),
        usual=_bound(math.hypot(*(error.usual for error in errors))),
        count=sum(error.count for error in errors),
        wrong=sum(error.wrong for error in errors),
        worst=worst.worst,
        share=worst.share,
        repeats=repeats,
        kept=kept,
        outside=outside,
    )
    return {"error": whole, **common}


def _compare_forms(got: Sequence[Any], usual: Sequence[Any], arrays: Arrays) -> str:
    """How the outputs' forms differ from the reference's. Empty if they do not."""
    forms = [[f"{(facts := arrays.facts(one)).dtype}{[*facts.shape]}" for one in side] for side in (got, usual)]
    return "" if forms[0] == forms[1] else f"{', '.join(forms[0]) or '-'} / {', '.join(forms[1]) or '-'}"


def _measure(got: Any, usual: Any, exact: Any, suite: Accuracy, terms: int) -> RankError:
    """The errors of one output."""
    dtype = str(got.dtype).removeprefix("torch.")
    rtol, atol = closeness.tolerance(dtype, suite.tolerance, terms)
    ours, theirs = closeness.errors_of(got, exact), closeness.errors_of(usual, exact)
    standard = closeness.Standard(
        exact, closeness.round_like(exact, got), usual, theirs.stats, rtol, atol, bool(suite.reduces),
        closeness.PEAK_RATIOS.get(dtype, closeness.RATIO),
    )  # fmt: skip
    share = standard.find_share(got)
    mismatch = closeness.find_mismatch(got, exact, rtol, atol) if share > 1 else closeness.Mismatch(0, 0.0, ())
    root = math.sqrt(ours.stats.count)
    return RankError(
        error=_bound((ours.stats.rmse or 0.0) * root),
        exact=_bound(ours.exact * root),
        usual=_bound((theirs.stats.rmse or 0.0) * root),
        count=math.prod(exact.shape),
        wrong=max(mismatch.count, 1) if share > 1 else 0,
        worst=str(mismatch.worst_index) if mismatch.count else "",
        share=_bound(share),
    )


def _bound(amount: float) -> float:
    """The most that a message carries, for what memory that no kernel has written may give."""
    return amount if amount < MOST else MOST
