import matplotlib.pyplot as plt
import torch
import triton
from softmax_v2_baseline import torch_softmax
from softmax_v2_triton import triton_softmax


def test_performance(M=4096):
    results = []
    for N in [1024 * i for i in range(1, 5)]:
        x = torch.randn((M, N), device="cuda", dtype=torch.float16)
        ms = triton.testing.do_bench(lambda: triton_softmax(x))
        ref_ms = triton.testing.do_bench(lambda: torch_softmax(x))
        gbps = 2 * x.numel() * x.element_size() * 1e-9 / (ms * 1e-3)
        print(f"N={N}: {ms:.3f} ms, {gbps:.0f} GB/s, speedup {ref_ms / ms:.2f}x")
        results.append((N, ref_ms / ms))
        assert ms < 1.0, "too slow"
    assert min(s for _, s in results) >= 1.1
    plt.plot(*zip(*results))
    plt.savefig("softmax.png")


if __name__ == "__main__":
    test_performance()
