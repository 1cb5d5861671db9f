"""Accuracy of jsd: rows that fill a block, and rows that do not."""

import perfci
import torch
from jsd_baseline import jsd as reference, make_inputs

accuracy = perfci.Accuracy(
    kernel=reference,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(rows=[5], cols=[100, 1024], dtype=[torch.float32]),
        *perfci.grid(rows=[3], cols=[61, 4096], dtype=[torch.float32]),
    ),
    probe_cases=perfci.grid(rows=[7], cols=[128], dtype=[torch.float32]),
    values=("normal",),
)
if __name__ == "__main__":
    perfci.main(accuracy)
