import torch
import triton
import triton.language as tl


@triton.jit
def broadcast(
    x_ptr,
    bias_ptr,
    out_ptr,
    P,
    D,
    BLOCK_SIZE: tl.constexpr,
):
    """out[p, d] = bias[d]"""
    pid_p = tl.program_id(0)
    pid_d = tl.program_id(1)
    offs_d = pid_d * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    # help the compiler to vectorize
    offs_d = tl.max_contiguous(tl.multiple_of(offs_d, BLOCK_SIZE), BLOCK_SIZE)
    lane = tl.multiple_of(tl.arange(0, BLOCK_SIZE), 16)
    mask = pid_d * BLOCK_SIZE + lane < D
    bias = tl.load(bias_ptr + offs_d, mask=mask, other=0.0)
    tl.store(out_ptr + pid_p * D + offs_d, bias, mask=mask)


def broadcast(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """
    Broadcast bias over the rows of x.
    """
    assert x.is_cuda and bias.is_cuda, "inputs must be on GPU"
    assert bias.shape[0] == x.shape[1]
    P, D = x.shape
    out = torch.empty((P, D), device="cuda", dtype=x.dtype)
    BLOCK_SIZE = 1024
    grid = (P, triton.cdiv(D, BLOCK_SIZE))
    broadcast[grid](x, bias, out, P, D, BLOCK_SIZE=BLOCK_SIZE)
    return out


if __name__ == "__main__":
    x = torch.randn(128, 256, device="cuda")
    bias = torch.randn(256, device="cuda")
    print(broadcast(x, bias))
