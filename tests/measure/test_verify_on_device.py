"""A large output that is right is compared where it is, with the host's answer; any other one by the host."""

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest

if "CI" not in os.environ:  # in CI a missing package is a failure
    pytest.importorskip("torch")
    pytest.importorskip("triton")

import torch

from perfci.device.cpu import CpuDevice
from perfci.measure import verify

pytestmark = pytest.mark.torch

CHANGES = {
    "right": lambda got: got,
    "a little off": lambda got: got * 1.001,
    "one element": lambda got: got.index_put((torch.tensor(3), torch.tensor(5)), got[3, 5] * 1.5),
    "not a number": lambda got: got.index_put((torch.tensor(0), torch.tensor(0)), torch.tensor(float("nan")).to(got)),
}


def compare(dtype, change, *, reduces=False, seed=1, tolerance=None, scale=1.0):
    """What the device and the host find out about one output of 77,100 elements."""
    numbers = torch.randn(300, 257, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(dtype)
    exact = (numbers.double() * scale).exp() if scale != 1.0 else numbers.double()
    usual = exact.to(dtype)
    suite = SimpleNamespace(tolerance=tolerance, reduces=reduces or None, tolerance_reason=None, uses_dot=False)
    calls = SimpleNamespace(
        arrays=CpuDevice().arrays, check=verify.Check({}, "normal", "contiguous", seed, fresh=False), suite=suite,
        terms=257 if reduces else 1, inputs={"x": numbers},
    )  # fmt: skip
    got = CHANGES[change](usual)
    return verify._compare_on_device(calls, got, exact, usual), verify._compare_numbers(calls, got, exact, usual)


@pytest.mark.parametrize("reduces", [False, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("scale", [1.0, 40.0, 400.0])  # the last one's answers leave the dtype's range
def test_device_and_host_agree_on_verdict_and_share(monkeypatch, dtype, change, reduces, scale):
    here, _ = compare(dtype, change, reduces=reduces, scale=scale)
    monkeypatch.setattr(verify, "_compare_on_device", lambda *_: None)
    _, (there, errors, usual) = compare(dtype, change, reduces=reduces, scale=scale)

    if there.failure or here is None:
        assert here is None
        return
    result, mine, own = here
    assert result.errors.of_allowed == pytest.approx(there.errors.of_allowed, rel=1e-9)
    for check, due in ((mine, errors), (own, usual)):
        # Quantiles are found by counting, and cut by less than 1 part in 500.
        figures = {name: getattr(due.stats, name) for name in ("p50_abs", "p90_abs", "p99_abs")}
        assert [getattr(check.stats, name) for name in figures] == pytest.approx([*figures.values()], rel=2e-3)
        rest = {"mean_abs", "mean_rel", "rmse", "l2", *figures}
        assert replace(check.stats, **dict.fromkeys(rest)) == replace(due.stats, **dict.fromkeys(rest))
        assert check.stats.l2 == pytest.approx(due.stats.l2, rel=1e-9)


def test_wrong_answers_are_tried_on_the_host_unless_no_other_answer_passes():
    assert compare(torch.float16, "right", seed=verify.FIXED_SEEDS[0])[0] is None
    exact = compare(torch.float16, "right", seed=verify.FIXED_SEEDS[0], tolerance={"float16": (0.0, 0.0)})[0]
    assert exact is not None
    assert exact[0].errors.max_abs == 0.0
    assert compare(torch.float16, "one element", seed=0, tolerance={"float16": (0.0, 0.0)})[0] is None
