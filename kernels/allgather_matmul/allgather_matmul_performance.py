"""Performance of allgather_matmul: projections of a transformer with rows and columns that are divided among ranks."""

import functools

import perfci
import torch
from allgather_matmul_baseline import allgather_matmul as reference, gather, make_inputs
from allgather_matmul_triton import allgather_matmul as kernel

traffic = perfci.Traffic(
    sent=lambda m, n, k, dtype, ranks: (ranks - 1) * (m // ranks) * k * dtype.itemsize,
    # Rows of peers are written as they come, and read for the product.
    moved=lambda m, n, k, dtype, ranks: ((2 * ranks - 1) * m * k // ranks + (k + m) * n // ranks) * dtype.itemsize,
    activations=lambda m, n, k, dtype: (m, k, dtype.itemsize),
    communicate=lambda a, b: functools.partial(gather, a),
    compute=lambda a, b: functools.partial(torch.matmul, gather(a), b),
)
performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    # m and n are of all ranks: from a layer of 7 billion parameters to one of 70.
    cases=(
        *perfci.grid(m=[4096, 8192], n=[8192], k=[4096], dtype=[torch.bfloat16]),
        *perfci.grid(m=[8192], n=[16384], k=[8192], dtype=[torch.bfloat16]),
    ),
    bytes_moved=lambda m, n, k, dtype: (m * k + k * n + m * n) * dtype.itemsize,
    flops=lambda m, n, k, dtype: 2 * m * n * k,
)
if __name__ == "__main__":
    perfci.main(performance)
