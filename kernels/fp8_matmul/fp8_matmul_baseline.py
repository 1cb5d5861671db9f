"""fp8_matmul in PyTorch: what the op means."""

import torch

import _quant
import _scaling


def fp8_matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    scale_a: torch.Tensor,
    scale_b: torch.Tensor,
    out_dtype: torch.dtype = torch.bfloat16,
) -> torch.Tensor:
    """The product of the dequantised a and b, by torch._scaled_mm if it supports the scaling, which is fastest.

    In float64 operands it is computed and left in float64.
    """
    if a.dtype is not torch.float64 and _scaled_mm_takes(a, b, scale_a, scale_b, out_dtype):
        return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=out_dtype, use_fast_accum=out_dtype is torch.bfloat16)
    exact = a.dtype is torch.float64
    wide = torch.float64 if exact else torch.float32
    (m, k), n = a.shape, b.shape[1]
    if not _by_blocks(m, n, scale_a, scale_b):
        # Scaled after the sum, as an infinite scale of a row would else make NaN of sums that it makes infinite.
        product = _plain(a, wide) @ _plain(b, wide)
        result = product * scale_a.to(wide).reshape(-1, 1) * scale_b.to(wide).reshape(1, -1)
    elif (fast := a.is_cuda and out_dtype is torch.bfloat16 and not exact) or _by_channels(k, n, scale_b):
        if _by_channels(k, n, scale_b):
            left = _quant.dequantize(a, scale_a, "group", _group(k, scale_a.shape[1]), wide)
            right = _quant.dequantize(b.t(), scale_b.t(), "group", _group(k, scale_b.shape[0]), wide).t()
        else:
            left, right = _quant.dequantize(a, scale_a, "group"), _quant.dequantize(b, scale_b, "block")
        # float32 products would take many times as long as those that anybody would use instead.
        result = left.to(out_dtype) @ right.to(out_dtype) if fast else left @ right
    else:
        result = a.new_zeros((m, n), dtype=wide)
        for block, first in enumerate(range(0, k, _quant.GROUP)):
            inner = slice(first, first + _quant.GROUP)
            scale = scale_b[block].to(wide).repeat_interleave(_quant.GROUP)[:n]
            product = _plain(a[:, inner], wide) @ _plain(b[inner], wide)
            result += product * (scale_a[:, block, None].to(wide) * scale)
    return result if exact else result.to(out_dtype)


def make_inputs(
    m: int,
    n: int,
    k: int,
    scaling: str | int,
    dtype: torch.dtype,
    out_dtype: torch.dtype,
    device: str,
    seed: int,
    *,
    b_rows=False,
    loud=False,
) -> dict[str, torch.Tensor | torch.dtype]:
    """Inputs of one case: normal values with rows of unlike size, quantised by `scaling`.

    That is tensor, row, block, the size of a group of channels, or auto, which chooses that for each operand. b is a
    transposed view, its elements neighbours along k; row-major if `b_rows`. With `loud` one of 64 channels of a is
    2**16 times as large as the others, and that of b as much smaller.
    """
    generator = torch.Generator(device).manual_seed(seed)

    def normal(rows: int) -> torch.Tensor:
        spread = torch.rand((rows, 1), generator=generator, device=device) * 2 + 0.5
        return torch.randn((rows, k), generator=generator, device=device) * spread

    left, right = normal(m), normal(n).t()
    if loud:
        left[:, 7::64] *= 2.0**16
        right[7::64] *= 2.0**-16
    if scaling == "auto" or isinstance(scaling, int):
        a, scale_a, _ = _scaling.quantize_channels(left, dtype, scaling)
        b, scale_b, _ = (channel.t() for channel in _scaling.quantize_channels(right.t(), dtype, scaling))
    else:
        a, scale_a, _ = _quant.quantize(left, dtype, {"tensor": "tensor", "row": "row", "block": "group"}[scaling])
        b, scale_b, _ = _quant.quantize(right, dtype, {"tensor": "tensor", "row": "column", "block": "block"}[scaling])
    b = b.contiguous() if b_rows else b.t().contiguous().t()
    return {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "out_dtype": out_dtype}


def _plain(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """float8 converts to float64 through float32 only."""
    return (values.to(torch.float32) if values.element_size() == 1 else values).to(dtype)


def _by_blocks(m: int, n: int, scale_a: torch.Tensor, scale_b: torch.Tensor) -> bool:
    """Whether the scales are not of the whole, of rows and of columns."""
    plain = (scale_a.numel() == 1 or scale_a.shape == (m, 1)) and (scale_b.numel() == 1 or scale_b.shape == (1, n))
    return not plain


def _by_channels(k: int, n: int, scale_b: torch.Tensor) -> bool:
    """Whether columns of b have scales of their own for each group of channels."""
    return scale_b.ndim == 2 and scale_b.shape[1] == n and scale_b.shape[0] > -(-k // _quant.GROUP)


def _group(k: int, groups: int) -> int:
    """Channels of a group, of the sizes that the kernel knows."""
    return next(size for size in _scaling.CHANNELS if -(-k // size) == groups)


def _scaled_mm_takes(
    a: torch.Tensor, b: torch.Tensor, scale_a: torch.Tensor, scale_b: torch.Tensor, out_dtype: torch.dtype
) -> bool:
    """Two scales of the whole, or rows and columns with a bfloat16 result; k dense, sides in multiples of 16."""
    (m, k), n = a.shape, b.shape[1]
    if not a.is_cuda or k % 16 or n % 16 or not min(m, n, k) or a.stride() != (k, 1) or b.stride() != (1, k):
        return False
    if a.dtype is b.dtype is torch.float8_e5m2:
        return False
    if scale_a.numel() == scale_b.numel() == 1:
        return True
    rows = scale_a.shape == (m, 1) and scale_b.shape == (1, n) and scale_a.is_contiguous() and scale_b.is_contiguous()
    return rows and out_dtype is torch.bfloat16
