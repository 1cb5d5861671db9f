import doctest

import pytest

from perfci.ops import spec
from perfci.ops.spec import case_id, grid, is_maker, matches

CASE = "rows=4096,cols=1024,dtype=float16"


def test_the_examples_in_the_documentation_are_true():
    assert doctest.testmod(spec).failed == 0
    assert doctest.testmod(spec).attempted > 0


def test_a_grid_is_every_combination_the_last_axis_fastest():
    cases = grid(rows=[1, 2], cols=(8, 9), dtype=["a"])

    assert [tuple(case.values()) for case in cases] == [(1, 8, "a"), (1, 9, "a"), (2, 8, "a"), (2, 9, "a")]
    assert list(cases[0]) == ["rows", "cols", "dtype"]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"rows": 1, "dtype": "torch.float16"}, "rows=1,dtype=float16"),
        ({"shape": (2, 3)}, "shape=(2;3)"),
        ({"mode": "a b,c"}, "mode=ab;c"),
        ({"causal": True, "p": 0.5, "bias": None}, "causal=True,p=0.5,bias=None"),
        ({}, ""),
    ],
)
def test_a_case_has_one_id_whose_only_commas_part_its_parameters(params, text):
    assert case_id(params) == text


@pytest.mark.parametrize(
    ("pattern", "fits"),
    [
        (None, True),
        ("*", True),
        (CASE, True),
        ("rows=4096*", True),
        ("dtype=float16", True),
        ("dtype=float*,rows=4???", True),
        ("cols=1024,rows=4096", True),
        ("cols=[12]024", True),
        ("rows=409", False),
        ("rows=4096,cols=7", False),
        ("ows=4096", False),
        ("", False),
        ("DTYPE=float16", False),
    ],
)
def test_a_pattern_fits_the_whole_id_or_its_parts_in_any_order(pattern, fits):
    assert matches(CASE, pattern) is fits


def test_makers_of_peers_are_told_by_their_arguments():
    assert is_maker(lambda: max)
    assert not is_maker(lambda x: x)
    assert not is_maker(lambda **inputs: 0)
    assert not is_maker(max), "a builtin without a signature is the peer itself"
