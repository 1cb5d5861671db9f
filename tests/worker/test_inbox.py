"""What a worker says is testimony: the inbox takes what its task allows, and names the rest."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from perfci.core.model import (
    AccuracyCase,
    ArmBlock,
    Block,
    Device,
    HostArm,
    HostBlock,
    Measured,
    PerformanceCase,
    PlannedBase,
    PlannedOp,
    Reason,
    Suite,
    SuiteChange,
    Summary,
    SustainedTurn,
)
from perfci.ops.identity import DuelPlan
from perfci.worker.answers import Inbox
from perfci.worker.process import give_handle, signal_group, take_given
from perfci.worker.protocol import (
    Apart,
    Began,
    Doing,
    Failed,
    Finished,
    Holding,
    HostLost,
    LockAsked,
    OpDone,
    Prepared,
    Ready,
    Refused,
    Timing,
    TurnAsked,
    pack,
)
from perfci.worker.tasks import BaseFiles, Describe
from tests.processes import runs
from tests.worker.task_examples import make_task

A, B = "rows=1", "rows=2"
FAKE = Ready(Device("fake", "Fake One", "fake-one", "FAKE-0"))
BASE = BaseFiles("scale", Path("/base"), Path("/base"), Path("/base"), DuelPlan((A,)))
TASK = make_task(cases=(A,), base=BASE)
IMPORT, PREPARED, FINISHED = Doing("import", "relu"), Prepared(PerformanceCase(A)), Finished(PerformanceCase(A))
CHECK = AccuracyCase(A, "normal", "contiguous", 0)
WHY = Reason("worker_silent")


def measured(index=0, process=0, case=A, arms=("kernel", "reference", "base"), **fields):
    times = ArmBlock(Summary(1, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 0.0, 0))
    block = Block(index, process, 0.5, dict.fromkeys(arms, times), {f"kernel/{arm}": 0.0 for arm in arms[1:]})
    return Measured(case, replace(block, **fields), dict.fromkeys(arms, (5.0,)))


def take(task, *messages):
    """What was heard of these, and what was not asked for."""
    inbox = Inbox(task)
    heard = inbox.take(b"".join(map(pack, messages)))
    return heard, inbox.breach and inbox.breach[1]["message"], inbox.failure


HONEST = [FAKE, IMPORT, LockAsked("FAKE-0"), Holding(), CHECK, CHECK, Timing("virtual"), PREPARED, PREPARED,
          *map(measured, range(24)), FINISHED, OpDone()]  # fmt: skip


def test_what_a_worker_has_to_say_is_heard():
    assert take(TASK, *HONEST) == (HONEST, None, None)


def case(**fields):
    return Prepared(PerformanceCase(A, **fields))


HOST = HostBlock(0, 3, 100, {"kernel": HostArm(1.0, 1.0)})
UNASKED = {
    "another case": [Prepared(PerformanceCase(B))],
    "a block of another case": [PREPARED, measured(case=B)],
    "a block of a case that was not begun": [measured()],
    "a block twice": [PREPARED, measured(), measured()],
    "a block of a later process": [PREPARED, measured(process=1)],
    "more blocks than a process takes": [PREPARED, measured(24)],
    "a block behind the end of its case": [PREPARED, FINISHED, measured()],
    "a block of arms that do not exist": [PREPARED, measured(arms=("kernel", "better"))],
    "a block without the kernel": [PREPARED, measured(arms=("reference",))],
    "a block of a board": [PREPARED, measured(board="FAKE-1")],
    "a block with shifts of nothing": [PREPARED, measured(shifts={"kernel/other": 0.0})],
    "launches of other arms": [PREPARED, replace(measured(), launches_us={"kernel": (5.0,)})],
    "no launches": [PREPARED, replace(measured(), launches_us={"kernel": (), "reference": (), "base": ()})],
    "a case prepared thrice": [PREPARED] * 3,
    "a case that ends twice": [PREPARED, FINISHED, FINISHED],
    "a case that ends before it begins": [FINISHED],
    "blocks in a case": [case(blocks=(measured().block,))],
    "who has reported a case": [case(self_reported=WHY)],
    "why a case is late": [case(late=WHY)],
    "host times of another process": [case(host=(HOST,))],
    "turns of another process": [case(sustained=(SustainedTurn("kernel", 1, 5.0),))],
    "the device again": [FAKE],
    "that it shares no memory": [Began(7)],
    "another lock": [LockAsked("FAKE-1")],
    "where a lock lies": [LockAsked("FAKE-0", WHY)],
    "the lock twice": [LockAsked("FAKE-0"), LockAsked("FAKE-0")],
    "held twice": [Holding(), Holding()],
    "another device's timer": [Timing("event")],
    "no timer": [Timing(None)],
    "a turn": [TurnAsked()],
    "a process that it does not have": [HostLost(WHY)],
    "a refusal": [Refused(A, WHY)],
    "nothing to time": [OpDone(unmeasured=WHY)],
    "something without a name that its suites ask less of": [OpDone(change=SuiteChange((Reason("weaker_fewer"),)))],
    "another op's stage": [Doing("measure", "scale")],
    "the start": [Doing("start", "relu")],
    "the end of an op": [Doing("done", "relu")],
    "a stage of the base": [Doing("measure of the base", "relu")],
    "more after its end": [OpDone(), CHECK],
    "its end twice": [OpDone(), OpDone()],
    "its end in two ways": [OpDone(), Apart(WHY)],
    "that its time is up": [Failed(Reason("worker_late"))],
    "that the device is gone": [Failed(Reason("device_gone"))],
    "that the device is gone in a case": [case(failure=Reason("device_gone"))],
    "a description": [PlannedOp("relu")],
}


@pytest.mark.parametrize("messages", UNASKED.values(), ids=UNASKED)
def test_anything_else_ends_the_worker_and_is_named(messages):
    before = [FAKE, IMPORT]

    heard, unasked, failure = take(TASK, *before, *messages, CHECK)

    assert heard == [*before, *messages[:-1]] and failure is None
    assert unasked.startswith(type(messages[-1]).__name__)


OTHERS = {
    "a check that was not asked for": (make_task(suites=(Suite.PERFORMANCE,)), [FAKE, IMPORT, CHECK]),
    "a check of a later process": (make_task(process=1), [FAKE, IMPORT, CHECK]),
    "a check of the base's suite": (make_task(base=BASE, by_own=True), [FAKE, IMPORT, replace(CHECK, of_base=True)]),
    "an arm of a base that it does not have": (make_task(), [FAKE, IMPORT, PREPARED, measured()]),
    "the device after an import": (make_task(), [IMPORT, FAKE]),
    "a device of another kind": (make_task(device="cuda"), [FAKE]),
    "another op": (make_task(Describe), [FAKE, IMPORT, PlannedOp("scale")]),
    "an op before its import": (make_task(Describe, ("relu", "scale")), [FAKE, IMPORT, PlannedOp("scale")]),
    "an op twice": (make_task(Describe, ("relu", "scale")), [FAKE, IMPORT, PlannedOp("relu"), PlannedOp("relu")]),
    "an import twice": (make_task(Describe), [FAKE, IMPORT, IMPORT]),
    "an op of the base": (make_task(Describe), [FAKE, IMPORT, PlannedOp("relu", base=PlannedBase(same=True))]),
    "an unlisted op": (make_task(Describe), [FAKE, IMPORT, PlannedOp("relu", unlisted=True)]),
    "an op to control": (make_task(Describe), [FAKE, IMPORT, PlannedOp("relu", audit=(A,))]),
    "an op without a device": (make_task(Describe), [FAKE, IMPORT, PlannedOp("relu", failure=Reason("device_gone"))]),
    "a backend that cannot run here": (
        make_task(Describe), [FAKE, IMPORT, PlannedOp("relu", failure=Reason("backend_lacks_package"))],
    ),
    "a copy": (make_task(Describe), [FAKE, IMPORT, PlannedOp("relu", outdated=WHY)]),
}  # fmt: skip


@pytest.mark.parametrize(("task", "messages"), OTHERS.values(), ids=OTHERS)
def test_what_another_task_may_be_told_is_named_too(task, messages):
    heard, unasked, _ = take(task, *messages)

    assert heard == messages[:-1] and unasked.startswith(type(messages[-1]).__name__)


def test_a_device_that_is_gone_is_believed_before_anything_is_imported():
    gone = Reason("device_gone", {"device": "cuda"})

    assert take(TASK, Failed(gone)) == ([], None, gone)


def test_a_worker_that_asks_is_answered_before_it_asks_again():
    task = make_task(baton=0)

    assert take(task, FAKE, TurnAsked(), TurnAsked())[1] == "TurnAsked"


# --- processes that a worker has started ------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this Python or kernel has no handles of processes")
@pytest.mark.parametrize("stopped", [False, True])
def test_a_process_whose_handle_was_given_is_killed_with_its_group(stopped):
    script = "import subprocess; p = subprocess.Popen(['sleep', '600']); print(p.pid, flush=True); p.wait()"
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    child = int(process.stdout.readline())
    if stopped:
        os.killpg(process.pid, signal.SIGSTOP)
    handles, giving = socket.socketpair(type=socket.SOCK_DGRAM)
    with giving:
        give_handle(process.pid, giving.fileno())

    for handle in take_given(handles):
        signal_group(handle, signal.SIGKILL)
        os.close(handle)

    assert process.wait(20) == -signal.SIGKILL
    until = time.monotonic() + 20
    while runs(child) and time.monotonic() < until:
        time.sleep(0.01)
    assert not runs(child)
    process.stdout.close()


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="this Python or kernel has no handles of processes")
def test_a_process_that_has_ended_leaves_its_number_to_others():
    process = subprocess.Popen([sys.executable, "-c", ""])
    handles, giving = socket.socketpair(type=socket.SOCK_DGRAM)
    with giving:
        give_handle(process.pid, giving.fileno())
        process.wait()

    for handle in take_given(handles):
        signal_group(handle, signal.SIGKILL)
        os.close(handle)
