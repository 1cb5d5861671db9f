"""Quantised storage: casts that saturate, and scales by tensor, row, column, group and block."""

import math
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "kernels"))

import _quant  # noqa: E402

pytestmark = pytest.mark.torch
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
STEP = {E4M3: 2.0**-3, E5M2: 2.0**-2}
"""Distance of neighbours, relative to the lower one, at most; rounding errs by half of it."""


def normal(*shape, seed=3):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize(
    ("mode", "shape"),
    [("tensor", ()), ("row", (7, 1)), ("column", (1, 300)), ("group", (7, 3)), ("block", (1, 3))],
)
def test_values_come_back_to_within_half_a_step(dtype, mode, shape):
    x = normal(7, 300) * torch.logspace(-3, 3, 300)

    values, scale, clip_ratio = _quant.quantize(x, dtype, mode)

    assert values.dtype is dtype and values.shape == x.shape and clip_ratio == 0
    assert scale.dtype is torch.float32 and scale.shape == shape == _quant.scale_shape(x.shape, mode)
    back = _quant.dequantize(values, scale, mode)
    spacing = _quant.spread(scale, x.shape, mode) * torch.finfo(dtype).smallest_normal
    room = torch.maximum(x.abs(), spacing) * STEP[dtype] / 2 * 1.001
    assert ((back - x).abs() <= room).all()


@pytest.mark.parametrize("dtype", [E4M3, E5M2])
@pytest.mark.parametrize("mode", _quant.MODES)
def test_the_largest_magnitude_of_every_group_becomes_the_dtypes_largest(dtype, mode):
    x = normal(300, 260)

    values, scale, _ = _quant.quantize(x, dtype, mode)

    again = _quant._amax(values.float(), mode, 128)
    torch.testing.assert_close(again, torch.full_like(again, torch.finfo(dtype).max))
    torch.testing.assert_close(scale * torch.finfo(dtype).max, _quant._amax(x, mode, 128))


@pytest.mark.parametrize(("dtype", "largest"), [(E4M3, 448.0), (E5M2, 57344.0)])
def test_what_a_given_scale_leaves_too_large_saturates_and_is_counted(dtype, largest):
    x = torch.tensor([[1.0, 2 * largest, -3 * largest, math.inf, -math.inf, math.nan, largest, 0.0]])

    values, scale, clip_ratio = _quant.quantize(x, dtype, "tensor", scale=torch.tensor(1.0))

    back = _quant.dequantize(values, scale)
    assert back[0, [0, 1, 2, 3, 4, 6, 7]].tolist() == [1.0, largest, -largest, largest, -largest, largest, 0.0]
    assert back[0, 5].isnan()
    assert clip_ratio == 4 / 8


def test_infinity_nan_and_zeros_take_no_part_in_a_scale():
    x = torch.tensor([[math.inf, 448.0], [math.nan, 896.0], [0.0, 0.0]])

    values, scale, clip_ratio = _quant.quantize(x, E4M3, "row")

    assert scale.flatten().tolist() == [1.0, 2.0, 1.0]
    assert values.float()[2].tolist() == [0.0, 0.0] and clip_ratio.item() == pytest.approx(1 / 6)


def test_leading_sides_have_scales_of_their_own():
    x = normal(2, 3, 5, 8)
    whole = _quant.quantize(x, E4M3, "block", group=4)

    one = _quant.quantize(x[1, 2], E4M3, "block", group=4)

    assert whole.scale.shape == (2, 3, 2, 2)
    assert torch.equal(whole.scale[1, 2], one.scale)
    assert torch.equal(whole.values[1, 2].float(), one.values.float())


@pytest.mark.parametrize(
    ("fields", "error", "words"),
    [
        ({"x": torch.ones(2, 2, dtype=torch.int32)}, TypeError, "x is torch.int32"),
        ({"dtype": torch.float16}, TypeError, "dtype torch.float16"),
        ({"mode": "rows"}, ValueError, "'rows', but has to be one of 'tensor', 'row'"),
        ({"x": torch.ones(3), "mode": "row"}, ValueError, "needs two sides"),
        ({"group": 0}, ValueError, "group is 0"),
        ({"scale": torch.ones(2)}, ValueError, r"but has to be torch.float32 \(\)"),
        ({"scale": torch.tensor(0.0)}, ValueError, "not above 0"),
        ({"scale": torch.tensor(math.nan)}, ValueError, "not above 0"),
    ],
)
def test_says_what_is_wrong_with_its_arguments(fields, error, words):
    with pytest.raises(error, match=f"quantize: .*{words}"):
        _quant.quantize(**{"x": torch.ones(2, 2), "dtype": E4M3} | fields)
