import math
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from perfci.core import extensions
from perfci.core.model.basics import ErrorStats, Reason, Suite
from perfci.core.model.compiled import Identity, StaticOp
from perfci.core.model.measured import (
    AccuracyCase,
    ArmBlock,
    BaseArm,
    Block,
    CompiledKernel,
    Measured,
    PerformanceCase,
    Summary,
)
from perfci.core.model.place import Device, DeviceState, Limits
from perfci.core.model.run import PlannedOp
from perfci.extensions.doctor.task import Examine, Examined
from perfci.extensions.lab.chains.records import ChainMeasured, Error, StageMeasured
from perfci.extensions.lab.chains.task import ChainPlanned
from perfci.extensions.static.tasks import Compile
from perfci.thresholds.case import CaseThresholds
from perfci.worker.answers import Rule
from perfci.worker.handover import Called
from perfci.worker.protocol import (
    Apart,
    Doing,
    Failed,
    Finished,
    Holding,
    OpDone,
    Prepared,
    Ready,
    Timing,
    TurnAsked,
    Waiting,
    pack,
    unpack,
)
from perfci.worker.tasks import (
    Describe,
    Host,
    Measure,
    Serve,
    Task,
    WorkerEnvironment,
    list_tasks,
    pack_task,
    unpack_task,
)
from tests.worker.task_examples import make_task

REASON = Reason("kernel_raised", {"case": "rows=1", "line": 3, "error": 'a\n"b"', "share": 0.5, "none": None})
SUMMARY = Summary(30, 5.0, 4.9, 4.9, 4.95, 5.1, 5.2, 5.3, 5.01, 0.01, 1)
BLOCK = Block(2, 1, 3.25, {"kernel": ArmBlock(SUMMARY, 5.5, 12.0, 1)}, {"kernel/reference": -0.01}, DeviceState(1980))
ERRORS = ErrorStats(12, 0.1, 0.01, 0.2, 0.02, 0.0, 0.05, 0.09, 0.03, (1, 2), l2=0.02)
MESSAGES = [
    Ready(Device("cuda", "NVIDIA H200", "nvidia-h200", "GPU-1", "580", "CUDA 13.0", 132, 1 << 25, 1 << 37)),
    Timing("activity"),
    Holding(),
    Ready(Device("fake", "Fake One", "fake-one"), devices=8),
    Examined(DeviceState(1980, 3200, 40, 300.5, ("thermal",), 1), None),
    PlannedOp("relu", ("rows=1",), ("rows=2", "rows=3"), REASON),
    Doing("accuracy", "relu", "rows=1,note=\"body\":{}", 3, 7),
    Doing("import", "relu"),
    Waiting("process 7"),
    AccuracyCase("rows=1", "nan", "strided", 4, errors=ERRORS, failure=REASON, raised=True, unchecked=REASON),
    Prepared(PerformanceCase("rows=1", base=BaseArm(Identity(("work 3 us",), unknown=REASON), None, (REASON,), True))),
    Prepared(PerformanceCase("rows=1", 8, 9, "float16", 1.5, 64, (CompiledKernel("k", 32, 0, 1024, 4, 2, "B=1"),))),
    Measured("rows=1", BLOCK, {"kernel": (5.0, 5.1), "reference": (6.0,)}),
    Finished(PerformanceCase("rows=1", errors=ERRORS, failure=REASON, raised=True, suspicion=(REASON,), cache="warm")),
    OpDone(REASON, (REASON,), "abc", 1.0, 2.0, Limits(4000.0, {"float16": 700.0})),
    OpDone(),
    StaticOp("relu", "sm_90", failure=REASON),
    ChainPlanned(("rows=1", "rows=2")),
    ChainMeasured("rows=1", 7, (StageMeasured("norm", (0,), Error(1e-3, 0.5)),), failures=(REASON,)),
    Apart(REASON),
    TurnAsked(),
    Failed(REASON),
]  # fmt: skip


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_is_one_line_and_comes_back_equal(message):
    line = pack(message)

    assert line.count(b"\n") == 1 and line.endswith(b"\n")
    assert unpack(line, [Waiting, type(message)]) == message


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
        unpack(line, [Doing])


def test_a_number_that_is_not_finite_becomes_null_and_stays_readable():
    line = pack(Failed(Reason("wrong_values", {"got": math.nan, "expected": math.inf})))

    assert unpack(line, [Failed]) == Failed(Reason("wrong_values", {"got": None, "expected": None}))


READY = Ready(Device("fake", "Fake One", "fake-one"))


@pytest.mark.parametrize(
    ("kind", "ops", "message", "last"),
    [
        (Measure, ["a"], OpDone(), True),
        (Measure, ["a"], Apart(REASON), True),
        (Measure, ["a"], READY, False),
        (Serve, ["a"], Called(), False),
        (Examine, [], Examined(DeviceState(), None), True),
        (Describe, ["a", "b"], PlannedOp("a"), False),
        (Describe, ["a", "b"], PlannedOp("b"), True),
        (Describe, ["a"], READY, False),
        (Describe, [], READY, True),
        (Compile, ["a", "b"], StaticOp("b", "sm_90"), True),
    ],
)
def test_each_task_ends_with_its_own_last_message(kind, ops, message, last):
    more = {"target": "sm_90"} if kind is Compile else {}

    assert make_task(kind, tuple(ops), **more).ends(message) is last


# --- every task -------------------------------------------------------------------------------------------------------

TASKS = [extensions.load(place) for place in list_tasks()]


@pytest.mark.parametrize("kind", TASKS, ids=lambda kind: kind.__name__)
def test_a_task_names_what_performs_it_and_what_ends_it_is_what_it_may_answer(kind):
    assert issubclass(kind, Task) and callable(extensions.load(kind.performer))
    assert set(kind.last) <= set(kind.answers)
    names = [answer.__name__ for answer in kind.answers]
    assert len(names) == len(set(names))


def test_tasks_have_names_of_their_own():
    assert len({kind.__name__ for kind in TASKS}) == len(TASKS)


@dataclass(frozen=True, kw_only=True)
class Echo(Task):
    """What an extension may ask of a worker."""

    performer = f"{__name__}:echo"
    answers = {**Task.answers, Waiting: Rule()}  # noqa: RUF012
    last = (Waiting,)

    holder: str


def test_a_worker_knows_the_tasks_that_an_extension_registers(monkeypatch):
    monkeypatch.setitem(sys.modules, Echo.__module__, sys.modules[__name__])
    extension = extensions.Extension(provides={"task": (f"{Echo.__module__}:Echo",)})
    monkeypatch.setattr(extensions, "read_extensions", lambda: {"echo": extension})
    task = make_task(Echo, holder="process 7")

    assert unpack_task(pack_task(task, 3)) == (task, 3)
    assert task.ends(Waiting("process 7")) and not task.ends(OpDone())


def test_a_task_arrives_as_it_was_sent():
    served = make_task(Serve, lock=False)
    host = Host(served, WorkerEnvironment({"PATH": "/bin"}, Path("/a"), Path("/a/log"), 30.0, writable=(Path("/a"),)))
    limits = {"rows=1": CaseThresholds(tau=((0.0, 0.02),), compile_s=3.0)}
    task = make_task(cases=("rows=1",), limits=limits, host=host, suites=(Suite.ACCURACY,), fake={"locked": True})

    assert unpack_task(pack_task(task, 7)) == (task, 7)
