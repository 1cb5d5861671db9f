import torch

from broadcast_v1_baseline import broadcast_baseline
from broadcast_v1_triton import broadcast


def test_accuracy():
    torch.manual_seed(0)
    P, D = 1024, 512
    x = torch.randn(P, D, device="cuda", dtype=torch.float16)
    bias = torch.randn(D, device="cuda", dtype=torch.float16)

    out = broadcast(x, bias)
    ref = broadcast_baseline(x, bias)

    max_diff = (out - ref).abs().max().item()
    print(f"max diff: {max_diff}")
    assert out.shape == ref.shape
    assert torch.allclose(out, ref, rtol=1e-2, atol=1e-2), "relu accuracy failed"
    print("accuracy passed")


test_accuracy()
