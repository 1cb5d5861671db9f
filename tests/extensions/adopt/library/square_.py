"""An imitation of a library's file: an in-place operator behind `*args` that falls back to torch off CUDA."""

import triton
import triton.language as tl


@triton.jit
def square_(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n).to(tl.float32)
    tl.store(x_ptr + at, x * x, mask=at < n)


kernel = square_


def square_(*args, **kwargs):
    x = args[0]
    if not x.is_cuda:
        return x.square_()
    kernel[(triton.cdiv(x.numel(), 64),)](x, x.numel(), BLOCK=64)
    return x
