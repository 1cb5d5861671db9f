"""A race that shows seldom is found by many calls."""

import numpy as np
import pytest

from perfci.device.fake import FakeDevice, FakeSpec
from perfci.extensions.beyond.repeats import CALLS, check_repeats
from perfci.ops.spec import Accuracy, grid

SEED = 12


def make_inputs(rows, device, seed):
    return {"x": np.random.default_rng(seed).standard_normal((rows, 4)).astype("float32")}


def check(kernel, **stated):
    suite = Accuracy(kernel, lambda x: 2 * x, make_inputs, grid(rows=[3]), **stated)
    return list(check_repeats(suite, FakeDevice(FakeSpec(), 1), None))


class Race:
    """A kernel that loses an element in one call of 1,000, at random."""

    def __init__(self):
        self.rng, self.calls = np.random.default_rng(SEED), 0

    def __call__(self, x):
        self.calls += 1
        out = 2 * x
        if self.rng.integers(1000) == 0:
            out[1, 2] += 1
        return out


def test_a_race_that_shows_once_in_1000_launches_is_found_and_named():
    race = Race()
    (result,) = check(race)

    assert result.failure.kind == "differs_seldom"
    assert result.failure.facts["index"] == "(1, 2)"
    assert result.failure.facts["call"] == race.calls <= CALLS


def test_calls_that_give_the_same_bits_are_right():
    (result,) = check(lambda x: np.where(x > 0, 2 * x, np.nan * x))

    assert result.failure is None


@pytest.mark.parametrize("stated", [{"deterministic": False}])
def test_sums_in_any_order_may_differ(stated):
    assert check(Race(), **stated) == []


def test_a_thorough_check_makes_them(project):
    project.edit(
        "scale", "triton", "    return out", "    global CALLS\n    CALLS += 1\n    return out + (CALLS % 977 == 0)"
    )
    project.edit("scale", "triton", "US_PER_MEGABYTE =", "CALLS = 0\nUS_PER_MEGABYTE =")
    answer = project.check("--suite", "accuracy", "--op", "scale", "--thorough")

    assert answer.code == 2
    assert "gave other bits than the first" in answer.out
