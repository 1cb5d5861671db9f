"""Performance of scale."""

import torch
from scale_baseline import make_inputs
from scale_baseline import scale as reference
from scale_triton import scale as kernel

import perfci

performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=perfci.grid(rows=[64], cols=[256, 1024], dtype=[torch.float32]),
    bytes_moved=lambda rows, cols, dtype: 2 * rows * cols * dtype.itemsize,
)

if __name__ == "__main__":
    perfci.main(performance)
