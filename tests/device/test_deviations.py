"""Errors that torch computes piece by piece, held against those that numpy computes of the whole."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest

from perfci.measure.closeness import errors_of

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

QUANTILES = ("p50_abs", "p90_abs", "p99_abs")


@pytest.fixture
def arrays(monkeypatch):
    from perfci.device import tensors

    monkeypatch.setattr(tensors, "CHUNK", 7_001)
    monkeypatch.setattr(tensors, "FEW", 10)
    return tensors.TorchArrays("cpu")


def both(arrays, actual, expected):
    """What is computed piece by piece, and what numpy says of the whole."""
    return arrays.deviation(actual, expected), errors_of(arrays.host(actual), arrays.host(expected))


def drawn(dtype, shape=(151, 211), scale=1e-3):
    generator = torch.Generator().manual_seed(5)
    exact = torch.randn(shape, dtype=torch.float64, generator=generator)
    noise = torch.randn(shape, dtype=torch.float64, generator=generator) * scale
    return (exact + noise).to(dtype), exact


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_every_figure_is_that_of_the_whole(arrays, dtype):
    seen, whole = both(arrays, *drawn(dtype))

    given, wanted = asdict(seen.stats), asdict(whole.stats)
    for name in QUANTILES:  # an element, where numpy interpolates between two
        assert given.pop(name) == pytest.approx(wanted.pop(name), rel=0.02)
    assert given.pop("worst_index") == wanted.pop("worst_index")
    assert given == pytest.approx(wanted, rel=1e-9)
    assert (seen.error, seen.exact) == pytest.approx(
        [each.scale * math.sqrt(each.sum) for each in (whole.error, whole.exact)]
    )


def test_quantiles_are_elements_at_or_next_above_their_ranks(arrays):
    actual, exact = drawn(torch.float32, (100_003,))
    seen, _ = both(arrays, actual, exact)

    errors = np.sort(np.abs(actual.double().numpy() - exact.numpy()))
    for name, q in zip(QUANTILES, (0.5, 0.9, 0.99), strict=True):
        assert getattr(seen.stats, name) == pytest.approx(errors[math.ceil(q * (len(errors) - 1))], rel=1e-6)


def test_what_is_not_finite_on_either_side_is_left_out(arrays):
    actual, exact = drawn(torch.float32)
    actual[0, :5], actual[3, 3], exact[7, 7] = math.nan, math.inf, -math.inf
    seen, whole = both(arrays, actual, exact)

    assert seen.stats.count == whole.stats.count == actual.numel() - 7
    assert seen.stats.max_abs == whole.stats.max_abs and seen.stats.worst_index == whole.stats.worst_index
    nothing = arrays.deviation(torch.full((100,), math.nan), exact[0, :100])
    assert nothing.stats.count == 0 and nothing.stats.max_abs is None


def test_an_exact_output_has_errors_of_nothing(arrays):
    _, exact = drawn(torch.float64)
    seen, whole = both(arrays, exact.clone(), exact)

    assert seen.stats == whole.stats
    assert {seen.stats.p50_abs, seen.stats.max_abs, seen.stats.l2} == {0.0}


def test_strides_do_not_matter_and_a_scalar_too_has_its_place(arrays):
    actual, exact = drawn(torch.float32)
    seen, whole = both(arrays, actual.T, exact.T)

    assert seen.stats.worst_index == whole.stats.worst_index
    assert arrays.deviation(actual[:3, 0], exact[:3, 0]) is None, "the host computes what is small"


def test_an_error_beyond_the_range_of_a_figure_has_none(arrays):
    actual = torch.full((100,), 1e300, dtype=torch.float64)
    seen = arrays.deviation(actual, torch.zeros(100, dtype=torch.float64))

    assert seen.stats.max_abs == 1e300
    assert (seen.stats.rmse, seen.stats.p99_abs) == (None, None)
