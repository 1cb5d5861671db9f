from pathlib import Path

import pytest

from perfci.gitlab.proposal import compare_earned, compare_written
from perfci.thresholds.earned import EarnedFile
from perfci.thresholds.layers import Relaxed
from perfci.thresholds.limits import CaseThresholds, OpThresholds, Thresholds
from tests.thresholds.earned_examples import HERE, KEY, THERE, earned

CASES = {"relu": ("rows=1", "rows=2")}


def looser(before, after):
    return {(each.op, each.case, each.key) for each in compare_written(before, after, CASES) if each.looser}


def op(*cases, **common):
    return Thresholds(ops={"relu": OpThresholds(CaseThresholds(**common), cases)})


def test_equal_thresholds_differ_in_nothing():
    assert list(compare_written(op(margin=0.03), op(margin=0.03), CASES)) == []


@pytest.mark.parametrize(
    ("before", "after", "loose"),
    [
        ({"margin": 0.03}, {"margin": 0.02}, False),
        ({"margin": 0.03}, {"margin": 0.04}, True),
        ({"speedup": 1.2}, {"speedup": 1.3}, False),
        ({"speedup": 1.2}, {"speedup": 1.1}, True),
        ({"speedup": 1.2}, {}, True),
        ({}, {"speedup": 1.2}, False),
        ({"registers": 0.1}, {}, True),
        ({}, {"registers": 0.1}, False),
        ({}, {"floor_us": {"activity": 0.2, "event": 0.5, "virtual": 0.0}}, True),
        ({}, {"tau": ((0.0, 0.05), (3.0, 0.02), (10.0, 0.015), (40.0, 0.01))}, False),
        ({}, {"tau": ((0.0, 0.025), (40.0, 0.01))}, True),  # 10 us had 1.5 %
        ({}, {"tau": ((0.0, 0.05), (3.0, 0.025), (5.0, 0.03), (10.0, 0.015), (40.0, 0.01))}, True),
        ({"alpha": 0.01}, {"alpha": 0.001}, True),  # fewer alarms, and so a gate that sees less
    ],
)
def test_each_value_is_known_by_its_own_direction(before, after, loose):
    assert bool(looser(op(**before), op(**after))) == loose


def test_a_case_that_is_loosened_behind_a_tighter_op_is_found():
    before, after = op(margin=0.03), op(("rows=2", {"margin": 0.05}), margin=0.02)

    assert looser(before, after) == {("relu", "rows=2", "margin")}


def test_an_ops_own_file_that_goes_away_leaves_the_default():
    assert looser(op(margin=0.01), Thresholds()) == {("relu", None, "margin")}
    assert looser(op(margin=0.05), Thresholds()) == set()


# --- earned values ----------------------------------------------------------------------------------------------------


def values(*found, environment=HERE):
    return EarnedFile("softmax", KEY, Path("softmax.yaml"), found, environment)


@pytest.mark.parametrize(
    ("before", "after", "loose"),
    [
        ([], [earned(value=0.005)], False),
        ([earned(value=0.0075)], [earned(value=0.006)], False),
        ([earned(value=0.006)], [earned(value=0.0075)], True),
        ([earned(value=0.006)], [], True),
        ([earned("speedup", 1.3)], [earned("speedup", 1.2)], True),
        ([earned("speedup", 1.3)], [earned("speedup", 1.2, rescaled="run025")], False),
        ([earned("speedup", 1.3, rescaled="run025")], [earned("speedup", 1.2, rescaled="run025")], True),
    ],
)
def test_an_earned_value_is_loosened_by_an_accepted_loss_alone(before, after, loose):
    (found,) = compare_earned(values(*before), values(*after))

    assert found.looser is loose


def test_in_another_environment_earned_values_begin_anew():
    found = list(compare_earned(values(earned(value=0.006)), values(environment=THERE)))

    assert [(each.key, each.after, each.looser) for each in found] == [("tau", None, False)]


def test_an_entry_that_relaxes_is_a_loosening():
    entry = Relaxed("relu", "tau", "noisy", "2027-01-31", to=0.03)
    after = Thresholds(ops={"relu": OpThresholds(CaseThresholds(), relaxed=(entry,))})

    assert looser(op(), after) == {("relu", None, "relaxed")}
