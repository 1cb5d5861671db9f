"""Runs workers to their end: one alone, or several side by side."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack

from perfci.core.model import Reason
from perfci.worker.process import Running, start_worker, wait
from perfci.worker.protocol import Message
from perfci.worker.tasks import Task, WorkerEnvironment

Working = Generator[Sequence[Running], None, Reason | None]
"""Workers under way: yields those that it waits for, and returns why they failed."""


def run_worker(task: Task, around: WorkerEnvironment, heard: Callable[[Message], None]) -> Reason | None:
    """Run one worker to its end. Returns why it failed as a whole. Whatever interrupts this kills it first."""
    with start_worker(task, around) as worker:
        while not worker.over:
            wait([worker])
            for message in worker.hear():
                heard(message)
        return worker.failure


def working(task: Task, around: WorkerEnvironment, heard: Callable[[Message], None]) -> Working:
    """Run one worker, and leave the waiting to the caller. Closing the generator kills the worker."""
    with start_worker(task, around) as worker:
        while not worker.over:
            yield (worker,)
            for message in worker.hear():
                heard(message)
        return worker.failure


def side_by_side(lanes: Sequence[Iterator[Sequence[Running]]]) -> None:
    """Go on with each until all have ended, in one thread: whatever they share needs no lock.

    Each yields the workers that it waits for. Whatever is raised, here or by one of them, closes all and kills workers.
    """
    with ExitStack() as stack:
        for lane in lanes:
            if isinstance(lane, Generator):
                stack.callback(lane.close)
        going = {lane: next(lane, None) for lane in lanes}
        while going := {lane: workers for lane, workers in going.items() if workers is not None}:
            wait(worker for workers in going.values() for worker in workers or ())
            going = {lane: next(lane, None) for lane in going}
