"""A stored tensor beside what accepted runs had of it."""

import pytest

from perfci.measure.lowprec.accepted import KEPT, beside
from perfci.measure.lowprec.histogram import divergence
from tests.storage_examples import changed, line, measured, sound, store


def now():
    return sound()[0]


def test_without_a_history_there_is_no_divergence_and_nothing_before():
    found = beside(now(), [])

    assert (found.divergence, found.before, found.accepted) == (0.0, (), None)


def test_the_divergence_is_from_the_newest_accepted_run():
    other = measured(lambda **case: store(**case, shrink=0.3))
    found = beside(now(), [line(0), line(1, other)])

    assert found.divergence == divergence(now().histogram, other[0].histogram) > 0.1
    assert found.accepted == other[0].histogram
    assert beside(now(), [line(0, other), line(1)]).divergence == 0.0


def test_the_figures_of_the_accepted_runs_come_along_oldest_first():
    history = [line(number, [changed(each, p99=1 + number) for each in sound()]) for number in range(3)]
    found = beside(now(), history)

    assert [each.run for each in found.before] == ["run0", "run1", "run2"]
    assert [each.p99_abs / now().errors.p99_abs for each in found.before] == pytest.approx([1, 2, 3])


def test_a_long_history_gives_its_last_runs_only():
    found = beside(now(), [line(number) for number in range(KEPT + 5)])

    assert len(found.before) == KEPT
    assert found.before[-1].run == f"run{KEPT + 4}"


def test_runs_that_lack_the_tensor_are_passed_over():
    history = [line(0), line(1, sound()[1:]), line(2, ())]

    assert [each.run for each in beside(now(), history).before] == ["run0"]
