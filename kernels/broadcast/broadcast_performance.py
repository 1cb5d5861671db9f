"""Performance of broadcast: from launch-bound sizes to outputs far larger than any cache."""

import perfci
import torch
from broadcast_baseline import broadcast as reference, make_inputs
from broadcast_triton import broadcast as kernel

from _peers import compiled

performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(rows=[1024], cols=[1024], dtype=[torch.float32]),
        *perfci.grid(rows=[4096], cols=[1024], dtype=[torch.float32, torch.float16]),
        *perfci.grid(rows=[8192], cols=[4096], dtype=[torch.float16]),
        *perfci.grid(rows=[32768], cols=[4096], dtype=[torch.bfloat16, torch.float32]),
        *perfci.grid(rows=[262144], cols=[768], dtype=[torch.float16]),
        # KernelGen's: 512 and 1024 cubed, and 4 x 1024 x 1024 x 256.
        *perfci.grid(rows=[262144], cols=[512], dtype=[torch.float16]),
        *perfci.grid(rows=[1048576], cols=[1024], dtype=[torch.float16]),
        *perfci.grid(rows=[4194304], cols=[256], dtype=[torch.float16]),
    ),
    bytes_moved=lambda rows, cols, dtype: (rows + 1) * cols * dtype.itemsize,
    peers={"torch.compile": compiled(reference)},
)
if __name__ == "__main__":
    perfci.main(performance)
