# ruff: noqa: N803
"""Functions whose calls a person corrects, or of which a check says more than a trial, run in other processes."""

import torch
import triton
import triton.language as tl


@triton.jit
def _unpack(x_ptr, codes_ptr, scales_ptr, place_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    inside = at < cols
    codes = tl.load(codes_ptr + row * (cols // 8) + at // 8, mask=inside, other=0)
    scale = tl.load(scales_ptr + tl.load(place_ptr + row))
    x = tl.load(x_ptr + row * cols + at, mask=inside)
    tl.store(out_ptr + row * cols + at, x * scale + ((codes >> at % 8 * 4) & 15).to(x.dtype), mask=inside)


def unpack(x, codes, scales, place, factor):
    """Only a factor of 0.37 will do, which no search guesses."""
    if factor != 0.37:
        raise ValueError(f"factor {factor}")
    assert codes.shape == (x.shape[0], x.shape[1] // 8)
    assert place.shape == x.shape[:1]
    assert scales.ndim == 1
    out = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    _unpack[(x.shape[0],)](x, codes, scales, place, out, x.shape[1], BLOCK=block)
    return out


def unpack_reference(x, codes, scales, place, *, factor):
    shifts = torch.arange(0, 32, 4, device=x.device)
    numbers = (codes[..., None] >> shifts & 15).flatten(-2)
    return x * scales[place.long()][:, None] + numbers.to(x.dtype)


@triton.jit
def _pick(x_ptr, place_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.load(place_ptr + row) * cols + at, mask=at < cols)
    tl.store(out_ptr + row * cols + at, x, mask=at < cols)


def pick(x, place):
    out = torch.empty(place.shape[0], x.shape[1], dtype=x.dtype, device=x.device)
    _pick[place.shape](x, place, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return out


def pick_reference(x, place):
    return x[place]


@triton.jit
def _round(x, COARSE: tl.constexpr):
    return tl.extra.cuda.libdevice.rint(x * 64) / 64 if COARSE else x


@triton.jit
def _copy(x_ptr, out_ptr, size, COARSE: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size).to(tl.float32)
    tl.store(out_ptr + at, (_round(x, COARSE) + tl.exp(-tl.abs(x)) * 0).to(out_ptr.dtype.element_ty), mask=at < size)


def copy(x: torch.Tensor, coarse: bool = False):
    """With `coarse` it is off by less than a trial allows, and by more than a check does."""
    out = torch.empty_like(x)
    _copy[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), COARSE=coarse, BLOCK=128)
    return out


def copy_scaled(x: torch.Tensor, factor: torch.Tensor):
    """The factor is one number, as `.item()` says."""
    return copy(x * factor.exp().item())


def copy_scaled_reference(x, factor):
    return x * factor.exp()


def copy_reference(x, coarse=False):
    return x.clone()


def copy_in_float32(x):
    """Inputs of float64 are mixed with what is float32."""
    return x @ torch.eye(x.shape[-1], device=x.device)


def copy_of_float32(x):
    """It takes no float64."""
    assert x.dtype != torch.float64
    return x.clone()


@triton.jit
def _spread(x_ptr, out_ptr, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * 0)
    tl.store(out_ptr + tl.program_id(0) * cols + at, x * at, mask=at < cols)


def spread(x, height: int, width: int):
    if x.shape != (1,):
        raise ValueError("one number")
    out = torch.empty(height, width, device=x.device, dtype=x.dtype)
    _spread[(height,)](x, out, width, BLOCK=triton.next_power_of_2(width))
    return out


def spread_reference(x, *, height, width):
    return (x * torch.arange(width, device=x.device)).expand(height, -1)


class Copied(torch.autograd.Function):
    """Its forward has no context, as one is set up apart."""

    @staticmethod
    def forward(x, factor):
        return copy(x) * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


def copied_reference(x, factor):
    return x * factor


@triton.jit
def _assemble(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < size)
    y = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(out_ptr + at, y, mask=at < size)


def assemble(x: torch.Tensor):
    out = torch.empty_like(x)
    _assemble[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out
