"""One case of an op under soak: its calls, their outputs, and whether two outputs are the same."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from perfci.core.model import Fact, Reason
from perfci.device.arrays import Arrays
from perfci.device.seam import Accelerator
from perfci.extensions.lab.soak.endurance import Endurance
from perfci.extensions.lab.soak.findings import SoakFinding, SoakMeasured, Status
from perfci.measure.closeness import find_mismatch, first_index, tolerance
from perfci.measure.inputs import bound_inputs, flat
from perfci.ops.spec import Params, Performance, case_id


@dataclass(frozen=True)
class SoakSubject:
    """One case of an op on an open device."""

    op: str
    suite: Performance  # kernel, reference, inputs and tolerance
    params: Params
    device: Accelerator
    endurance: Endurance
    seed: int
    deterministic: bool
    tick: Callable[[int, int], None]
    """called with calls made and calls in all, so that work looks different from a hang"""
    describe: Callable[[BaseException], Mapping[str, Fact]]

    @property
    def case(self) -> str:
        """The case's id."""
        return case_id(self.params)

    @property
    def arrays(self) -> Arrays:
        """The device's arrays."""
        return self.device.arrays

    def inputs(self, number: int = 0) -> dict[str, Any]:
        """Inputs of the case. Each number has its values."""
        return bound_inputs(self.suite, self.params, self.arrays.device, self.seed + number)

    def outputs(self, inputs: Mapping[str, Any]) -> list[Any]:
        """Calls the kernel once and returns its arrays."""
        return flat(self.suite.kernel(**inputs))

    def copies(self, outputs: Sequence[Any]) -> list[Any]:
        """Copies made on the current stream."""
        return list(self.arrays.copies(dict(enumerate(outputs))).values())

    def finding(
        self, test: str, status: Status, numbers: Mapping[str, Fact] | None = None, reason: Reason | None = None
    ) -> SoakFinding:
        """A finding about this case."""
        return SoakFinding(self.op, test, self.case, status, reason, numbers or {})

    def measured(
        self, test: str, numbers: Mapping[str, Fact], series: Mapping[str, Sequence[float | None]] | None = None
    ) -> SoakMeasured:
        """A test of this case in which nothing was seen that is wrong by itself."""
        told = {name: tuple(readings) for name, readings in (series or {}).items()}
        return SoakMeasured(self.op, test, self.case, numbers, told)

    def fail(self, test: str, kind: str, numbers: Mapping[str, Fact], **facts: Fact) -> SoakFinding:
        """A failure. Its reason has the numbers too."""
        return self.finding(test, Status.FAIL, numbers, Reason(kind, {"case": self.case, **numbers, **facts}))

    def skip(self, test: str, kind: str, **facts: Fact) -> SoakFinding:
        """A test that cannot be made here."""
        return self.finding(test, Status.SKIPPED, reason=Reason(kind, {"op": self.op, "case": self.case, **facts}))

    def difference(self, got: Sequence[Any], wanted: Sequence[Any]) -> dict[str, Fact] | None:
        """Count and first index of differing elements, None if none: by bits, or by tolerance if not deterministic."""
        if len(got) != len(wanted):
            return {"count": abs(len(got) - len(wanted)), "index": "-"}
        pairs = zip(got, wanted, strict=True)
        return next((facts for one, other in pairs if (facts := self._compare(one, other))), None)

    def _compare(self, got: Any, wanted: Any) -> dict[str, Fact] | None:
        arrays = self.arrays
        if not (arrays.is_array(got) and arrays.is_array(wanted)):
            return None if got == wanted else {"count": 1, "index": "-"}
        if arrays.same_bits(got, wanted):
            return None
        facts = arrays.facts(got)
        if facts.shape != arrays.facts(wanted).shape:
            return {"count": None, "index": "-"}
        if not self.deterministic:
            terms = self.suite.reduces(**self.params) if self.suite.reduces else 1
            allowed = tolerance(facts.dtype, self.suite.tolerance, terms)
            mismatch = find_mismatch(arrays.compared(got), arrays.compared(wanted), *allowed)
            return {"count": mismatch.count, "index": str(mismatch.worst_index)} if mismatch.count else None
        left, right = arrays.host(got), arrays.host(wanted)
        differing = (left != right) & ~(np.isnan(left) & np.isnan(right))
        if not differing.any():  # NaN with other bits, or zeros of the other sign
            return {"count": 1, "index": "-"}
        return {"count": int(differing.sum()), "index": str(first_index(differing))}
