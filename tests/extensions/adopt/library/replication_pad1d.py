"""An imitation of a library's file: an operator with a list of numbers, of which torch has no samples."""

import torch
import triton
import triton.language as tl


@triton.jit
def pad_kernel(x_ptr, y_ptr, cols, left, wide, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    source = tl.minimum(tl.maximum(at - left, 0), cols - 1)
    tl.store(y_ptr + row * wide + at, tl.load(x_ptr + row * cols + source, mask=at < wide), mask=at < wide)


def replication_pad1d(input: torch.Tensor, padding):
    left, right = padding
    cols = input.shape[-1]
    wide = cols + left + right
    out = torch.empty((*input.shape[:-1], wide), dtype=input.dtype, device=input.device)
    pad_kernel[(input.numel() // cols, triton.cdiv(wide, 64))](input, out, cols, left, wide, BLOCK=64)
    return out
