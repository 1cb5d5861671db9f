"""Jobs, what becomes of their answers, and what is on disk whenever it ends."""

import dataclasses
import time
from pathlib import Path

import pytest

from perfci import store
from perfci.core import deadline
from perfci.core.model import AccuracyCase, Limits, Need, PlannedOp, Reason, Suite
from perfci.runs import looks, schedule
from perfci.runs.base import write_base
from perfci.runs.bench import open_bench
from perfci.runs.plan import Request
from perfci.store import launches
from perfci.worker.protocol import Doing
from perfci.worker.tasks import Measure
from tests.runs.stand_ins import CASES, DEVICE, write_ops


def remeasure(run, settings, request, needs, listener):
    """The run with further processes, against the base that it was planned with."""
    with open_bench(settings, listener) as bench:
        tree = write_base(bench, run.plan.base) if run.plan.base else None
        return schedule.Recorder(bench, request, run, tree).record_again(needs)


# --- measuring --------------------------------------------------------------------------------------------------------


def test_without_a_device_as_many_ops_are_checked_at_once_as_there_are_cores(measure, workers, monkeypatch):
    monkeypatch.setattr(schedule, "count_cores", lambda: 2)
    beside = measure()
    assert workers.most_at_once == 1

    workers.models[DEVICE.uuid] = dataclasses.replace(DEVICE, kind="cpu")
    at_once = measure()

    assert workers.most_at_once == 2
    assert [op.op for op in at_once.ops] == [op.op for op in beside.ops] == ["relu", "scale"]


def test_each_op_has_a_worker_of_its_own_with_the_runs_seed_and_budget(measure, workers, settings, heard):
    run = measure(budget_s=0.5, timer="event", pattern="rows=*", suites=(Suite.PERFORMANCE,))

    tasks = [task for task in workers.tasks if isinstance(task, Measure)]
    assert [task.op for task in tasks] == ["relu", "scale"]
    assert {(task.seed, task.budget_s, task.pattern, task.process) for task in tasks} == {(7, 0.5, "rows=*", 0)}
    # The first is asked for the wanted timer, later ones for the one that it found.
    assert [task.opening.timer for task in tasks] == ["event", "virtual"]
    assert {task.suites for task in tasks} == {(Suite.PERFORMANCE,)}
    assert run.plan.seed == 7


def test_the_run_holds_what_every_worker_said_and_is_on_disk(measure, workers, settings, heard):
    run = measure()

    assert [op.op for op in run.ops] == ["relu", "scale"]
    assert all(len(case.blocks) == 1 for op in run.ops for case in op.performance)
    assert (run.environment.timer, run.environment.device) == ("virtual", DEVICE)
    assert run.limits == Limits(1000.0, {"relu": 1.0, "scale": 1.0})
    assert (run.command, run.stopped) == ("perfci check --no-judge", None)
    assert store.read_run(settings.reports) == run


# --- measuring again --------------------------------------------------------------------------------------------------


def test_what_the_judge_needs_is_measured_again_in_fresh_processes(measure, workers, settings, heard):
    run = measure()
    needs = [Need("relu", "rows=1", 2), Need("relu", "rows=2", 1), Need("scale", "rows=2", 2)]

    again = remeasure(run, settings, Request(seed=7), needs, heard.append)

    assert workers.measured()[2:] == [
        ("relu", 1, ("rows=1", "rows=2")),
        ("relu", 2, ("rows=1",)),
        ("scale", 1, ("rows=2",)),
        ("scale", 2, ("rows=2",)),
    ]
    processes = {
        (op.op, case.case): [block.process for block in case.blocks] for op in again.ops for case in op.performance
    }
    assert processes == {
        ("relu", "rows=1"): [0, 1, 2],
        ("relu", "rows=2"): [0, 1],
        ("scale", "rows=1"): [0],
        ("scale", "rows=2"): [0, 1, 2],
    }
    assert all(case.compile_s == 1.0 for op in again.ops if op.op == "relu" for case in op.performance)
    assert store.read_run(settings.reports) == again


def test_the_next_look_begins_while_the_processes_of_one_end_but_not_at_the_same_op(
    measure, workers, settings, heard, monkeypatch
):
    log = []

    def working(task, around, heard):
        log.append(f"{task.op}/{task.process} begins")
        failure = workers(task, around, heard)
        yield ()
        yield ()
        log.append(f"{task.op}/{task.process} has ended")
        return failure

    monkeypatch.setattr(looks, "working", working)

    run = measure()
    first, log[:] = [*log], ()
    needs = [Need("relu", "rows=1", 2), Need("scale", "rows=2", 1)]
    again = remeasure(run, settings, Request(seed=7), needs, heard.append)

    assert first == ["relu/0 begins", "scale/0 begins", "relu/0 has ended", "scale/0 has ended"]
    assert log[:4] == ["relu/1 begins", "relu/1 has ended", "relu/2 begins", "scale/1 begins"]
    assert [[block.process for block in case.blocks] for op in again.ops for case in op.performance] == [
        [0, 1, 2], [0], [0], [0, 1],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "limit_s", "early"), [("prepare", None, True), ("measure", None, False), ("prepare", 60.0, False)]
)
def test_the_next_look_imports_while_one_prepares_and_is_heard_when_that_has_left_the_device(
    measure, workers, monkeypatch, stage, limit_s, early
):
    log = []

    def working(task, around, heard):
        log.append(f"{task.op} begins")
        yield ()
        log.append(f"{task.op} is heard")
        heard(Doing(stage, task.op, "rows=1"))
        yield ()
        yield ()
        log.append(f"{task.op} ends")
        return workers(task, around, heard)

    monkeypatch.setattr(looks, "working", working)
    limits = {} if limit_s is None else {"deadline": deadline.find(limit_s, {}, time.time()).deadline}

    run = measure(**limits)

    alone = ["relu begins", "relu is heard", "relu ends", "scale begins", "scale is heard", "scale ends"]
    beside = ["relu begins", "relu is heard", "scale begins", "relu ends", "scale is heard", "scale ends"]
    assert log == (beside if early else alone)
    assert sum(op.wall_s for op in run.ops) <= run.wall_s


# --- against a base ---------------------------------------------------------------------------------------------------

LATE = Reason("imports_late", {"where": "relu_triton.py:3 helper"})
CRASH = Reason("worker_died", {"op": "relu", "where": "measure", "signal": "SIGSEGV", "words": "x", "log": "y"})


def test_the_process_of_the_ops_own_code_is_told_no_seed_and_no_file_has_it_before_the_op_is_done(
    measure, workers, forked
):
    saved = []
    workers.passes = lambda _: saved.extend(path.read_text() for path in forked.reports.rglob("*.json"))

    run = measure(forked, seed=None)

    (task,) = (task for task in workers.tasks if isinstance(task, Measure))
    assert (task.host.task.seed, run.ops[0].seed) == (0, task.seed)
    assert not any(str(task.seed) in text for text in saved)
    given = measure(forked, seed=7)
    assert (workers.tasks[-1].seed, given.ops[0].seed) == (7, None)


def test_revisions_that_turn_out_inseparable_get_a_process_each_from_then_on(measure, workers, forked, heard):
    workers.apart["relu"] = LATE

    run = measure(forked)

    ((head, base, rules),) = workers.pairs
    assert run.plan.ops[0].base.apart == LATE
    assert [len(case.blocks) for case in run.ops[0].performance] == [1, 1]
    # Head's process has the base's suites, by which its kernel is judged.
    assert (head.task.base.judges, head.task.by_round) == (True, True)
    assert (base.task.base, base.task.by_round) == (None, True)
    openings = [side.task.opening for side in (head, base)]
    assert [(opening.arm, opening.lock) for opening in openings] == [("kernel", True), ("base", False)]
    place = base.task.place
    assert (place.head_root, base.task.cases, base.task.suites) == (forked.root, CASES, (Suite.PERFORMANCE,))
    assert base.task.folder.is_relative_to(place.root) and base.around.folder == place.root
    assert (head.around.log.name, base.around.log.name) == ("relu.log", "relu-base.log")
    assert (rules.cases, rules.skip_unchanged) == (CASES, True)

    remeasure(run, forked, Request(seed=7), [Need("relu", "rows=2", 1)], heard.append)

    # The process that could not judge them in the first look is not asked again.
    assert len(workers.pairs) == 2 and workers.measured() == [("relu", 0, CASES), ("relu", 0, CASES)]
    assert (workers.pairs[1][0].task.process, workers.pairs[1][1].task.cases) == (1, ("rows=2",))


def test_a_judges_process_that_its_base_ends_too_is_followed_by_one_for_both_revisions(measure, workers, forked):
    workers.dies["judge", "relu"] = workers.dies["measure", "relu"] = CRASH

    run = measure(forked)

    assert run.ops[0].failure is None
    assert workers.measured() == [("relu", 0, CASES)] * 3
    alone = workers.tasks[-2]
    assert (alone.host, alone.base, alone.place) == (None, None, workers.tasks[-3].place)
    # The measurements of the one that died are made again, also in the file of raw launches.
    assert [len(case.blocks) for case in run.ops[0].performance] == [1, 1]
    assert {case.self_reported.kind for case in run.ops[0].performance} == {CRASH.kind}
    assert len(launches.read_launches(forked.reports).rows) == 2 * len(CASES)
    # The accuracy was known and is not checked again.
    assert workers.tasks[-1].suites == (Suite.PERFORMANCE,) and len(run.ops[0].accuracy) == 1


def test_a_judges_process_that_its_base_alone_does_not_end_is_an_error(measure, workers, forked):
    workers.dies["judge", "relu"] = CRASH

    run = measure(forked)

    assert (run.ops[0].failure.kind, run.ops[0].failure.facts["cause"]) == ("judge_ended", CRASH.kind)
    assert workers.measured() == [("relu", 0, CASES)] * 2


def test_an_audited_case_of_an_unchanged_op_is_all_that_is_measured_of_it(measure, workers, forked):
    many = tuple(f"rows={i}" for i in range(1, 31))
    workers.planned["scale"] = PlannedOp("scale", ("rows=0",), many)

    run = measure(forked)

    audit = run.plan.ops[1].audit
    assert len(audit) == 1
    task = next(task for task in workers.tasks if isinstance(task, Measure) and task.op == "scale")
    assert (task.cases, task.suites, task.base.plan.audit) == (audit, (Suite.PERFORMANCE,), audit)
    assert [case.case for case in run.ops[1].performance] == list(audit)


# --- boards -----------------------------------------------------------------------------------------------------------


def test_later_processes_take_turns_on_the_hosts_devices(measure, workers, settings, heard):
    workers.devices, workers.boards = 3, {0: "FAKE-0", 1: "FAKE-1", 2: "FAKE-2", 3: "FAKE-0"}
    run = measure()

    again = remeasure(run, settings, Request(seed=7), [Need("relu", "rows=1", 3)], heard.append)

    seen = [around.environment.get("FAKE_VISIBLE_DEVICES") for around in workers.surroundings]
    assert seen == [None, "0", "0", "1", "2", "0"]
    blocks = again.ops[0].performance[0].blocks
    assert [(block.process, block.board) for block in blocks] == [(0, None), (1, "FAKE-1"), (2, "FAKE-2"), (3, None)]
    assert again.environment.device.uuid == "FAKE-0"
    assert run.plan.devices == 3


# --- until when -------------------------------------------------------------------------------------------------------

WOULD_TAKE = {"relu": 20.0, "scale": 30.0, "silu": 10.0}


class Clock:
    """The time of the parent: it passes as workers end, each with what its op takes."""

    def __init__(self, workers, takes, limit_s=None):
        self.now, self.takes = 1_000_000.0, takes
        workers.passes = self.pass_
        self._limit = None if limit_s is None else deadline.find(limit_s, {}, self.now).deadline
        self._patch = pytest.MonkeyPatch()

    def pass_(self, task):
        self.now += self.takes.get(task.op, 0.0)

    def __enter__(self):
        for clock in ("time", "monotonic"):
            self._patch.setattr(schedule.time, clock, lambda: self.now)
        return self._limit

    def __exit__(self, *error):
        self._patch.undo()


@pytest.fixture
def three_ops(settings):
    write_ops(settings.root, tuple(WOULD_TAKE))
    return settings


def kinds(run):
    return {op.op: op.late and op.late.kind for op in run.ops}


def test_an_op_may_not_take_the_time_that_the_others_need(measure, workers, three_ops):
    takes = {"relu": 100.0, "scale": 100.0, "silu": 100.0}
    with Clock(workers, takes):
        measure()
    workers.tasks.clear()
    workers.surroundings.clear()

    clock = Clock(workers, takes, 500.0)
    with clock as limit:
        measure(deadline=limit)

    allowed = [task.until_s for task in workers.tasks if isinstance(task, Measure)]
    # 490 s until workers wind down; two others need 100 each, then one, then none.
    assert [round(until - 1_000_000.0) for until in allowed] == [290, 390, 490]
    ends = [around.until_s for around in workers.surroundings if around.until_s]
    assert [end - until for end, until in zip(ends, allowed, strict=True)] == [10.0] * 3


def test_a_worker_that_was_ended_in_the_accuracy_suite_says_that_this_was_not_done(measure, workers, settings):
    def checking(task, around, heard, base):
        heard(Doing("accuracy", "relu", "rows=0"))
        heard(AccuracyCase("rows=0", "normal", "contiguous", 0))
        return Reason("worker_late", {"op": "relu", "where": "accuracy"})

    workers._measured = checking
    with Clock(workers, {}, 25.0) as limit:
        run = measure(deadline=limit)

    assert kinds(run) == {"relu": "checks_late", "scale": "checks_late"}
    assert [op.performance for op in run.ops] == [(), ()]


def again(run, settings, heard, limit, *needs):
    return remeasure(run, settings, Request(seed=7, deadline=limit), needs, heard.append)


def test_a_later_look_that_does_not_fit_is_not_begun_and_its_cases_say_so(measure, workers, settings, heard):
    with Clock(workers, {"relu": 40.0, "scale": 40.0}):
        run = measure()
    with Clock(workers, {"relu": 40.0, "scale": 40.0}, 60.0) as limit:
        later = again(run, settings, heard, limit, *(Need(op, "rows=1", 2) for op in ("scale", "relu")))

    # Half of an op's cases takes half of its time: 54 s are left, then 14 s after each look of 40 s.
    assert [(op, process) for op, process, _ in workers.measured()[2:]] == [("scale", 1)]
    late = {(op.op, case.case): case.late and case.late.kind for op in later.ops for case in op.performance}
    assert late == {
        ("relu", "rows=1"): "looks_late",
        ("relu", "rows=2"): None,
        ("scale", "rows=1"): "looks_late",
        ("scale", "rows=2"): None,
    }
    assert [op.late for op in later.ops] == [None, None]


def test_workers_run_in_a_copy_of_the_project_without_its_parents_secrets(
    measure, workers, settings, heard, monkeypatch
):
    monkeypatch.setenv("CI_JOB_TOKEN", "hush")
    settings = dataclasses.replace(settings, time_limit_s=12.5)

    measure(settings)

    around = workers.surroundings[-1]
    assert "CI_JOB_TOKEN" not in around.environment
    assert around.limit_s == 12.5 and not around.folder.is_relative_to(settings.root)
    assert around.log == settings.reports / "logs" / "scale.log"
    assert not Path(around.environment["TRITON_CACHE_DIR"]).parent.exists()
