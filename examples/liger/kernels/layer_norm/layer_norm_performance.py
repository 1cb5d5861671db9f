"""Performance of layer_norm: hidden sizes of language models."""

import perfci
import torch
from layer_norm_baseline import layer_norm as reference, make_inputs

performance = perfci.Performance(
    kernel=reference,
    reference=reference,
    make_inputs=make_inputs,
    cases=perfci.grid(rows=[4096], cols=[4096, 8192], dtype=[torch.bfloat16]),
    bytes_moved=lambda rows, cols, dtype: 2 * rows * cols * dtype.itemsize,
)
if __name__ == "__main__":
    perfci.main(performance)
