"""Work on all cores, in processes that are forked for it."""

import os
import subprocess
import sys
import threading

import pytest

from perfci.extensions.pictures import plots
from perfci.extensions.pictures.plots import map_forked

linux = pytest.mark.skipif(sys.platform != "linux", reason="forks")

SCRIPT = """
import os, signal, sys
from concurrent.futures.process import BrokenProcessPool
from perfci.extensions.pictures import plots
plots.count_cores = lambda: 3

def double(item):
    if item == "raise":
        raise ValueError("what the function raised")
    if item == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid(), item * 2

try:
    made = plots.map_forked(double, eval(sys.argv[1]))
    print([value for _, value in made], len({pid for pid, _ in made} - {os.getpid()}) > 0)
except (ValueError, BrokenProcessPool) as error:
    print(type(error).__name__, error)
"""


def run(items: list) -> str:
    """What a process without threads prints of these items' doubles, with three cores."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, repr(items)], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@linux
def test_items_are_computed_in_their_order_by_forks_unless_there_is_one_alone() -> None:
    assert run([1, 2, 3, 4, 5, 6, 7]) == "[2, 4, 6, 8, 10, 12, 14] True"
    assert run([1]) == "[2] False"


@linux
def test_what_the_function_raises_in_a_fork_is_raised_here() -> None:
    assert run([1, "raise", 3]) == "ValueError what the function raised"


@linux
def test_a_fork_that_dies_is_an_error_and_no_lost_answer() -> None:
    assert run([1, 2, "die", 4]).startswith("BrokenProcessPool")


def test_beside_other_threads_this_process_computes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots, "count_cores", lambda: 4)
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        assert map_forked(lambda item: (os.getpid(), item), [1, 2, 3]) == [(os.getpid(), item) for item in (1, 2, 3)]
    finally:
        ended.set()
        thread.join()
