import torch
from softmax_v2_baseline import torch_softmax
from softmax_v2_triton import triton_softmax

SHAPES = [(128, 256), (1823, 781), (4096, 8192)]


def check(n_rows, n_cols, dtype):
    x = torch.randn(n_rows, n_cols, device="cuda").to(dtype) * 2.0
    y = triton_softmax(x)
    y_ref = torch_softmax(x)
    tol = 1e-5 if dtype == torch.float32 else 1e-2
    torch.testing.assert_close(y, y_ref, rtol=tol, atol=tol)
    # every row has to sum up to one
    assert (y.float().sum(dim=-1) - 1.0).abs().max() < 1e-2


def test_accuracy():
    for n_rows, n_cols in SHAPES:
        for dtype in [torch.float32, torch.float16]:
            check(n_rows, n_cols, dtype)
            print(f"softmax {n_rows}x{n_cols} {dtype}: ok")


if __name__ == "__main__":
    test_accuracy()
