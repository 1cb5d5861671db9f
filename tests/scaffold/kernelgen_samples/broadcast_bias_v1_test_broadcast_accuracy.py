import torch
from broadcast_bias_v1_baseline import broadcast_bias as torch_op
from broadcast_bias_v1_triton import broadcast_bias as triton_op


def test_accuracy():
    x = torch.zeros(256, 512, device="cuda")
    bias = torch.randn(512, device="cuda")
    torch.testing.assert_close(triton_op(x, bias), torch_op(x, bias))
    print("PASS")


if __name__ == "__main__":
    test_accuracy()
