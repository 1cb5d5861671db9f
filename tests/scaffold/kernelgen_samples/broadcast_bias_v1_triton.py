import torch
import triton
import triton.language as tl


@triton.jit
def broadcast_bias_kernel(x_ptr, bias_ptr, out_ptr, n_elements, D, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    bias = tl.load(bias_ptr + offsets % D, mask=mask).to(tl.float32)
    out = x + bias
    tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def broadcast_bias(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    n_elements = x.numel()
    grid = lambda meta: (triton.cdiv(n_elements, meta["BLOCK_SIZE"]),)
    broadcast_bias_kernel[grid](x, bias, out, n_elements, x.shape[-1], BLOCK_SIZE=1024)
    return out
