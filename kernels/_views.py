"""Inputs of accuracy suites that lie in memory otherwise than torch makes them. Needs only torch."""

from __future__ import annotations

import math

import torch

FAR = 2**23 + 8
"""Elements between neighbours of which some 260 span more than 2**31."""


def spread(x: torch.Tensor, axis: int, stride: int) -> torch.Tensor:
    """Returns a copy with neighbours along an axis that lie `stride` elements apart; the other axes are dense."""
    sizes = [1 if i == axis % x.dim() else size for i, size in enumerate(x.shape)]
    strides = [math.prod(sizes[i + 1 :]) for i in range(x.dim())]
    strides[axis] = stride
    return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device).copy_(x)


def with_far(make_inputs):
    """Returns make_inputs with one argument more: `far`, such as "x:1", a tensor and an axis of three elements or more.

    The last element along the axis lies beyond 2**31, and the step from one to the next does not: a kernel that
    multiplies in 32 bits reads elsewhere. "x:1:4096" has the element 4096 there, and many of them behind it.
    """

    def make_far_inputs(*sizes, far=None, **case):
        made = dict(make_inputs(*sizes, **case))
        if far:
            name, axis, *first = far.split(":")
            beyond = int(first[0]) if first else made[name].shape[int(axis)] - 1
            made[name] = spread(made[name], int(axis), (2**31 // beyond // 16 + 1) * 16)
        return made

    return make_far_inputs


def far(names, *axes):
    """Returns values of `far`: these axes of each tensor."""
    return [f"{name}:{axis}" for name in names for axis in axes]
