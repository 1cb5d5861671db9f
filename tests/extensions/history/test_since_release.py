"""How an op changed since a release."""

from dataclasses import replace

import pytest

from perfci.core.model import HistoryRun
from perfci.extensions.history.since_release import Release, measure_since
from tests.history_examples import CASE, OTHER, accepted, environment, figures

V1 = Release("v1", frozenset("1" * 40 + str(n) for n in range(4)))  # of runs 0 to 3


def history(*times: float, **changes) -> list[HistoryRun]:
    """Runs of one case with these times, each of a separate commit."""
    cells = []
    for number, us in enumerate(times):
        surroundings = {name: values[number] for name, values in changes.items()}
        cells.append(accepted(number, figures(kernel_us=us), commit="1" * 40 + str(number), **surroundings))
    return cells


@pytest.mark.parametrize(
    ("times", "change"),
    [
        ([10, 10, 10, 10, 11, 11, 11], 0.1),
        ([8, 8, 10, 10, 10, 10, 10], 0.0),  # a step before the release
        ([10, 10, 10, 10, 10, 10, 14], 0.0),  # one noisy run
        ([10, 10, 10, 10, 9], -0.1),
    ],
)
def test_a_change_goes_from_the_runs_up_to_the_release_to_the_newest_ones(times, change):
    assert measure_since(history(*times), V1).changes == {CASE: pytest.approx(change)}


def test_without_a_release_it_goes_over_all_runs():
    assert measure_since(history(8, 8, 10, 10, 10, 12, 12), None).changes == {CASE: pytest.approx(0.5)}


@pytest.mark.parametrize("times", [[], [10], [10, 10, 10, 10]])
def test_there_is_none_without_a_run_after_the_release(times):
    since = measure_since(history(*times), V1)

    assert (since.changes, since.worst, since.mean) == ({}, "", None)


def test_a_run_of_an_unknown_commit_lies_where_its_neighbours_do():
    runs = history(10, 10, 10, 10, 12)
    runs[2] = replace(runs[2], environment=environment(commit="f" * 40))

    assert measure_since(runs, V1).changes == {CASE: pytest.approx(0.2)}


def test_only_what_was_timed_alike_is_compared():
    runs = history(10, 10, 10, 10, 12, timer=["event"] * 4 + ["activity"])

    assert measure_since(runs, V1).changes == {}


def test_the_worst_case_and_the_mean_are_of_all_cases():
    runs = [
        replace(run, cases=(*run.cases, figures(OTHER, us)))
        for run, us in zip(history(10, 10, 10, 10, 12.1), (20, 20, 20, 20, 20 / 1.21), strict=True)
    ]
    since = measure_since(runs, V1)

    assert since.worst == CASE
    assert since.mean == pytest.approx(0.0)


def test_a_new_driver_and_an_accepted_loss_in_between_are_noted_and_a_new_board_is_not():
    def note(**changes):
        return measure_since(history(10, 10, 10, 10, 12, **changes), V1).notes

    assert note(uuid=["GPU-1"] * 4 + ["GPU-2"]) == ()
    assert note(driver=["580"] * 4 + ["590"]) == ("new environment",)
    assert note(why=[None] * 4 + ["agreed"]) == ("accepted loss",)
    assert note(why=["agreed"] + [None] * 4) == ()


@pytest.mark.parametrize("us", [0.0, 5e-324])
def test_times_that_cannot_be_are_no_change(us):
    assert measure_since(history(us, us, us, us, 10), V1).changes == {}
