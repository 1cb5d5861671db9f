"""What a worker said so far, as the record of its op: whatever kills the worker, this much is kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from perfci.core.model import AccuracyCase, Block, Limits, OpRun, PerformanceCase, Reason, StoredTensor
from perfci.core.model.closeness import worst
from perfci.core.wording import caused
from perfci.worker.protocol import Apart, Checked, Finished, Measured, Message, OpDone, Prepared, Ready, Step

TIMING = frozenset({"prepare", "measure"})
"""Stages in which both revisions are at work."""


EVERY = ""
"""In the place of the run's own board: it has several, and every block notes its."""


class Gathered:
    """Collects one op's messages, from its first worker and from re-measurements."""

    def __init__(self, start: OpRun, board: str | None = None) -> None:
        """`start`: what is known of the op. `board`: UUID of the run's own; blocks from another note theirs."""
        self._op = start
        self._board = board
        self._whole: set[str] = set()
        """cases that this worker is done with"""
        self.late = False
        """the time was up before all was done"""
        self.met_peers = False
        """whether peers were called"""
        self._said: tuple[Reason, ...] = ()
        self._elsewhere: str | None = None
        self._stage = ""
        self._apart: Reason | None = None
        self._again = bool(start.performance)
        self._accuracy: list[AccuracyCase] = list(start.accuracy)
        self._stored: list[StoredTensor] = list(start.stored)
        self.limits = Limits()
        self.forget_times()

    def forget_times(self) -> None:
        """Go back to what was known of the performance cases before anything was heard."""
        self._cases: dict[str, PerformanceCase] = {case.case: case for case in self._op.performance}
        self._blocks: dict[str, list[Block]] = {case.case: list(case.blocks) for case in self._op.performance}
        self._whole.clear()

    def hear(self, message: Message) -> None:
        """Take one message."""
        match message:
            case Checked(case):
                self._accuracy.append(case)
            case StoredTensor():
                self._stored.append(message)
            case Prepared(case) if not self._again:
                self._cases[case.case] = case
            case Measured(name, block, _):
                self._blocks.setdefault(name, []).append(dataclasses.replace(block, board=self._elsewhere))
            case Ready(device):
                other = self._board is not None and device.uuid != self._board
                self._elsewhere = device.uuid if other else None
            case Step(stage):
                self._stage = stage
                self.met_peers |= stage == "peers"
            case Apart(reason):
                self._apart = reason
            case Finished(case, short):
                self._finish(case)
                self.late |= short
                if not short:
                    self._whole.add(case.case)
                    self._first_call(case)
            case Prepared(case):
                self._finish(case)
            case OpDone():
                self.late |= message.late
                self._end(message)

    def note(self, reason: Reason) -> None:
        """Say something about the op as a whole."""
        self._said = (*self._said, reason)

    @property
    def checking(self) -> bool:
        """Whether accuracy is what it was last at: not all that belongs to it is known to be done."""
        return self._stage == "accuracy"

    @property
    def verified(self) -> bool:
        """Whether the accuracy suite was run."""
        return bool(self._accuracy)

    def apart(self, failure: Reason | None) -> Reason | None:
        """Why the revisions need a process each, after a worker that was to hold both; None where they do not.

        One that died while both were at work does not tell whose fault it was.
        """
        if failure and self._stage in TIMING:
            return caused("died_together", failure, op=self._op.op)
        return None if failure else self._apart

    def op_run(
        self, failure: Reason | None = None, late: Reason | None = None, wanted: Collection[str] | None = None
    ) -> OpRun:
        """The record of the op.

        late: why cases lack evidence that this worker was to bring, where its time was up; None where it was not.
        wanted: those cases; None for all. Of a later look that a case has no whole process of, nothing is kept.
        """
        cases = tuple(
            self._case(case, late if late and (wanted is None or name in wanted) and name not in self._whole else None)
            for name, case in self._cases.items()
        )
        return dataclasses.replace(
            self._op,
            accuracy=tuple(self._accuracy),
            performance=cases,
            failure=failure or self._op.failure,
            notes=(*self._said, *self._op.notes),
            stored=tuple(self._stored),
        )

    def _case(self, case: PerformanceCase, late: Reason | None) -> PerformanceCase:
        if late and self._again:
            return dataclasses.replace(case, late=late)
        known = None if case.case in self._whole else case.late
        return dataclasses.replace(case, blocks=tuple(self._blocks.get(case.case, ())), late=late or known)

    def _finish(self, case: PerformanceCase) -> None:
        """A re-measurement adds its failure, the base's, its suspicions, errors and first call: the rest stands."""
        if self._again:
            first = self._cases[case.case]
            added = tuple(reason for reason in case.suspicion if reason not in first.suspicion)
            if not first.failure:
                first = dataclasses.replace(first, failure=case.failure, raised=case.raised)
            if first.base and not first.base.failure and case.base and case.base.failure:
                first = dataclasses.replace(first, base=dataclasses.replace(first.base, failure=case.base.failure))
            errors = tuple(each for each in (first.errors, case.errors) if each)
            case = dataclasses.replace(
                first, suspicion=(*first.suspicion, *added), errors=worst(errors) if errors else None
            )
        self._cases[case.case] = case

    def _first_call(self, case: PerformanceCase) -> None:
        """How long the first call took in a process that looked again."""
        if self._again and case.compile_s is not None:
            known = self._cases[case.case]
            taken = (*known.compile_again_s, case.compile_s)
            self._cases[case.case] = dataclasses.replace(known, compile_again_s=taken)

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
