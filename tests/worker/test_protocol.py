import math

import pytest

from perfci.core.model import (
    AccuracyCase,
    ArmBlock,
    BaseArm,
    Block,
    CompiledKernel,
    Device,
    DeviceState,
    ErrorStats,
    Identity,
    Limits,
    PerformanceCase,
    PlannedOp,
    Reason,
    StaticOp,
    Summary,
)
from perfci.lab.chains.records import ChainCase, Error, StageResult
from perfci.worker.protocol import (
    Apart,
    ChainPlanned,
    Doing,
    Examined,
    Failed,
    Finished,
    Job,
    Measured,
    OpDone,
    OpFiles,
    Prepared,
    Ready,
    TurnAsked,
    Waiting,
    ends,
    pack,
    unpack,
)

REASON = Reason("kernel_raised", {"case": "rows=1", "line": 3, "error": 'a\n"b"', "share": 0.5, "none": None})
SUMMARY = Summary(30, 5.0, 4.9, 4.9, 4.95, 5.1, 5.2, 5.3, 5.01, 0.01, 1)
BLOCK = Block(2, 1, 3.25, {"kernel": ArmBlock(SUMMARY, 5.5, 12.0, 1)}, {"kernel/reference": -0.01}, DeviceState(1980))
ERRORS = ErrorStats(12, 0.1, 0.01, 0.2, 0.02, 0.0, 0.05, 0.09, 0.03, (1, 2), l2=0.02)
MESSAGES = [
    Ready(Device("cuda", "NVIDIA H200", "nvidia-h200", "GPU-1", "580", "CUDA 13.0", 132, 1 << 25, 1 << 37), "activity"),
    Ready(Device("fake", "Fake One", "fake-one"), devices=8),
    Examined(DeviceState(1980, 3200, 40, 300.5, ("thermal",), 1), None),
    PlannedOp("relu", ("rows=1",), ("rows=2", "rows=3"), REASON),
    Doing("accuracy", "relu", "rows=1,note=\"body\":{}", 3, 7),
    Doing("import", "relu"),
    Waiting("process 7"),
    AccuracyCase("rows=1", "nan", "strided", 4, True, ERRORS, ERRORS, 1e-3, 1e-5, REASON, True, REASON),
    Prepared(PerformanceCase("rows=1", base=BaseArm(Identity(("work 3 us",), unknown=REASON), None, (REASON,), True))),
    Prepared(PerformanceCase("rows=1", 8, 9, "float16", 1.5, 64, (CompiledKernel("k", 32, 0, 1024, 4, 2, "B=1"),))),
    Measured("rows=1", BLOCK, {"kernel": (5.0, 5.1), "reference": (6.0,)}),
    Finished(PerformanceCase("rows=1", errors=ERRORS, failure=REASON, raised=True, suspicion=(REASON,), cache="warm")),
    OpDone(REASON, (REASON,), "abc", 1.0, 2.0, Limits(4000.0, {"float16": 700.0})),
    OpDone(),
    StaticOp("relu", "sm_90", failure=REASON),
    ChainPlanned(("rows=1", "rows=2")),
    ChainCase("rows=1", 7, (StageResult("norm", Error(1e-3, 0.5)),), failures=(REASON,)),
    Apart(REASON),
    TurnAsked(),
    Failed(REASON),
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_one_line_and_comes_back_equal(message):
    line = pack(message)

    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert unpack(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"Traceback (most recent call last):\n",
        b'{"kind":"Nonsense","body":{}}\n',
        b'{"kind":"Step","body":{}}\n',
        b'{"kind":"Step","body":}}\n',
        b'{"kind":"\xff\xfe","body":{}}\n',
        b'{"stage":"import","op":"relu"}\n',
    ],
)
def test_a_line_that_is_no_message_is_a_value_error(line):
    with pytest.raises(ValueError):  # noqa: PT011
        unpack(line)


def test_a_number_that_is_not_finite_becomes_null_and_stays_readable():
    line = pack(Failed(Reason("wrong_values", {"got": math.nan, "expected": math.inf})))

    assert unpack(line) == Failed(Reason("wrong_values", {"got": None, "expected": None}))


READY = Ready(Device("fake", "Fake One", "fake-one"))


@pytest.mark.parametrize(
    ("task", "ops", "message", "last"),
    [
        ("measure", ["a"], OpDone(), True),
        ("measure", ["a"], Apart(REASON), True),
        ("measure", ["a"], READY, False),
        ("examine", [], Examined(DeviceState(), None), True),
        ("describe", ["a", "b"], PlannedOp("a"), False),
        ("describe", ["a", "b"], PlannedOp("b"), True),
        ("describe", ["a"], READY, False),
        ("describe", [], READY, True),
        ("static", ["a", "b"], StaticOp("b", "sm_90"), True),
    ],
)
def test_each_task_ends_with_its_own_last_message(task, ops, message, last):
    assert ends(Job(task, tuple(OpFiles(op, "/") for op in ops), "/", "fake", 1), message) is last
