"""Calls functions of sketches, whose own files stay as they are, on any device.

`perfci new` copies this file to kernels/_sketched.py, so it imports nothing of perfci.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import triton
from torch.overrides import TorchFunctionMode


@contextlib.contextmanager
def kernels() -> Iterator[dict[str, Any]]:
    """The Triton kernels that are defined meanwhile, by name, even if a function of that name hides them later."""
    made: dict[str, Any] = {}
    noting: dict[str, Any] = {name: _noting(getattr(triton, name), made) for name in ("jit", "autotune", "heuristics")}
    with mock.patch.multiple(triton, **noting):
        yield made


def _noting(decorator: Callable[..., Any], made: dict[str, Any]) -> Callable[..., Any]:
    @functools.wraps(decorator)
    def note(*args: Any, **options: Any) -> Any:
        result = decorator(*args, **options)
        if not hasattr(result, "run"):  # a decorator with options
            return _noting(result, made)
        inner = result
        while hasattr(inner, "fn"):
            inner = inner.fn
        made[inner.__name__] = result
        return result

    return note


def wrap(function: Any, device: str, hidden: dict[str, Any] | None = None) -> Callable[..., Any]:
    """Returns the function such that tensors of every device pass for those of `device`, cuda or npu.

    `hidden` are the kernels of its module. One that has the function's own name gets this name back in the module, as
    the function launches it by that.
    """
    with contextlib.suppress(RuntimeError):  # there is an NPU, which has the name already
        torch.utils.rename_privateuse1_backend("npu")
    if not hasattr(torch.Tensor, "is_npu"):
        torch.Tensor.is_npu = property(lambda tensor: "npu" in (_PassingFor.kind, tensor.device.type))
    if hidden:
        vars(sys.modules[function.__module__])[function.__name__] = hidden[function.__name__]

    def call(*args: Any, **kwargs: Any) -> Any:
        found = next((each.device for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)), None)
        if found is None or found.type == device:
            return function(*args, **kwargs)
        before = torch.cuda.device, _PassingFor.kind
        torch.cuda.device, _PassingFor.kind = contextlib.nullcontext, device
        try:
            with _PassingFor(found):
                return function(*args, **kwargs)
        finally:
            torch.cuda.device, _PassingFor.kind = before

    return call


class _PassingFor(TorchFunctionMode):
    """Answers what is asked about tensors of one device as if they lay on another, and keeps all work on the first."""

    kind = ""  # what tensors pass for now: cuda, npu or nothing

    def __init__(self, real: torch.device) -> None:
        super().__init__()
        self._real = real

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__":
            asked = getattr(func.__self__, "__name__", "")
            if asked in {"is_cuda", "is_npu"}:
                return asked == f"is_{self.kind}"
            if asked == "device":
                return torch.device(self.kind, 0)
        elif func is torch.device:
            return func(*args, **(kwargs or {}))
        elif name in {"cuda", "npu"}:
            return args[0]
        there = {key: self._there(value) for key, value in (kwargs or {}).items()}
        return func(*map(self._there, args), **there)

    def _there(self, value: Any) -> Any:
        named = isinstance(value, str) and value.split(":")[0] == self.kind
        claimed = isinstance(value, torch.device) and value.type == self.kind
        return self._real if named or claimed else value
