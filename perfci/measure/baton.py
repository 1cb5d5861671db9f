"""Token passed between two processes: its holder uses the device, so both see one clock, round by round."""

import contextlib
import os
import select
from collections.abc import Callable

GLANCE_S = 0.5  # how often a process that waits shows that it is alive
LEFT = 0  # instead of a number of rounds: the partner does not go on with this block


class Baton:
    """One process's end of it. Of two that take a block, the first one begins and the second one ends.

    A block is `begin`, then `swap` after the warm-up and after each round, then `finish`. A partner that leaves the
    block, or ends, leaves the device to this process.
    """

    def __init__(self, end: int, alive: Callable[[], None], *, by_round: bool) -> None:
        """`end`: descriptor of one of a pair of sockets. by_round: False if it is swapped only between turns."""
        self._end, self._alive, self.by_round = end, alive, by_round
        self._held: bool | None = None  # None before the first block: anyone who comes first has it
        self._alone = False  # the partner has left this block
        self._gone = False  # the partner has ended
        self.rounds = 1  # of the block: as many as both can make

    def begin(self, rounds: int, *, first: bool) -> None:
        """Begin a block of so many rounds at most, when it is this process's turn."""
        self._alone, self.rounds = False, rounds
        held = first if self._held is None else self._held
        if held and not first:
            self._give()
        if not (held and first):
            self._wait()

    def swap(self) -> None:
        """Leave the device to the other process for as long."""
        if not self._alone:
            self._give()
            self._wait()

    def finish(self, *, first: bool) -> None:
        """End the block. The process that came second keeps the device."""
        if first and not self._alone:
            self._give()

    def leave(self) -> None:
        """Do not go on with the block that this process has begun."""
        if not self._alone:
            self._give(LEFT)
            self._alone = True

    def _give(self, rounds: int | None = None) -> None:
        try:
            os.write(self._end, (self.rounds if rounds is None else rounds).to_bytes(2, "big"))
            self._held = False
        except OSError:
            self._gone = self._held = True

    def _wait(self) -> None:
        while not self._gone and not select.select([self._end], [], [], GLANCE_S)[0]:
            self._alive()
        data = b""
        with contextlib.suppress(ConnectionError):
            data = b"" if self._gone else os.read(self._end, 2)
        rounds = int.from_bytes(data, "big")
        self._held, self._gone = True, not data
        self._alone |= rounds == LEFT
        self.rounds = min(rounds, self.rounds) or self.rounds
