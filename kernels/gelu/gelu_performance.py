"""Performance of gelu: hidden layers of a transformer's MLP, from a small batch to far beyond any cache."""

import math

import perfci
import torch
from gelu_baseline import gelu as reference, make_inputs
from gelu_triton import gelu as kernel

from _peers import compiled

OPERATIONS = {"none": 5, "tanh": 9}
"""Of one element, as PyTorch defines it; erf and tanh count as one."""


def elements(shape):
    return shape if isinstance(shape, int) else math.prod(shape)


performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(shape=[(1024, 1024)], approximate=["none"], dtype=[torch.float32]),
        *perfci.grid(shape=[(4096, 4096)], approximate=["none", "tanh"], dtype=[torch.float16]),
        *perfci.grid(shape=[(32768, 4096)], approximate=["none", "tanh"], dtype=[torch.bfloat16]),
        *perfci.grid(shape=[(16384, 11008)], approximate=["none"], dtype=[torch.float16]),
        *perfci.grid(shape=[(32768, 4096)], approximate=["none", "tanh"], dtype=[torch.float32]),
    ),
    bytes_moved=lambda shape, approximate, dtype: 2 * elements(shape) * dtype.itemsize,
    flops=lambda shape, approximate, dtype: OPERATIONS[approximate] * elements(shape),
    peers={"torch.compile": compiled(reference)},
)
if __name__ == "__main__":
    perfci.main(performance)
