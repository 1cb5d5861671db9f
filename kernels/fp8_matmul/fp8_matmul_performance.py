"""Performance of fp8_matmul: squares, a transformer's projection and a decoding step, by every scaling."""

import perfci
import torch
from fp8_matmul_baseline import fp8_matmul as reference, make_inputs
from fp8_matmul_triton import fp8_matmul as kernel

CAST = {"dtype": [torch.float8_e4m3fn], "out_dtype": [torch.bfloat16]}


def bytes_moved(m, n, k, scaling, dtype, out_dtype):
    """Operands, output and scales, each once."""
    of_k = -(-k // 128)
    by_mode = {"tensor": 2, "row": m + n, "block": of_k * (m + -(-n // 128))}
    scales = -(-k // scaling) * (m + n) if isinstance(scaling, int) else by_mode[scaling]
    return (m + n) * k * dtype.itemsize + m * n * out_dtype.itemsize + 4 * scales


performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(m=[8192], n=[8192], k=[8192], scaling=["tensor", "row"], **CAST),
        *perfci.grid(m=[4096], n=[4096], k=[4096], scaling=["row", "block", 32], **CAST),
        *perfci.grid(m=[16384], n=[4096], k=[4096], scaling=["tensor"], **CAST),
        *perfci.grid(m=[64], n=[8192], k=[8192], scaling=["row"], **CAST),
    ),
    bytes_moved=bytes_moved,
    flops=lambda m, n, k, **others: 2 * m * n * k,
    reduces=lambda m, n, k, **others: k,
    tolerance={"bfloat16": (1.6e-2, 4e-3)},
)
if __name__ == "__main__":
    perfci.main(performance)
