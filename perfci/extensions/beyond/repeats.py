"""The same call many times: a race shows in some launches only."""

import time
from collections.abc import Iterator

import numpy as np

from perfci.core.model import AccuracyCase, Fact, Reason
from perfci.device.seam import Accelerator
from perfci.measure.closeness import first_index
from perfci.measure.inputs import call_fresh
from perfci.measure.verify import Check, list_probes, make_inputs
from perfci.ops.spec import Accuracy

CALLS = 3000  # a fault of one launch in 1,000 is missed by e^-3, 5 of 100 times
MOST_S = 20.0  # of one case


def check_repeats(suite: Accuracy, device: Accelerator, pattern: str | None) -> Iterator[AccuracyCase]:
    """Yields a check of each probe case: whether many calls give the bits of the first one.

    Not of a suite that is not deterministic, nor of the interpreter, which runs programs in one order each time.
    Raises what the kernel raises.
    """
    if not suite.deterministic or device.info.kind == "cpu":
        return
    arrays = device.arrays
    for params in list_probes(suite, pattern):
        check, began = Check(params, "normal", "contiguous", 0, fresh=False), time.monotonic()
        inputs = make_inputs(suite, arrays, check)
        first = list(arrays.copies(dict(enumerate(call_fresh(suite.kernel, inputs, arrays, suite.mutates)))).values())
        failure = None
        for call in range(2, CALLS + 1):
            outputs = call_fresh(suite.kernel, inputs, arrays, suite.mutates)
            other = next((pair for pair in zip(first, outputs, strict=True) if not arrays.same_bits(*pair)), None)
            if other:
                left, right = map(arrays.host, other)
                differing = (left != right) & ~(np.isnan(left) & np.isnan(right))
                counts: dict[str, Fact] = {"call": call, "calls": CALLS, "count": int(differing.sum())}
                index = str(first_index(differing)) if differing.any() else "-"
                failure = Reason("differs_seldom", {"case": check.case, **counts, "index": index})
                break
            if time.monotonic() - began > MOST_S:
                break
        yield check.result(failure=failure)
