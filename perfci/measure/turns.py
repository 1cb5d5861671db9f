"""Blocks taken in turns with another process: for two revisions that cannot be told apart in one.

Both processes prepare the same cases and then wait to be told, turn by turn, which cases to take a block of. The inputs
of a block follow from the run's seed, so that both time the same values; buffers they cannot share.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfci.measure.bench import Bench, Heard, Subject
from perfci.measure.blocks import session


@dataclass(frozen=True)
class Turn:
    """What to take one block of each; no cases end the measurement."""

    index: int
    cases: tuple[str, ...]


def measure_in_turns(bench: Bench, subjects: Sequence[Subject], heard: Heard, next_turn: Callable[[], Turn]) -> float:
    """Measure blocks as told until told to end; gives the seconds in which the device was at work."""
    busy_s = 0.0
    while (turn := next_turn()).cases:
        chosen = [subject for subject in subjects if subject.case in turn.cases and not subject.broken]
        order = random.Random(f"{bench.settings.seed}/{bench.settings.process}/{turn.index}")
        order.shuffle(chosen)
        if chosen:
            busy_s += session(bench, [(subject, turn.index) for subject in chosen], heard)
    return busy_s
