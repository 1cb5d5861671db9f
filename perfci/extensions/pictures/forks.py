"""Pictures drawn on all cores, by forks of this process."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

from perfci.core.cores import count_cores

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

T = TypeVar("T")
R = TypeVar("R")


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
