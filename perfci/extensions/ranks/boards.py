"""A group of boards: taken whole or not at all, so that two runs never hold a part each and wait for the rest."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from perfci.core import locks
from perfci.core.errors import DeviceError
from perfci.core.model import board_key


@contextmanager
def hold_boards(
    names: Sequence[str], folder: Path | None, waiting: Callable[[str], None], limit_s: float = locks.WAIT_S
) -> Iterator[None]:
    """Hold the locks of all these boards, by the names that single boards are locked by.

    If one is taken all are given back, and tried again a moment later. `waiting` is called with the holder. All are
    given back with the context, or with this process. Raises DeviceError after `limit_s`.
    """
    until = time.monotonic() + limit_s
    while True:
        with ExitStack() as stack:
            holder = _take_all(names, folder, stack)
            if holder is None:
                yield
                return
        if time.monotonic() > until:
            raise DeviceError("device_taken", holder=holder, limit_s=limit_s)
        waiting(holder)
        time.sleep(locks.POLL_S)


def _take_all(names: Sequence[str], folder: Path | None, stack: ExitStack) -> str | None:
    """Take all locks, or say who holds the first that is taken."""
    for name in sorted({*names}):
        path = locks.find_lock(name, folder)
        try:
            handle = locks.open_lock(path)
        except OSError as error:
            raise DeviceError("lock_unwritable", path=str(path), error=error.strerror or str(error)) from error
        stack.callback(os.close, handle)
        if not locks.take_if_possible(handle):
            return locks.holder(handle)
        stack.callback(locks.give_back, handle)
        with contextlib.suppress(OSError):
            locks.sign(handle)
    return None


def name_locks(uuids: Sequence[str]) -> list[str]:
    """Names of boards' locks: torch spells a UUID without the GPU- that the management library begins it with.

    >>> name_locks(["2a6c-11", "GPU-77"])
    ['GPU-2a6c-11', 'GPU-77']
    """
    return [uuid if not uuid or uuid.startswith(("GPU-", "MIG-", "FAKE-")) else f"GPU-{uuid}" for uuid in uuids]


def choose_boards(names: Sequence[str], uuids: Sequence[str], sick: Sequence[str]) -> list[int]:
    """Places of the boards that are not put aside."""
    aside = set(map(board_key, sick))
    return [at for at in range(len(names)) if at >= len(uuids) or board_key(uuids[at]) not in aside]


def turn(boards: Sequence[int], process: int) -> list[int]:
    """The same boards with other ranks in another process, so that no pair of board and rank is in all of them.

    >>> turn([0, 1], 0), turn([0, 1], 1), turn([4, 5, 6], 2)
    ([0, 1], [1, 0], [6, 4, 5])
    """
    at = process % len(boards)
    return [*boards[at:], *boards[:at]]
