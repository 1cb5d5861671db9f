"""What ops launch is compiled beside others that are measured, and never at the cost of what is timed."""

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path

import pytest

from perfci.core.model import Device, Reason, Suite
from perfci.core.stopping import Stopped
from perfci.core.variables import OPENS_NONE
from perfci.extensions.offline import lanes as offline
from perfci.extensions.offline.task import Precompile
from perfci.runs.tasks import Tasks
from perfci.worker.protocol import Doing, Noted
from tests.processes import runs
from tests.runs.stand_ins import write_ops

pytestmark = pytest.mark.slow

START, WORKING = subprocess.Popen, offline.working
DEADLINE_S = 20

LANE = """
import os, sys, time
from pathlib import Path
from perfci.worker.protocol import OpDone, pack
from perfci.worker.tasks import unpack_task
task, events = unpack_task(sys.stdin.readline())
folder = Path(sys.argv[1])
(folder / f"{task.op} {os.getpid()}").touch()
while not (folder / f"{task.op} may end {task.part[0]}").exists():
    time.sleep(0.01)
if (folder / f"{task.op} crashes").exists():
    print("an invalid pointer", flush=True)
    os.abort()
os.write(events, pack(OpDone()))
"""


class Lanes:
    """Workers that compile: real processes, each of which ends when its op may. Looks do what a test says."""

    def __init__(self, folder, workers):
        self.tasks, self.looks, self.hidden = [], [], ()
        self.variables = {}
        self.preparing, self.measuring = {}, {}
        """op -> what happens while it is prepared, or measured: a generator"""
        self._folder, self._workers = folder, workers

    def compiling(self, task, around, heard):
        """In the place of `working`, for compiling."""
        self.tasks.append(task)
        self.hidden = around.hidden
        self.variables[task.op] = around.environment
        return WORKING(task, around, heard)

    def looking(self, task, around, heard):
        """In the place of `working`, for looks."""
        self.looks.append(task.op)
        yield ()
        for stage, happens in (("prepare", self.preparing), ("measure", self.measuring)):
            heard(Doing(stage, task.op))
            yield from happens.get(task.op, lambda: ())()
        return self._workers(task, around, heard)

    def let_end(self, op, parts=range(2)):
        for part in parts:
            (self._folder / f"{op} may end {part}").touch()

    def list_processes(self, *ops):
        return [path.name.split()[1] for op in ops for path in self._folder.glob(f"{op} [0-9]*")]

    def list_states(self, op):
        """T stands for one that stands still."""
        stats = [Path(f"/proc/{pid}/stat").read_text() for pid in self.list_processes(op) if runs(pid)]
        return {stat.rpartition(")")[2].split()[0] for stat in stats}


def until(condition):
    """Wait for it, in a lane."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)
        yield ()


@pytest.fixture
def lanes(workers, tmp_path, monkeypatch):
    """A board that can be compiled for, by two processes at a time."""
    lanes = Lanes(tmp_path, workers)
    script = tmp_path / "lane.py"
    script.write_text(LANE)
    command = [sys.executable, str(script), str(tmp_path)]
    process = importlib.import_module("perfci.worker.process")
    monkeypatch.setattr(process.subprocess, "Popen", lambda _, **options: START(command, **options))
    monkeypatch.setattr(process.forks, "start", lambda *_: None)
    monkeypatch.setattr(process.forks, "begin", lambda *_: "")  # it would start that script, and tests to come use it
    monkeypatch.setattr(process, "_GLANCE_S", 0.02)
    monkeypatch.setattr(offline, "working", lanes.compiling)
    monkeypatch.setattr(offline, "count_cores", lambda: 2)
    monkeypatch.setattr(importlib.import_module("perfci.runs.schedule"), "warm_up", lambda *_: None)
    monkeypatch.setattr(importlib.import_module("perfci.runs.looks"), "working", lanes.looking)
    monkeypatch.setattr(Precompile, "find_target", staticmethod(lambda _: "sm_90"))
    workers.models["FAKE-0"] = Device("cuda", "Fake One", "fake-one", "FAKE-0")
    return lanes


def test_an_op_is_prepared_once_it_is_compiled_while_the_next_one_is_compiled(measure, lanes):
    lanes.let_end("relu")
    seen = set()

    def preparing():
        yield from until(lambda: lanes.list_states("scale"))
        seen.update(lanes.list_states("scale"))
        lanes.let_end("scale")
        ends = time.monotonic() + 1.0
        yield from until(lambda: time.monotonic() > ends)

    lanes.preparing["relu"] = preparing
    run = measure(suites=(Suite.PERFORMANCE,))

    assert lanes.looks == ["relu", "scale"]
    assert seen and seen <= {"R", "S", "D"}
    assert [op.failure for op in run.ops] == [None, None]
    # What goes on beside a look is not counted twice.
    assert 0 < run.spent_s["compile"] <= run.wall_s - 1.0
    # Nothing is timed before the first one is compiled.
    assert {(task.op, task.behind) for task in lanes.tasks} == {("relu", False), ("scale", True)}


def test_a_process_that_crashes_as_it_compiles_ahead_is_told_once_and_the_op_is_measured(
    measure, heard, lanes, tmp_path
):
    (tmp_path / "relu crashes").touch()
    lanes.let_end("relu")
    lanes.let_end("scale")
    run = measure(suites=(Suite.PERFORMANCE,))

    assert [op.failure for op in run.ops] == [None, None]
    facts = {"op": "relu", "signal": "SIGABRT", "words": "an invalid pointer"}
    assert [message.reason for message in heard if isinstance(message, Noted)] == [Reason("ahead_crashed", facts)]


def test_an_op_that_is_compiled_is_measured_before_one_that_is_not_but_none_before_the_first(
    measure, lanes, settings, monkeypatch
):
    write_ops(settings.root, ["wave"])
    monkeypatch.setattr(offline, "count_cores", lambda: 3)
    lanes.let_end("relu", [0, 1])  # what it leaves compiles the next ops
    lanes.let_end("scale", [0])
    lanes.let_end("wave")
    lanes.preparing["wave"] = lambda: lanes.let_end("scale") or ()

    def end_the_first():
        processes = lanes.list_processes
        deque(until(lambda: len(processes("wave")) == 2 and not any(map(runs, processes("wave")))), maxlen=0)
        time.sleep(0.2)
        lanes.let_end("relu")
        lanes.let_end("relu", [2])

    thread = threading.Thread(target=end_the_first)
    thread.start()
    measure(suites=(Suite.PERFORMANCE,))
    thread.join()

    assert lanes.looks == ["relu", "wave", "scale"]


def test_looks_do_not_wait_for_a_process_that_is_still_importing(measure, lanes, monkeypatch):
    begun = []
    monkeypatch.setattr(offline.forks, "is_ready", lambda _: len(lanes.tasks) < 2 or bool(begun))
    lanes.let_end("relu")
    lanes.let_end("scale")
    lanes.preparing["relu"] = lambda: begun.extend(task.op for task in lanes.tasks) or ()

    measure(suites=(Suite.PERFORMANCE,))

    assert begun == ["relu", "relu"]
    assert lanes.looks == ["relu", "scale"]


def test_ops_of_triton_are_looked_at_first_as_their_compilers_need_no_other_process(measure, lanes, settings):
    folder = settings.root / "kernels" / "relu"
    (folder / "relu_triton.py").rename(folder / "relu_tilelang.py")
    lanes.let_end("relu")
    lanes.let_end("scale")

    measure(suites=(Suite.PERFORMANCE,))

    assert lanes.looks == ["scale", "relu"]


def test_nothing_is_compiled_while_anything_is_timed(measure, lanes, settings):
    write_ops(settings.root, ["wave"])
    lanes.let_end("relu")
    lanes.let_end("wave")
    seen = []

    def measuring():
        began = len(lanes.tasks)
        yield from until(lambda: lanes.list_states("scale") == {"T"})
        lanes.let_end("scale")
        os.kill(int(lanes.list_processes("scale")[0]), signal.SIGKILL)  # a core is free, and stays so
        ends = time.monotonic() + 0.5
        yield from until(lambda: time.monotonic() > ends)
        seen.extend([lanes.list_states("scale"), len(lanes.tasks) - began])

    lanes.preparing["relu"] = lambda: until(lambda: len(lanes.list_processes("scale")) == 2)
    lanes.measuring["relu"] = measuring
    run = measure(suites=(Suite.PERFORMANCE,))

    assert seen == [{"T"}, 0]
    assert lanes.looks == ["relu", "scale", "wave"]
    assert not any(op.failure for op in run.ops)


def test_whatever_ends_a_run_ends_what_is_compiled_beside_it(measure, lanes):
    lanes.let_end("relu")

    def measuring():
        yield ()
        raise Stopped("SIGINT")

    lanes.preparing["relu"] = lambda: until(lambda: lanes.list_processes("scale"))
    lanes.measuring["relu"] = measuring
    with pytest.raises(Stopped):
        measure(suites=(Suite.PERFORMANCE,))

    assert lanes.list_processes("scale")
    assert not any(map(runs, lanes.list_processes("relu", "scale")))


def test_a_run_whose_device_is_gone_waits_for_nothing_to_be_compiled(measure, lanes, workers):
    gone = Reason("device_gone", {"device": "cuda", "why": "no"})
    lanes.let_end("relu")
    workers.dies["measure", "relu"] = gone
    began = time.monotonic()

    run = measure(suites=(Suite.PERFORMANCE,))

    assert time.monotonic() < began + DEADLINE_S
    assert lanes.looks == ["relu"]
    assert [op.failure for op in run.ops] == [gone, gone]
    assert not any(map(runs, lanes.list_processes("relu", "scale")))


def test_other_compilers_than_triton_work_in_processes_that_open_no_driver_if_they_keep_what_they_compiled(
    measure, lanes, settings, monkeypatch
):
    begun = []
    monkeypatch.setattr(offline.forks, "begin", lambda variables, *_: begun.append(variables))
    monkeypatch.setattr(offline, "count_cores", lambda: 4)
    for op, backend in (("relu", "tilelang"), ("scale", "cutedsl")):
        folder = settings.root / "kernels" / op
        (folder / f"{op}_triton.py").rename(folder / f"{op}_{backend}.py")
    lanes.let_end("relu", range(4))

    measure(suites=(Suite.PERFORMANCE,))

    assert {task.op: task.part[1] for task in lanes.tasks} == {"relu": 4}
    assert lanes.variables["relu"].items() >= OPENS_NONE.items()
    assert lanes.variables["relu"] in begun


def test_the_first_op_whose_answers_are_checked_is_looked_at_while_it_compiles(measure, lanes):
    def let_end():
        lanes.let_end("relu")
        lanes.let_end("scale")

    late, seen = threading.Timer(3.0, let_end), []
    lanes.preparing["relu"] = lambda: seen.append(late.is_alive()) or ()
    late.start()
    measure()
    late.join()

    assert lanes.looks == ["relu", "scale"]
    assert seen == [True]


def test_a_control_which_may_be_slow_to_compile_is_compiled_first_and_looked_at_last(measure, lanes, monkeypatch):
    first = Tasks.measure_first

    def measure_first(tasks, planned, cases):
        task = first(tasks, planned, cases)
        return replace(task, suites=(Suite.PERFORMANCE,)) if planned.op == "scale" else task

    monkeypatch.setattr(Tasks, "measure_first", measure_first)
    lanes.let_end("relu")
    lanes.let_end("scale")

    measure()

    assert [task.op for task in lanes.tasks][:2] == ["scale", "scale"]
    assert lanes.looks == ["relu", "scale"]
