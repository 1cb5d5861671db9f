"""Boards that are put aside: an extension finds those that accepted runs show to be sick."""

import os
from collections.abc import Sequence

from perfci.core import extensions
from perfci.core.model import board_key
from perfci.core.settings import Settings
from perfci.runs.bench import Bench, name_devices
from perfci.runs.describe import Described


def find_sick(rules: Settings) -> tuple[str, ...]:
    """Returns the UUIDs of sick boards of any model, without those that people cleared."""
    cleared = set(map(board_key, rules.cleared))
    sick = {board for find in extensions.provided("boards") for board in find(rules.baselines)}
    return tuple(sorted(board for board in sick if board_key(board) not in cleared))


def avoid_sick(bench: Bench, described: Described, sick: Sequence[str]) -> None:
    """Give the workers of a run the host's healthy boards, if it has any beside sick ones (UUIDs) of their model."""
    aside, names = set(map(board_key, sick)), name_devices(os.environ, described.device.kind, described.visible)
    boards = list(zip(names, described.uuids, strict=False))
    healthy = [name for name, uuid in boards if board_key(uuid) not in aside]
    if described.devices > 1 and healthy and len(healthy) < len(boards):
        bench.boards[:] = healthy
