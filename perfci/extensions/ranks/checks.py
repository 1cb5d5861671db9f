"""One rank's part of a check: how far its output is from float64, and whether both revisions do the same work."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perfci.core.codec import encode
from perfci.core.model import Reason
from perfci.device.arrays import Arrays
from perfci.device.seam import Accelerator
from perfci.extensions.ranks.records import BASE, KERNEL, REFERENCE, RankError
from perfci.measure import closeness
from perfci.measure.inputs import call_fresh
from perfci.ops.spec import Accuracy, Params

CALLS = (KERNEL, KERNEL, REFERENCE, REFERENCE)
"""What a check calls, in this order on all ranks: the reference in the case's dtype, then in float64."""


def check(
    suite: Accuracy,
    params: Params,
    inputs: Mapping[str, Any],
    device: Accelerator,
    ended: Callable[[int], None] = lambda _: None,
) -> Mapping[str, Any]:
    """Make the CALLS of a check. `ended` hears how many are done."""
    arrays, mutates = device.arrays, suite.mutates
    before = arrays.copies(inputs)
    got = call_fresh(suite.kernel, inputs, arrays, mutates)
    device.synchronize()
    ended(1)
    first = list(arrays.copies(dict(enumerate(got))).values())
    again = call_fresh(suite.kernel, inputs, arrays, mutates)
    device.synchronize()
    ended(2)
    kept = all(arrays.same_bits(inputs[name], before[name]) for name in before if arrays.is_array(before[name]))
    usual = call_fresh(suite.reference, before, arrays, mutates)
    device.synchronize()
    ended(3)
    exact = call_fresh(suite.reference, arrays.upcast(before), arrays, mutates)
    device.synchronize()
    repeats = len(again) == len(first) and all(map(arrays.same_bits, again, first))
    terms = suite.reduces(**params) if suite.reduces else 1
    rtol, atol = _find_tolerance(arrays.facts(usual[0]).dtype, suite, terms)
    common = {"rtol": rtol, "atol": atol, "repeats": suite.deterministic}
    if form := _compare_forms(got, usual, arrays):
        return {"error": RankError(repeats=repeats, kept=kept, form=form), **common}
    errors = [
        _measure(arrays.compared(ours), arrays.compared(theirs), arrays.compared(right), suite, terms)
        for ours, theirs, right in zip(first, usual, exact, strict=True)
    ]
    worst = max(errors, key=lambda error: error.share)
    whole = RankError(
        error=math.hypot(*(error.error for error in errors)),
        exact=math.hypot(*(error.exact for error in errors)),
        usual=math.hypot(*(error.usual for error in errors)),
        max_abs=max((error.max_abs for error in errors if error.max_abs is not None), default=None),
        count=sum(error.count for error in errors),
        wrong=sum(error.wrong for error in errors),
        worst=worst.worst,
        share=worst.share,
        repeats=repeats,
        kept=kept,
    )
    return {"error": whole, **common}


def _find_tolerance(dtype: str, suite: Accuracy, terms: int) -> tuple[float, float]:
    return closeness.tolerance(dtype, suite.tolerance, terms)


def _compare_forms(got: Sequence[Any], usual: Sequence[Any], arrays: Arrays) -> str:
    """How the outputs' forms differ from the reference's. Empty if they do not."""
    forms = [[f"{(facts := arrays.facts(one)).dtype}{[*facts.shape]}" for one in side] for side in (got, usual)]
    return "" if forms[0] == forms[1] else f"{', '.join(forms[0]) or '-'} / {', '.join(forms[1]) or '-'}"


def _measure(got: Any, usual: Any, exact: Any, suite: Accuracy, terms: int) -> RankError:
    """The errors of one output."""
    dtype = str(got.dtype).removeprefix("torch.")
    rtol, atol = _find_tolerance(dtype, suite, terms)
    ours, theirs = closeness.errors_of(got, exact), closeness.errors_of(usual, exact)
    standard = closeness.Standard(
        exact, closeness.round_like(exact, got), usual, theirs.stats, rtol, atol, bool(suite.reduces),
        closeness.PEAK_RATIOS.get(dtype, closeness.RATIO),
    )  # fmt: skip
    share = standard.find_share(got)
    mismatch = closeness.find_mismatch(got, exact, rtol, atol) if share > 1 else closeness.Mismatch(0, 0.0, ())
    root = math.sqrt(ours.stats.count)
    return RankError(
        error=(ours.stats.rmse or 0.0) * root,
        exact=ours.exact * root,
        usual=(theirs.stats.rmse or 0.0) * root,
        max_abs=ours.stats.max_abs,
        count=math.prod(exact.shape),
        wrong=max(mismatch.count, 1) if share > 1 else 0,
        worst=str(mismatch.worst_index) if mismatch.count else "",
        share=min(share, 1e300),
    )


def compare_work(arms: Mapping[str, Callable[[], Any]], device: Accelerator) -> Mapping[str, Any]:
    """Whether kernel and base do the same work on this rank, why that is unknown, and what the kernel's launches are.

    Values of tensors do not count, so a table of addresses is the same work wherever the peers' memory lies.
    """
    texts, unknown, compiled = {}, None, ""
    for name in (name for name in (KERNEL, BASE) if name in arms):
        with device.capture_work() as capture:
            arms[name]()
        device.synchronize()
        identity = capture.identity("")
        unknown = unknown or identity.unknown
        texts[name] = encode(identity)
        if name == KERNEL:
            launches = (
                f"{launch.kernel} {launch.artefact[:12]} grid {list(launch.grid)}" for launch in identity.launches
            )
            compiled = "; ".join(launches)
    same = unknown is None and len(texts) == 2 and texts[KERNEL] == texts[BASE]
    why = unknown if BASE in arms else Reason("ranks_no_base")
    return {"same": same, "unknown": why, "compiled": compiled}
