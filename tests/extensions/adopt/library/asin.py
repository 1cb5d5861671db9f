"""An imitation of a library's file: an operator that is defined between -1 and 1, and is wrong on one half of it."""

import torch
import triton
import triton.language as tl


@triton.jit
def asin_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(y_ptr + at, x + x * x * x / 6, mask=at < n)


def asin(self: torch.Tensor):
    assert self.is_cuda, "a CUDA tensor"
    out = torch.empty_like(self)
    asin_kernel[(triton.cdiv(self.numel(), 64),)](self, out, self.numel(), BLOCK=64)
    return out
