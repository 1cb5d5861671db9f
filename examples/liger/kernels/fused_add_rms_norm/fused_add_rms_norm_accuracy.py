"""Accuracy of fused_add_rms_norm: rows that fill a block, and rows that do not."""

import perfci
import torch
from fused_add_rms_norm_baseline import fused_add_rms_norm as reference, make_inputs

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
