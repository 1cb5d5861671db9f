"""Cores of this machine: how many there are to use, and work that is spread over all of them."""

import contextlib
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")
R = TypeVar("R")


def count_cores() -> int:
    """How many of this machine's cores the process may use at a time."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # a container's share, by the second version of cgroups
        share, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, max(int(share) // int(period), 1))
    return cores


def map_forked(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Returns the function of each item, computed on all cores by forks of this process, and by this process.

    Where threads run, which a fork would leave without, this process computes all. Raises what the function raises.
    """
    count = min(count_cores(), len(items))
    if count < 2 or sys.platform != "linux" or threading.active_count() > 1:
        return [function(item) for item in items]
    forks = [_fork(function, items[number::count]) for number in range(1, count)]
    try:
        shares = [[function(item) for item in items[::count]], *(_take(reading) for _, reading in forks)]
    finally:
        for pid, _ in forks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    return [shares[place % count][place // count] for place in range(len(items))]


def _fork(function: Callable[[T], R], items: Sequence[T]) -> tuple[int, int]:
    """Returns the process that computes these, and the pipe by which it answers."""
    reading, writing = os.pipe()
    if pid := os.fork():
        os.close(writing)
        return pid, reading
    os.close(reading)
    return _answer(function, items, writing)


def _answer(function: Callable[[T], R], items: Sequence[T], writing: int) -> NoReturn:
    try:
        answer: Any = [function(item) for item in items]
    except BaseException as error:
        answer = error
    with contextlib.suppress(BaseException), os.fdopen(writing, "wb") as pipe:
        pickle.dump(answer, pipe)
    os._exit(0)


def _take(reading: int) -> Any:
    """The answer of a fork. Raises what it raised, EOFError if it was ended."""
    with os.fdopen(reading, "rb") as pipe:
        answer = pickle.load(pipe)
    if isinstance(answer, BaseException):
        raise answer
    return answer
