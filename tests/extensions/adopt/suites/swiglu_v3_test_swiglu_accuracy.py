import pytest
import torch
from swiglu_v3_baseline import Model
from swiglu_v3_triton import ModelNew


@pytest.mark.parametrize("tokens, hidden", [(1, 7), (33, 1024), (128, 1536)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_accuracy(tokens, hidden, dtype):
    gate = torch.randn(tokens, hidden, device="cuda", dtype=dtype)
    up = torch.rand(tokens, hidden, device="cuda", dtype=dtype) - 0.5
    model, ref = ModelNew().cuda(), Model().cuda()
    out = model(gate, up)
    expected = ref(gate, up)
    err = (out - expected).abs().max()
    assert err < 5e-2, f"error {err}"
    if torch.isnan(out).any():
        raise AssertionError("NaN in output")
