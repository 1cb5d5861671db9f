"""Accuracy of swiglu: rows that fill a block, and rows that do not."""

import perfci
import torch
from swiglu_baseline import make_inputs, swiglu as reference

DTYPES = [torch.float32, torch.float16, torch.bfloat16]

accuracy = perfci.Accuracy(
    kernel=reference,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(rows=[5], cols=[100, 1024], dtype=DTYPES),
        *perfci.grid(rows=[3], cols=[61, 4096], dtype=[torch.float32]),
    ),
    probe_cases=perfci.grid(rows=[7], cols=[128], dtype=DTYPES),
)
if __name__ == "__main__":
    perfci.main(accuracy)
