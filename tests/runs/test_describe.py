"""Ops are imported once each, and a killed importing worker costs one op."""

import importlib

import pytest

from perfci.core.errors import PerfciError
from perfci.core.model import Reason
from perfci.runs import experiment
from perfci.runs.plan import Request
from perfci.worker.protocol import Doing
from tests.runs.stand_ins import CASES

describe = importlib.import_module("perfci.runs.describe")


def test_all_ops_are_described_by_one_worker(workers, settings, heard):
    described = experiment.describe(settings, Request(), heard.append)

    assert [op.op for op in described.ops] == ["relu", "scale"]
    assert described.device.kind == "fake"
    assert [[files.op for files in task.place.ops] for task in workers.tasks] == [["relu", "scale"]]
    assert Doing("import", "scale") in heard


def test_many_ops_are_described_by_several_workers_at_once_and_one_that_is_killed_costs_one_op(
    workers, settings, heard, monkeypatch
):
    monkeypatch.setattr(describe, "count_cores", lambda: 4)
    monkeypatch.setattr(describe, "FEWEST_OPS", 1)
    death = Reason("worker_died", {"op": "relu", "signal": "SIGSEGV"})
    workers.dies["describe", "relu"] = death

    plan = experiment.describe(settings, Request(), heard.append)

    assert [(op.op, op.failure) for op in plan.ops] == [("relu", death), ("scale", None)]
    imported = [[files.op for files in task.place.ops] for task in workers.tasks]
    assert imported[:2] == [["relu"], ["scale"]]


def test_an_op_that_kills_the_describing_worker_is_named_and_the_rest_described_by_another(workers, settings, heard):
    death = Reason("worker_died", {"op": "relu", "signal": "SIGSEGV"})
    workers.dies["describe", "relu"] = death

    plan = experiment.describe(settings, Request(), heard.append)

    assert [(op.op, op.failure, op.performance) for op in plan.ops] == [("relu", death, ()), ("scale", None, CASES)]
    assert [[files.op for files in task.place.ops] for task in workers.tasks] == [["relu", "scale"], ["scale"]]


def test_an_op_that_breaks_the_contract_is_never_imported(workers, settings, heard):
    (settings.kernels / "relu" / "relu_accuracy.py").unlink()

    plan = experiment.describe(settings, Request(), heard.append)

    assert plan.ops[0].failure.kind == "file_of_four_missing"
    assert [[files.op for files in task.place.ops] for task in workers.tasks] == [["scale"]]


def test_without_a_device_there_is_no_plan_but_a_reason(workers, settings, heard):
    workers.device_answers = False

    with pytest.raises(PerfciError) as caught:
        experiment.describe(settings, Request(device="cuda"), heard.append)

    assert caught.value.reason == Reason("cuda_unavailable", {"torch": "2.13"})
