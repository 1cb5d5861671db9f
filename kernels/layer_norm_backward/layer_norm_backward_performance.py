"""Performance of layer_norm_backward: hidden sizes of transformers, and rows so long that they are read twice."""

import perfci
import torch
from layer_norm_backward_baseline import fastest as reference, layer_norm_backward, make_inputs
from layer_norm_backward_triton import layer_norm_backward as kernel

from _peers import compiled

VECTORS = {"both": 2, "weight": 1, "bias": 1, "none": 0}


def bytes_moved(rows, cols, affine, dtype):
    """Grad and x are read, x's gradient is written; a weight is read, and has one too, as has a bias."""
    vectors = VECTORS[affine] + (affine in {"both", "weight"})
    return (3 * rows + vectors) * cols * dtype.itemsize + 8 * rows


def flops(rows, cols, affine, **_):
    """Per element: y 2, g * y and its sum 2, sum of g 1, the answer 4. A weight 1 and its sum 2, a bias 1."""
    sums = {"both": 4, "weight": 3, "bias": 1, "none": 0}[affine]
    return rows * ((9 + sums) * cols + 2)


performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(rows=[4096], cols=[1024], affine=["both"], dtype=[torch.float16]),
        *perfci.grid(rows=[131072], cols=[1024], affine=["both"], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[8192], cols=[4096], affine=["both", "none"], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[16384], cols=[8192], affine=["both"], dtype=[torch.bfloat16, torch.float32]),
        *perfci.grid(rows=[8192], cols=[16384], affine=["both"], dtype=[torch.float16]),
        *perfci.grid(rows=[4096], cols=[32768], affine=["both"], dtype=[torch.bfloat16]),
    ),
    bytes_moved=bytes_moved,
    flops=flops,
    peers={"torch.compile": compiled(layer_norm_backward)},
)
if __name__ == "__main__":
    perfci.main(performance)
