"""A small op. Every release of Triton makes a binary of its kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def _affine(x_ptr, out_ptr, n, whole, factor, BLOCK: tl.constexpr):  # noqa: N803
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offset, mask=offset < n)
    tl.store(out_ptr + offset, x * factor + whole, mask=offset < n)


def affine(x, whole, factor):
    out = torch.empty_like(x)
    _affine[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), whole, factor, BLOCK=256)
    return out
