"""The timer's step, by what launches took: no difference below it can be told from none."""

import itertools
from collections.abc import Iterator

from perfci.core.model.basics import Suite
from perfci.core.model.measured import Summary
from perfci.core.model.run import Run

NOTHING_US = 1e-6  # below it two times are the same number, but for its last digits
ON_GRID = 1e-3  # of a step: how far a time may lie beside a multiple of it


def find_step(run: Run, floor_us: float) -> float:
    """Microseconds between two ticks of the run's timer. 0 if they are no more than the floor apart, or not seen.

    It is the smallest difference of two launches of an arm in one block, if all times are multiples of it.
    """
    step, seen = 0.0, set[float]()
    for times in _list_times(run):
        seen.update(times)
        steps = (high - low for low, high in itertools.pairwise(sorted(times)))
        for apart in (apart for apart in steps if apart > NOTHING_US):
            if apart <= floor_us:
                return 0.0
            step = min(step or apart, apart)
    return step if step and all(abs(us / step - round(us / step)) <= ON_GRID for us in seen) else 0.0


def _list_times(run: Run) -> Iterator[set[float]]:
    """The launches that are stored one by one, of each arm in each block."""
    if Suite.PERFORMANCE not in run.plan.suites:
        return
    for op in run.ops:
        for case in op.performance:
            for block in case.blocks:
                yield from (_pick(arm.time) for arm in block.arms.values())


def _pick(time: Summary) -> set[float]:
    return {time.min_us, time.max_us, *time.slowest_us}
