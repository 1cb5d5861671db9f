"""Performance of cross_entropy_backward: vocabularies of language models, one of them odd, and image classes."""

import perfci
import torch
from cross_entropy_backward_baseline import cross_entropy_backward, fastest as reference, make_inputs
from cross_entropy_backward_triton import cross_entropy_backward as kernel

from _peers import compiled


def cases(rows, cols, reduction, smoothing, dtype):
    return perfci.grid(rows=rows, cols=cols, reduction=reduction, smoothing=smoothing, ignored=[0.0], dtype=dtype)


def bytes_moved(rows, cols, reduction, dtype, **_):
    """Logits, targets, sums and grad are read, gradients written."""
    return rows * (2 * cols * dtype.itemsize + 12) + (rows if reduction == "none" else 1) * dtype.itemsize


performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *cases(rows=[4096], cols=[1000], reduction=["mean"], smoothing=[0.1], dtype=[torch.float32]),
        *cases(rows=[131072], cols=[1000], reduction=["mean"], smoothing=[0.0], dtype=[torch.bfloat16]),
        *cases(rows=[8192], cols=[32000], reduction=["mean"], smoothing=[0.0], dtype=[torch.bfloat16, torch.float32]),
        *cases(rows=[8192], cols=[50257], reduction=["none"], smoothing=[0.0], dtype=[torch.bfloat16]),
        *cases(rows=[4096], cols=[128256], reduction=["mean"], smoothing=[0.0, 0.1], dtype=[torch.bfloat16]),
    ),
    bytes_moved=bytes_moved,
    # Per element: difference, exponential (as one), target and product 4, smoothing 1.
    flops=lambda rows, cols, smoothing, **_: rows * cols * (5 if smoothing else 4),
    peers={"torch.compile": compiled(cross_entropy_backward)},
)
if __name__ == "__main__":
    perfci.main(performance)
