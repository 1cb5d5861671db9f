import torch
import triton
import matmul_v1_baseline as baseline
import matmul_v1_triton as kernels


@triton.testing.perf_report(
    triton.testing.Benchmark(
        x_names=["M", "N", "K"],
        x_vals=[512 * i for i in range(2, 9, 2)],
        line_arg="provider",
        line_vals=["torch", "triton"],
        line_names=["torch", "triton"],
        ylabel="TFLOPS",
        plot_name="matmul-performance",
        args={},
    )
)
def benchmark(M, N, K, provider):
    a = torch.randn((M, K), device="cuda", dtype=torch.float16)
    b = torch.randn((K, N), device="cuda", dtype=torch.float16)
    if provider == "torch":
        ms = triton.testing.do_bench(lambda: baseline.matmul(a, b))
    else:
        ms = triton.testing.do_bench(lambda: kernels.matmul(a, b))
    return 2 * M * N * K * 1e-12 / (ms * 1e-3)


def test_performance():
    benchmark.run(show_plots=True, print_data=True)


test_performance()
