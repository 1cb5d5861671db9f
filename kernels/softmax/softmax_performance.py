"""Performance of softmax: the row lengths that attention and the LM head use."""

import perfci
import torch
from softmax_baseline import make_inputs, softmax as reference
from softmax_triton import softmax as kernel

from _peers import compiled

performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(rows=[4096], cols=[1024], dtype=[torch.float32]),
        *perfci.grid(rows=[4096], cols=[512, 4096, 32768], dtype=[torch.float16]),
        *perfci.grid(rows=[131072], cols=[1024], dtype=[torch.bfloat16]),
        *perfci.grid(rows=[16384], cols=[4096], dtype=[torch.float32]),
        *perfci.grid(rows=[1024], cols=[131072], dtype=[torch.bfloat16]),
    ),
    bytes_moved=lambda rows, cols, dtype: 2 * rows * cols * dtype.itemsize,
    peers={"torch.compile": compiled(reference)},
)
if __name__ == "__main__":
    perfci.main(performance)
