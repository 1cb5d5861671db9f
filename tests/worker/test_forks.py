"""Workers that are forked start as those do that are not, and fall back to that if they cannot."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from perfci.worker import forks
from perfci.worker.process import run_worker
from perfci.worker.tasks import Describe, WorkerEnvironment
from tests.processes import runs
from tests.worker.forked import begin, run
from tests.worker.task_examples import make_task

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="workers are forked on Linux alone")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    return tmp_path_factory.mktemp("forks") / "package"


@pytest.fixture(scope="module")
def variables(package):
    server = begin(package)
    yield server
    end(server)


def end(variables):
    key = forks._find_key(variables)
    if key in forks._servers:
        forks.end(key)


def test_a_worker_has_its_own_variables_folder_and_session(variables, tmp_path):
    given = {**variables, "TMPDIR": str(tmp_path)}
    text = "import os, tempfile; print(os.getcwd(), tempfile.gettempdir(), os.getsid(0) == os.getpgid(0), flush=True)"

    assert run(given, text, tmp_path, [tmp_path]) == (f"{tmp_path} {tmp_path} True\n", 0)


def test_a_process_is_ready_once_it_has_imported_and_not_before(tmp_path):
    other = begin(tmp_path / "package", EARLY="1")
    try:
        assert not forks.is_ready(other)
        run(other, "pass", tmp_path)
        assert forks.is_ready(other)
    finally:
        end(other)
    assert forks.is_ready(other)  # as no process is waited for


def test_nothing_of_one_worker_is_seen_by_the_next(variables, tmp_path):
    text = "import os, sys; print(hasattr(sys, 'left'), os.environ.get('LEFT')); sys.left = os.environ['LEFT'] = 'x'"

    assert [run(variables, text, tmp_path) for _ in range(2)] == [("False None\n", 0)] * 2


def test_a_worker_looks_for_garbage_but_not_in_what_it_was_forked_with(variables, tmp_path):
    text = "import gc; print(gc.isenabled(), gc.get_freeze_count() > 10_000)"

    assert run(variables, text, tmp_path) == ("True True\n", 0)


def test_workers_draw_different_numbers(variables, tmp_path):
    text = "import random, numpy.random; print(random.random(), numpy.random.random())"

    first, second = (run(variables, text, tmp_path)[0].split() for _ in range(2))

    assert not set(first) & set(second)


@pytest.mark.parametrize(
    ("text", "status", "told"),
    [
        ("raise SystemExit(7)", 7, ""),
        ("raise ValueError('unforeseen')", 1, "ValueError: unforeseen"),
        ("import os; os._exit(3)", 3, ""),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV, "Fatal Python error: Segmentation fault"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL, ""),
        ("import atexit; atexit.register(print, 'last words')", 0, "last words"),
    ],
)
def test_a_worker_ends_as_it_would_alone_and_its_stack_is_in_the_output(variables, tmp_path, text, status, told):
    printed, ended = run(variables, text, tmp_path)

    assert ended == status
    assert told in printed


def test_a_worker_has_no_file_open_but_its_own(variables, tmp_path):
    text = """
import os
for number in range(3, 64):
    try:
        print(os.readlink(f"/proc/self/fd/{number}"))
    except OSError:
        pass
"""

    assert set(run(variables, text, tmp_path)[0].split()) <= {"/proc", "/proc/2"}  # of its confinement


def test_a_judge_forks_the_process_of_the_ops_code_from_what_it_was_before_it_began(variables, tmp_path):
    inner = "import os, sys; print(hasattr(sys, 'left'), open('/proc/self/status').read().count('NoNewPrivs:\\t1'))"
    text = f"""
import sys
sys.left = True
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from tests.worker.forked import run
print(run({variables!r}, {inner!r}, Path({str(tmp_path)!r}), [Path({str(tmp_path)!r})]))
"""

    assert run(variables, text, tmp_path, None) == (f"{('False 1' + chr(10), 0)!r}\n", 0)


@pytest.mark.parametrize("kind", ["variables", "shadowed", "customised", "broken", "threads"])
def test_what_could_differ_is_not_forked_and_the_file_is_named(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(forks, "_refused", {})
    package, added, modules = tmp_path / "package", tmp_path / "added", []
    package.mkdir()
    added.mkdir()
    if kind == "shadowed":  # a worker would find another one
        (added / "json").mkdir()
        (added / "json" / "__init__.py").touch()
    if kind == "customised":  # Python itself would run it, unconfined
        (added / "sitecustomize.py").touch()
    if kind == "broken":
        (package / "broken.py").write_text("raise RuntimeError('no driver')")
        modules.append("broken")
    if kind == "threads":
        (package / "threads.py").write_text(
            "import threading, time\nthreading.Thread(target=time.sleep, args=[60], daemon=True).start()"
        )
        modules.append("threads")
    variables = begin(package, modules, [added])
    given = variables | ({"LD_LIBRARY_PATH": "/other"} if kind == "variables" else {})

    try:
        assert forks.start(given, tmp_path, [], []) is None
        files = {"shadowed": added / "json" / "__init__.py", "customised": added / "sitecustomize.py"}
        assert forks.find_obstacle() == (None if kind == "variables" else str(files.get(kind, "")))
    finally:
        end(variables)


def test_a_worker_finds_the_modules_of_a_project(tmp_path):
    package, added = tmp_path / "package", tmp_path / "added"
    added.mkdir()
    (added / "of_project.py").write_text("print('of the project')\n")
    variables = begin(package, (), [added])

    try:
        printed, status = run(variables, "import sys; print(sys.path[1]); import of_project", tmp_path)
    finally:
        end(variables)

    assert (status, printed.splitlines()) == (0, [str(added), "of the project"])


def test_what_workers_need_later_is_imported_after_the_first_has_begun(tmp_path):
    variables = begin(tmp_path / "package", (), (), ["colorsys", "no_such_module"])
    text, has_it = "import sys; print('colorsys' in sys.modules)", set()
    deadline = time.monotonic() + 20

    try:
        first = run(variables, text, tmp_path)
        while ("True\n", 0) not in has_it and time.monotonic() < deadline:
            time.sleep(forks._IDLE_S)
            has_it.add(run(variables, text, tmp_path))
    finally:
        end(variables)

    assert first == ("False\n", 0)
    assert ("True\n", 0) in has_it


def test_no_worker_is_forked_once_what_was_imported_later_is_not_what_a_worker_would_find(tmp_path):
    added = tmp_path / "added"
    added.mkdir()
    (added / "colorsys.py").write_text("")
    variables = begin(tmp_path / "package", (), [added], ["colorsys"])

    try:
        assert run(variables, "import colorsys; print(colorsys.__file__)", tmp_path) == (f"{added}/colorsys.py\n", 0)
        time.sleep(3 * forks._IDLE_S)
        assert forks.start(variables, tmp_path, [[str(tmp_path)]], []) is None
    finally:
        end(variables)


def test_a_run_goes_on_with_workers_that_are_not_forked_if_the_process_dies(tmp_path):
    variables = begin(tmp_path / "package")
    assert run(variables, "print('forked')", tmp_path) == ("forked\n", 0)
    forks._servers[forks._find_key(variables)]._end()
    heard = []
    task = make_task(Describe)
    around = WorkerEnvironment(variables, tmp_path, tmp_path / "log", 60.0)

    assert run_worker(task, around, heard.append) is None
    assert [type(message).__name__ for message in heard] == ["Ready", "Doing", "PlannedOp"]


def test_it_ends_with_the_process_that_began_it(tmp_path):
    text = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from pathlib import Path
from tests.worker.forked import begin, run
from tests.worker.task_examples import make_task
variables = begin(Path({str(tmp_path / "package")!r}))
run(variables, "", Path.cwd(), None)
print(*Path(f"/proc/self/task/{{os.getpid()}}/children").read_text().split(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60)
    (pid,) = map(int, done.stdout.split())

    until = time.monotonic() + 20
    while runs(pid) and time.monotonic() < until:
        time.sleep(0.01)
    assert not runs(pid)
