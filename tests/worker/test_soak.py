"""Which cases a machine without an accelerator takes, and what a declaration of large cases has to be."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from perfci.core.errors import ContractError
from perfci.core.wording import sentence
from perfci.device import open_device
from perfci.ops.spec import Accuracy, grid
from perfci.worker.soak import find_smallest
from tests.worker.test_load import OpFolder


def inputs(rows, dtype, device, seed):
    if rows == 13:
        raise MemoryError("planted")
    return {"x": np.zeros((rows, 8), dtype="float32")}


def suite(*rows, dtype=("float32",), **options):
    return Accuracy(lambda x: x, lambda x: x, inputs, grid(rows=rows, dtype=dtype), **options)


@pytest.fixture(scope="module")
def device():
    return open_device("fake", seed=1)


def rows(found):
    return [params["rows"] for params in found]


def test_the_smallest_cases_that_are_worth_calling_are_taken(device):
    assert rows(find_smallest(suite(0, 1, 64, 1000, 32, 33, 13), device, None, 1)) == [32, 33]


def test_where_all_are_tiny_the_largest_has_to_do_and_where_all_are_empty_none(device):
    assert rows(find_smallest(suite(1, 3, 2), device, None, 1)) == [3]
    assert find_smallest(suite(0), device, None, 1) == []


# --- the declaration --------------------------------------------------------------------------------------------------


@pytest.fixture
def declared(tmp_path):
    made = OpFolder(tmp_path, "wide")
    before = set(sys.modules)

    def load(fields):
        path = made.path("accuracy")
        text = f"accuracy = perfci.Accuracy(wide, reference, make_inputs, cases=[{{'rows': 1}}], {fields})\n"
        path.write_text(path.read_text() + text)
        return made.load().accuracy

    yield load
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refusal(declared, fields):
    with pytest.raises(ContractError) as caught:
        declared(fields)
    return sentence(caught.value.reason)


def test_large_cases_are_read_and_are_none_by_default(declared):
    assert declared("").large_cases == ()
    assert declared("large_cases=[{'rows': 5}]").large_cases == [{"rows": 5}]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("large_cases=7", "large_cases"),
        ("large_cases=[5]", "large_cases[0]"),
        ("large_cases=[{'columns': 5}]", "columns=5"),
        ("large_cases=[{'rows': 5}, {'rows': 5}]", "rows=5"),
        ("large_cases=[{'rows': 5}], large_part=3", "large_part"),
    ],
)
def test_a_wrong_declaration_is_refused_in_a_sentence(declared, fields, said):
    assert said in refusal(declared, fields)
