"""Performance of rms_norm: hidden sizes of language models, the heads of a query, and rows that are read twice."""

import perfci
import torch
from rms_norm_baseline import make_inputs, rms_norm as reference
from rms_norm_triton import rms_norm as kernel

from _peers import compiled

performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(rows=[4096], cols=[1024], weighted=[True], stats=[False], dtype=[torch.float16]),
        *perfci.grid(rows=[1048576], cols=[128], weighted=[True], stats=[False], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[32768], cols=[4096], weighted=[True], stats=[False, True], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[16384], cols=[8192], weighted=[True], stats=[False], dtype=[torch.float32]),
        *perfci.grid(rows=[4096], cols=[32768], weighted=[True], stats=[False], dtype=[torch.float16]),
        *perfci.grid(rows=[1024], cols=[131072], weighted=[True], stats=[False], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[16], cols=[1048576], weighted=[True], stats=[False], dtype=[torch.float32]),
    ),
    bytes_moved=lambda rows, cols, weighted, stats, dtype: (
        (2 * rows + weighted) * cols * dtype.itemsize + 4 * rows * stats
    ),
    # Per element: the squares' sum 2, scaling 1, weight 1; per row a division, eps and a root.
    flops=lambda rows, cols, weighted, stats, dtype: rows * ((3 + weighted) * cols + 3),
    peers={"torch.compile": compiled(reference)},
)
if __name__ == "__main__":
    perfci.main(performance)
