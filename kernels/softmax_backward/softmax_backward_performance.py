"""Performance of softmax_backward: the row lengths that attention and the LM head use."""

import perfci
import torch
from softmax_backward_baseline import make_inputs, softmax_backward as reference
from softmax_backward_triton import softmax_backward as kernel

from _peers import compiled

performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(rows=[4096], cols=[1024], dtype=[torch.float32]),
        *perfci.grid(rows=[16384], cols=[512], dtype=[torch.float16]),
        *perfci.grid(rows=[8192], cols=[4096], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[16384], cols=[4096], dtype=[torch.float32]),
        *perfci.grid(rows=[8192], cols=[16384], dtype=[torch.float16]),
        *perfci.grid(rows=[4096], cols=[32768], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[1024], cols=[131072], dtype=[torch.bfloat16]),
    ),
    bytes_moved=lambda rows, cols, dtype: 3 * rows * cols * dtype.itemsize,
    # Per element: product and sum 2, difference and product 2.
    flops=lambda rows, cols, dtype: 4 * rows * cols,
    peers={"torch.compile": compiled(reference)},
)
if __name__ == "__main__":
    perfci.main(performance)
