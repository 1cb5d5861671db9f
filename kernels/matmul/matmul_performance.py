"""Performance of matmul: squares from one wave of tiles up, a transformer's projection and MLP, and a decoding step."""

import perfci
import torch
from matmul_baseline import make_inputs, matmul as reference
from matmul_triton import matmul as kernel

performance = perfci.Performance(
    kernel=kernel,
    reference=reference,
    make_inputs=make_inputs,
    cases=(
        *perfci.grid(m=[2048], n=[2048], k=[2048], dtype=[torch.bfloat16]),
        *perfci.grid(m=[4096], n=[4096], k=[4096], dtype=[torch.bfloat16, torch.float16]),
        *perfci.grid(m=[8192], n=[8192], k=[4096], dtype=[torch.bfloat16]),
        *perfci.grid(m=[16384], n=[1024], k=[4096], dtype=[torch.bfloat16]),
        *perfci.grid(m=[64], n=[8192], k=[8192], dtype=[torch.float16]),
        *perfci.grid(m=[8192], n=[8192], k=[4096], dtype=[torch.bfloat16], bias=[True], activation=["gelu", "silu"]),
    ),
    bytes_moved=lambda m, n, k, dtype, bias=False, **epilogue: (m * k + k * n + m * n + bias * n) * dtype.itemsize,
    flops=lambda m, n, k, dtype, **epilogue: 2 * m * n * k,
    reduces=lambda m, n, k, dtype, **epilogue: k,
)
if __name__ == "__main__":
    perfci.main(performance)
