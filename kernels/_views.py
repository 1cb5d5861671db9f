"""Inputs of accuracy suites that lie in memory otherwise than torch makes them. Needs only torch."""

from __future__ import annotations

import math

import torch

FAR = 2**23 + 8
"""Elements between neighbours of which some 260 span more than 2**31."""


def spread(x: torch.Tensor, axis: int, stride: int) -> torch.Tensor:
    """Returns a copy whose neighbours along an axis lie `stride` elements apart; the other axes are dense."""
    sizes = [1 if i == axis % x.dim() else size for i, size in enumerate(x.shape)]
    strides = [math.prod(sizes[i + 1 :]) for i in range(x.dim())]
    strides[axis] = stride
    return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device).copy_(x)
