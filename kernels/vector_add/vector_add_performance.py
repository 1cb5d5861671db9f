"""Performance of vector_add: residual streams, from launch-bound sizes to far beyond any cache, and an odd length."""

import math

import perfci
import torch
from vector_add_baseline import make_inputs, vector_add as reference
from vector_add_triton import vector_add as kernel

from _peers import compiled


def elements(shape):
    return shape if isinstance(shape, int) else math.prod(shape)


performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(shape=[2**16, 2**20], transposed=[False], dtype=[torch.float32]),
        *perfci.grid(shape=[(4096, 4096)], transposed=[False], dtype=[torch.bfloat16]),
        *perfci.grid(shape=[(32768, 4096)], transposed=[False], dtype=[torch.bfloat16, torch.float16, torch.float32]),
        *perfci.grid(shape=[2**27 + 1], transposed=[False], dtype=[torch.bfloat16]),
    ),
    bytes_moved=lambda shape, transposed, dtype: 3 * elements(shape) * dtype.itemsize,
    flops=lambda shape, transposed, dtype: elements(shape),
    peers={"torch.compile": compiled(reference)},
)
if __name__ == "__main__":
    perfci.main(performance)
