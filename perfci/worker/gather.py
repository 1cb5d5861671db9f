"""What a worker has sent so far, as the record of its op: whatever kills the worker, this much is kept."""

import dataclasses
from collections.abc import Collection

from perfci.core.model import AccuracyCase, Block, Limits, OpRun, PerformanceCase, Reason, StoredTensor, because
from perfci.core.model.basics import worst
from perfci.worker.protocol import Apart, Doing, Finished, Measured, Message, OpDone, Prepared, Ready


class Gathered:
    """Collects one op's messages, from its first worker and from re-measurements."""

    def __init__(self, start: OpRun, board: str | None = None) -> None:
        """`start`: what is known of the op. `board`: UUID of the run's own. Blocks from another note theirs."""
        self._op, self._start, self._board = start, start, board
        self._again = bool(start.performance)
        self._elsewhere: str | None = None
        self._stage = ""
        self._apart: Reason | None = None
        self._notes: tuple[Reason, ...] = ()
        self._whole: set[str] = set()  # cases that this worker is done with
        self.late = False  # the time was up before all was done
        self.met_peers = False  # whether peers were called
        self.limits = Limits()  # of the device, by its worker
        self.ceilings = Limits()  # of the device, by the judge's process
        self._cases: dict[str, PerformanceCase] = {}
        self._blocks: dict[str, list[Block]] = {}
        self.forget_times()

    def forget_times(self, cases: Collection[str] | None = None) -> None:
        """Go back to what was known of these performance cases, or of all, at the start."""
        before = {case.case: case for case in self._op.performance}
        for name in (*self._cases, *before) if cases is None else cases:
            self._cases.pop(name, None)
            self._blocks.pop(name, None)
            if name in before:
                self._cases[name], self._blocks[name] = before[name], list(before[name].blocks)
            self._whole.discard(name)

    def hear(self, message: Message) -> None:
        """Take one message."""
        match message:
            case AccuracyCase():
                self._op = dataclasses.replace(self._op, accuracy=(*self._op.accuracy, message))
            case StoredTensor():
                self._op = dataclasses.replace(self._op, stored=(*self._op.stored, message))
            case Prepared(case) if not self._again:
                self._cases[case.case] = case
            case Measured(name, block, _):
                self._blocks.setdefault(name, []).append(dataclasses.replace(block, board=self._elsewhere))
            case Ready(device):
                other = self._board is not None and device.uuid != self._board
                self._elsewhere = device.uuid if other else None
            case Doing(stage):
                self._stage = stage
                self.met_peers |= stage == "peers"
            case Apart(reason):
                self._apart = reason
            case Finished(case, short):
                self.late |= short
                self._cases[case.case] = self._merge(case, whole=not short)
                if not short:
                    self._whole.add(case.case)
            case Prepared(case):
                self._cases[case.case] = self._merge(case, whole=False)
            case OpDone():
                self.late |= message.late
                if not self._again:
                    self.limits = message.limits
                    names = ("unmeasured", "notes", "tuned", "verify_s", "measure_s", "change")
                    self._op = dataclasses.replace(self._op, **{name: getattr(message, name) for name in names})

    def note(self, reason: Reason) -> None:
        """Add a note about the op as a whole, once."""
        if reason not in (*self._notes, *self._start.notes):
            self._notes = (*self._notes, reason)

    def note_base_suite(self) -> None:
        """Note that the checks so far are those of the base's suite, and that the op's differs."""
        if not any(check.of_base for check in self._op.accuracy):
            before = tuple(dataclasses.replace(check, of_base=True) for check in self._op.accuracy)
            self._op = dataclasses.replace(self._op, accuracy=before)

    @property
    def begun(self) -> bool:
        """Whether the op's functions were called, so that they may be to blame for how the worker ended."""
        return self._stage not in {"", "start", "import"}

    @property
    def checking(self) -> bool:
        """Whether accuracy is what it was last at: it is not known that all of it is done."""
        return self._stage == "accuracy"

    @property
    def has_accuracy(self) -> bool:
        """Whether the accuracy suite was run."""
        return bool(self._op.accuracy)

    def apart(self, failure: Reason | None) -> Reason | None:
        """Returns why the revisions need a process each, after a worker for both. None if they do not."""
        if failure and self._stage in {"prepare", "measure"}:
            return because("died_together", failure, op=self._op.op)
        reason, self._apart = self._apart, None
        return None if failure else reason

    def op_run(
        self, failure: Reason | None = None, late: Reason | None = None, wanted: Collection[str] | None = None
    ) -> OpRun:
        """Returns the record of the op. late: why the wanted cases, or all, lack what this worker was to bring."""
        cases = []
        for name, case in self._cases.items():
            lacking = late if late and (wanted is None or name in wanted) and name not in self._whole else None
            if lacking and self._again:
                cases.append(dataclasses.replace(case, late=lacking))
            else:
                earlier = None if name in self._whole else case.late
                blocks = tuple(self._blocks.get(name, ()))
                cases.append(dataclasses.replace(case, blocks=blocks, late=lacking or earlier))
        notes = (*self._notes, *self._op.notes)
        return dataclasses.replace(self._op, performance=tuple(cases), failure=failure or self._op.failure, notes=notes)

    def _merge(self, case: PerformanceCase, *, whole: bool) -> PerformanceCase:
        """A re-measurement adds its failures, suspicions, errors, host times and first call: the rest stands."""
        if not self._again:
            return case
        first = self._cases[case.case]
        suspicion = (*first.suspicion, *(reason for reason in case.suspicion if reason not in first.suspicion))
        errors = tuple(stats for stats in (first.errors, case.errors) if stats)
        first = dataclasses.replace(first, suspicion=suspicion, errors=worst(errors) if errors else None)
        if not first.failure:
            first = dataclasses.replace(first, failure=case.failure, raised=case.raised)
        if first.base and not first.base.failure and case.base and case.base.failure:
            first = dataclasses.replace(first, base=dataclasses.replace(first.base, failure=case.base.failure))
        first = dataclasses.replace(first, unhosted=first.unhosted or case.unhosted)
        if whole:
            again_s = () if case.compile_s is None else (case.compile_s,)
            first = dataclasses.replace(
                first,
                sustained=(*first.sustained, *case.sustained),
                host=(*first.host, *case.host),
                compile_again_s=(*first.compile_again_s, *again_s),
                chosen_again=(*first.chosen_again, *([case.chosen] if any(case.chosen) else [])),
            )
        return first
