"""One op on one device: verify its kernel, then time it; all that is found is said at once."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from perfci.core.codec import decode
from perfci.core.errors import ContractError
from perfci.core.model import AccuracyCase, Block, DuelWhat, Fact, Limits, Reason, Suite
from perfci.core.model.closeness import worst
from perfci.core.wording import caused
from perfci.device.seam import Accelerator, not_interpreted
from perfci.device.source import inputs_digest
from perfci.device.targets import unknown_triton
from perfci.measure import verify as accuracy_stage
from perfci.measure.base import BaseKernel, InseparableError, refuse_operators
from perfci.measure.bench import Bench, Settings, Subject, bench
from perfci.measure.blocks import measure, short
from perfci.measure.inputs import bound_inputs, flat
from perfci.measure.lowprec.declared import check_stored_tensors
from perfci.measure.peers import meet
from perfci.measure.prepare import prepare
from perfci.measure.suspect import suspicions
from perfci.measure.turns import Turn, measure_in_turns
from perfci.ops.spec import Params, Performance, case_id, matches
from perfci.worker import protocol
from perfci.worker.apart import load_apart
from perfci.worker.load import LoadedOp, call_reason, describe_exception
from perfci.worker.protocol import (
    BASE,
    Checked,
    Failed,
    Finished,
    Job,
    Measured,
    Message,
    OpDone,
    OpFiles,
    Prepared,
    Ready,
    Step,
    TurnAsked,
)


class MessageChannel(Protocol):
    """Where messages go."""

    def say(self, message: Message) -> None:
        """Send one."""

    def ask(self, message: Message) -> str:
        """Send one that is answered by a line."""


class Worker:
    """One op on one device."""

    def __init__(
        self, job: Job, mouth: MessageChannel, device: Accelerator, loaded: LoadedOp, opponent: BaseKernel | None
    ) -> None:
        files: OpFiles = job.ops[0]
        self._job = job
        self._mouth = mouth
        self._speak = mouth.say
        self._op = files.op
        self._folder = Path(files.folder)
        self._device = device
        self._loaded = loaded
        self._opponent = opponent
        unknown = unknown_triton() if device.info.kind != "fake" else None
        self._notes = (unknown,) if unknown else ()
        self._verify_s: float | None = None
        self._cut = False

    def verify(self) -> bool:
        """Run the accuracy suite, as far as time allows; gives whether everything was right."""
        began = time.monotonic()
        suite, right = self._loaded.accuracy, True
        planned = list(accuracy_stage.checks(suite, self._job.seed, self._job.pattern))
        for done, check in enumerate(planned):
            if self._late():
                break
            self._speak(Step("accuracy", self._op, check.case, done, len(planned)))
            right &= self._say(accuracy_stage.verify(suite, self._device, check, self._describe))
        right &= self._store()
        if self._job.pattern is None and not self._late():
            for result in accuracy_stage.verify_rejections(suite, self._device, self._describe):
                right &= self._say(result)
            if right and (leak := accuracy_stage.verify_memory(suite, self._device, self._job.seed)):
                right &= self._say(leak)
        self._verify_s = time.monotonic() - began
        return right

    def _store(self) -> bool:
        """Tell what the op stores in low precision, as far as time allows; gives whether all of it is sound."""
        if self._loaded.accuracy.quantised is None:
            return True

        sound = True
        self._speak(Step("accuracy", self._op, "stored tensors"))
        for found in check_stored_tensors(self._loaded.accuracy, self._device, self._job.pattern, self._describe):
            if isinstance(found, AccuracyCase):
                sound &= self._say(found)
            else:
                self._speak(found)
            if self._late():
                break
        return sound

    def measure(self, *, right: bool) -> None:
        """Time the performance cases; only of a kernel that is right, and only on an accelerator."""
        suite = self._loaded.performance
        accurate = self._loaded.accuracy
        # What the accuracy suite allows holds for timed outputs too.
        suite = dataclasses.replace(
            suite,
            reduces=suite.reduces or accurate.reduces,
            tolerance=suite.tolerance or accurate.tolerance,
            # Two revisions are timed alike, whatever the base's own suite says.
            cache=self._job.cache or suite.cache,
        )
        chosen = [params for params in suite.cases if self._chosen(case_id(params))]
        wanted = Suite.PERFORMANCE in self._job.suites and bool(chosen) and right
        if not wanted or self._late():
            self._speak(OpDone(notes=self._notes, verify_s=self._verify_s, tuned=self._tuned(), late=self._cut))
            return
        if self._device.absent:
            failure = self._smoke(suite)
            self._speak(OpDone(self._device.absent, self._notes, verify_s=self._verify_s, tuned=self._tuned()))
            if failure:
                self._speak(Failed(failure))
            return
        self._time(suite, chosen)

    def _time(self, suite: Performance, chosen: list[Params]) -> None:
        self._speak(Step("prepare", self._op, "the timer"))
        self._device.start_timer()
        self._speak(Ready(self._device.info, self._device.timer))
        limits = self._limits(suite, chosen)
        on = self._bench(suite)
        subjects = [self._prepare(on, params) for params in chosen if not self._late()]
        if self._opponent:
            # Some register theirs when they are first called.
            refuse_operators(self._device, self._opponent.registered)
        self._meet_peers(on, subjects)
        began = time.monotonic()
        busy_s = self._measure(on, subjects)
        seconds = time.monotonic() - began
        for subject in subjects:
            self._finish(subject, limits, short=short(on, subject))
        self._cut |= len(subjects) < len(chosen) or any(short(on, subject) for subject in subjects)
        share = busy_s / seconds if seconds and self._device.info.kind != "fake" else None
        self._speak(OpDone(None, self._notes, self._tuned(), self._verify_s, seconds, share, limits, self._cut))

    def _bench(self, suite: Performance) -> Bench:
        job = self._job
        settings = Settings(
            seed=job.seed,
            process=job.process,
            budget_s=job.budget_s,
            run_started=job.run_started,
            planted=job.planted,
            as_base=job.arm == BASE,
            own_root=Path(job.root) if job.head_root else None,
            head_root=Path(job.head_root) if job.head_root else None,
            # The fake device does not see the partner.
            partners=int(job.turns and self._device.info.kind != "fake"),
            # Whoever gives the turns ends them: neither side may lack a block that the other took.
            until_s=None if job.turns else job.until_s,
            op=self._op,
        )
        return bench(suite, self._device, settings, self._describe, self._step, self._opponent, job.limits)

    def _measure(self, on: Bench, subjects: list[Subject]) -> float:
        if self._job.turns:
            return measure_in_turns(on, subjects, self._heard, self._turn)
        return measure(on, subjects, self._heard)

    def _turn(self) -> Turn:
        """Ask for the next turn, and wait for it."""
        told = decode(self._mouth.ask(TurnAsked()), protocol.Turn)
        return Turn(told.index, told.cases)

    def _prepare(self, on: Bench, params: Params) -> Subject:
        self._speak(Step("prepare", self._op, case_id(params)))
        subject = prepare(on, params)
        self._speak(Prepared(subject.facts))
        return subject

    def _meet_peers(self, on: Bench, subjects: list[Subject]) -> None:
        """Call every peer once, where that was asked for; behind the kernels, which may have to leave the process."""
        for subject in subjects if self._job.peers else ():
            if on.suite.peers and not on.settings.late:
                meet(on, subject, self._calling)
                self._speak(Prepared(subject.facts))

    def _calling(self, case: str, peer: str) -> None:
        self._speak(Step("peers", self._op, f"{case}, {peer}"))

    def _step(self, case: str) -> None:
        self._speak(Step("measure", self._op, case))

    def _heard(self, case: str, block: Block, launches_us: Mapping[str, tuple[float, ...]]) -> None:
        self._speak(Measured(case, block, launches_us))

    def _finish(self, subject: Subject, limits: Limits, *, short: bool) -> None:
        facts = subject.facts
        failure, raised = facts.failure or subject.failure, facts.raised or subject.raised
        errors = worst(subject.errors) if subject.errors else None
        whole = dataclasses.replace(facts, blocks=tuple(subject.blocks), failure=failure, raised=raised, errors=errors)
        found = (*subject.suspicion, *suspicions(whole, self._device, limits.copy_gbps))
        self._speak(Finished(dataclasses.replace(whole, blocks=(), suspicion=found), short))

    def _late(self) -> bool:
        """Whether the time is up; what was left out because of that is told."""
        late = self._job.until_s is not None and time.time() >= self._job.until_s
        self._cut |= late
        return late

    def _limits(self, suite: Performance, chosen: list[Params]) -> Limits:
        """Ceilings of this device; a first look measures them, a re-measurement does not need them."""
        if self._job.process or self._job.arm == BASE:
            return Limits()
        self._speak(Step("prepare", self._op, "the device's limits"))
        dtypes = sorted({str(params["dtype"]).removeprefix("torch.") for params in chosen if "dtype" in params})
        return self._device.limits(dtypes if suite.flops else [])

    def _smoke(self, suite: Performance) -> Reason | None:
        """Where nothing can be timed, show at least that the performance suite's functions run: one small launch."""
        keys = set(suite.cases[0])
        small = next((params for params in self._loaded.accuracy.cases if set(params) == keys), suite.cases[0])
        self._speak(Step("smoke", self._op, case_id(small)))
        try:
            for function in (suite.bytes_moved, suite.flops):
                if function is not None:
                    for params in suite.cases:
                        function(**params)
            if small is not suite.cases[0]:
                suite.kernel(**bound_inputs(suite, small, self._device.arrays.device, self._job.seed))
        except Exception as error:
            if not_interpreted(error):  # the accuracy suite says so
                return None
            return call_reason("performance_suite_raised", error, self._folder, case=case_id(small))
        return None

    def _chosen(self, case: str) -> bool:
        return case in self._job.cases if self._job.cases is not None else matches(case, self._job.pattern)

    def _say(self, result: AccuracyCase) -> bool:
        self._speak(Checked(result))
        return result.failure is None

    def _describe(self, error: BaseException) -> dict[str, Fact]:
        return describe_exception(error, self._folder)

    def _tuned(self) -> str | None:
        """Digest of the op's tuned file for this device."""
        # A board's slice, or one held to other power, uses its model's file.
        known = (self._folder / "tuned").glob("*.json")
        fitting = [path for path in known if f"{self._device.info.key}-".startswith(f"{path.stem}-")]
        path = max(fitting, key=lambda each: len(each.stem), default=None)
        return hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path and path.is_file() else None


def opponent(job: Job, device: Accelerator, before: frozenset[str]) -> BaseKernel | None:
    """The op as of the base revision; raises InseparableError where this process cannot hold both."""
    base, files = job.base, job.ops[0]
    if base is None:
        return None
    refuse_operators(device, before)
    try:
        other = load_apart(files.op, Path(base.folder), Path(base.shared_folder), Path(base.root), Path(job.root))
    except ContractError as error:
        # In a process of its own it was imported before.
        raise InseparableError(caused("imports_alone", error.reason, op=files.op)) from error
    return BaseKernel(
        kernel=other.performance.kernel,
        root=Path(base.root),
        head_root=Path(job.root),
        inputs=inputs_digest(other.performance.make_inputs),
        cases=frozenset(base.cases),
        everything=base.duel is DuelWhat.ALL,
        nothing=base.duel is DuelWhat.NONE,
        audit=frozenset(base.audit),
        skip_unchanged=base.skip_unchanged,
        registered=before,
    )


def spoiled(loaded: LoadedOp, device: Accelerator) -> LoadedOp:
    """The op with a kernel that is wrong in one element of its output: a self-check has to see it."""
    right = loaded.performance.kernel

    @functools.wraps(right)
    def wrong(*args: Any, **kwargs: Any) -> Any:
        output = right(*args, **kwargs)
        device.arrays.spoil(flat(output)[0])
        return output

    return LoadedOp(
        dataclasses.replace(loaded.accuracy, kernel=wrong), dataclasses.replace(loaded.performance, kernel=wrong)
    )
