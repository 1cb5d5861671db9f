"""Calls captured in a graph and replayed with other inputs: what a launch that the capture left out shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from perfci.core.model import AccuracyCase, Fact, Reason, because
from perfci.device.arrays import Arrays
from perfci.device.seam import Accelerator
from perfci.extensions.beyond.least import Show, Shrink, keep
from perfci.measure.bench import Describe
from perfci.measure.inputs import flat
from perfci.measure.verify import Check, list_probes, make_inputs, verify
from perfci.ops.spec import Accuracy

CAPTURED, REPLAYED = 0, 1  # seeds of the inputs
REPLAYS = 4  # each with other inputs: what the host read of the first ones may do for some, such as a largest value


SHOW = Show(
    "least_replay",
    "from dataclasses import replace; from perfci.extensions.beyond.graphs import check_graphs, find_capture",
    lambda params, _: (
        f"print(*check_graphs(replace(suite, kernel=kernel, probe_cases=[dict({params})]), device, None, vars, "
        "find_capture(device)))"
    ),
)


class Graph(Protocol):
    """A call that was captured."""

    output: Any  # what it returned, which a replay writes anew
    launches: int  # of kernels and copies in the call as it was made before

    def replay(self) -> int:
        """Repeat the call's work, and wait for it. Returns how many kernels and copies that were."""


Capture = Callable[[Callable[[], Any]], Graph]
"""Warms a call up, and captures it"""


def find_capture(device: Accelerator) -> Capture | None:
    """Returns how calls on a device are captured. None if it has no graphs."""
    if device.info.kind != "cuda":
        return None
    from perfci.extensions.beyond.cuda_graphs import CudaGraph

    return CudaGraph


def check_graphs(
    suite: Accuracy, device: Accelerator, pattern: str | None, describe: Describe, capture: Capture | None,
    shrink: Shrink = keep,
) -> Iterator[AccuracyCase]:  # fmt: skip
    """Yields a check of each probe case, if the suite states that calls may be captured. `shrink` gets wrong ones."""
    for params in list_probes(suite, pattern) if suite.graph else ():
        check = Check(params, "normal", "contiguous", REPLAYED, fresh=False)
        if capture is None or suite.mutates:
            why = "mutates" if suite.mutates else device.info.name
            yield check.result(unchecked=Reason("graph_unchecked", {"case": check.case, "why": why}))
            continue

        def judge(suite: Accuracy, check: Check, capture: Capture = capture) -> AccuracyCase:
            return _check(suite, device, check, describe, capture)

        try:
            result = judge(suite, check)
            yield result
            yield from shrink(result, check, judge, SHOW)
        except Exception as error:
            yield check.result(failure=Reason("graph_raised", {"case": check.case, **describe(error)}), raised=True)


def _check(suite: Accuracy, device: Accelerator, check: Check, describe: Describe, capture: Capture) -> AccuracyCase:
    """Capture a call, replay it with other inputs, several times, and compare. Raises what the kernel raises."""
    arrays = device.arrays
    static = make_inputs(suite, arrays, replace(check, seed=CAPTURED))
    graph = capture(lambda: suite.kernel(**static))
    outputs = flat(graph.output)
    for output in outputs:
        if arrays.dtype_facts(output) is not None:
            output[...] = float("nan")  # so that nothing is right because it was before
    for seed in range(check.seed, check.seed + REPLAYS):
        other = replace(check, seed=seed)
        if not arrays.refill(static, make_inputs(suite, arrays, other)):
            return check.result(unchecked=Reason("graph_unchecked", {"case": check.case, "why": "make_inputs"}))
        launches = graph.replay()
        counts: dict[str, Fact] = {"launches": launches, "of": graph.launches}
        failure = verify(replace(suite, kernel=_return(arrays, outputs)), device, other, describe).failure
        if failure:
            return check.result(failure=because("wrong_replay", failure, **counts))
        if launches < graph.launches:
            return check.result(failure=Reason("graph_lacks_launch", {"case": check.case, **counts}))
    return check.result()


def _return(arrays: Arrays, outputs: list[Any]) -> Callable[..., Any]:
    """A kernel that gives copies of these."""

    def kernel(**_: Mapping[str, Any]) -> list[Any]:
        return list(arrays.copies(dict(enumerate(outputs))).values())

    return kernel
