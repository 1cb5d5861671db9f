"""Boards that the newest accepted runs show to be sick beside others of their model."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from perfci.core.errors import StoredFileError
from perfci.extensions.common.history import history_devices, history_ops, read_history
from perfci.extensions.history.boards import compare_boards

MOST_OPS = 50  # of a model with histories that are read: a sick board shows in each, and a plan takes seconds


def find_sick(baselines: Path) -> Iterator[str]:
    """Yields the UUIDs of sick boards of any model. A damaged history has none."""
    for device in history_devices(baselines):
        histories = {}
        for op in history_ops(baselines, device)[:MOST_OPS]:
            with contextlib.suppress(StoredFileError):
                histories[op] = read_history(baselines, device, op, follow=False).runs
        yield from (board.board for board in compare_boards(histories) if board.sick)
