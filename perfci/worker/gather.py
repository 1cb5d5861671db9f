"""What a worker said so far, as the record of its op: whatever kills the worker, this much is kept."""

from __future__ import annotations

import dataclasses

from perfci.model import AccuracyCase, Block, Limits, OpRun, PerformanceCase, Reason
from perfci.worker.protocol import Checked, Finished, Measured, Message, OpDone, Prepared


class Gathered:
    """Collects one op's messages, from its first worker and from re-measurements."""

    def __init__(self, start: OpRun) -> None:
        self._op = start
        self._accuracy: list[AccuracyCase] = list(start.accuracy)
        self._cases: dict[str, PerformanceCase] = {case.case: case for case in start.performance}
        self._blocks: dict[str, list[Block]] = {case.case: list(case.blocks) for case in start.performance}
        self._again = bool(start.performance)
        self.limits = Limits()

    def hear(self, message: Message) -> None:
        """Take one message."""
        match message:
            case Checked(case):
                self._accuracy.append(case)
            case Prepared(case) if not self._again:
                self._cases[case.case] = case
            case Measured(name, block, _):
                self._blocks.setdefault(name, []).append(block)
            case Prepared(case) | Finished(case):
                self._finish(case)
            case OpDone():
                self._end(message)

    def op_run(self, failure: Reason | None = None) -> OpRun:
        """The record of the op."""
        cases = tuple(
            dataclasses.replace(case, blocks=tuple(self._blocks.get(name, ()))) for name, case in self._cases.items()
        )
        return dataclasses.replace(
            self._op, accuracy=tuple(self._accuracy), performance=cases, failure=failure or self._op.failure
        )

    def _finish(self, case: PerformanceCase) -> None:
        """A re-measurement only adds its failure and its suspicions: the first look's facts stand."""
        if self._again:
            first = self._cases[case.case]
            added = tuple(reason for reason in case.suspicion if reason not in first.suspicion)
            if not first.failure:
                first = dataclasses.replace(first, failure=case.failure, raised=case.raised)
            case = dataclasses.replace(first, suspicion=(*first.suspicion, *added))
        self._cases[case.case] = case

    def _end(self, done: OpDone) -> None:
        if self._again:
            return
        self.limits = done.limits
        self._op = dataclasses.replace(
            self._op,
            unmeasured=done.unmeasured,
            notes=done.notes,
            tuned=done.tuned,
            verify_s=done.verify_s,
            measure_s=done.measure_s,
            busy_share=done.busy_share,
        )
