"""Cores of this machine: how many there are to use, and work that is spread over all of them."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")
R = TypeVar("R")


def count_cores() -> int:
    """How many of this machine's cores the process may use at a time."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # a container's share, by the second version of cgroups
        share, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, max(int(share) // int(period), 1))
    return cores


def map_forked(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Returns the function of each item, computed on all cores by forks of this process, and by this process.

    Where threads run, which a fork would leave without, this process computes all. Raises what the function raises,
    and EOFError if a fork was ended.
    """
    count = min(count_cores(), len(items))
    if count < 2 or sys.platform != "linux" or threading.active_count() > 1:
        return [function(item) for item in items]
    with ExitStack() as stack:
        forks = [stack.enter_context(_fork(function, items[number::count])) for number in range(1, count)]
        shares = [[function(item) for item in items[::count]], *map(_take, forks)]
    return [shares[place % count][place // count] for place in range(len(items))]


@contextlib.contextmanager
def _fork(function: Callable[[T], R], items: Sequence[T]) -> Iterator[Connection]:
    """Computes these in a fork, which is gone at the end. Yields where its answer arrives."""
    import multiprocessing  # which few commands need

    forking = multiprocessing.get_context("fork")
    reading, writing = forking.Pipe(duplex=False)
    fork = forking.Process(target=_answer, args=(function, items, writing), daemon=True)
    fork.start()
    writing.close()
    try:
        yield reading
    finally:
        reading.close()
        fork.kill()
        fork.join()


def _answer(function: Callable[[T], R], items: Sequence[T], writing: Connection) -> None:
    try:
        answer: Any = [function(item) for item in items]
    except BaseException as error:
        answer = error
    with contextlib.suppress(OSError):
        writing.send(answer)


def _take(reading: Connection) -> Any:
    """The answer of a fork. Raises what it raised, EOFError if it was ended."""
    answer = reading.recv()
    if isinstance(answer, BaseException):
        raise answer
    return answer
