"""Ops imported once each; whatever kills the importing worker costs one op."""

from __future__ import annotations

import importlib

import pytest

from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import Device, Reason
from perfci.runs import flow
from perfci.runs.bench import open_bench
from perfci.runs.plan import Request
from perfci.worker.protocol import Doing
from tests.runs.stand_ins import CASES, DEVICE

describe = importlib.import_module("perfci.runs.describe")


def test_all_ops_are_described_by_one_worker(workers, settings, heard):
    plan, device = flow.describe(settings, Request(), heard.append)

    assert [op.op for op in plan.ops] == ["relu", "scale"]
    assert (device, plan.device, plan.family) == (DEVICE, "fake", 4)
    assert [[files.op for files in job.ops] for job in workers.jobs] == [["relu", "scale"]]
    assert Doing("import", "scale") in heard


def test_an_op_that_kills_the_describing_worker_is_named_and_the_rest_described_by_another(workers, settings, heard):
    death = Reason("worker_died", {"op": "relu", "signal": "SIGSEGV"})
    workers.dies["describe", "relu"] = death

    plan, _ = flow.describe(settings, Request(), heard.append)

    assert [(op.op, op.failure, op.performance) for op in plan.ops] == [("relu", death, ()), ("scale", None, CASES)]
    assert [[files.op for files in job.ops] for job in workers.jobs] == [["relu", "scale"], ["scale"]]


def test_an_op_that_breaks_the_contract_is_never_imported(workers, settings, heard):
    (settings.kernels / "relu" / "relu_accuracy.py").unlink()

    plan, _ = flow.describe(settings, Request(), heard.append)

    assert plan.ops[0].failure.kind == "file_of_four_missing"
    assert [[files.op for files in job.ops] for job in workers.jobs] == [["scale"]]


def test_without_a_device_there_is_no_plan_but_a_reason(workers, settings, heard):
    workers.device_answers = False

    with pytest.raises(PerfciError) as caught:
        flow.describe(settings, Request(device="cuda"), heard.append)

    assert caught.value.reason == Reason("cuda_unavailable", {"torch": "2.13"})


# --- several devices --------------------------------------------------------------------------------------------------


@pytest.fixture
def boards(workers, settings, heard, monkeypatch):
    """What --devices comes to on a host with so many boards, as (visible, UUID)."""
    monkeypatch.delenv("FAKE_VISIBLE_DEVICES", raising=False)
    workers.boards = {str(index): f"FAKE-{index}" for index in range(8)}

    def chosen(devices, visible=4, given=None, device=DEVICE):
        if given is not None:
            monkeypatch.setenv("FAKE_VISIBLE_DEVICES", given)
        with open_bench(settings, heard.append) as bench:
            host = describe.Described(device, (), visible, visible)
            found = describe.open_boards(bench, Request(devices=devices), host)
        return [(board.visible, board.uuid) for board in found]

    return chosen


def test_all_devices_or_those_named_are_opened_each_alone(boards, workers):
    assert boards("all", visible=2) == [("0", "FAKE-0"), ("1", "FAKE-1")]
    assert boards("3,1") == [("3", "FAKE-3"), ("1", "FAKE-1")]
    assert boards("2") == [("2", "FAKE-2")]
    seen = [around.environment["FAKE_VISIBLE_DEVICES"] for around in workers.surroundings]
    assert seen == ["0", "1", "3", "1", "2"]
    assert {(job.task, job.ops) for job in workers.jobs} == {("describe", ())}


@pytest.mark.parametrize(
    ("given", "devices", "visible", "seen"),
    [
        ("5,7", "all", 2, ["5", "7"]),
        ("5,7", "1", 2, ["7"]),
        ("GPU-aa,GPU-bb,GPU-cc", "2,0", 3, ["GPU-cc", "GPU-aa"]),
        ("MIG-aa,MIG-bb", "all", 1, ["MIG-aa", "MIG-bb"]),
        ("0,1,-1,2", "all", 2, ["0", "1"]),
    ],
)
def test_indexes_count_what_this_process_may_use_and_are_spelt_as_it_was_told(
    boards, workers, given, devices, visible, seen
):
    workers.boards |= {name: f"uuid of {name}" for name in given.split(",")}

    assert [name for name, _ in boards(devices, visible, given)] == seen


@pytest.mark.parametrize(
    ("devices", "kind", "told"),
    [
        ("0,4", "devices_missing", "no device 4"),
        ("1,1", "devices_twice", "1,1"),
    ],
)
def test_an_index_that_no_device_has_or_one_twice_is_a_usage_error(boards, workers, devices, kind, told):
    with pytest.raises(UsageError) as caught:
        boards(devices)

    assert caught.value.reason.kind == kind and told in str(caught.value)
    assert workers.jobs == []


def test_devices_of_different_models_are_refused_with_both_named(boards, workers):
    workers.models["FAKE-2"] = Device("fake", "Fake Two", "fake-two", "FAKE-2")

    with pytest.raises(UsageError) as caught:
        boards("all")

    text = str(caught.value)
    assert caught.value.reason.kind == "devices_unlike"
    assert all(word in text for word in ("0 (fake-one)", "2 (fake-two)", "--devices"))


def test_a_device_that_cannot_be_opened_says_why(boards, workers):
    workers.device_answers = False

    with pytest.raises(PerfciError) as caught:
        boards("0,1")

    assert caught.value.reason.kind == "cuda_unavailable"
