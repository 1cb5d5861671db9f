from pathlib import Path

import pytest

from perfci.extensions.history.proposal import compare_earned
from perfci.thresholds.earned import EarnedFile
from tests.thresholds.earned_examples import HERE, KEY, THERE, earned


def values(*entries, environment=HERE):
    return EarnedFile("softmax", KEY, Path("softmax.json"), entries, environment)


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
    (difference,) = compare_earned(values(*before), values(*after))

    assert difference.looser is loose


def test_in_another_environment_earned_values_begin_anew():
    differences = list(compare_earned(values(earned(value=0.006)), values(environment=THERE)))

    assert [(difference.key, difference.after, difference.looser) for difference in differences] == [
        ("tau", None, False)
    ]
