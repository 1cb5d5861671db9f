"""Accuracy of scale: shapes that break kernels."""

import torch
from scale_baseline import make_inputs
from scale_baseline import scale as reference
from scale_triton import scale as kernel

import perfci

accuracy = perfci.Accuracy(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=perfci.grid(rows=[1, 7], cols=[31, 128], dtype=[torch.float32]),
    probe_cases=perfci.grid(rows=[5], cols=[31], dtype=[torch.float32]),
)

if __name__ == "__main__":
    perfci.main(accuracy)
