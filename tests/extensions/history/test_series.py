"""Each case over the accepted runs."""

import math
from dataclasses import replace

import pytest

from perfci.core.model import ErrorStats
from perfci.extensions.common.accepted_runs import HistoryStored
from perfci.extensions.history.series import environment_steps, list_points
from tests.history_examples import CASE, OTHER, accepted, figures


def points(*runs, case=CASE):
    return list_points(runs)[case]


def test_cases_stand_in_the_order_in_which_they_first_appear():
    points = list_points([accepted(0, figures("b")), accepted(1, figures("a"), figures("b"))])

    assert [(case, len(series)) for case, series in points.items()] == [("b", 2), ("a", 1)]


def test_changes_are_against_the_run_before_and_the_first():
    first, second, third = points(*(accepted(at, figures(kernel_us=us)) for at, us in enumerate((10.0, 11.0, 10.5))))

    assert (first.since_last, first.since_first) == (None, None)
    assert second.since_last == pytest.approx(0.1)
    assert (third.since_last, third.since_first) == (pytest.approx(10.5 / 11 - 1), pytest.approx(0.05))


def test_a_run_without_the_case_is_passed_over():
    runs = (accepted(0, figures(kernel_us=10.0)), accepted(1, figures(OTHER)), accepted(2, figures(kernel_us=12.0)))

    assert points(*runs)[-1].since_last == pytest.approx(0.2)


@pytest.mark.parametrize("other", [accepted(1, timer="event"), accepted(1, figures(cache="warm"))])
def test_times_that_were_taken_otherwise_are_not_compared(other):
    assert points(accepted(0), other)[-1].since_last is None


def test_a_point_knows_speedup_and_epoch():
    (point,) = points(accepted(0, figures(kernel_us=10.0, shift=-0.5), why="float32 sums"))

    assert point.speedup == pytest.approx(math.exp(0.5))
    assert point.why == "float32 sums"


def test_another_driver_is_a_step_and_another_board_is_none():
    shown = points(accepted(0), accepted(1, uuid="GPU-2"), accepted(2, uuid="GPU-2", driver="590"))

    assert [[step.field for step in point.steps] for point in shown] == [[], [], ["device.driver"]]
    assert [difference.field for difference in shown[1].moved] == ["device.uuid"]


def test_the_steps_of_a_whole_history_are_told_by_run():
    steps = environment_steps([accepted(0), accepted(1, torch="2.13.0"), accepted(2, torch="2.13.0")])

    assert {run: [field.field for field in fields] for run, fields in steps.items()} == {"run1": ["packages.torch"]}


def storing(number, *stored, **surroundings):
    """An accepted run with (case, p99) of tensors that the op stores."""
    tensors = tuple(HistoryStored(case, ErrorStats(8, p99_abs=p99)) for case, p99 in stored)
    return replace(accepted(number, **surroundings), stored=tensors)


def test_stored_tensors_have_points_of_their_own_with_changes_of_p99():
    runs = [storing(0, ("stored=a", 0.02), ("stored=b", 0.01)), storing(1, ("stored=a", 0.022)), accepted(2)]
    points = list_points([*runs, storing(3, ("stored=a", 0.025))], stored=True)

    assert {case: len(series) for case, series in points.items()} == {"stored=a": 3, "stored=b": 1}
    changes = [point.since_last for point in points["stored=a"]]
    assert changes == [None, pytest.approx(0.1), pytest.approx(0.025 / 0.022 - 1)]
    assert points["stored=a"][-1].since_first == pytest.approx(0.25)


def test_a_stored_tensor_is_held_against_runs_of_any_timer_and_driver():
    runs = [storing(0, ("stored=a", 0.02)), storing(1, ("stored=a", 0.03), timer="event", driver="9")]
    (series,) = list_points(runs, stored=True).values()

    assert series[-1].since_last == pytest.approx(0.5)
    assert {step.field for step in series[-1].steps} >= {"device.driver"}


@pytest.mark.parametrize(("before", "after"), [(0.0, 0.02), (None, 0.02), (0.02, None)])
def test_there_is_no_change_from_an_error_of_nothing_or_an_unknown_one(before, after):
    (series,) = list_points([storing(0, ("stored=a", before)), storing(1, ("stored=a", after))], stored=True).values()

    assert (series[-1].since_last, series[-1].since_first) == (None, None)
