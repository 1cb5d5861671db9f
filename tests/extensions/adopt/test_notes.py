"""Faults that no small case shows are named when a function is brought in."""

from pathlib import Path

import pytest

from perfci.core.wording import sentence
from perfci.extensions.adopt.sketch import SketchFiles
from tests.extensions.adopt.rehearsing import Rehearsals

SOURCE = str(Path(__file__).parent / "faulty_kernels.py")
FAULTS = {
    "rows_second": {"look_grid": "From rows=65536 on, _along is launched with more than 65535 programs along axis 1"},
    "rows_first": {},
    "whole_rows": {"look_block": "As cols grows, BLOCK of _whole_row", "look_narrow": "computes row * stride in 32"},
    "first_columns": {"look_bound": "of _whole_row grows with cols", "look_narrow": "_whole_row"},
    "in_place": {"look_unrestored": "_in_place reads and writes x_ptr"},
    "beside": {},
    "tiles": {"look_narrow": "_tiles computes at_rows[:, None] * stride in 32", "look_grid": "From cols=2097121 on"},
    "put": {
        "look_narrow_loaded": "_put computes place * out_stride in 32 bits if places_ptr holds 32",
        "look_bound": "",
    },
    "put_far": {"look_bound": "_put_far"},
    "late_blocks": {"look_beyond": "late_blocks loads or stores outside of its tensors at rows=129"},
    "whole_blocks": {"look_beyond": "whole_blocks loads or stores outside of its tensors at rows="},
}
"""function -> kinds of notes, and a part of each"""
DAILY = {"rows_second", "whole_rows", "in_place", "put"}

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def said():
    others = {"in_place": "double_in_place", "put": "put_all", "put_far": "put_all"}
    pairs = {name: others.get(name, "double") for name in FAULTS}
    return Rehearsals({name: (name, SketchFiles(SOURCE, name, None, other, SOURCE)) for name, other in pairs.items()})


@pytest.mark.parametrize(
    "name", [name if name in DAILY else pytest.param(name, marks=pytest.mark.nightly) for name in FAULTS]
)
def test_a_fault_that_no_small_case_shows_is_named(said, name):
    notes = {reason.kind: sentence(reason) for reason in said[name].look}

    kinds = {
        "look_grid",
        "look_block",
        "look_bound",
        "look_narrow",
        "look_narrow_loaded",
        "look_unrestored",
        "look_beyond",
    }
    assert {*notes} & kinds == {*FAULTS[name]}
    for kind, part in FAULTS[name].items():
        assert part in notes[kind]
