"""An imitation of a library's file: an operator whose samples torch makes without zeros, for which it looks at them."""

import torch
import triton
import triton.language as tl


@triton.jit
def addcdiv_kernel(x_ptr, a_ptr, b_ptr, out_ptr, n, value, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x, a = tl.load(x_ptr + at, mask=at < n), tl.load(a_ptr + at, mask=at < n)
    b = tl.load(b_ptr + at, mask=at < n)
    tl.store(out_ptr + at, x + value * (a / b), mask=at < n)


def addcdiv(self, tensor1, tensor2, value=1.0):
    out = torch.empty_like(self)
    addcdiv_kernel[(triton.cdiv(self.numel(), 64),)](self, tensor1, tensor2, out, self.numel(), value, BLOCK=64)
    return out
