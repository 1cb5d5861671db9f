"""Until when measuring may go on, by the option or the job's variables, and what of it each op may have."""

import pytest

from perfci.core import deadline
from perfci.core.deadline import Timetable, ends, find
from perfci.core.wording import sentence

NOW = 1_700_000_000.0
STARTED = "2023-11-14T22:13:20Z"
"""The same moment."""


def job(timeout="3600", started=STARTED):
    return {"CI_JOB_TIMEOUT": timeout, "CI_JOB_STARTED_AT": started}


# --- the limit --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variables", [{"CI_JOB_TIMEOUT": "60"}, {"CI_JOB_STARTED_AT": STARTED}, job(timeout="")])
def test_a_job_that_does_not_say_both_has_no_limit(variables):
    assert find(None, variables, NOW) == deadline.NO_LIMIT


def test_the_option_counts_from_now_where_nobody_says_when_the_job_began():
    deadline = find(90.5, {}, NOW).deadline

    assert (ends(deadline), deadline.limit_s, deadline.reserve_s, deadline.by) == (NOW + 90.5, 90.5, 0.0, "--deadline")


def test_the_option_counts_from_the_start_of_the_job_and_goes_before_its_timeout():
    deadline = find(600.0, job(), NOW + 100.0).deadline

    assert (ends(deadline), deadline.reserve_s) == (NOW + 600.0, 0.0)


def test_the_jobs_timeout_holds_less_a_reserve():
    deadline = find(None, job(), NOW + 100.0).deadline

    assert (ends(deadline), deadline.limit_s, deadline.reserve_s) == (NOW + 3600.0 - 180.0, 3600.0, 180.0)
    assert deadline.by == "CI_JOB_TIMEOUT"


@pytest.mark.parametrize("timeout", ["soon", "-5", "0", "nan", "inf", "1e400", "1e12", "3600 s"])
def test_a_timeout_that_is_no_number_of_seconds_is_said_and_ignored(timeout):
    deadline = find(None, job(timeout=timeout), NOW)

    assert deadline.deadline is None
    assert "CI_JOB_TIMEOUT" in sentence(deadline.note) and timeout in sentence(deadline.note)


@pytest.mark.parametrize("started", ["yesterday", "2023-13-45T00:00:00Z", "1700000000", "0001-01-01T00:00:00+14:00"])
def test_a_start_that_is_no_date_is_said_and_ignored_and_the_option_counts_from_now(started):
    ignored, asked = find(None, job(started=started), NOW), find(60.0, job(started=started), NOW)

    assert ignored.deadline is None and "CI_JOB_STARTED_AT" in sentence(ignored.note)
    assert (ends(asked.deadline), asked.note) == (NOW + 60.0, ignored.note)


def test_a_job_that_begins_in_the_future_or_is_over_has_a_wrong_clock():
    early, over = find(None, job(), NOW - 4000.0), find(None, job(), NOW + 5000.0)

    assert (early.deadline, early.note.facts["variable"]) == (None, "CI_JOB_STARTED_AT")
    assert (over.deadline, over.note.facts["variable"]) == (None, "CI_JOB_TIMEOUT")


def test_workers_are_asked_to_end_before_the_end_and_of_a_short_limit_only_a_little():
    assert deadline.wind_down(find(3600.0, {}, NOW).deadline) == 10.0
    assert deadline.wind_down(find(5.0, {}, NOW).deadline) == 0.5


# --- the timetable ----------------------------------------------------------------------------------------------------

TABLE = Timetable({"a": 30.0, "b": 10.0, "c": 20.0})


def test_ops_that_do_not_fit_are_begun_shortest_first_so_that_most_of_them_are_done():
    assert TABLE.order(["a", "b", "c"], 59.0) == ["b", "c", "a"]


def test_what_ops_took_corrects_what_the_others_are_expected_to_take():
    table = TABLE.noting("b", 25.0)

    assert (table.pace, table.expected("a"), table.expected("unknown")) == (2.5, 75.0, 0.0)


def test_an_op_may_take_what_the_others_do_not_need():
    assert TABLE.allowed("a", ["b", "c"], 600.0) == 570.0


def test_an_op_may_take_some_more_than_expected_where_time_is_short_and_never_more_than_there_is():
    assert TABLE.allowed("a", ["b"] * 100, 600.0) == 30.0 + 2 * 30.0
    assert TABLE.allowed("a", ["b"] * 100, 5.0) == 5.0


def test_ops_that_run_at_once_wait_for_one_another_less():
    table = Timetable(TABLE.seconds, lanes=2)

    assert table.order(["a", "b", "c"], 29.0) == ["b", "c", "a"]
    assert table.order(["b", "a", "c"], 30.0) == table.order(["a", "b", "c"], None) == ["a", "c", "b"]
    assert table.allowed("a", ["b", "c"], 600.0) == 585.0
