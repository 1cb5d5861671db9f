"""What compiles ops before they are looked at, so that their processes find what they launch in their caches."""

from collections.abc import Collection, Generator, Iterator, Sequence

from perfci.core.model import Device
from perfci.runs.bench import Bench
from perfci.runs.tasks import Tasks
from perfci.worker.process import Running
from perfci.worker.tasks import Measure


class Precompiler:
    """Compiles nothing. One of an extension compiles beside the looks."""

    def __init__(self, bench: Bench, tasks: Tasks, board: Device) -> None:
        self._bench, self._tasks, self._board = bench, tasks, board
        self.seconds = dict[tuple[str, str], float]()  # (op, case) -> seconds of a core that it took to compile

    def begin(
        self, tasks: Sequence[Measure], ends: float | None, at_once: Collection[str], *, with_base: bool
    ) -> list[Iterator[Sequence[Running]]]:
        """Returns lanes that compile what first looks will launch, in their order, to go side by side with the looks.

        ends: when lanes end, seconds since the epoch. at_once: ops whose looks do not wait. with_base: what bases
        launch too.
        """
        return []

    def wait(self, ops: Sequence[str]) -> Generator[Sequence[Running], None, str]:
        """Returns the first of these ops that is compiled, when there is one. Only this wait counts as compiling."""
        yield from ()
        return ops[0]

    def drop(self, *ops: str) -> None:
        """Compile no more of these ops: a process of theirs does so itself, or has ended, or none will begin."""

    def stand_still(self, *, still: bool) -> None:
        """Compile nothing until it may go on."""
