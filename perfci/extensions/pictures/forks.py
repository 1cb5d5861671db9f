"""Pictures drawn on all cores, by forks of this process."""

import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perfci.core.cores import count_cores

T = TypeVar("T")
R = TypeVar("R")

_WORK: list[Any] = []  # of a fork: the function and the items, which it has from its parent as they are


def map_forked(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Returns the function of each item, computed on all cores by forks of this process.

    Where threads run, which a fork would leave without, this process computes all. Raises what the function raises,
    and BrokenProcessPool if a fork was ended.
    """
    count = min(count_cores(), len(items))
    if count < 2 or sys.platform != "linux" or threading.active_count() > 1:
        return [function(item) for item in items]
    import multiprocessing  # which few commands need
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(count, multiprocessing.get_context("fork"), _WORK.extend, ((function, items),)) as pool:
        return list(pool.map(_compute, range(len(items))))


def _compute(place: int) -> Any:
    function, items = _WORK
    return function(items[place])
