"""Performance of rms_norm_backward: hidden sizes of language models, the heads of a query, and rows read twice."""

import perfci
import torch
from rms_norm_backward_baseline import fastest as reference, make_inputs, rms_norm_backward
from rms_norm_backward_triton import rms_norm_backward as kernel

from _peers import compiled

performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(rows=[4096], cols=[1024], weighted=[True], dtype=[torch.float16]),
        *perfci.grid(rows=[262144], cols=[128], weighted=[True], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[8192], cols=[4096], weighted=[True, False], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[16384], cols=[8192], weighted=[True], dtype=[torch.bfloat16, torch.float32]),
        *perfci.grid(rows=[8192], cols=[16384], weighted=[True], dtype=[torch.float16]),
        *perfci.grid(rows=[4096], cols=[32768], weighted=[True], dtype=[torch.bfloat16]),
    ),
    # grad and x are read, x's gradient is written; the weight is read and has one too.
    bytes_moved=lambda rows, cols, weighted, dtype: (3 * rows + 2 * weighted) * cols * dtype.itemsize + 4 * rows,
    # Per element: y 1, g * y and its sum 2, y times that mean, difference and scaling 3, weight and its sum 3.
    flops=lambda rows, cols, weighted, dtype: rows * ((6 + 3 * weighted) * cols + 1),
    peers={"torch.compile": compiled(rms_norm_backward)},
)
if __name__ == "__main__":
    perfci.main(performance)
