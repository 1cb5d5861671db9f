import random
from dataclasses import replace

import pytest

from perfci.report.figures.blocks import Trace, traces


@pytest.fixture
def blocks(examples):
    arms = {"kernel": 10.0, "base": 9.9, "reference": 20.0}
    return tuple(examples.block(i, arms, random.Random(i), process=i // 3) for i in range(6))


def test_the_kernel_stands_with_its_base_and_the_reference_apart(blocks):
    left, right = traces([Trace("n=1", None, blocks, 9.8)], "t").panels

    assert {mark.name for mark in left.points()} == {"kernel", "base"}
    assert {mark.name for mark in right.points()} == {"reference"}
    assert left.lines("baseline")[0].ys == (9.8, 9.8)
    assert not right.lines("baseline")


def test_blocks_are_where_and_when_they_were_measured(blocks):
    left, _ = traces([Trace("n=1", None, blocks, None)], "t").panels

    first, fresh = left.points("kernel")
    assert first.xs == tuple(block.started_s for block in blocks[:3])
    assert fresh.ys == tuple(block.arms["kernel"].time.median_us for block in blocks[3:])
    assert (first.hollow, fresh.hollow) == (False, True)


def test_an_arm_that_a_case_lacks_is_said_to_be_missing(blocks):
    lonely = tuple(replace(block, arms={"kernel": block.arms["kernel"]}) for block in blocks)

    found = traces([Trace("n=1", None, blocks, None), Trace("n=2", None, lonely, None)], "t").panels

    assert found[3].notes() == ["not measured"]


def test_equal_times_have_an_axis_around_them(blocks):
    same = tuple(replace(block, arms={"kernel": blocks[0].arms["kernel"]}) for block in blocks)

    (panel,) = traces([Trace("n=1", None, same, None)], "t").panels

    middle = blocks[0].arms["kernel"].time.median_us
    assert panel.y.low < 0.99 * middle
    assert panel.y.high > 1.01 * middle
