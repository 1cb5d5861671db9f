"""One op on one device: verify its kernel, then time it. Each result is sent at once."""

from __future__ import annotations

import functools
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perfci.core.codec import decode
from perfci.core.errors import ContractError, HandoverError
from perfci.core.model import AccuracyCase, Limits, Reason, StoredTensor, Suite, SuiteChange, as_fact, because
from perfci.core.model.measured import BASE, KERNEL
from perfci.device.seam import Accelerator, not_interpreted
from perfci.device.source import inputs_digest
from perfci.device.tritons import explain_unknown_triton
from perfci.measure import verify as accuracy_stage
from perfci.measure.baton import Baton
from perfci.measure.bench import BaseKernel, InseparableError, PeerLostError, Rig, Subject, refuse_operators
from perfci.measure.blocks import is_short, measure, measure_in_turns
from perfci.measure.host import is_compared, may_show
from perfci.measure.inputs import bound_inputs, flat
from perfci.measure.prepare import prepare, warm_up_peers
from perfci.measure.search import MOST_LATE, count_elements, plan_search, search
from perfci.measure.stored import find_checks
from perfci.measure.suites import CALLS, describe_suite, find_other_answers, find_slower, find_weaker, find_wrapped
from perfci.measure.suspect import suspicions
from perfci.ops.backends import BACKENDS, find_kernel
from perfci.ops.spec import Params, Performance, case_id
from perfci.worker.apart import load_apart
from perfci.worker.handover import HostLostError, UnsharedError
from perfci.worker.load import LoadedOp, choose_cases, describe_exception
from perfci.worker.opening import load_files, open_op
from perfci.worker.protocol import (
    Apart,
    Doing,
    Failed,
    Finished,
    HostLost,
    MessageChannel,
    OpDone,
    Prepared,
    Refused,
    Timing,
    Turn,
    TurnAsked,
)
from perfci.worker.tasks import Host, Measure

if TYPE_CHECKING:
    from perfci.device.arrays import Inputs
    from perfci.worker.remote import RemoteOp


@dataclass(frozen=True)
class LoadedBase:
    """What of the base revision is in this process."""

    op: LoadedOp | None = None
    judges: bool = False  # head's kernel is judged by its suites
    kernel: BaseKernel | None = None  # to be timed
    note: Reason | None = None  # why the op is judged by head's suites though there is a base


NO_BASE = LoadedBase()


class BaseHost:
    """The base's process, started when it is needed first."""

    def __init__(self, connect: Callable[[], RemoteOp]) -> None:
        self._connect = connect
        self.process: RemoteOp | None = None

    def start(self) -> RemoteOp:
        """The process."""
        self.process = self.process or self._connect()
        return self.process

    def kernel(self, suite: Suite, **inputs: Any) -> Any:
        """Call the kernel of one of its suites there."""
        process = self.start()
        process.await_ready()
        return process.kernel(suite)(**inputs)

    def lend(self, op: LoadedOp) -> LoadedOp:
        """Returns an op with kernels that are called there."""
        accuracy, performance = (functools.partial(self.kernel, suite) for suite in (Suite.ACCURACY, Suite.PERFORMANCE))
        suites = replace(op.accuracy, kernel=accuracy), replace(op.performance, kernel=performance)
        return replace(op, accuracy=suites[0], performance=suites[1])


def perform(task: Measure, channel: MessageChannel) -> None:
    """Verify an op and time it, alone or beside the base revision."""

    def load(device: Accelerator) -> tuple[LoadedOp, LoadedBase]:
        before = device.list_namespaces()
        loaded = load_files(task, task.place.ops[0])
        if task.host:
            return loaded, NO_BASE
        if task.opening.arm == BASE:
            # Head has the device, and prepares its cases alone.
            channel.ask(TurnAsked())
        return loaded, load_base(task, device, before)

    try:
        with open_op(task, channel, load) as (device, (imported, before)), ExitStack() as stack:
            remote: RemoteOp | None = None

            def connect_host(host: Host) -> RemoteOp:
                from perfci.worker.remote import connect  # which few workers need

                return stack.enter_context(connect(host, device, channel.stay_alive, task.socket))

            base_host = BaseHost(functools.partial(connect_host, task.base_host)) if task.base_host else None
            loaded, base = (base_host.lend(imported) if task.calls_there and base_host else imported), before
            if task.host:
                remote = connect_host(task.host)
                if base_host and task.cases and task.may_compare_hosts:
                    base_host.start()  # it imports beside the op's, and while accuracy is checked
                if Suite.PERFORMANCE in task.suites and task.cases and device.absent is None:
                    device.start_timer()  # while they import
                import_s = remote.hear().compile_s or 0.0  # it is ready
                suites = loaded
                kernel = own_base(task, device, suites, remote, base_host)
                loaded = replace(remote.judge(suites), import_s=import_s)
                base = LoadedBase(suites, judges=True, kernel=kernel)
            elif (backend := BACKENDS[loaded.performance.backend]).is_unheard:
                device.unheard = Reason("captured_package", {"package": backend.title})
            loaded = spoil(loaded, device) if task.plant.spoiled else loaded
            worker = Worker(task, channel, remote.device if remote else device, loaded, base, remote, base_host)
            right = worker.verify() if Suite.ACCURACY in task.suites and not task.process else True
            worker.measure(right=right)
            worker.dismiss()
    except (InseparableError, UnsharedError) as error:
        channel.send(Apart(error.reason))
    except HostLostError as error:
        # That process knows of no stage but its import. From then on it makes the calls of a stage here.
        reason = channel.locate(error.reason) if error.answering else error.reason
        channel.send(HostLost(reason))
        channel.send(Failed(reason))
    except PeerLostError as error:
        channel.send(Failed(error.reason))


class Worker:
    """One op on one device."""

    def __init__(
        self,
        task: Measure,
        channel: MessageChannel,
        device: Accelerator,
        loaded: LoadedOp,
        base: LoadedBase = NO_BASE,
        remote: RemoteOp | None = None,
        base_host: BaseHost | None = None,
    ) -> None:
        """`remote`: the op under test, if this is the judge's process and has the base's suites."""
        self._remote, self._base_host = remote, base_host
        self._base_remote: RemoteOp | None = None  # where the base's host times come from
        self._task, self._channel, self._send = task, channel, channel.send
        self._device, self._loaded, self._base = device, loaded, base.kernel
        # Head's kernel in the suites that judge it: the base's, if there is one that can be called alike.
        self._judged = loaded
        self._op, self._folder = task.op, (task.host.task if task.host else task).folder
        self._describe = functools.partial(describe_exception, folder=self._folder)
        unknown = explain_unknown_triton() if device.info.kind != "fake" else None
        self._notes = tuple(note for note in (unknown, base.note) if note)
        self._before = base.op
        # What head's has to be as exact as, if it is the same backend.
        is_like = base.op and base.op.accuracy.backend == loaded.accuracy.backend
        self._earlier = base.op.accuracy.kernel if base.op and is_like else None
        self._change: SuiteChange | None = None
        if base.op is not None and base.judges and not task.by_own:
            self._judged = loaded.judged_by(base.op)
        self._verify_s: float | None = None
        self._cut = False  # the time was up before all was done

    def _is_late(self) -> bool:
        """Whether the time is up. What is left out because of that is noted."""
        late = self._task.until_s is not None and time.time() >= self._task.until_s
        self._cut |= late
        return late

    def verify(self) -> bool:
        """Run the accuracy suite, as far as time allows. Returns whether everything was right."""
        began, right = time.monotonic(), True
        self._compare()
        wrong = {True: False, False: False}  # whether a check failed, by whether it is one of the base's suite
        for result in self._check_all():
            self._send(result)
            if isinstance(result, AccuracyCase):
                wrong[result.of_base] |= result.failure is not None
        if wrong[True] and not wrong[False] and self._change and self._change.differs:
            # Its reference means something else than the base's, and the kernel agrees with it.
            self._judged, wrong[True] = self._loaded, False
        right = not any(wrong.values())
        for case in self._search() if right and not self._task.remaining else ():
            self._send(case)
            right &= case.failure is None
        if right and self._task.pattern is None and not self._is_late():
            with self._remote.calls_there() if self._remote else nullcontext():
                leak = accuracy_stage.verify_memory(self._judged.accuracy, self._device, self._task.seed)
            if leak:
                self._send(leak)
                right = leak.failure is None
        self._verify_s = time.monotonic() - began
        return right

    def _compare(self) -> None:
        """Compare head's suites with those of the base, once."""
        if self._before is None or self._task.process or self._change or self._is_late():
            return
        task = self._task
        before, after = ((op.accuracy, op.performance) for op in (self._before, self._loaded))
        self._send(Doing("suites", self._op))
        try:
            wrapped = find_wrapped(find_kernel(self._op, self._folder), self._before.wrappers, self._loaded.wrappers)
            weaker = (*wrapped, *find_weaker(before, after, self._device))
            texts = [describe_suite(op.accuracy)["reference"] for op in (self._before, self._loaded)]
            other = None
            if texts[0] != texts[1] and (task.by_own or self._judged is not self._loaded):
                other = find_other_answers(before[0], after[0], self._device.arrays)
            self._change = SuiteChange(weaker, (other,) if other else ())
        except Exception as error:
            # What cannot be compared is not known to be as strict as before.
            facts = {"what": "suites", **self._describe(error)}
            self._change = SuiteChange((Reason("weaker_unknown", facts),))

    def _check_all(self) -> Iterator[AccuracyCase | StoredTensor]:
        suite, heads, task = self._judged.accuracy, self._loaded.accuracy, self._task
        before, now = describe_suite(suite), describe_suite(heads)
        judged = list(accuracy_stage.checks(suite, task.seed, task.pattern))
        planned = [] if task.remaining else [(suite, check) for check in judged]
        if task.remaining and self._before is None:
            planned = [(heads, check) for check in judged]
        if before != now:
            # Head's checks too, but for those that the base's suite makes in the same way.
            alike = all(before[name] == now[name] for name in CALLS)
            made = {check.name for check in judged} if alike else set()
            extra = accuracy_stage.checks(heads, task.seed, task.pattern)
            planned += [(heads, check) for check in extra if check.name not in made]
        for done, (declared, check) in enumerate(planned):
            if self._is_late():
                break
            self._send(Doing("accuracy", self._op, check.case, done, len(planned)))
            result = accuracy_stage.verify(declared, self._device, check, self._describe, self._earlier)
            if lost := result.failure if result.failure and result.failure.kind == "device_lost" else None:
                left = {"left": len(planned) - done - 1}
                result = replace(result, failure=replace(lost, facts={**lost.facts, **left}))
            yield replace(result, of_base=before != now and declared is suite)
            if lost:
                return
        if suite.quantised is not None and not task.host:  # which the op's process does
            self._send(Doing("accuracy", self._op, "stored tensors"))
            for tensor in find_checks().check(suite, self._device, task.pattern, self._describe):
                yield tensor
                if self._is_late():
                    break
        if task.pattern is None and not self._is_late():
            refused = accuracy_stage.verify_rejections(suite, self._device, self._describe)
            for found in () if task.remaining else refused:
                yield replace(found, of_base=before != now)
            if before["rejects"] != now["rejects"]:
                yield from accuracy_stage.verify_rejections(heads, self._device, self._describe)
            if self._device.absent:
                for found in accuracy_stage.verify_work(suite, self._device):
                    yield replace(found, of_base=before != now)
            if same := accuracy_stage.verify_answers(suite, self._device):
                yield replace(same, of_base=before != now)

    def _search(self) -> Iterator[AccuracyCase]:
        """Faults on inputs that the suite does not have."""
        suite, task, base = self._judged.accuracy, self._task, self._earlier
        planned, left = plan_search(suite, task.seed, task.pattern, duel=base is not None), list[accuracy_stage.Check]()
        for done, check in enumerate(planned):
            if self._is_late():
                break
            self._send(Doing("accuracy", self._op, f"{check.case}, {check.values}", done, len(planned)))
            fewest = min((count_elements(late.params) for late in left), default=0)
            if len(left) >= MOST_LATE and count_elements(check.params) >= fewest:
                left.append(check)
                continue
            match = search(suite, self._device, check, self._describe, base)
            if match and match.unchecked and match.unchecked.kind == accuracy_stage.LEFT:
                left.append(check)
            elif match:
                yield match
        if left:
            self._notes += (Reason(accuracy_stage.LEFT, {"case": left[0].case, "count": len(left)}),)

    def measure(self, *, right: bool) -> None:
        """Time the performance cases, if the kernel is right and the device is an accelerator."""
        self._compare()
        # Two revisions are timed alike, whatever the other's suite has.
        task = self._task
        suite, heads = (op.timed_suite(task.cache) for op in (self._judged, self._loaded))
        # The base's process knows a case by the id that it had.
        now = {old: new for new, old in task.renamed.items()} if task.is_judge or task.opening.arm == BASE else {}
        chosen = choose_cases(heads.cases, task.pattern, task.cases, now)
        done = OpDone(notes=self._notes, verify_s=self._verify_s)
        failure = None
        if task.remaining and self._before and self._device.absent is None and Suite.PERFORMANCE in task.suites:
            self._compare_references(choose_cases(self._before.performance.cases, task.pattern))
        if not (Suite.PERFORMANCE in task.suites and chosen and right) or self._is_late():
            pass
        elif self._device.absent:
            failure = self._smoke(heads)
            done = replace(done, unmeasured=self._device.absent)
        else:
            done = self._time(suite, heads, chosen, now, done)
        if self._remote and done.measure_s is None:
            self._remote.linger()
        # A board's slice, or one with another power limit, uses its model's tuned file.
        files = (self._folder / "tuned").glob("*.json")
        fitting = [path for path in files if f"{self._device.info.key}-".startswith(f"{path.stem}-")]
        path = max(fitting, key=lambda file: len(file.stem), default=None)
        tuned = hashlib.sha256(path.read_bytes()).hexdigest()[:12] if path and path.is_file() else None
        change = None if task.process else self._change
        self._send(replace(done, tuned=tuned, late=self._cut, change=change))
        if failure:
            self._send(Failed(failure))

    def _time(
        self,
        suite: Performance,
        performance: Performance,
        chosen: Sequence[Params],
        now: Mapping[str, str],
        done: OpDone,
    ) -> OpDone:
        """Time the chosen cases. `now`: the ids of those that have other ones here."""
        task, op = self._task, self._op
        self._send(Doing("prepare", op, "the timer"))
        if self._device.timer is None:  # a judge's has begun
            self._device.start_timer()
        self._send(Timing(self._device.timer))
        limits, bench = self._find_limits(suite, chosen), self._make_bench(suite)
        subjects = self._prepare_all(bench, performance, chosen, now)
        self._separate(bench, subjects)
        if not task.remaining:  # which has compared them
            self._compare_references(
                [subject.params for subject in subjects if subject.suite is None and not subject.broken]
            )
        if self._base:
            # Some register theirs when they are first called.
            refuse_operators(self._device, self._base.registered)
        # Behind the kernels, as a peer may have to leave the process.
        for subject in subjects if task.peers else ():
            if suite.peers and not bench.late:
                warm_up_peers(bench, subject, lambda case, peer: self._send(Doing("peers", op, f"{case}, {peer}")))
                self._send(Prepared(subject.facts))
        began = time.monotonic()
        if task.turns:
            baton = Baton(task.baton, self._channel.stay_alive, by_round=task.by_round)
            measure_in_turns(bench, subjects, self._send, self._ask_turn, baton)
        else:
            measure(bench, subjects, self._send)
        seconds = time.monotonic() - began
        self._cut |= len(subjects) < len(chosen)
        for subject in subjects:
            short = is_short(bench, subject)
            self._cut |= short
            suspicion = (*subject.suspicion, *suspicions(subject, self._device, limits))
            self._send(Finished(replace(subject.summarise(), suspicion=suspicion), short))
        return replace(done, measure_s=seconds, limits=limits)

    def _find_limits(self, suite: Performance, chosen: Sequence[Params]) -> Limits:
        """The device's ceilings: those that are known, and in a first process what these cases need beside them."""
        task, limits = self._task, self._task.ceilings
        dtypes = {str(params["dtype"]).removeprefix("torch.") for params in chosen if "dtype" in params}
        unknown = sorted(dtypes - limits.matmul_tflops.keys()) if suite.flops else []
        if task.process or task.opening.arm == BASE or not (unknown or limits.copy_gbps is None):
            return limits
        self._send(Doing("prepare", self._op, "the device's limits"))
        measured = self._device.limits(unknown)
        return replace(
            limits,
            copy_gbps=limits.copy_gbps or measured.copy_gbps,
            matmul_tflops={**measured.matmul_tflops, **limits.matmul_tflops},
        )

    def _prepare_all(
        self, bench: Rig, performance: Performance, chosen: Sequence[Params], now: Mapping[str, str]
    ) -> list[Subject]:
        """Prepare the cases as far as time allows, and have the base's host times come from a process if one needs it.

        A case that both suites have is the base's, by the name of now.
        """
        task, subjects = self._task, list[Subject]()
        base_cases = {case_id(params): params for params in bench.suite.cases}
        for params in chosen:
            if self._is_late():
                break
            case = now.get(case_id(params), case_id(params))
            before = base_cases.get(task.renamed.get(case, case))
            self._send(Doing("prepare", self._op, case))
            if subject := self._prepare(bench, before or params, case, None if before else performance):
                subjects.append(subject)
                wanted = self._base_remote is None and may_show(bench, subject) and is_compared(bench, subject)
                if self._remote and wanted and self._base_host:
                    self._base_remote = self._base_host.start()
                self._send(Prepared(subject.facts))
        return subjects

    def _separate(self, bench: Rig, subjects: Sequence[Subject]) -> None:
        """Let the other processes do nothing but what they are asked: they end, or stand still."""
        if self._remote is None:
            return
        if self._base_remote is None:  # nothing more is asked of them
            self.dismiss()
            self._remote.end()
            if self._base_host and self._base_host.process:
                self._base_host.process.end()
            for subject in subjects:
                subject.hidden = True
            return
        self._remote.stand_still()
        bench.callers[BASE] = self._base_remote.hold
        try:
            self._base_remote.await_ready()
            self._base_remote.stand_still()
        except HandoverError as error:
            for timed in filter(functools.partial(may_show, bench), subjects):
                timed.facts = replace(timed.facts, unhosted=because("unhosted", error.reason, case=timed.case))

    def dismiss(self) -> None:
        """Kill the other processes at once: each takes a while to leave a GPU. Their contexts wait for that."""
        for process in (self._remote, self._base_host and self._base_host.process):
            if process:
                process.kill()

    def _ask_turn(self) -> tuple[int, Sequence[str], Sequence[str]]:
        turn = decode(self._channel.ask(TurnAsked()), Turn)
        return turn.index, turn.cases, turn.shared

    def _compare_references(self, cases: Sequence[Params]) -> None:
        """Note the first of these cases in which head's reference takes longer than the base's, which times it."""
        task, before, heads = self._task, self._before, self._loaded.performance
        if self._change is None or before is None or self._judged is self._loaded or task.process:
            return
        if describe_suite(before.performance)["reference"] == describe_suite(heads)["reference"]:
            return
        for params in cases:
            if not self._is_late():
                inputs = bound_inputs(before.performance, params, self._device.arrays.device, task.seed)
                try:
                    slower = find_slower(before.performance, heads, inputs, case_id(params), self._device)
                except Exception:  # head's reference is called by its suite, which reports it
                    return
                if slower:
                    self._change = replace(self._change, weaker=(*self._change.weaker, slower))
                    return

    def _prepare(self, bench: Rig, params: Params, case: str, performance: Performance | None) -> Subject | None:
        """A case ready to be timed. None if that cannot be done without the op's code."""
        remote = self._remote
        if remote:
            remote.recorded = remote.refused = None
        subject = prepare(bench, params, case, performance)
        if remote is None:
            return self._add_import(subject)
        if self._device.can_replay and not (remote.refused or subject.broken):
            again = bench.draw_seed(case, "again")
            if not remote.can_repeat(bench.make_inputs(performance or bench.suite, params, again)):
                remote.refused = Reason("not_replayable", {"what": as_fact("inputs whose shapes change with the seed")})
        if remote.refused:
            self._send(Refused(subject.case, remote.refused))
            return None
        if (made := remote.recorded) and made.compile_s is not None:
            subject.facts = replace(subject.facts, compile_s=made.compile_s, compiled=made.compiled)
        return self._add_import(subject)

    def _add_import(self, subject: Subject) -> Subject:
        """A case with a first call that includes the import, as in a user's process."""
        if subject.facts.compile_s is not None:
            seconds = subject.facts.compile_s + self._loaded.import_s
            subject.facts = replace(subject.facts, compile_s=seconds)
        return subject

    def _make_bench(self, suite: Performance) -> Rig:
        task = self._task
        return Rig(
            suite,
            self._device,
            self._describe,
            seed=task.seed,
            process=task.process,
            budget_s=task.budget_s,
            run_started=task.run_started,
            step=lambda case: self._send(Doing("measure", self._op, case)),
            base=self._base,
            limits=task.limits,
            planted=task.plant.slowdown,
            as_base=task.opening.arm == BASE,
            own_root=task.place.root if task.place.head_root and not task.host else None,
            head_root=task.place.head_root if not task.host else None,
            partners=self._count_partners,
            callers={KERNEL: self._remote.hold} if self._remote else {},
            # The referee ends the turns: neither side may lack a block that the other took.
            until_s=None if task.turns else task.until_s,
            op=self._op,
            repeated=self._remote is not None and self._device.can_replay,
        )

    def _count_partners(self) -> int:
        others = [process for process in (self._remote, self._base_remote) if process and process.living]
        # The fake device does not see them.
        return 0 if self._device.info.kind == "fake" else self._task.turns + len(others)

    def _smoke(self, suite: Performance) -> Reason | None:
        """Without a timer, show at least that the performance suite's functions run: one small launch."""
        keys = set(suite.cases[0])
        small = next((params for params in self._loaded.accuracy.cases if set(params) == keys), suite.cases[0])
        self._send(Doing("smoke", self._op, case_id(small)))
        try:
            for function in (suite.bytes_moved, suite.flops):
                for params in suite.cases if function else ():
                    function(**params)  # type: ignore[misc]
            if small is not suite.cases[0]:
                suite.kernel(**bound_inputs(suite, small, self._device.arrays.device, self._task.seed))
        except Exception as error:
            if not_interpreted(error):  # the accuracy suite reports it
                return None
            return Reason("performance_suite_raised", {"case": case_id(small), **self._describe(error)})
        return None


def load_base(task: Measure, device: Accelerator, before: frozenset[str]) -> LoadedBase:
    """Import the op as of the base revision. Raises InseparableError if it is timed and cannot share this process."""
    base, op = task.base, task.op
    if base is None:
        return NO_BASE
    timed = device.absent is None and not task.turns and bool(base.plan.cases) and Suite.PERFORMANCE in task.suites
    try:
        refuse_operators(device, before)
        try:
            other = load_apart(base.op, base.folder, base.shared_folder, base.root, task.place.root)
        except ContractError as error:
            # In a separate process it was imported before.
            raise InseparableError(because("imports_alone", error.reason, op=op)) from error
    except InseparableError as error:
        if timed:
            raise
        return LoadedBase(note=because("judged_by_own", error.reason, op=op))
    loaded_base = LoadedBase(other if base.compares else None, base.judges)
    if not timed:
        return loaded_base
    kernel = BaseKernel(
        kernel=other.performance.kernel,
        root=base.root,
        head_root=task.place.root,
        inputs=inputs_digest(other.performance.make_inputs),
        plan=base.plan,
        differs=base.differs,
        registered=before,
    )
    return replace(loaded_base, kernel=kernel)


def own_base(
    task: Measure, device: Accelerator, loaded: LoadedOp, remote: RemoteOp, base_host: BaseHost | None
) -> BaseKernel | None:
    """The base's kernel in a process that has the base's op. What only the driver shows is recorded in another."""
    from perfci.worker.remote import repeat_own

    if task.base is None:
        return None
    suite = loaded.performance

    def elsewhere(inputs: Inputs) -> Callable[..., Any] | None:
        # Of two revisions one may be of Triton: that both are known by head's is a guess, which wrong answers show.
        if base_host is None or not (task.calls_there or remote.does_more(inputs)):
            return None
        return functools.partial(base_host.kernel, Suite.PERFORMANCE)

    return BaseKernel(
        kernel=repeat_own(suite.kernel, device, remote.folder, elsewhere),
        root=task.place.root,
        head_root=task.place.head_root or task.place.root,
        inputs=inputs_digest(suite.make_inputs),
        plan=task.base.plan,
        differs=task.base.differs,
        registered=device.list_namespaces(),
    )


def spoil(loaded: LoadedOp, device: Accelerator) -> LoadedOp:
    """Returns the op with a kernel that is wrong in one element of its output: a self-check has to find it."""
    right = loaded.performance.kernel

    @functools.wraps(right)
    def wrong(*args: Any, **kwargs: Any) -> Any:
        output = right(*args, **kwargs)
        device.arrays.spoil(flat(output)[0])
        return output

    suites = replace(loaded.accuracy, kernel=wrong), replace(loaded.performance, kernel=wrong)
    return replace(loaded, accuracy=suites[0], performance=suites[1], function=None)
