"""Whether two versions of a kernel, or two configurations, compute the same formula, to the bit.

Triton's fpsan compiles float operations into a ring of integers, in which sums and products of any order are exact. So
a tuning keeps every bit of the answer, which is no number any more, and a fault changes it however small it is. exp,
sin and cos keep their laws there. log, sqrt, rsqrt, erf and floor are functions without laws: a kernel that has
rsqrt(x) in the place of 1 / sqrt(x) counts as another formula. exp(-inf) is not 0 there, atomics add floats, and
torch's operations are not compiled: so equal bits are evidence, and other bits are a note, never a verdict.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfci.core.model import Fact, Reason
from perfci.device.seam import Accelerator
from perfci.extensions.beyond.configurations import Configuration
from perfci.measure.inputs import bound_inputs, call_fresh
from perfci.ops.spec import Accuracy, Params, case_id

MODE = "fpsan"
"""Of TRITON_INSTRUMENTATION_MODE, in Triton 3.8 and newer"""

TRACE = "formula"
"""Kind of the notes in which a worker tells what its calls gave. No sentence has it: they are compared, not shown"""


@dataclass(frozen=True)
class Trace:
    """The bits that one call gave in the ring."""

    case: str
    configuration: str  # empty for the one that a call takes
    inputs: str  # digest
    outputs: str  # digest

    def spell(self) -> Reason:
        """Returns it as a note."""
        return Reason(TRACE, {**vars(self)})


def trace_calls(
    suite: Accuracy, device: Accelerator, probes: Sequence[Params], configurations: Iterable[Configuration]
) -> Iterator[Trace]:
    """Yields what each probe case gives as it is called, and in each configuration.

    Nothing of a call that raises, or that gives other bits the second time.
    """
    for params in probes:
        yield from _trace(suite, device, params, "", nullcontext)
    for configuration in configurations:
        for params in probes if configuration.cases is None else configuration.cases:
            for pin in configuration.pins:
                inputs = bound_inputs(suite, params, device.arrays.device, 0)
                if pin.takes(functools.partial(call_fresh, suite.kernel, inputs, device.arrays, suite.mutates)):
                    yield from _trace(suite, device, params, configuration.name, pin.enter)
                    break


def _trace(suite: Accuracy, device: Accelerator, params: Params, name: str, enter: Any) -> Iterator[Trace]:
    inputs, arrays = bound_inputs(suite, params, device.arrays.device, 0), device.arrays
    digests = []
    for _ in range(2):
        try:
            with enter():
                digests.append(_digest(device, call_fresh(suite.kernel, inputs, arrays, suite.mutates)))
        except Exception:  # of a configuration that does not fit, or of what fpsan cannot compile
            return
    if len({*digests}) == 1:
        yield Trace(case_id(params), name, _digest(device, inputs.values()), digests[0])


def _digest(device: Accelerator, values: Iterable[Any]) -> str:
    digest = hashlib.sha256()
    for value in values:
        if device.arrays.is_array(value):
            digest.update(repr(device.arrays.facts(value)).encode())
            digest.update(_read_bytes(value))
        else:
            digest.update(repr(value).encode())
    return digest.hexdigest()[:16]


def _read_bytes(array: Any) -> bytes:
    """An array's elements in their order. Not as numbers: what the ring gives may be any NaN."""
    if isinstance(array, np.ndarray):
        return array.tobytes()
    import torch

    flat: np.ndarray[Any, Any] = array.detach().contiguous().reshape(-1).view(torch.uint8).cpu().numpy()
    return flat.tobytes()


def read_traces(notes: Iterable[Reason]) -> list[Trace]:
    """Returns the traces among a worker's notes."""
    return [Trace(**{name: str(value) for name, value in note.facts.items()}) for note in notes if note.kind == TRACE]


def compare_formulas(op: str, head: Sequence[Trace], base: Sequence[Trace] | None) -> Iterator[Reason]:
    """Yields what the calls of head say of its configurations, and of head beside the base.

    base: None if there is none, or if it has the same files.
    """
    plain = {trace.case: trace for trace in head if not trace.configuration}
    if not plain:
        yield Reason("formula_unknown", {"op": op})
        return
    others = [trace for trace in head if trace.configuration and trace.case in plain]
    names = {trace.configuration for trace in others}
    odd = {trace.configuration: trace for trace in others if trace.outputs != plain[trace.case].outputs}
    for name, trace in odd.items():
        yield Reason("formula_of_configuration", {"op": op, "configuration": name, "case": trace.case})
    if names and not odd:
        yield Reason("formula_of_all", {"op": op, "count": len(names), "cases": len(plain)})
    if base is not None:
        yield _compare_with_base(op, plain, {trace.case: trace for trace in base if not trace.configuration})


def _compare_with_base(op: str, head: Mapping[str, Trace], base: Mapping[str, Trace]) -> Reason:
    shared = [case for case in head if case in base and head[case].inputs == base[case].inputs]
    if not shared:
        return Reason("formula_unknown", {"op": op})
    changed = [case for case in shared if head[case].outputs != base[case].outputs]
    facts: dict[str, Fact] = {"op": op, "cases": len(shared), "case": (changed or shared)[0]}
    return Reason("formula_differs" if changed else "formula_same", {**facts, "count": len(changed)})
