"""scale on the device: a program takes a block of elements."""

import torch
import triton
import triton.language as tl

BLOCK = 8192


@triton.jit
def _scale(x, out, factor, count, BLOCK: tl.constexpr):  # noqa: N803
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    value = tl.load(x + offsets, mask=inside)
    tl.store(out + offsets, value * factor, mask=inside)


def scale(x, factor):
    x = x.contiguous()
    out = torch.empty_like(x)
    count = x.numel()
    if count:
        _scale[(triton.cdiv(count, BLOCK),)](x, out, factor, count, BLOCK=BLOCK)
    return out
