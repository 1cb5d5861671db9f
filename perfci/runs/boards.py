"""Boards that are put aside: those that the newest accepted runs show to be sick beside others of their model."""

import contextlib
import os
from collections.abc import Sequence

from perfci.core.errors import StoredFileError
from perfci.core.model import board_key
from perfci.core.settings import Settings
from perfci.runs.bench import Bench, name_devices
from perfci.runs.describe import Described
from perfci.statistics.boards import compare_boards
from perfci.store.history import history_devices, history_ops, read_history

MOST_OPS = 50  # of a model whose histories are read: a sick board shows in each, and a plan takes seconds


def find_sick(rules: Settings) -> tuple[str, ...]:
    """Returns the UUIDs of sick boards of any model, without those that people cleared. A damaged history has none."""
    cleared, found = set(map(board_key, rules.cleared)), list[str]()
    for device in history_devices(rules.baselines):
        histories = {}
        for op in history_ops(rules.baselines, device)[:MOST_OPS]:
            with contextlib.suppress(StoredFileError):
                histories[op] = read_history(rules.baselines, device, op, follow=False).runs
        found += [each.board for each in compare_boards(histories) if each.sick]
    return tuple(sorted(board for board in found if board_key(board) not in cleared))


def avoid_sick(bench: Bench, found: Described, sick: Sequence[str]) -> None:
    """Give the workers of a run the host's healthy boards, if it has any beside sick ones (UUIDs) of their model."""
    aside, names = set(map(board_key, sick)), name_devices(os.environ, found.device.kind, found.visible)
    known = list(zip(names, found.uuids, strict=False))
    healthy = [name for name, uuid in known if board_key(uuid) not in aside]
    if found.devices > 1 and healthy and len(healthy) < len(known):
        bench.boards[:] = healthy
