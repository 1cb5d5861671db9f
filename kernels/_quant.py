"""Quantised storage: values cast to float8 with saturation, and their scales.

Needs only torch. A value is `values * scale`, the scale float32 and shared by a group with a shape that the mode gives.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

MODES = ("tensor", "row", "column", "group", "block")
GROUP = 128
"""Values along the last side that share a scale in mode `group`; both sides of a square in mode `block`."""

_ROUNDING = 1 + 2.0**-20
"""How far dividing by a scale, rounded itself, may take the largest value beyond the dtype's largest."""


class Quantized(NamedTuple):
    """A tensor in low precision."""

    values: torch.Tensor
    """in the low-precision dtype, of the tensor's shape"""
    scale: torch.Tensor
    """float32 factor of the values, of shape () or one element a group"""
    clip_ratio: torch.Tensor
    """share of the values beyond the dtype's range, which became its largest; 0 if there are no values; one float32 on
    x's device, so that only readers wait for it"""


def quantize(
    x: torch.Tensor, dtype: torch.dtype, mode: str = "tensor", scale: torch.Tensor | None = None, group: int = GROUP
) -> Quantized:
    """Returns a tensor in a float8 dtype by one of MODES, with scales that take each group to the dtype's largest.

    Scales have shape () (tensor), (..., m, 1) (row), (..., 1, n) (column), (..., m, ceil(n / group)) (group) or
    (..., ceil(m / group), ceil(n / group)) (block) for x of (..., m, n). A given `scale` of that shape is used
    unchanged. Larger values saturate, and so do infinities. NaN stays NaN and does not count in a scale. A group of
    zeros has scale 1. Raises TypeError for dtypes, ValueError for the mode, shapes or a scale that is not positive.
    """
    check(x, dtype, mode, group)
    wide, largest = x.detach().to(torch.float32), torch.finfo(dtype).max
    if scale is None:
        scale = _amax(wide, mode, group) / largest
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    elif scale.shape != scale_shape(x.shape, mode, group) or scale.dtype is not torch.float32:
        needed = tuple(scale_shape(x.shape, mode, group))
        raise ValueError(f"quantize: scale is {scale.dtype} {tuple(scale.shape)}, but has to be torch.float32 {needed}")
    elif not bool((scale > 0).all()):
        raise ValueError("quantize: scale has elements that are not above 0, but every one has to be")
    scaled = wide / spread(scale, x.shape, mode, group)
    clipped = (scaled.abs() > largest * _ROUNDING).sum(dtype=torch.float32)
    values = scaled.clamp(-largest, largest).to(dtype)
    return Quantized(values, scale, clipped / max(x.numel(), 1))


def dequantize(
    values: torch.Tensor,
    scale: torch.Tensor,
    mode: str = "tensor",
    group: int = GROUP,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Returns values * scale in `dtype`: by default float64 if one of the two has it, else float32."""
    dtype = dtype or (torch.float64 if torch.float64 in {values.dtype, scale.dtype} else torch.float32)
    # float8 converts to float64 through float32 only
    wide = values.to(torch.float32) if values.element_size() == 1 else values
    return wide.to(dtype) * spread(scale.to(dtype), values.shape, mode, group)


def scale_shape(shape: torch.Size | tuple[int, ...], mode: str, group: int = GROUP) -> tuple[int, ...]:
    """Returns the shape of the scales for a tensor's shape."""
    if mode == "tensor":
        return ()
    *outer, rows, cols = shape
    row_groups, col_groups = -(-rows // group), -(-cols // group)
    sides = {"row": (rows, 1), "column": (1, cols), "group": (rows, col_groups), "block": (row_groups, col_groups)}
    return (*outer, *sides[mode])


def spread(scale: torch.Tensor, shape: torch.Size | tuple[int, ...], mode: str, group: int = GROUP) -> torch.Tensor:
    """Returns scales that broadcast over a tensor of that shape: one for each element if groups are several wide."""
    if mode in {"group", "block"}:
        scale = scale.repeat_interleave(group, -1)[..., : shape[-1]]
    if mode == "block":
        scale = scale.repeat_interleave(group, -2)[..., : shape[-2], :]
    return scale


def _amax(x: torch.Tensor, mode: str, group: int) -> torch.Tensor:
    """Returns the largest finite magnitude of each group, 0 if there is none."""
    size = torch.where(x.isfinite(), x.abs(), torch.zeros_like(x))
    if not x.numel():
        return size.new_zeros(scale_shape(x.shape, mode, group))
    if mode == "tensor":
        return size.amax()
    if mode in {"row", "column"}:
        return size.amax(-1 if mode == "row" else -2, keepdim=True)
    tall = group if mode == "block" else 1
    rows, cols = x.shape[-2:]
    size = torch.nn.functional.pad(size, (0, -cols % group, 0, -rows % tall))
    return size.unflatten(-1, (-1, group)).unflatten(-3, (-1, tall)).amax((-1, -3))


def check(x: torch.Tensor, dtype: torch.dtype, mode: str, group: int) -> None:
    """Raises TypeError or ValueError if `quantize` does not support this tensor, dtype, mode or group."""
    if not x.dtype.is_floating_point or not dtype.is_floating_point or dtype.itemsize != 1:
        raise TypeError(f"quantize: x is {x.dtype} and dtype {dtype}, but they have to be a float and a float8 dtype")
    if mode not in MODES:
        raise ValueError(f"quantize: mode is {mode!r}, but has to be one of {', '.join(map(repr, MODES))}")
    if mode != "tensor" and x.ndim < 2:
        raise ValueError(f"quantize: x has shape {tuple(x.shape)}, but mode {mode} needs two sides or more")
    if group < 1:
        raise ValueError(f"quantize: group is {group}, but has to be 1 or more")
