import torch
import matmul_v1_baseline as baseline
import matmul_v1_triton as kernels


def test_accuracy():
    for M, N, K in [(128, 128, 128), (100, 60, 72), (2048, 2048, 2048)]:
        a = torch.randn((M, K), dtype=torch.float16, device="cuda")
        b = torch.randn((K, N), dtype=torch.float16, device="cuda")
        c = kernels.matmul(a, b)
        if not torch.allclose(c, baseline.matmul(a, b), rtol=1e-2, atol=1e-1):
            print("mismatch!")
            assert False
    print("ok")


if __name__ == "__main__":
    test_accuracy()
