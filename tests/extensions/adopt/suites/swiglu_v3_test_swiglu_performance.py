import torch
from swiglu_v3_baseline import Model
from swiglu_v3_triton import ModelNew


def bench(fn, iters=50):
    start = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(iters):
        fn()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / iters


def test_performance():
    for tokens in (2048, 8192):
        hidden = 11008
        gate = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
        up = torch.randn(tokens, hidden, device="cuda", dtype=torch.bfloat16)
        model, ref = ModelNew(), Model()
        t = bench(lambda: model(gate, up))
        t_ref = bench(lambda: ref(gate, up))
        speedup = t_ref / t
        status = "PASS" if speedup >= 1.3 else "FAIL"
        print(f"{tokens}: {t:.3f} ms vs {t_ref:.3f} ms -> {speedup:.2f}x {status}")


if __name__ == "__main__":
    test_performance()
