"""A large output is compared block by block, with the verdict and the figures of the whole."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest

if "CI" not in os.environ:  # in CI a missing package is a failure
    pytest.importorskip("torch")
    pytest.importorskip("triton")

import torch

from perfci.device.cpu import CpuDevice
from perfci.measure import closeness, verify

pytestmark = pytest.mark.torch

CHANGES = {
    "right": lambda got: got,
    "a little off": lambda got: got * 1.001,
    "one element": lambda got: got.index_put((torch.tensor(3), torch.tensor(5)), got[3, 5] * 1.5),
    "not a number": lambda got: got.index_put((torch.tensor(0), torch.tensor(0)), torch.tensor(float("nan")).to(got)),
}


def compare(dtype, change, *, reduces=False, seed=1, tolerance=None, scale=1.0):
    """What is found out about one output of 77,100 elements."""
    numbers = torch.randn(300, 257, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(dtype)
    exact = (numbers.double() * scale).exp() if scale != 1.0 else numbers.double()
    usual = exact.to(dtype)
    suite = SimpleNamespace(tolerance=tolerance, reduces=reduces or None, tolerance_reason=None, uses_dot=False)
    actual = CHANGES[change](usual)
    calls = SimpleNamespace(
        arrays=CpuDevice().arrays, check=verify.Check({}, "normal", "contiguous", seed, fresh=False), suite=suite,
        terms=257 if reduces else 1, term=1.0, inputs={"x": numbers}, first=(actual,), redrawn=[],
    )  # fmt: skip
    return verify._compare_numbers(calls, actual, exact, usual)


@pytest.mark.parametrize("seed", verify.FIXED_SEEDS)  # wrong answers are tried with the first
@pytest.mark.parametrize("reduces", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("scale", [1.0, 400.0])  # the last one's answers leave the dtype's range
def test_blocks_have_the_verdict_and_the_figures_of_the_whole(monkeypatch, dtype, change, reduces, scale, seed):
    whole, *deviations = compare(dtype, change, reduces=reduces, scale=scale, seed=seed)
    monkeypatch.setattr(closeness, "BLOCK", 3001)
    blocks, *seen = compare(dtype, change, reduces=reduces, scale=scale, seed=seed)

    due = {"one element": "wrong_values", "not a number": "not_finite"}.get(change)
    assert (blocks.failure and blocks.failure.kind) == (whole.failure and whole.failure.kind)
    assert scale != 1.0 or change == "a little off" or (whole.failure and whole.failure.kind) == due
    assert (blocks.failure and blocks.failure.facts) == (whole.failure and whole.failure.facts)
    assert blocks.unchecked == whole.unchecked
    assert blocks.errors.of_allowed == (whole.errors.of_allowed and pytest.approx(whole.errors.of_allowed, rel=1e-9))
    for found, right in zip(seen, deviations, strict=True):
        assert found.stats.worst_index == right.stats.worst_index
        assert (found.stats.count, found.stats.max_abs, found.stats.rmse) == pytest.approx(
            (right.stats.count, right.stats.max_abs, right.stats.rmse)
        )
