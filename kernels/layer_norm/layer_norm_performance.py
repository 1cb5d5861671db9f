"""Performance of layer_norm: hidden sizes of transformers, and rows so long that they are read twice."""

import perfci
import torch
from layer_norm_baseline import layer_norm as reference, make_inputs
from layer_norm_triton import layer_norm as kernel

from _peers import compiled


def bytes_moved(rows, cols, affine, stats, dtype):
    vectors = {"both": 2, "weight": 1, "bias": 1, "none": 0}[affine]
    return (2 * rows + vectors) * cols * dtype.itemsize + 2 * 4 * rows * stats


def flops(rows, cols, affine, **_):
    """Per element: mean 1, difference 1, variance 2, scaling 1, weight 1, bias 1; per row 2 divisions, eps, root."""
    vectors = {"both": 2, "weight": 1, "bias": 1, "none": 0}[affine]
    return rows * ((5 + vectors) * cols + 4)


performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(rows=[4096], cols=[1024], affine=["both"], stats=[False], dtype=[torch.float16]),
        *perfci.grid(rows=[131072], cols=[1024], affine=["both"], stats=[False], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[32768], cols=[4096], affine=["both"], stats=[False, True], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[16384], cols=[8192], affine=["both"], stats=[False], dtype=[torch.float32]),
        *perfci.grid(rows=[4096], cols=[32768], affine=["both"], stats=[False], dtype=[torch.float16]),
        *perfci.grid(rows=[1024], cols=[131072], affine=["both"], stats=[False], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[16], cols=[1048576], affine=["both"], stats=[False], dtype=[torch.float32]),
    ),
    bytes_moved=bytes_moved,
    flops=flops,
    # A row's mean is rounded to float32, and its share of the answer is that over the row's spread. Of some hundred
    # thousand rows a block's worst has a mean of some hundred times its spread.
    tolerance={"float32": (1.3e-6, 2e-4), "float16": (1e-3, 2e-4), "bfloat16": (1.6e-2, 2e-4)},
    peers={"torch.compile": compiled(reference)},
)
if __name__ == "__main__":
    perfci.main(performance)
