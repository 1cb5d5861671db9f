import time

import torch

from broadcast_v1_baseline import broadcast_baseline
from broadcast_v1_triton import broadcast

TARGET_SPEEDUP = 1.5


def test_performance():
    P, D = 4096, 1024
    x = torch.randn(P, D, device="cuda", dtype=torch.float16)
    bias = torch.randn(D, device="cuda", dtype=torch.float16)

    # warm up
    for _ in range(10):
        broadcast(x, bias)
    torch.cuda.synchronize()

    start = time.time()
    for _ in range(100):
        broadcast(x, bias)
    torch.cuda.synchronize()
    triton_time = (time.time() - start) / 100

    start = time.time()
    for _ in range(100):
        broadcast_baseline(x, bias)
    torch.cuda.synchronize()
    torch_time = (time.time() - start) / 100

    print(f"triton: {triton_time:.4f} ms")
    print(f"torch: {torch_time:.4f} ms")
    speedup = torch_time / triton_time
    assert speedup > TARGET_SPEEDUP


test_performance()
