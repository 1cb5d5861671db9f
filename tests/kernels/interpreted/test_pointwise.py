"""Ops of single elements: broadcast, bias_relu, gelu and vector_add."""

import pytest
import torch

from tests.kernels.interpreted.suites import module_of, suite_of, widen

pytestmark = pytest.mark.nightly
INF, NAN = float("inf"), float("nan")
OPS = ("broadcast", "bias_relu", "gelu", "vector_add")
STRIDED = OPS[1:]
"""Ops that read their input."""


def inputs_of(op, x):
    """Of one tensor: what else the op takes lies densely."""
    if op == "gelu":
        return {"x": x}
    name, shape = ("y", x.shape) if op == "vector_add" else ("bias", x.shape[-1:])
    return {"x": x, name: torch.randn(shape).to(x.dtype)}


def check(op, inputs):
    suite = suite_of(op)
    got = suite.kernel(**inputs)
    exact = suite.reference(**widen(inputs))
    assert got.is_contiguous()
    rtol = {torch.float32: 1.3e-6, torch.float16: 1e-3, torch.bfloat16: 1.6e-2}[got.dtype]
    torch.testing.assert_close(got, exact.to(got.dtype), rtol=rtol, atol=1e-5, equal_nan=True)
    return got


@pytest.mark.parametrize("op", STRIDED)
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[..., ::2],
        lambda x: x[:1, 0].expand(6, -1),
        lambda x: x[:, :1].expand(-1, 1, 40),
        lambda x: x[0].t(),
        lambda x: x[1:2, ::2],
        lambda x: x.flatten()[1:][None],
    ],
)
def test_every_view_whose_rows_lie_evenly_is_taken(op, view):
    x = view(torch.randn(4, 5, 40))

    check(op, inputs_of(op, x))
    if op == "vector_add":
        check(op, {"x": torch.randn(x.shape), "y": x})


@pytest.mark.parametrize("op", ["broadcast", "vector_add"])
def test_large_tensors_get_larger_tiles_than_small_ones(op, only):
    limits = only(processors=132)
    small, large = (module_of(op).choose_tile(rows, 512, 4, limits) for rows in (100, 10**6))

    assert small.rows * small.cols < large.rows * large.cols


# --- broadcast --------------------------------------------------------------------------------------------------------


def test_broadcast_never_reads_x_and_takes_any_strides():
    broadcast, bias = module_of("broadcast").broadcast, torch.arange(100.0)
    x = torch.full((3, 9, 2), NAN).transpose(0, 1)[..., ::2].expand(9, 3, 1)

    assert torch.equal(broadcast(x.expand(9, 3, 50), bias[::2]), bias[::2].expand(9, 3, 50))
    assert torch.equal(broadcast(torch.zeros(4, 50), bias[:1].expand(50)), torch.zeros(4, 50))


def test_broadcast_rounds_a_bias_to_the_dtype_of_x_and_keeps_nan_infinity_and_the_sign_of_zero():
    broadcast, bias = module_of("broadcast").broadcast, torch.tensor([NAN, INF, -INF, -0.0, 1 / 3, 65536.0])

    got = broadcast(torch.zeros(2, 6, dtype=torch.float16), bias)

    assert torch.equal(got.view(torch.int16), bias.half().view(torch.int16).expand(2, 6))


def test_broadcast_widens_its_tiles_rather_than_leave_the_grid(only):
    limits, module, bias = only(grid=(4, 3, 1)), module_of("broadcast"), torch.randn(5000)

    assert 5000 / module.choose_tile(3, 5000, 4, limits).cols <= 3
    assert torch.equal(module.broadcast(torch.zeros(3, 5000), bias), bias.expand(3, 5000))


# --- bias_relu --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("narrow", [0, 2**30])
@pytest.mark.parametrize("cols", [3, 1000, 2040, 5001])
def test_a_dense_input_of_bias_relu_is_one_run_of_tiles_that_begin_anywhere_in_a_row(cols, narrow, monkeypatch):
    monkeypatch.setattr(module_of("bias_relu"), "NARROW", max(narrow, cols + 1))

    for bias in (torch.randn(cols), torch.randn(cols + 1)[1:], torch.randn(2 * cols)[::2]):
        check("bias_relu", {"x": torch.randn(11, cols), "bias": bias})


# --- vector_add -------------------------------------------------------------------------------------------------------


def test_vector_adds_error_about_strides_names_the_tensor_that_has_them():
    x, y = torch.zeros(3, 4, 8), torch.zeros(4, 3, 8).transpose(0, 1)

    for given, name in (((x, y), "y"), ((y, x), "x")):
        with pytest.raises(ValueError, match=rf"{name} of shape .* Call it with {name}.contiguous\(\)"):
            module_of("vector_add").vector_add(*given)
