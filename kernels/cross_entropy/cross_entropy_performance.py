"""Performance of cross_entropy: the vocabularies of language models, an odd one among them, and image classes."""

import perfci
import torch
from cross_entropy_baseline import cross_entropy as reference, make_inputs
from cross_entropy_triton import cross_entropy as kernel

from _peers import compiled


def cases(rows, cols, reduction, smoothing, dtype):
    return perfci.grid(rows=rows, cols=cols, reduction=reduction, smoothing=smoothing, ignored=[0.0], dtype=dtype)


def bytes_moved(rows, cols, reduction, dtype, **_):
    """Logits and targets are read, losses written."""
    return rows * (cols * dtype.itemsize + 8) + (rows if reduction == "none" else 1) * dtype.itemsize


def flops(rows, cols, reduction, smoothing, **_):
    """Per element: maximum, difference, exponential (as one) and sum, with smoothing two for the mean.

    Per row three for the loss, with smoothing four more, and one for the total.
    """
    return rows * ((6 if smoothing else 4) * cols + (7 if smoothing else 3) + (reduction != "none"))


performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *cases(rows=[4096], cols=[1000], reduction=["mean"], smoothing=[0.1], dtype=[torch.float32]),
        *cases(rows=[262144], cols=[1000], reduction=["mean"], smoothing=[0.0], dtype=[torch.float16]),
        *cases(rows=[8192], cols=[32000], reduction=["mean"], smoothing=[0.0], dtype=[torch.bfloat16, torch.float32]),
        *cases(rows=[8192], cols=[50257], reduction=["none"], smoothing=[0.0], dtype=[torch.bfloat16]),
        *cases(rows=[4096], cols=[128256], reduction=["mean"], smoothing=[0.0, 0.1], dtype=[torch.bfloat16]),
        *cases(rows=[16], cols=[128256], reduction=["none"], smoothing=[0.0], dtype=[torch.float32]),
    ),
    bytes_moved=bytes_moved,
    flops=flops,
    peers={"torch.compile": compiled(reference)},
)
if __name__ == "__main__":
    perfci.main(performance)
