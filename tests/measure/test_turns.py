"""Blocks that two processes take together, handing the device to each other."""

import socket
import threading

import pytest

from perfci.measure import blocks
from perfci.measure.baton import Baton
from perfci.measure.prepare import prepare, rounds
from tests.measure.scripted import KERNEL_US, NAMES, Scripted, working

ROUNDS = rounds(KERNEL_US)


class Sides:
    """Head and base of one suite, each on its device and in a separate thread, as in two processes."""

    def __init__(self):
        self.head, self.base = Scripted(), Scripted()
        self.head.kernel, self.base.kernel = working(10.0), working(11.0)
        self.base.settings = {"as_base": True}
        self.log = []
        """whose launch, and of which arm and case: in the order in which the device did them"""
        for name, side in (("head", self.head), ("base", self.base)):
            side.time_us = self.note(name, side.time_us)
        self.failed = []

    def note(self, name, time_us):
        def noted(arm, rows):
            self.log.append((name, arm, rows))
            return time_us(arm, rows)

        return noted

    def take(self, *turns, process=0, by_round=True, shared=None):
        """Gives both sides the same turns; returns the subjects of each by case."""
        shown, prepared = {}, {}
        for name, side in (("head", self.head), ("base", self.base)):
            on = side.bench(seed=5, process=process)
            prepared[name] = on, [prepare(on, params) for params in side.cases]
        self.log.clear()

        def run(name, side, end):
            on, subjects = prepared[name]
            both = [(index, cases, cases if shared is None else shared) for index, cases in turns]
            given = iter([*both, (len(turns), (), ())])
            baton = Baton(end.fileno(), lambda: None, by_round=by_round)
            try:
                blocks.measure_in_turns(on, subjects, side.hear, lambda: next(given), baton)
            except BaseException as error:
                self.failed.append(error)
            finally:
                end.close()  # as a process does that ends
            shown[name] = {subject.case: subject for subject in subjects}

        ends = socket.socketpair(type=socket.SOCK_SEQPACKET)
        threads = [
            threading.Thread(target=run, args=(name, side, end))
            for name, side, end in zip(("head", "base"), (self.head, self.base), ends, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads), "they wait for each other"
        return [shown["head"], shown["base"]]

    def stretches(self):
        """Whose launches come one after the other, and how many."""
        turns = []
        for name, *_ in self.log:
            if turns and turns[-1][0] == name:
                turns[-1][1] += 1
            else:
                turns.append([name, 1])
        return [tuple(turn) for turn in turns]


@pytest.fixture
def sides():
    return Sides()


def test_each_turn_is_one_block_of_the_cases_that_it_names(sides):
    head, base = sides.take((0, NAMES), (1, NAMES[1:]), (2, NAMES[2:]))

    for subjects in (head, base):
        assert [[block.index for block in subjects[name].blocks] for name in NAMES] == [[0], [0, 1], [0, 1, 2]]


def test_head_times_kernel_and_reference_and_the_base_its_own(sides):
    sides.take((0, NAMES))

    assert {arm for arm, _ in sides.head.order} == {"kernel", "reference"}
    assert {arm for arm, _ in sides.base.order} == {"base", "reference"}
    assert all(block.shifts == {} for _, block, _ in sides.base.heard)


@pytest.mark.parametrize(("process", "first"), [(0, "head"), (1, "base")])
def test_both_take_every_round_in_turns_and_change_who_comes_first(sides, process, first):
    sides.take((0, NAMES[:1]), (1, NAMES[:1]), process=process)

    second = {"head": "base", "base": "head"}[first]
    one, other = [(first, 2), (second, 2)] * ROUNDS, [(second, 2), (first, 2)] * ROUNDS
    # Anyone who ended the first block begins the second one.
    assert sides.stretches() == [*one[:-1], (second, 4), *other[1:]]


def test_a_device_that_is_handed_over_by_turn_is_with_one_process_for_all_blocks_of_it(sides):
    sides.take((0, NAMES), (1, NAMES), by_round=False)

    launches = 2 * ROUNDS * len(NAMES)
    assert sides.stretches() == [("head", launches), ("base", 2 * launches), ("head", launches)]


def test_both_make_as_many_rounds_as_the_one_that_makes_fewer(sides):
    sides.base.device.window_s = lambda call, launches: launches * 50e-6
    head, base = sides.take((0, NAMES[:1]))

    counts = [side[NAMES[0]].blocks[0].arms[arm].time.launches for arm, side in (("kernel", head), ("base", base))]
    assert counts == [ROUNDS, ROUNDS]


@pytest.mark.parametrize("process", [0, 3])
def test_both_sides_time_the_same_values_of_the_same_cases_in_the_same_order(sides, process):
    sides.take(*((index, NAMES) for index in range(4)), process=process)

    # Preparing included; blocks that are verified have their values changed on both sides.
    assert list(dict.fromkeys(sides.head.seeds)) == sides.base.seeds
    assert len(sides.base.seeds) == 3 * (1 + 4 + 3)
    assert [rows for _, rows in sides.head.order] == [rows for _, rows in sides.base.order]
    for head, base in zip(sides.head.sessions, sides.base.sessions, strict=True):
        assert head.asides == base.asides


def test_a_case_without_a_base_is_timed_between_those_with_one(sides):
    sides.base.cases = sides.base.cases[1:]
    head, base = sides.take((0, NAMES), (1, NAMES), shared=NAMES[1:])

    assert [len(head[name].blocks) for name in NAMES] == [2, 2, 2]
    assert [len(subject.blocks) for subject in base.values()] == [2, 2]
    alone = [(name, rows) for name, _, rows in sides.log if rows == 4]
    assert alone == [("head", 4)] * 4 * ROUNDS


# --- when one side fails ----------------------------------------------------------------------------------------------


def failing(sides, name, at, error):
    """One side's kernel raises at its call of this number."""
    calls = {"count": 0}

    def late(x):
        calls["count"] += 1
        if calls["count"] == at:
            raise error
        return x * 2

    side = {"head": sides.head, "base": sides.base}[name]
    side.kernel = working(11.0, late)


@pytest.mark.parametrize("name", ["head", "base"])
@pytest.mark.parametrize("at", [5, 8, 13, 20])
def test_a_side_that_raises_leaves_the_device_to_the_other_and_both_go_on_with_the_next_case(sides, name, at):
    sides.head.cases = sides.base.cases = sides.base.cases[:2]
    failing(sides, name, at, RuntimeError("no stream"))
    head, base = sides.take((0, NAMES[:2]), (1, NAMES[:2]), (2, NAMES[:2]))

    broken, whole = (head, base) if name == "head" else (base, head)
    (case,) = [case for case, subject in broken.items() if subject.failure]
    assert (broken[case].failure.kind, broken[case].raised) == ("kernel_raised", True)
    assert len(broken[case].blocks) < 3
    assert [len(subject.blocks) for subject in whole.values()] == [3, 3]
    assert [len(subject.blocks) for other, subject in broken.items() if other != case] == [3]


@pytest.mark.parametrize("name", ["head", "base"])
def test_a_side_that_ends_in_the_middle_of_a_round_leaves_the_device_to_the_other(sides, name):
    failing(sides, name, 12, KeyboardInterrupt())  # which no handler takes: the process ends
    head, base = sides.take((0, NAMES), (1, NAMES))

    whole = base if name == "head" else head
    assert [type(error) for error in sides.failed] == [KeyboardInterrupt]
    assert [len(subject.blocks) for subject in whole.values()] == [2, 2, 2]
