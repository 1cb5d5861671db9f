"""A worker may do anything: the parent listens, waits, and reports how it ended."""

import os
import subprocess
import sys
import textwrap
import time
from io import FileIO
from pathlib import Path

import pytest

from perfci.core.stopping import Stopped
from perfci.core.wording import sentence
from perfci.worker import process
from perfci.worker.process import run_worker, side_by_side, start_worker, wait, working
from perfci.worker.protocol import Doing, Holding, LockAsked, OpDone, Timing, Turn, TurnAsked
from perfci.worker.tasks import Measure, Serve, WorkerEnvironment
from tests.processes import runs
from tests.worker.task_examples import make_task

pytestmark = pytest.mark.slow

HEAD = """
import os, signal, subprocess, sys, threading, time
from perfci.core.codec import decode
from perfci.core.model import *
from perfci.worker.protocol import *
from perfci.worker.tasks import unpack_task
task, events = unpack_task(sys.stdin.readline())
def say(message, fd=events):
    os.write(fd, message if isinstance(message, bytes) else pack(message))
"""
BUSY = 'say(Doing("accuracy", task.op, "rows=1"))\n'

TASK = make_task()
DEADLINE_S = 20
START = subprocess.Popen


class Worker:
    """Runs `run_worker` on a script in the place of the worker's program."""

    def __init__(self, folder: Path, monkeypatch):
        self.folder = folder
        self.heard = []
        self._monkeypatch = monkeypatch

    def around(self, script, limit_s=DEADLINE_S, environment=None, log="relu.log", until_s=None, begins=BUSY):
        """What a worker with this script runs in. begins: with what it begins."""
        path = self.folder / "worker.py"
        path.write_text(HEAD + begins + textwrap.dedent(script))
        self._monkeypatch.setattr(
            process.subprocess, "Popen", lambda command, **options: START([sys.executable, str(path)], **options)
        )
        variables = environment or dict(os.environ)
        return WorkerEnvironment(variables, self.folder, self.folder / "logs" / log, limit_s, until_s=until_s)

    def run(self, script, listener=None, **fields):
        return run_worker(TASK, self.around(script, **fields), listener or self.heard.append)

    @property
    def pid(self):
        return int((self.folder / "pid").read_text())


@pytest.fixture
def worker(tmp_path, monkeypatch):
    return Worker(tmp_path, monkeypatch)


def gone(pid):
    deadline = time.monotonic() + DEADLINE_S
    while runs(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not runs(pid)


def test_a_worker_that_ends_well_has_no_failure_and_every_message_is_heard(worker):
    failure = worker.run("""
        say(Timing("virtual"))
        say(OpDone(tuned="x" * 300_000))
    """)

    assert failure is None
    assert [type(message) for message in worker.heard] == [Doing, Timing, OpDone]
    assert len(worker.heard[-1].tuned) == 300_000


def test_a_message_that_the_task_does_not_answer_ends_the_worker_and_is_named(worker):
    failure = worker.run("""
        say(StaticOp("relu", "sm_90"))
        say(OpDone())
        time.sleep(600)
    """)

    assert (failure.kind, failure.facts["message"], failure.facts["op"]) == ("worker_unasked", "StaticOp", "relu")
    assert worker.heard == [Doing("accuracy", "relu", "rows=1")]


@pytest.mark.skipif(sys.platform != "linux", reason="there is no shared memory in files")
def test_what_a_worker_leaves_in_shared_memory_goes_with_it_and_what_others_use_stays(worker):
    name = f"perfci-test-{os.getpid()}"
    script = f"""
        from pathlib import Path
        for end in ("left", "used"):
            Path("/dev/shm/{name}-" + end).write_text("an answer")
        Path("/dev/shm/{name}-folder").mkdir()
        Path("/dev/shm/{name}-folder/left").write_text("an answer")
        say(Doing("accuracy", task.op, "rows=1", 1))
        say(OpDone())
    """
    used = []

    def listen(message):
        if isinstance(message, Doing) and message.done:
            used.append(os.open(f"/dev/shm/{name}-used", os.O_RDONLY))

    assert worker.run(script, listen) is None
    left = [path.name for path in Path("/dev/shm").glob(f"{name}*")]
    os.close(used[0])
    Path(f"/dev/shm/{name}-used").unlink()

    assert left == [f"{name}-used"]


@pytest.mark.parametrize(("kind", "looks"), [(Measure, 1), (Serve, 0)])
def test_what_a_judge_has_started_leaves_nothing_to_look_for_until_the_judge_ends(worker, monkeypatch, kind, looks):
    looked = []
    monkeypatch.setattr(process.shared_memory, "remove_new", looked.append)

    with start_worker(make_task(kind), worker.around("time.sleep(600)")) as running:
        wait([running])

    assert len(looked) == looks


def test_garbage_in_the_pipe_is_passed_over(worker):
    failure = worker.run(r"""
        say(b"Traceback (most recent call last):\n\n{}\n\xff\xfe\x00\n")
        say(b'{"kind":"Doing","body"}\n{"kind":"OpDone","other":{"tuned":[]}}\n')
        say(Doing("measure", "relu"))
        say(OpDone())
        say(b"and half a line")
    """)

    assert failure is None
    assert worker.heard == [Doing("accuracy", "relu", "rows=1"), Doing("measure", "relu"), OpDone()]


@pytest.mark.parametrize(
    ("script", "kind", "fact"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "worker_died", {"signal": "SIGSEGV"}),
        ("os.kill(os.getpid(), signal.SIGABRT)", "worker_died", {"signal": "SIGABRT"}),
        ("os.kill(os.getpid(), signal.SIGKILL)", "worker_killed", {"signal": "SIGKILL"}),
        ("os._exit(7)", "worker_exited", {"status": 7}),
        ("sys.exit(0)", "worker_exited", {"status": 0}),
        ("os._exit(0)", "worker_exited", {"status": 0}),
        ("raise RuntimeError('unforeseen')", "worker_exited", {"status": 1}),
    ],
)
def test_a_worker_that_ends_early_is_named_with_place_and_last_words(worker, script, kind, fact):
    failure = worker.run(f"print('the   last\\nwords', flush=True)\n{script}")

    assert failure.kind == kind
    assert fact.items() <= failure.facts.items()
    assert (failure.facts["op"], failure.facts["where"]) == ("relu", "accuracy of rows=1")
    assert failure.facts["log"] == "logs/relu.log"
    assert any(word in failure.facts["words"] for word in ("words", "unforeseen"))
    assert "{" not in sentence(failure)


ABORTED = """
/lib/interpreter.py:491: RuntimeWarning: invalid value encountered in subtract
  output = op(lhs.data, rhs.data)
corrupted size vs. prev_size
Fatal Python error: Aborted

Thread 0x00007fb58f7ff6c0 (most recent call first):
  File "/p/kernels/relu/relu_triton.py", line 1 in other_thread

Current thread 0x00007fb5ba7d0b80 (most recent call first):
  File "/p/.venv/lib/python3.11/site-packages/torch/_ops.py", line 875 in __call__
{frames}  File "<string>", line 1 in <module>

Extension modules: numpy._core._multiarray_umath, torch._C (total: 23)
"""
FRAMES = {
    '  File "/p/kernels/_rows.py", line 7 in tile\n  File "/p/kernels/relu/relu_triton.py", line 88 in relu\n':
        "kernels/relu/relu_triton.py:88",
    '  File "/p/kernels/_rows.py", line 7 in tile\n  File "/p/tests/x.py", line 2 in y\n': "kernels/_rows.py:7",
    '  File "/p/mylib/silu.py", line 2 in y\n': "mylib/silu.py:2",
    '  File "/elsewhere/silu.py", line 2 in y\n': "a place outside its files",
}  # fmt: skip


@pytest.mark.parametrize("frames", FRAMES)
def test_the_dump_of_a_crash_gives_the_ops_own_line_and_what_was_said_before_it(frames):
    text = ABORTED.format(frames=frames)
    place = make_task(kernels="/p/kernels", root="/p").place

    assert process.find_frame(text, place) == FRAMES[frames]
    assert process.find_last_words(text) == "corrupted size vs. prev_size"
    assert process.find_last_words(text.partition("corrupted")[0]) == "nothing"
    segmentation_fault = "Fatal Python error: Segmentation fault\n\nCurrent thread"
    assert process.find_last_words(segmentation_fault) == "Fatal Python error: Segmentation fault"


def test_a_hang_in_a_wait_for_the_device_is_said_to_be_one():
    waits = '  File "/v/site-packages/torch/cuda/__init__.py", line 1083 in synchronize\n'
    place = make_task(kernels="/p/kernels", root="/p").place

    assert process.find_frame(f"Current thread 0x0:\n{waits}", place) == "a wait for a kernel on the device"
    of_op = '  File "/p/kernels/relu/relu_triton.py", line 88 in relu\n'
    assert process.find_frame(f"Current thread 0x0:\n{waits}{of_op}", place) == "kernels/relu/relu_triton.py:88"


def test_without_a_dump_the_place_of_a_crash_is_not_known():
    assert process.find_frame("free(): invalid size\n", TASK.place) == "an unknown place"


@pytest.mark.parametrize("error", [Stopped("SIGTERM"), KeyboardInterrupt(), ValueError("listener")])
def test_whatever_interrupts_the_parent_kills_the_worker_and_its_children(worker, error):
    def listener(message):
        if message == Doing("measure", "relu"):
            raise error

    with pytest.raises(type(error)):
        worker.run(
            """
            child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
            open("child", "w").write(str(child.pid))
            open("pid", "w").write(str(os.getpid()))
            say(Doing("measure", "relu"))
            time.sleep(600)
            """,
            listener=listener,
        )

    assert not runs(worker.pid)
    assert gone(int((worker.folder / "child").read_text()))


def test_a_worker_that_prints_without_end_fills_no_disk(worker):
    failure = worker.run("""
        os.write(1, b"first\\n")
        for _ in range(60):
            os.write(1, b"x" * 99_999 + b"\\n")
        os.write(1, b"last\\n")
        os._exit(3)
    """)

    text = (worker.folder / "logs" / "relu.log").read_bytes()
    assert text.startswith(b"first\n") and text.endswith(b"last\n")
    assert b"bytes left out]" in text
    assert len(text) < 3 << 20
    assert "last" in failure.facts["words"]


def test_the_worker_runs_in_its_own_environment_and_folder(worker, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "hush")

    failure = worker.run(
        'say(OpDone(tuned=os.environ.get("GIVEN", "") + os.environ.get("SECRET_TOKEN", "none") + os.getcwd()))',
        environment={"GIVEN": "given ", "PATH": os.environ["PATH"]},
    )

    assert failure is None
    assert worker.heard[-1].tuned == f"given none{worker.folder}"


# --- workers that take turns ------------------------------------------------------------------------------------------

ASKING = """
    for _ in range(3):
        say(TurnAsked())
        say(Doing("measure", "relu", ",".join(decode(sys.stdin.readline(), Turn).cases)))
    say(OpDone())
"""


def test_a_worker_that_asks_is_told_its_turns(worker):
    turns = iter([Turn(0, ("a", "b")), Turn(1, ("b",)), Turn(2, ())])
    with start_worker(make_task(baton=0), worker.around(ASKING)) as running:
        while not running.over:
            wait([running])
            for message in running.hear():
                worker.heard.append(message)
                if isinstance(message, TurnAsked):
                    running.answer(next(turns))

    assert running.failure is None
    assert [message.case for message in worker.heard if isinstance(message, Doing)] == ["rows=1", "a,b", "b", ""]


def test_of_two_that_ask_for_a_lock_the_second_has_it_when_the_first_has_ended(worker):
    holding = worker.around("""
        say(Ready(Device("fake", "Fake", "fake", "FAKE-0")))
        say(Doing("import", "relu"))
        say(LockAsked("FAKE-0"))
        sys.stdin.readline()
        say(Holding())
        time.sleep(600)
    """, begins="")  # fmt: skip

    def hear(running, until, limit_s=DEADLINE_S):
        end = time.monotonic() + limit_s
        while until not in map(type, worker.heard) and time.monotonic() < end:
            wait([running])
            worker.heard += running.hear()
        return until in map(type, worker.heard)

    with start_worker(TASK, holding) as first:
        assert hear(first, Holding)
        worker.heard.clear()
        with start_worker(TASK, holding) as second:
            assert hear(second, LockAsked)
            assert not hear(second, Holding, 0.3)
            first.end()
            assert hear(second, Holding)


def test_a_worker_whose_time_is_up_is_ended_and_what_it_said_is_heard(worker):
    began = time.monotonic()
    script = "say(Doing('measure', 'relu', 'rows=1'))\nwhile True: time.sleep(600)"

    failure = worker.run(script, limit_s=60.0, until_s=time.time() + 3.0)

    assert failure.kind == process.LATE
    assert failure.facts["where"] == "measure of rows=1"
    assert worker.heard[-1] == Doing("measure", "relu", "rows=1")
    assert time.monotonic() - began < 15


# --- side by side -----------------------------------------------------------------------------------------------------

MEET = """
open(os.path.join(os.getcwd(), task.op), "w").close()
while not os.path.exists(os.path.join(os.getcwd(), "other" if task.op == "relu" else "relu")):
    time.sleep(0.01)
say(Doing("measure", task.op, str(os.getpid())))
"""


class Lanes:
    """Two lanes with a worker each, that only get on if both run at once."""

    def __init__(self, worker, script):
        self.worker, self.script = worker, MEET + script
        self.heard = []
        self.ended = []

    def lane(self, op):
        around = self.worker.around(self.script, log=f"{op}.log")
        try:
            self.ended.append((op, (yield from working(make_task(ops=(op,)), around, self.hear))))
        finally:
            self.ended.append(op)

    def hear(self, message):
        self.heard.append(message)

    @property
    def pids(self):
        return [
            int(message.case) for message in self.heard if isinstance(message, Doing) and message.stage == "measure"
        ]


def test_a_worker_that_stands_still_is_not_silent_by_itself(worker):
    around = worker.around("say(OpDone())", limit_s=2.5)
    with start_worker(TASK, around) as still:
        still.stand_still(still=True)
        ends = time.monotonic() + 3.0
        while time.monotonic() < ends:
            wait([still])
            still.hear()
        assert not still.over
        still.stand_still(still=False)
        while not still.over:
            wait([still])
            still.hear()

    assert still.failure is None


def test_beside_a_worker_that_is_over_the_others_are_waited_for(worker):
    script = "time.sleep(600) if 'LIVES' in os.environ else say(OpDone())"
    ends, lives = (worker.around(script, environment={**os.environ, **more}) for more in ({}, {"LIVES": "1"}))
    with start_worker(TASK, ends) as over, start_worker(TASK, lives) as living:
        while not over.over or not worker.heard:
            wait([over, living])
            over.hear()
            worker.heard += living.hear()
        began = time.monotonic()
        wait([over, living])  # or one that waits for a pair would take a core while the other side is timed

        assert time.monotonic() - began > 0.5


def test_lanes_go_on_side_by_side_until_all_have_ended(worker):
    lanes = Lanes(worker, "say(OpDone(tuned=task.op))")

    side_by_side([lanes.lane("relu"), lanes.lane("other")])

    assert {message.tuned for message in lanes.heard if isinstance(message, OpDone)} == {"relu", "other"}
    assert {entry for entry in lanes.ended if isinstance(entry, tuple)} == {("relu", None), ("other", None)}


@pytest.mark.parametrize("error", [Stopped("SIGTERM"), ValueError("record")])
def test_what_one_lane_raises_ends_all_others_and_their_workers(worker, error):
    lanes = Lanes(worker, "time.sleep(600)")

    def hear(message):
        lanes.heard.append(message)
        if len(lanes.pids) == 2:
            raise error

    lanes.hear = hear
    with pytest.raises(type(error)):
        side_by_side([lanes.lane("relu"), lanes.lane("other")])

    assert sorted(lanes.ended) == ["other", "relu"]
    assert len(lanes.pids) == 2 and not any(runs(pid) for pid in lanes.pids)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_does_not_stop_a_worker_that_prints(worker, monkeypatch):
    monkeypatch.setattr("perfci.worker.process.append_regular", lambda path: FileIO("/dev/full", "ab"))

    assert worker.run("os.write(1, b'x' * 3_000_000)\nsay(OpDone())") is None


def test_what_a_worker_prints_is_not_written_where_a_link_leads(worker):
    log, elsewhere = worker.folder / "logs" / "relu.log", worker.folder / ".bashrc"
    log.parent.mkdir()
    elsewhere.write_text("mine")
    log.symlink_to(elsewhere)

    assert worker.run("print('evil', flush=True)\nsay(OpDone())") is None

    assert elsewhere.read_text() == "mine"
    assert not log.is_symlink() and log.read_text() == "evil\n"
