"""layer_norm_backward: rows taken whole up to a limit, longer ones read twice; sums without atomics."""

import functools
from pathlib import Path

import torch

import _launch
import _norm_backward
import _rows
from _rows import Config, Tile

TUNED = Path(__file__).parent / "tuned"
# For devices without a tuned file: widest row, a power of two -> config. Programs are few, as each leaves sums.
WHOLE_ROWS = {
    4096: Config(elements=4096, warps=8, programs=2),
    8192: Config(elements=8192, warps=16, programs=1),
}
LONG_ROWS = Config(elements=4096, warps=8, programs=4)
"""For wider rows."""


@functools.lru_cache(maxsize=4096)
def choose_tile(rows: int, cols: int, itemsize: int, limits: _launch.Limits) -> Tile:
    """Returns the tile for a shape."""
    return _rows.choose(rows, cols, itemsize, limits, TUNED, WHOLE_ROWS, LONG_ROWS, loads=2, held=2)


def layer_norm_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Returns the gradient of layer_norm's x for its answer's grad; a tuple, with those of weight and bias, if any.

    They have the shapes of x and weight and their dtype, contiguous. `bias` asks for that of a bias. x and
    `grad`, of x's shape and dtype, are float32, float16 or bfloat16, of any rank from 1, with any strides that a
    matrix of its rows can have (not a transposed batch: that needs `.contiguous()`). `mean` and `rstd` are what
    `layer_norm` gives with `stats`: float32 of shape (*x.shape[:-1], 1). `weight` has shape (x.shape[-1],), any stride
    and x's dtype. Computed in float32 and rounded once. Two calls give the same bits. Raises TypeError for dtypes,
    ValueError for shapes, strides or devices.
    """
    _norm_backward.check("layer_norm_backward", grad, x, weight, mean=mean, rstd=rstd)
    gradients = _norm_backward.gradients("layer_norm_backward", choose_tile, grad, x, mean, rstd, weight, bias)
    return gradients if len(gradients) > 1 else gradients[0]
