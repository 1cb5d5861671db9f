"""How far a run is, how long it still takes, and where its seconds went, by a clock that the tests set."""

import pytest

from perfci.core.model import AccuracyCase, Need, PerformanceCase
from perfci.runs import schedule
from perfci.runs.plan import Request
from perfci.runs.schedule import Pace, Stopwatch
from perfci.worker.protocol import Doing, Finished, Holding, LockAsked, OpDone, Position
from tests.runs.test_record import remeasure


class Clock:
    now = 0.0


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(schedule.time, "monotonic", lambda: Clock.now)
    Clock.now = 100.0
    return Clock


def checked(case):
    return AccuracyCase(case, "normal", "contiguous", 0)


def left(run, seconds=None):
    return run.find_position((seconds or {}).get).left_s


# --- seconds by step --------------------------------------------------------------------------------------------------


def test_every_second_of_a_worker_belongs_to_the_step_that_it_says_it_is_in(clock):
    watch = Stopwatch()
    for seconds, message in (
        (3.0, Doing("import", "relu")),
        (0.5, LockAsked("FAKE-0")),
        (20.0, Holding()),  # another look had the device
        (0.5, Doing("suites", "relu")),
        (0.5, Doing("accuracy", "relu", "rows=1")),
        (4.0, Doing("prepare", "relu", "the timer")),
        (2.0, Doing("measure", "relu", "rows=1")),
        (1.0, Doing("measure of the base", "relu", "rows=1")),
        (0.25, OpDone()),
    ):
        clock.now += seconds
        watch.hear(message)
    clock.now += 0.5

    assert watch.stop() == {"start": 4.5, "accuracy": 4.5, "prepare": 2.0, "measure": 1.25}


# --- cases ------------------------------------------------------------------------------------------------------------


def test_a_case_counts_once_it_is_done_and_an_ops_cases_all_do_when_it_has_ended(clock):
    run = Pace({"relu": 4, "scale": 3}, {"relu": ("rows=1", "rows=2")})
    run.begin("relu")

    def count(*messages):
        return [(run.hear("relu", message), run.find_position(lambda _: None).cases_done) for message in messages]

    # Three checks of a case are one case, and the last one may be checked once more.
    assert count(checked("rows=1"), checked("rows=1"), checked("rows=2")) == [(False, 0), (False, 0), (True, 1)]
    assert count(Doing("accuracy", "relu", "rows=2"), Doing("prepare", "relu")) == [(False, 1), (True, 2)]
    # What a search finds on inputs of its own is none of the planned cases.
    assert count(checked("rows=7"), Doing("measure", "relu", "rows=1")) == [(False, 2), (False, 2)]
    assert count(Finished(PerformanceCase("rows=1"))) == [(True, 3)]
    run.end("relu")
    assert run.find_position(lambda _: None) == Position(1, 0, 2, 4, 7)


# --- time left --------------------------------------------------------------------------------------------------------


def test_time_left_is_what_the_ops_took_the_last_time_less_what_has_passed(clock):
    run, seconds = Pace({"relu": 1, "scale": 1}), {"relu": 20.0, "scale": 30.0}
    run.begin("relu")
    assert left(run, seconds) == 50.0
    clock.now += 15.0
    assert left(run, seconds) == 35.0
    clock.now += 60.0  # longer than it should have taken
    assert left(run, seconds) == 30.0
    run.end("relu")
    run.begin("scale")
    clock.now += 29.0
    assert left(run, seconds) == 1.0


def test_of_ops_that_run_at_once_the_longest_or_all_of_them_decide(clock):
    run, seconds = Pace({"a": 1, "b": 1, "c": 1, "d": 1}), {"a": 10.0, "b": 10.0, "c": 10.0, "d": 10.0}
    run.begin("a")
    run.begin("b")
    assert left(run, seconds) == 20.0
    assert left(run, seconds | {"a": 90.0}) == 90.0


def test_without_a_run_before_a_case_takes_as_long_as_those_so_far(clock):
    run = Pace({"relu": 4, "scale": 6}, {"relu": ("rows=1", "rows=2")})
    run.begin("relu")
    clock.now += 5.0
    assert left(run) is None
    run.hear("relu", checked("rows=1"))
    run.hear("relu", checked("rows=2"))
    assert left(run) == 4 * 5.0 - 5.0 + 6 * 5.0


# --- in a run ---------------------------------------------------------------------------------------------------------


def positions(heard):
    return [message for message in heard if isinstance(message, Position)]


def test_a_run_says_where_it_is_among_the_ops_that_need_a_worker(measure, workers, settings, heard):
    measure()

    said = [
        (position.done, position.under_way, position.total, position.cases_done, position.cases)
        for position in positions(heard)
    ]
    assert said[0] == (0, 1, 2, 0, 6)
    assert (1, 1, 2, 3, 6) in said
    assert said[-1] == (2, 0, 2, 6, 6)
    assert [line[3] for line in said] == sorted(line[3] for line in said)


def test_an_op_that_nothing_has_to_be_run_of_is_not_among_them(measure, workers, forked, heard):
    measure(forked)

    assert {(position.total, position.cases) for position in positions(heard)} == {(1, 3)}


def test_later_looks_have_a_count_of_their_own(measure, workers, settings, heard):
    run = measure()
    heard.clear()
    remeasure(run, settings, Request(seed=7), [Need("relu", "rows=1", 2), Need("scale", "rows=2", 1)], heard.append)

    assert [(position.later, position.done, position.total) for position in positions(heard) if position.under_way] == [
        *[(True, 0, 3)] * 2,
        *[(True, 1, 3)] * 2,
        *[(True, 2, 3)] * 2,
    ]
