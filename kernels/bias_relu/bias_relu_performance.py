"""Performance of bias_relu: activations of a transformer's MLP, from a small batch to far beyond any cache."""

import perfci
import torch
from bias_relu_baseline import bias_relu as reference, make_inputs
from bias_relu_triton import bias_relu as kernel

from _peers import compiled

performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(rows=[4096], cols=[1024], dtype=[torch.float32, torch.bfloat16]),
        *perfci.grid(rows=[4096], cols=[11008], dtype=[torch.float16]),
        *perfci.grid(rows=[32768], cols=[4096], dtype=[torch.float16, torch.bfloat16, torch.float32]),
        *perfci.grid(rows=[262144], cols=[768], dtype=[torch.bfloat16]),
    ),
    bytes_moved=lambda rows, cols, dtype: (2 * rows + 1) * cols * dtype.itemsize,
    peers={"torch.compile": compiled(reference)},
)
if __name__ == "__main__":
    perfci.main(performance)
