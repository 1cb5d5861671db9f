import torch
import triton
from broadcast_bias_v1_baseline import broadcast_bias as torch_op
from broadcast_bias_v1_triton import broadcast_bias as triton_op


def test_performance():
    x = torch.zeros(8192, 4096, device="cuda")
    bias = torch.randn(4096, device="cuda")
    ms = triton.testing.do_bench(lambda: triton_op(x, bias))
    ref_ms = triton.testing.do_bench(lambda: torch_op(x, bias))
    print(f"triton {ms} ms, torch {ref_ms} ms")


if __name__ == "__main__":
    test_performance()
