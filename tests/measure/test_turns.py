"""Blocks that are taken when another process has taken its own."""

from __future__ import annotations

import pytest

from perfci.measure.blocks import measure_in_turns
from perfci.measure.prepare import prepare, rounds
from tests.measure.scripted import KERNEL_US, NAMES, Scripted, working


class Sides:
    """Head and base of one suite, each on its own device, as in two processes."""

    def __init__(self):
        self.head, self.base = Scripted(), Scripted()
        self.head.kernel, self.base.kernel = working(10.0), working(11.0)
        self.base.settings = {"as_base": True}
        self.base.time_us = lambda arm, rows: {"base": KERNEL_US}[arm]

    def take(self, *turns, process=0):
        """Gives both sides the same turns; returns the subjects of each by case."""
        return [self._taken(side, turns, process) for side in (self.head, self.base)]

    @staticmethod
    def _taken(side, turns, process):
        on = side.bench(seed=5, process=process)
        subjects = [prepare(on, params) for params in side.cases]
        given = iter([*turns, (len(turns), ())])
        side.busy_s = measure_in_turns(on, subjects, side.hear, lambda: next(given))
        return {subject.case: subject for subject in subjects}


@pytest.fixture
def sides():
    return Sides()


def test_each_turn_is_one_block_of_the_cases_that_it_names(sides):
    head, base = sides.take((0, NAMES), (1, NAMES[1:]), (2, NAMES[2:]))

    for subjects in (head, base):
        assert [[block.index for block in subjects[name].blocks] for name in NAMES] == [[0], [0, 1], [0, 1, 2]]
    assert sides.head.busy_s == 3 * 0.25


def test_head_times_kernel_and_reference_and_the_base_times_itself(sides):
    sides.take((0, NAMES))

    assert {arm for arm, _ in sides.head.order} == {"kernel", "reference"}
    assert {arm for arm, _ in sides.base.order} == {"base"}
    assert all(block.shifts == {} for _, block, _ in sides.base.heard)
    assert all(times.keys() == {"base"} for _, _, times in sides.base.heard)


@pytest.mark.parametrize("process", [0, 3])
def test_both_sides_time_the_same_values_of_the_same_cases_in_the_same_order(sides, process):
    sides.take(*((index, NAMES) for index in range(4)), process=process)

    # Preparing included; blocks that are verified have their values changed on both sides.
    assert list(dict.fromkeys(sides.head.seeds)) == sides.base.seeds
    assert len(sides.base.seeds) == 3 * (1 + 4 + 3)
    count = rounds(KERNEL_US)
    assert [rows for _, rows in sides.head.order[:: 2 * count]] == [rows for _, rows in sides.base.order[::count]]
    for head, base in zip(sides.head.sessions, sides.base.sessions, strict=True):
        assert [at // 2 for at in head.asides] == base.asides


def test_a_case_that_broke_gets_no_more_blocks(sides):
    calls = {"count": 0}

    def late(x):
        calls["count"] += 1
        if calls["count"] == 5:
            raise RuntimeError("no stream")
        return x * 2

    sides.base.kernel, sides.base.cases = working(11.0, late), sides.base.cases[:1]
    _, base = sides.take((0, NAMES), (1, NAMES))

    subject = base[NAMES[0]]
    assert (subject.failure.kind, subject.raised, subject.blocks) == ("kernel_raised", True, [])
