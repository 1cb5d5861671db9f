"""Slices of arrays that count as huge, on numpy and on torch: the limit is lowered instead of filling the memory."""

import dataclasses

import numpy as np
import pytest

from perfci.extensions.lab.soak.huge import RANDOM, check_large
from perfci.extensions.lab.soak.verdicts import SoakMeasured, Status
from perfci.ops.spec import Accuracy, grid

BEYOND = 1 << 14
ROWS, COLS = 3001, 7


def inputs(rows, device, seed):
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(rows, COLS)).astype(np.float32), "bias": rng.normal(size=COLS).astype(np.float32)}


def add(x, bias):
    return x + bias


def total(x, bias):
    return np.cumsum(x, axis=0) + bias


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch):
    monkeypatch.setattr("perfci.extensions.lab.soak.huge.SLICE", 256)


@pytest.fixture
def soaked(subject):
    """One large call on the fake device."""

    def run(kernel, reference=add, rows=ROWS, cases=(1, 5, 9, 13), **accuracy):
        made = subject(kernel, inputs, reference=reference, params={"rows": rows})
        suite = Accuracy(kernel, reference, inputs, grid(rows=cases), **accuracy)
        suited = dataclasses.replace(made.suite, tolerance=suite.tolerance)
        return check_large(dataclasses.replace(made, suite=suited), suite, BEYOND)

    return run


def test_a_right_kernel_passes_at_both_ends_across_the_boundaries_and_at_random(soaked):
    finding = soaked(add)

    assert isinstance(finding, SoakMeasured), finding
    assert finding.numbers["elements"] == ROWS * COLS
    assert RANDOM < finding.numbers["slices"] <= RANDOM + 6


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, 99.0), (-1, 99.0), (BEYOND, 99.0), (BEYOND - 1, 99.0)],
    ids=["first", "last", "on", "before"],
)
def test_one_wrong_element_at_an_end_or_at_the_boundary_is_found(soaked, place, value):
    def wrong(x, bias):
        out = x + bias
        if len(x) == ROWS:
            out.reshape(-1)[place] = value
        return out

    finding = soaked(wrong)

    assert (finding.status, finding.reason.kind) == (Status.FAIL, "soak_large")
    row = place % (ROWS * COLS) // COLS
    assert finding.reason.facts["start"] <= row < finding.reason.facts["stop"]


def test_an_op_whose_outputs_cannot_be_cut_says_so_unless_it_says_how(soaked):
    assert soaked(total, total).reason.kind == "soak_not_cut"

    def part(given, start, stop):
        # A running sum starts from what came before.
        x, bias = given["x"], given["bias"]
        head = np.sum(x[:start].astype(np.float64), axis=0, keepdims=True)
        first = (x[start : start + 1] + head).astype(np.float32)
        return {"x": np.concatenate([first, x[start + 1 : stop]]), "bias": bias}

    loose = {"float32": (1e-3, 1e-3)}
    assert isinstance(soaked(total, total, large_part=part, tolerance=loose), SoakMeasured)


def test_a_case_that_is_not_huge_is_said_not_to_be(soaked):
    assert soaked(add, rows=9).reason.kind == "soak_not_large"
