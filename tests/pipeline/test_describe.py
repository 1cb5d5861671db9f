"""Ops imported once each; whatever kills the importing worker costs one op."""

from __future__ import annotations

import pytest

from perfci import pipeline
from perfci.errors import PerfciError, UsageError
from perfci.model import Reason
from perfci.plan import Request
from perfci.worker.protocol import Step
from tests.pipeline.stand_ins import CASES, DEVICE


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
