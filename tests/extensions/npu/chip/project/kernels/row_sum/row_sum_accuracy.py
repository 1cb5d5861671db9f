"""Accuracy of row_sum: shapes that break kernels."""

import torch
from row_sum_baseline import make_inputs
from row_sum_baseline import row_sum as reference
from row_sum_triton import row_sum as kernel

import perfci

accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=perfci.grid(rows=[1, 7], cols=[31, 128], dtype=[torch.float32]),
    reduces=lambda rows, cols, dtype: cols,
    probe_cases=perfci.grid(rows=[5], cols=[31], dtype=[torch.float32]),
)

if __name__ == "__main__":
    perfci.main(accuracy)
