"""The record of a run, on disk after each op. However it ends, what workers have sent is kept."""

import dataclasses
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from perfci import git, store
from perfci.core import VERSION, environment
from perfci.core.model import Device, Limits, Measured, OpRun, Plan, PlannedOp, Reason, Run
from perfci.core.settings import Settings
from perfci.core.stopping import Stopped
from perfci.store import launches
from perfci.worker.answers import GONE, TAKEN
from perfci.worker.tasks import Measure

ENDS_RUN = frozenset({GONE, TAKEN})  # failures that every later op would share


def join_limits(limits: Sequence[Limits]) -> Limits:
    """Returns the ceilings measured in several parts: the first bandwidth, and the first rate of each dtype."""
    rates: Mapping[str, float] = {
        dtype: rate for limit in reversed(limits) for dtype, rate in limit.matmul_tflops.items()
    }
    return Limits(next((limit.copy_gbps for limit in limits if limit.copy_gbps is not None), None), rates)


class Record:
    """A run as far as it is known."""

    def __init__(self, run: Run, settings: Settings) -> None:
        self.run, self._settings = run, settings
        self.ceilings = run.limits  # of the device, for the workers
        # A re-measurement goes on with the clock of its run.
        self.began = time.monotonic() - (run.wall_s or 0.0)

    def planned(self, op: str) -> PlannedOp:
        """The plan of an op."""
        return next(planned for planned in self.run.plan.ops if planned.op == op)

    def measured(self, op: str) -> OpRun:
        """The state of an op that was begun."""
        return next(op_run for op_run in self.run.ops if op_run.op == op)

    def list_reported(self, op: str) -> dict[str, Reason]:
        """Cases of an op that its first process could time in the op's process alone, and why."""
        return {case.case: case.self_reported for case in self.measured(op).performance if case.self_reported}

    @contextmanager
    def note_stops(self) -> Iterator[None]:
        """The run is saved at the end with what time did not reach, and with the signal that ended it."""
        try:
            yield
        except Stopped as stop:
            self.run = dataclasses.replace(self.run, stopped=stop.signal_name)
            raise
        finally:
            store.write_run(self.run, self._settings.reports)

    def note_device(self, device: Device | None = None, timer: str | None = None) -> None:
        """Note what a first look found: an op that is not timed does not change what is known of the timer."""
        known = self.run.environment
        known = dataclasses.replace(known, device=device or known.device, timer=timer or known.timer)
        self.run = dataclasses.replace(self.run, environment=known)

    def note_apart(self, op: str, why: Reason) -> None:
        """Note that an op's revisions need a process each: later processes of it are pairs from the start."""
        ops = tuple(
            dataclasses.replace(planned, base=dataclasses.replace(planned.base, apart=why))
            if planned.op == op and planned.base
            else planned
            for planned in self.run.plan.ops
        )
        self.run = dataclasses.replace(self.run, plan=dataclasses.replace(self.run.plan, ops=ops))

    def keep_launches(self, task: Measure, message: Measured) -> None:
        """Keep the raw launches of a block."""
        case, block = message.case, message.block
        folder = self._settings.reports
        launches.append_launches(folder, task.op, case, task.process, block.index, message.launches_us)

    def drop_launches(self, task: Measure, cases: Collection[str] | None) -> None:
        """Drop the raw launches that a process has sent. cases: None for all."""
        launches.drop_launches(self._settings.reports, task.op, task.process, cases)

    def keep(self, op: OpRun, limits: Limits | None = None, ceilings: Limits | None = None) -> None:
        """Put an op into the record, on disk too. ceilings: of limits, those that no code of the op has touched."""
        self.ceilings = join_limits([self.ceilings, ceilings or Limits()])
        self.put(op, limits)
        store.write_run(self.run, self._settings.reports)

    def put(self, op: OpRun, limits: Limits | None = None) -> None:
        """Put an op into the record, to be written with the next one."""
        others = [op_run for op_run in self.run.ops if op_run.op != op.op]
        self.run = dataclasses.replace(
            self.run,
            ops=tuple(sorted([*others, op], key=lambda op_run: op_run.op)),
            limits=join_limits([self.ceilings, self.run.limits, limits or Limits()]),
            wall_s=round(time.monotonic() - self.began, 3),
        )


def ends_run(failure: Reason) -> bool:
    """Whether every later op would fail alike. A worker that hangs before it has opened the device is not the last."""
    return failure.kind in ENDS_RUN or (failure.kind == "worker_hung" and failure.facts.get("where") == "start")


def new_run(settings: Settings, plan: Plan, device: Device, command: str) -> Run:
    """A run in which nothing was measured yet, with a new id, at the project's commit if git can find one."""
    here, now = git.read(settings.root), datetime.now(UTC)
    place = environment.describe(device, None)
    if not isinstance(here, Reason):
        place = dataclasses.replace(place, commit=here.commit, branch=here.branch, dirty=here.dirty)
    return Run(
        id=f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        created=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        perfci=VERSION,
        command=command,
        environment=place,
        plan=plan,
    )
