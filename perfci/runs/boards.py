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


def put_sick_aside(bench: Bench, described: Described, rules: Settings) -> tuple[str, ...]:
    """Keep the workers of a run from sick boards. Returns the UUIDs of those of any model."""
    sick = find_sick(rules)
    avoid_boards(bench, described, sick)
    return sick


def avoid_boards(bench: Bench, described: Described, boards: Sequence[str]) -> None:
    """Give the workers of a run the host's other boards, if it has any beside these (UUIDs) of their model."""
    aside, names = set(map(board_key, boards)), name_devices(os.environ, described.device.kind, described.visible)
    here = list(zip(names, described.uuids, strict=False))
    others = [name for name, uuid in here if board_key(uuid) not in aside]
    if described.devices > 1 and others and len(others) < len(here):
        bench.boards[:] = others
