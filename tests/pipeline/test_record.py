"""Jobs, what becomes of their answers, and what is on disk whenever it ends."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

import pytest

from perfci import pipeline, store
from perfci.errors import Stopped
from perfci.model import DuelWhat, Limits, Need, PlannedOp, Reason, Suite
from perfci.plan import Request
from perfci.store import launches
from tests.pipeline.stand_ins import CASES, DEVICE

record = importlib.import_module("perfci.pipeline.record")


# --- measuring --------------------------------------------------------------------------------------------------------


def test_each_op_has_a_worker_of_its_own_with_the_runs_seed_and_budget(measure, workers, settings, heard):
    run = measure(budget_s=0.5, timer="event", pattern="rows=*", suites=(Suite.PERFORMANCE,))

    jobs = [job for job in workers.jobs if job.task == "measure"]
    assert [job.ops[0].op for job in jobs] == ["relu", "scale"]
    assert {(job.seed, job.budget_s, job.pattern, job.process) for job in jobs} == {(7, 0.5, "rows=*", 0)}
    # The first is asked for the wanted timer, later ones for the one that it found.
    assert [job.timer for job in jobs] == ["event", "virtual"]
    assert {job.suites for job in jobs} == {(Suite.PERFORMANCE,)}
    assert run.plan.seed == 7


def test_the_run_holds_what_every_worker_said_and_is_on_disk(measure, workers, settings, heard):
    run = measure()

    assert [op.op for op in run.ops] == ["relu", "scale"]
    assert all(len(case.blocks) == 1 for op in run.ops for case in op.performance)
    assert (run.environment.timer, run.environment.device) == ("virtual", DEVICE)
    assert run.limits == Limits(1000.0, {"relu": 1.0, "scale": 1.0})
    assert (run.command, run.stopped) == ("perfci run", None)
    assert store.read_run(settings.reports) == run


def test_a_worker_that_dies_costs_its_op_and_keeps_what_it_said(measure, workers, settings, heard):
    workers.dies["measure", "relu"] = Reason("worker_hung", {"op": "relu"})

    relu, scale = measure().ops

    assert relu.failure == Reason("worker_hung", {"op": "relu"})
    assert len(relu.performance) == 2 and len(relu.accuracy) == 1
    assert scale.failure is None


def test_an_op_that_is_not_sound_stands_in_the_run_and_has_no_worker(measure, workers, settings, heard):
    workers.dies["describe", "relu"] = Reason("worker_died", {"op": "relu"})

    relu, _ = measure().ops

    assert (relu.failure, relu.performance) == (Reason("worker_died", {"op": "relu"}), ())
    assert [op for op, _, _ in workers.measured()] == ["scale"]


@pytest.mark.parametrize("op", ["relu", "scale"])
def test_a_signal_keeps_what_was_measured_until_then(measure, workers, settings, heard, op):
    workers.dies["measure", op] = Stopped("SIGTERM")

    with pytest.raises(Stopped):
        measure()

    run = store.read_run(settings.reports)
    assert run.stopped == "SIGTERM"
    assert [one.op for one in run.ops] == ["relu", "scale"][: 1 + (op == "scale")]
    assert all(len(case.blocks) == 1 for one in run.ops for case in one.performance)


def test_a_signal_between_two_workers_is_noted_too(measure, workers, settings, heard, monkeypatch):
    write, written = store.write_run, []

    def interrupted(run, reports):
        write(run, reports)
        written.append(run)
        if len(written) == 1:
            raise Stopped("SIGINT")

    monkeypatch.setattr(record.store, "write_run", interrupted)

    with pytest.raises(Stopped):
        measure()

    run = store.read_run(settings.reports)
    assert (run.stopped, [op.op for op in run.ops]) == ("SIGINT", ["relu"])
    assert len(run.ops[0].performance) == 2


def test_a_signal_before_the_first_worker_speaks_is_noted_too(measure, workers, settings, heard, monkeypatch):
    def interrupted(bench, place):
        raise Stopped("SIGTERM")

    monkeypatch.setattr(record, "surroundings", interrupted)

    with pytest.raises(Stopped):
        measure()

    assert store.read_run(settings.reports).stopped == "SIGTERM"


def test_raw_launches_of_this_run_replace_those_of_the_last(measure, workers, settings, heard):
    for _ in range(2):
        measure()

    rows = launches.read_launches(settings.reports).rows
    assert sorted((row.op, row.case, row.arm) for row in rows) == sorted(
        (op, case, arm) for op in ("relu", "scale") for case in CASES for arm in ("kernel", "reference")
    )


def test_workers_run_in_the_project_without_the_parents_secrets(measure, workers, settings, heard, monkeypatch):
    monkeypatch.setenv("CI_JOB_TOKEN", "hush")
    settings = dataclasses.replace(settings, time_limit_s=12.5)

    measure(settings)

    around = workers.surroundings[-1]
    assert "CI_JOB_TOKEN" not in around.environment
    assert (around.folder, around.limit_s) == (settings.root, 12.5)
    assert around.log == settings.reports / "logs" / "scale.log"
    assert not Path(around.environment["TRITON_CACHE_DIR"]).parent.exists()


def test_workers_of_a_run_share_its_cache_of_compiled_kernels_and_no_other_runs(measure, workers):
    measure()
    measure()

    caches = [around.environment["TRITON_CACHE_DIR"] for around in workers.surroundings]
    assert len({*caches[:3]}) == len({*caches[3:]}) == 1
    assert caches[0] != caches[3]


def test_what_workers_printed_in_an_earlier_run_is_gone_and_this_runs_is_not(measure, workers, settings):
    logs = settings.reports / "logs"
    logs.mkdir(parents=True)
    (logs / "old.log").write_text("of another run")
    describing = workers._describe

    def describe(job, heard):
        (logs / "describe.log").parent.mkdir(parents=True, exist_ok=True)
        (logs / "describe.log").write_text("said while importing")
        return describing(job, heard)

    workers._describe = describe
    measure()

    assert [path.name for path in logs.iterdir()] == ["describe.log"]


# --- measuring again --------------------------------------------------------------------------------------------------


def test_what_the_judge_needs_is_measured_again_in_fresh_processes(measure, workers, settings, heard):
    run = measure()
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


def test_a_remeasurement_goes_on_with_the_clock_of_its_run(measure, workers, settings, heard, monkeypatch):
    now = 1_000_000.0
    monkeypatch.setattr(record.time, "time", lambda: now)
    run = dataclasses.replace(measure(), wall_s=40.0)
    began = workers.jobs[-1].run_started
    now += 100

    again = pipeline.remeasure(run, settings, Request(seed=7), [Need("relu", "rows=1", 1)], heard.append)

    assert began == 1_000_000.0
    assert workers.jobs[-1].run_started == now - 40.0
    assert again.wall_s == 40.0


def test_a_remeasurement_that_is_stopped_keeps_the_first_look(measure, workers, settings, heard):
    run = measure()
    workers.dies["measure", "relu"] = Stopped("SIGINT")

    with pytest.raises(Stopped):
        pipeline.remeasure(run, settings, Request(seed=7), [Need("relu", "rows=1", 2)], heard.append)

    kept = store.read_run(settings.reports)
    assert kept.stopped == "SIGINT"
    assert [block.process for block in kept.ops[0].performance[0].blocks] == [0, 1]
    assert len(kept.ops[1].performance) == 2


# --- against a base ---------------------------------------------------------------------------------------------------

LATE = Reason("imports_late", {"where": "relu_triton.py:3 helper"})
CRASH = Reason("worker_died", {"op": "relu", "where": "measure", "signal": "SIGSEGV", "words": "x", "log": "y"})


def test_a_changed_op_is_measured_beside_its_base_and_an_unchanged_one_not_at_all(measure, workers, forked):
    run = measure(forked)

    assert workers.measured() == [("relu", 0, None)]
    (job,) = (job for job in workers.jobs if job.task == "measure")
    assert (job.base.cases, job.base.duel.value, job.base.skip_unchanged) == (CASES, "changed", True)
    assert job.root == str(forked.root)
    assert Path(job.base.folder).relative_to(job.base.root) == Path("kernels/relu")
    assert not Path(job.base.root).is_relative_to(forked.root)
    assert [(op.op, op.performance, op.failure) for op in run.ops if op.op == "scale"] == [("scale", (), None)]
    assert [(op.op, op.base.same, op.base.changed) for op in run.plan.ops] == [
        ("relu", False, ("kernels/relu/relu_triton.py",)),
        ("scale", True, ()),
    ]


def test_only_what_differs_is_imported_of_the_base(measure, workers, forked):
    measure(forked)

    described = [job for job in workers.jobs if job.task == "describe"]
    assert [[files.op for files in job.ops] for job in described] == [["relu", "scale"], ["relu"]]
    assert [job.head_root for job in described] == [None, str(forked.root)]
    assert [around.log.stem for around in workers.surroundings[:2]] == ["describe", "describe-base"]
    assert workers.surroundings[1].folder == Path(described[1].root)


def test_thresholds_of_the_cases_go_with_the_job(measure, workers, forked):
    (forked.thresholds).mkdir()
    (forked.thresholds / "relu.yaml").write_text("speedup: 1.5\ncases:\n  rows=2:\n    speedup: 2.5\n")

    measure(forked)

    limits = next(job.limits for job in workers.jobs if job.task == "measure")
    # Those of the work tree are ignored: a merge request is judged by its base's.
    assert {case: limits[case].speedup for case in CASES} == dict.fromkeys(CASES)
    measure(forked, against="HEAD~1")
    limits = next(job.limits for job in reversed(workers.jobs) if job.task == "measure")
    assert {case: limits[case].speedup for case in CASES} == {"rows=1": 1.5, "rows=2": 2.5}


def test_revisions_that_turn_out_inseparable_get_a_process_each_from_then_on(measure, workers, forked, heard):
    workers.apart["relu"] = LATE

    run = measure(forked)

    ((head, base, rules),) = workers.pairs
    assert run.plan.ops[0].base.apart == LATE
    assert [len(case.blocks) for case in run.ops[0].performance] == [1, 1]
    assert (head.job.base, head.job.turns, head.job.arm, head.job.lock) == (None, True, "kernel", True)
    assert (base.job.base, base.job.turns, base.job.arm, base.job.lock) == (None, True, "base", False)
    assert (base.job.head_root, base.job.cases, base.job.suites) == (str(forked.root), CASES, (Suite.PERFORMANCE,))
    assert base.job.ops[0].folder.startswith(base.job.root) and base.around.folder == Path(base.job.root)
    assert (head.around.log.name, base.around.log.name) == ("relu.log", "relu-base.log")
    assert (rules.cases, rules.process, rules.by_identity, rules.skip_unchanged) == (CASES, 0, True, True)

    pipeline.remeasure(run, forked, Request(seed=7), [Need("relu", "rows=2", 1)], heard.append)

    assert len(workers.pairs) == 2 and workers.measured() == [("relu", 0, None)]
    assert (workers.pairs[1][0].job.process, workers.pairs[1][1].job.cases) == (1, ("rows=2",))


def test_a_base_with_a_process_of_its_own_is_timed_with_heads_cache(measure, workers, forked):
    workers.apart["relu"] = LATE
    workers.planned["relu"] = PlannedOp("relu", ("rows=0",), CASES, cache="warm")

    run = measure(forked)

    ((head, base, _),) = workers.pairs
    assert run.plan.ops[0].cache == "warm"
    assert (head.job.cache, base.job.cache) == (None, "warm")


def test_a_worker_that_died_with_both_revisions_is_followed_by_one_for_each(measure, workers, forked):
    workers.dies["measure", "relu"] = CRASH

    run = measure(forked)

    assert run.ops[0].failure is None
    assert run.plan.ops[0].base.apart.kind == "died_together"
    assert len(workers.pairs) == 1
    # What the one that died had measured is taken anew, also in the file of raw launches.
    assert [len(case.blocks) for case in run.ops[0].performance] == [1, 1]
    assert len(launches.read_launches(forked.reports).rows) == 2 * len(CASES)
    # The accuracy was known and is not checked again.
    assert workers.pairs[0][0].job.suites == (Suite.PERFORMANCE,) and len(run.ops[0].accuracy) == 1


def test_a_worker_without_a_base_that_dies_has_died(measure, workers, forked):
    workers.dies["measure", "relu"] = CRASH

    run = measure(forked, duel=DuelWhat.NONE)

    assert (run.ops[0].failure, workers.pairs) == (CRASH, [])


def test_a_signal_in_a_pair_keeps_what_was_measured_until_then(measure, workers, forked):
    workers.apart["relu"] = LATE
    workers.dies["measure", "relu"] = Stopped("SIGTERM")

    with pytest.raises(Stopped):
        measure(forked)

    run = store.read_run(forked.reports)
    assert (run.stopped, [len(case.blocks) for case in run.ops[0].performance]) == ("SIGTERM", [1, 1])
    assert (run.ops[0].failure, run.plan.ops[0].base.apart) == (None, LATE)


def test_an_audited_case_of_an_unchanged_op_is_all_that_is_measured_of_it(measure, workers, forked):
    many = tuple(f"rows={i}" for i in range(1, 31))
    workers.planned["scale"] = PlannedOp("scale", ("rows=0",), many)

    run = measure(forked)

    audit = run.plan.ops[1].audit
    assert len(audit) == 1
    job = next(job for job in workers.jobs if job.task == "measure" and job.ops[0].op == "scale")
    assert (job.cases, job.suites, job.base.audit) == (audit, (Suite.PERFORMANCE,), audit)
    assert [case.case for case in run.ops[1].performance] == list(audit)


# --- boards -----------------------------------------------------------------------------------------------------------


def test_later_processes_take_turns_on_the_hosts_devices(measure, workers, settings, heard):
    workers.devices, workers.boards = 3, {0: "FAKE-0", 1: "FAKE-1", 2: "FAKE-2", 3: "FAKE-0"}
    run = measure()

    again = pipeline.remeasure(run, settings, Request(seed=7), [Need("relu", "rows=1", 3)], heard.append)

    seen = [around.environment.get("FAKE_VISIBLE_DEVICES") for around in workers.surroundings]
    assert seen == [None, "0", "0", "1", "2", "0"]
    blocks = again.ops[0].performance[0].blocks
    assert [(block.process, block.board) for block in blocks] == [(0, None), (1, "FAKE-1"), (2, "FAKE-2"), (3, None)]
    assert again.environment.device.uuid == "FAKE-0"
    assert run.plan.devices == 3
