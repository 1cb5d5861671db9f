"""Performance of add_rms_norm: hidden sizes of language models, at the tokens of training and of decoding."""

import perfci
import torch
from add_rms_norm_baseline import add_rms_norm as reference, make_inputs
from add_rms_norm_triton import add_rms_norm as kernel

from _peers import compiled

performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(rows=[16384], cols=[4096, 8192], weighted=[True], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[16384], cols=[5120], weighted=[True], dtype=[torch.float16]),
        *perfci.grid(rows=[8192], cols=[16384], weighted=[True], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[16384], cols=[4096], weighted=[True], dtype=[torch.float32]),
        *perfci.grid(rows=[256], cols=[8192], weighted=[True], dtype=[torch.bfloat16]),
    ),
    bytes_moved=lambda rows, cols, weighted, dtype: (4 * rows + weighted) * cols * dtype.itemsize,
    # Per element: the sum 1, the squares' sum 2, scaling 1, weight 1; per row a division, eps and a root.
    flops=lambda rows, cols, weighted, dtype: rows * ((4 + weighted) * cols + 3),
    peers={"torch.compile": compiled(reference)},
)
if __name__ == "__main__":
    perfci.main(performance)
