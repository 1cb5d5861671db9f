"""The flow around the workers, with workers that are functions: what is planned, asked, kept and decided."""

from __future__ import annotations

import dataclasses
from collections import deque
from pathlib import Path

import pytest

from perfci import pipeline, store
from perfci.errors import PerfciError, Stopped, UsageError
from perfci.model import (
    AccuracyCase,
    ArmBlock,
    Block,
    Device,
    Limits,
    Need,
    PerformanceCase,
    PlannedOp,
    Reason,
    Suite,
    Summary,
)
from perfci.plan import Request
from perfci.settings import Settings, load
from perfci.worker.protocol import (
    Checked,
    Described,
    Finished,
    Measured,
    OpDone,
    Prepared,
    Ready,
    Step,
)

DEVICE = Device("fake", "Fake One", "fake-one")
CASES = ("rows=1", "rows=2")


def block(index, process=0):
    arm = ArmBlock(Summary(1, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 0.0, 0))
    return Block(index, process, 0.5, {"kernel": arm, "reference": arm}, {"kernel/reference": 0.0})


class Workers:
    """Stands in for `run_worker`: answers each job by what the test planted."""

    def __init__(self):
        self.jobs = []
        self.surroundings = []
        self.dies = {}
        """(task, op) -> what ends the worker when it reaches the op: a reason, or an exception"""
        self.planned = {}
        self.device_answers = True

    def __call__(self, job, around, heard):
        self.jobs.append(job)
        self.surroundings.append(around)
        if job.task == "describe":
            return self._describe(job, heard)
        return self._measure(job, heard)

    def _describe(self, job, heard):
        if not self.device_answers:
            return Reason("cuda_unavailable", {"torch": "2.13"})
        heard(Ready(DEVICE))
        for files in job.ops:
            heard(Step("import", files.op))
            if (death := self.dies.get(("describe", files.op))) is not None:
                return death
            heard(Described(self.planned.get(files.op, PlannedOp(files.op, ("rows=0",), CASES))))
        return None

    def _measure(self, job, heard):
        op = job.ops[0].op
        heard(Step("import", op))
        heard(Ready(DEVICE, "virtual"))
        if not job.process:
            heard(Checked(AccuracyCase("rows=0", "normal", "contiguous", 0)))
        for case in job.cases if job.cases is not None else CASES:
            heard(Prepared(PerformanceCase(case, compile_s=1.0 + job.process)))
            heard(Measured(case, block(0, job.process), {"kernel": (5.0,), "reference": (5.0,)}))
        death = self.dies.get(("measure", op))
        if isinstance(death, BaseException):
            raise death
        if death is not None:
            return death
        for case in job.cases if job.cases is not None else CASES:
            heard(Finished(PerformanceCase(case, compile_s=1.0 + job.process)))
        heard(OpDone(verify_s=1.0, measure_s=2.0, limits=Limits(1000.0, {op: 1.0})))
        return None

    def measured(self):
        return [(job.ops[0].op, job.process, job.cases) for job in self.jobs if job.task == "measure"]


@pytest.fixture
def workers(monkeypatch):
    stand_in = Workers()
    monkeypatch.setattr(pipeline, "run_worker", stand_in)
    return stand_in


OP_FILES = {
    "triton": "def {op}(x):\n    return x\n",
    "baseline": "def {op}(x):\n    return x\n\n\ndef make_inputs(rows, device, seed):\n    return {{}}\n",
    "accuracy": "import perfci\n\naccuracy = perfci.Accuracy()\n",
    "performance": "import perfci\n\nperformance = perfci.Performance()\n",
}


@pytest.fixture
def settings(tmp_path):
    for op in ("relu", "scale"):
        folder = tmp_path / "kernels" / op
        folder.mkdir(parents=True)
        for part, text in OP_FILES.items():
            (folder / f"{op}_{part}.py").write_text(text.format(op=op))
    return load(tmp_path)


@pytest.fixture
def heard():
    return deque()


def measured(settings, heard, **request):
    return pipeline.measure(settings, Request(seed=7, **request), "perfci run", heard.append)


# --- describing -------------------------------------------------------------------------------------------------------


def test_all_ops_are_described_by_one_worker(workers, settings, heard):
    plan, device = pipeline.describe(settings, Request(), heard.append)

    assert [op.op for op in plan.ops] == ["relu", "scale"]
    assert (device, plan.device, plan.family) == (DEVICE, "fake", 4)
    assert [[files.op for files in job.ops] for job in workers.jobs] == [["relu", "scale"]]
    assert Step("import", "scale") in heard


def test_an_op_that_kills_the_describing_worker_is_named_and_the_rest_described_by_another(workers, settings, heard):
    death = Reason("worker_died", {"op": "relu", "signal": "SIGSEGV"})
    workers.dies["describe", "relu"] = death

    plan, _ = pipeline.describe(settings, Request(), heard.append)

    assert [(op.op, op.failure, op.performance) for op in plan.ops] == [("relu", death, ()), ("scale", None, CASES)]
    assert [[files.op for files in job.ops] for job in workers.jobs] == [["relu", "scale"], ["scale"]]


def test_an_op_that_breaks_the_contract_is_never_imported(workers, settings, heard):
    (settings.kernels / "relu" / "relu_accuracy.py").unlink()

    plan, _ = pipeline.describe(settings, Request(), heard.append)

    assert plan.ops[0].failure.kind == "file_of_four_missing"
    assert [[files.op for files in job.ops] for job in workers.jobs] == [["scale"]]


def test_a_device_is_found_even_where_no_op_is_sound(workers, settings, heard):
    for op in ("relu", "scale"):
        (settings.kernels / op / f"{op}_accuracy.py").unlink()

    plan, device = pipeline.describe(settings, Request(), heard.append)

    assert device == DEVICE
    assert all(op.failure for op in plan.ops)


def test_without_a_device_there_is_no_plan_but_a_reason(workers, settings, heard):
    workers.device_answers = False

    with pytest.raises(PerfciError) as caught:
        pipeline.describe(settings, Request(device="cuda"), heard.append)

    assert caught.value.reason == Reason("cuda_unavailable", {"torch": "2.13"})


def test_an_unknown_op_is_a_usage_error_before_any_worker(workers, settings, heard):
    with pytest.raises(UsageError):
        pipeline.describe(settings, Request(("rleu",)), heard.append)

    assert workers.jobs == []


# --- measuring --------------------------------------------------------------------------------------------------------


def test_each_op_has_a_worker_of_its_own_with_the_runs_seed_and_budget(workers, settings, heard):
    run = measured(settings, heard, budget_s=0.5, timer="event", pattern="rows=*", suites=(Suite.PERFORMANCE,))

    jobs = [job for job in workers.jobs if job.task == "measure"]
    assert [job.ops[0].op for job in jobs] == ["relu", "scale"]
    assert {(job.seed, job.budget_s, job.pattern, job.process) for job in jobs} == {(7, 0.5, "rows=*", 0)}
    # The first is asked for the wanted timer, later ones for the one that it found.
    assert [job.timer for job in jobs] == ["event", "virtual"]
    assert {job.suites for job in jobs} == {(Suite.PERFORMANCE,)}
    assert run.plan.seed == 7


def test_the_run_holds_what_every_worker_said_and_is_on_disk(workers, settings, heard):
    run = measured(settings, heard)

    assert [op.op for op in run.ops] == ["relu", "scale"]
    assert all(len(case.blocks) == 1 for op in run.ops for case in op.performance)
    assert (run.environment.timer, run.environment.device) == ("virtual", DEVICE)
    assert run.limits == Limits(1000.0, {"relu": 1.0, "scale": 1.0})
    assert (run.command, run.stopped) == ("perfci run", None)
    assert store.read_run(settings.reports) == run


def test_a_worker_that_dies_costs_its_op_and_keeps_what_it_said(workers, settings, heard):
    workers.dies["measure", "relu"] = Reason("worker_hung", {"op": "relu"})

    relu, scale = measured(settings, heard).ops

    assert relu.failure == Reason("worker_hung", {"op": "relu"})
    assert len(relu.performance) == 2 and len(relu.accuracy) == 1
    assert scale.failure is None


def test_an_op_that_is_not_sound_stands_in_the_run_and_has_no_worker(workers, settings, heard):
    workers.dies["describe", "relu"] = Reason("worker_died", {"op": "relu"})

    relu, _ = measured(settings, heard).ops

    assert (relu.failure, relu.performance) == (Reason("worker_died", {"op": "relu"}), ())
    assert [op for op, _, _ in workers.measured()] == ["scale"]


@pytest.mark.parametrize("op", ["relu", "scale"])
def test_a_signal_keeps_what_was_measured_until_then(workers, settings, heard, op):
    workers.dies["measure", op] = Stopped("SIGTERM")

    with pytest.raises(Stopped):
        measured(settings, heard)

    run = store.read_run(settings.reports)
    assert run.stopped == "SIGTERM"
    assert [one.op for one in run.ops] == ["relu", "scale"][: 1 + (op == "scale")]
    assert all(len(case.blocks) == 1 for one in run.ops for case in one.performance)


def test_a_signal_between_two_workers_is_noted_too(workers, settings, heard, monkeypatch):
    write, written = store.write_run, []

    def interrupted(run, reports):
        write(run, reports)
        written.append(run)
        if len(written) == 1:
            raise Stopped("SIGINT")

    monkeypatch.setattr(pipeline.store, "write_run", interrupted)

    with pytest.raises(Stopped):
        measured(settings, heard)

    run = store.read_run(settings.reports)
    assert (run.stopped, [op.op for op in run.ops]) == ("SIGINT", ["relu"])
    assert len(run.ops[0].performance) == 2


def test_a_signal_before_the_first_worker_speaks_is_noted_too(workers, settings, heard, monkeypatch):
    monkeypatch.setattr(pipeline, "_surroundings", _only_for_describing(pipeline._surroundings))

    with pytest.raises(Stopped):
        measured(settings, heard)

    assert store.read_run(settings.reports).stopped == "SIGTERM"


def _only_for_describing(surroundings):
    def interrupted(bench, device, name):
        if name != "describe":
            raise Stopped("SIGTERM")
        return surroundings(bench, device, name)

    return interrupted


def test_raw_launches_of_this_run_replace_those_of_the_last(workers, settings, heard):
    from perfci.store import launches

    for _ in range(2):
        measured(settings, heard)

    rows = launches.read_launches(settings.reports).rows
    assert sorted((row.op, row.case, row.arm) for row in rows) == sorted(
        (op, case, arm) for op in ("relu", "scale") for case in CASES for arm in ("kernel", "reference")
    )


def test_workers_run_in_the_project_without_the_parents_secrets(workers, settings, heard, monkeypatch):
    monkeypatch.setenv("CI_JOB_TOKEN", "hush")
    settings = dataclasses.replace(settings, time_limit_s=12.5)

    measured(settings, heard)

    around = workers.surroundings[-1]
    assert "CI_JOB_TOKEN" not in around.environment
    assert (around.folder, around.limit_s) == (settings.root, 12.5)
    assert around.log == settings.reports / "logs" / "scale.log"
    assert not Path(around.environment["TRITON_CACHE_DIR"]).parent.exists()


def test_all_first_looks_of_a_run_share_its_cache_of_compiled_kernels(workers, settings, heard):
    measured(settings, heard)

    caches = [around.environment["TRITON_CACHE_DIR"] for around in workers.surroundings]
    assert caches[1] == caches[2] != caches[0]


# --- measuring again --------------------------------------------------------------------------------------------------


def test_what_the_judge_needs_is_measured_again_in_fresh_processes(workers, settings, heard):
    run = measured(settings, heard)
    needs = [Need("relu", "rows=1", 2), Need("relu", "rows=2", 1), Need("scale", "rows=2", 2)]

    again = pipeline.remeasure(run, settings, Request(seed=7), needs, heard.append)

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


def test_a_remeasurement_goes_on_with_the_clock_of_its_run(workers, settings, heard, monkeypatch):
    now = 1_000_000.0
    monkeypatch.setattr(pipeline.time, "time", lambda: now)
    run = dataclasses.replace(measured(settings, heard), wall_s=40.0)
    began = workers.jobs[-1].run_started
    now += 100

    again = pipeline.remeasure(run, settings, Request(seed=7), [Need("relu", "rows=1", 1)], heard.append)

    assert began == 1_000_000.0
    assert workers.jobs[-1].run_started == now - 40.0
    assert again.wall_s == 40.0


def test_a_remeasurement_that_is_stopped_keeps_the_first_look(workers, settings, heard):
    run = measured(settings, heard)
    workers.dies["measure", "relu"] = Stopped("SIGINT")

    with pytest.raises(Stopped):
        pipeline.remeasure(run, settings, Request(seed=7), [Need("relu", "rows=1", 2)], heard.append)

    kept = store.read_run(settings.reports)
    assert kept.stopped == "SIGINT"
    assert [block.process for block in kept.ops[0].performance[0].blocks] == [0, 1]
    assert len(kept.ops[1].performance) == 2


# --- deciding ---------------------------------------------------------------------------------------------------------


def test_a_run_held_against_itself_changes_nothing_on_disk(workers, settings, heard):
    run = measured(settings, heard)
    before = {path: path.read_bytes() for path in settings.root.rglob("*") if path.is_file()}

    judgements = pipeline.decide(run, settings)

    assert {row.op for row in judgements.rows} == {"relu", "scale"}
    assert {path: path.read_bytes() for path in settings.root.rglob("*") if path.is_file()} == before


def test_check_measures_again_only_where_the_judge_asks(workers, settings, heard):
    run, judgements = pipeline.check(settings, Request(seed=7), "perfci check", heard.append)

    assert judgements.needs == ()
    assert [process for _, process, _ in workers.measured()] == [0, 0]
    assert isinstance(settings, Settings) and run.ops
