"""An imitation of a library's file: an operator that no floating-point number has, so torch's samples are of others."""

import torch
import triton
import triton.language as tl


@triton.jit
def xor_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + at, mask=at < n), tl.load(y_ptr + at, mask=at < n)
    tl.store(x_ptr + at, x ^ y, mask=at < n)


def bitwise_xor_(*args):
    x, y = args
    if x.dtype != torch.bool:
        raise TypeError("booleans alone")
    y = torch.broadcast_to(y, x.shape).contiguous()
    xor_kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), BLOCK=64)
    return x
