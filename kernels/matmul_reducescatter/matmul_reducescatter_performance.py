"""Performance of matmul_reducescatter: output projections of a transformer with a depth that is divided among ranks."""

import functools

import perfci
import torch
from matmul_reducescatter_baseline import make_inputs, matmul_reducescatter as reference, scatter
from matmul_reducescatter_triton import matmul_reducescatter as kernel

traffic = perfci.Traffic(
    sent=lambda m, n, k, dtype, ranks: (ranks - 1) * (m // ranks) * n * dtype.itemsize,
    # Tiles of peers are written as they come, and read to be added.
    moved=lambda m, n, k, dtype, ranks: ((m + n) * k + (2 * ranks - 1) * m * n) // ranks * dtype.itemsize,
    activations=lambda m, n, k, dtype: (m, n, dtype.itemsize),
    communicate=lambda a, b: functools.partial(scatter, torch.matmul(a, b)),
    compute=lambda a, b: functools.partial(torch.matmul, a, b),
)
performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    # m and k are of all ranks: from a layer of 7 billion parameters to one of 70.
    cases=(
        *perfci.grid(m=[4096, 8192], n=[4096], k=[8192], dtype=[torch.bfloat16]),
        *perfci.grid(m=[8192], n=[8192], k=[16384], dtype=[torch.bfloat16]),
    ),
    bytes_moved=lambda m, n, k, dtype: (m * k + k * n + m * n) * dtype.itemsize,
    flops=lambda m, n, k, dtype: 2 * m * n * k,
)
if __name__ == "__main__":
    perfci.main(performance)
