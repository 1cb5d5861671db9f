"""Peers of ops on request: their reference, compiled by torch or restricted to one backend."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

UNSUPPORTED = ("No available kernel", "No viable backend")
"""Torch's messages if no allowed backend supports a call: the first on CUDA, the second on a CPU."""


def compiled(function: Callable[..., Any], **options: Any) -> Callable[[], Callable[..., Any]]:
    """Returns a maker of `function` compiled for the shapes of one case, by `torch.compile(dynamic=False, **options)`.

    Nothing is compiled before its first call. Each has its code: torch counts compiled shapes by code, and beyond
    its limit (eight) would run the function uncompiled, which would then be timed instead. For the same reason it
    compiles as a whole (`fullgraph`) or raises.
    """

    def make() -> Callable[..., Any]:
        return torch.compile(_own(function), dynamic=False, fullgraph=True, **options)

    return make


def attending(function: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """Returns `function` with every scaled_dot_product_attention by one backend: FLASH_ATTENTION, CUDNN_ATTENTION.

    It raises NotImplementedError if that backend does not support the call.
    """
    chosen = getattr(SDPBackend, backend)

    @functools.wraps(function)
    def attended(*args: Any, **inputs: Any) -> Any:
        try:
            with sdpa_kernel(chosen):
                return function(*args, **inputs)
        except RuntimeError as error:
            if not any(text in str(error) for text in UNSUPPORTED):
                raise
            raise NotImplementedError(f"PyTorch has no {backend} for these inputs") from error

    return attended


def _own(function: Any) -> types.FunctionType:
    """Returns the same function with a copy of its code."""
    code, known = function.__code__.replace(), function.__globals__
    copy = types.FunctionType(code, known, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    copy.__annotations__ = function.__annotations__
    return copy
