"""Sizes of a search that would fill the memory. In a file apart, as literals of a file are sizes to try."""

import numpy as np

from perfci.device.fake import FakeDevice, FakeSpec
from perfci.measure.search import search
from perfci.measure.verify import Check
from perfci.ops.spec import Accuracy, grid


def make_square(size, rows, device, seed):
    numbers = np.random.default_rng(seed).standard_normal((size, size)).astype("float32")
    return {"x": numbers, "row": numbers[0], "rows": numbers[:1].repeat(rows, 0)}


SQUARE = Accuracy(lambda x, row, rows: -x - 1, lambda x, row, rows: x, make_square, grid(size=[3, 5], rows=[1]))


def find(**sizes):
    check = Check(sizes, "edges", "contiguous", 1, fresh=True)
    return search(SQUARE, FakeDevice(FakeSpec(), 1), check, lambda error: {"error": str(error)}, None)


def test_a_size_that_squares_the_inputs_is_left_out_before_it_fills_the_memory():
    assert find(size=200, rows=1).failure
    assert find(size=1 << 20, rows=1) is None


def test_a_long_axis_of_few_rows_is_tried():
    assert find(size=3, rows=1 << 16).failure
