"""Performance of row_sum."""

import torch
from row_sum_baseline import make_inputs
from row_sum_baseline import row_sum as reference
from row_sum_triton import row_sum as kernel

import perfci

performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=perfci.grid(rows=[4], cols=[8192], dtype=[torch.float32]),
    bytes_moved=lambda rows, cols, dtype: (rows * cols + rows) * dtype.itemsize,
)

if __name__ == "__main__":
    perfci.main(performance)
