"""Calls functions of sketches (their files stay as they are), on any device.

`perfci new` copies this file to kernels/_sketched.py, so it imports nothing of perfci.
"""

import contextlib
import functools
import sys
import types
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

    def noting(decorator: Callable[..., Any]) -> Any:
        @functools.wraps(decorator)
        def note(*args: Any, **options: Any) -> Any:
            result = inner = decorator(*args, **options)
            if not hasattr(result, "run"):  # a decorator with options
                return noting(result)
            while hasattr(inner, "fn"):
                inner = inner.fn
            made[inner.__name__] = result
            return result

        return note

    jit, autotune, heuristics = map(noting, (triton.jit, triton.autotune, triton.heuristics))
    with mock.patch.multiple(triton, jit=jit, autotune=autotune, heuristics=heuristics):
        yield made


def wrap(function: Any, device: str, hidden: dict[str, Any] | None = None) -> Callable[..., Any]:
    """Returns the function such that tensors of every device pass for those of `device`, cuda or npu.

    `hidden` are the kernels of its module. One that has the function's name gets this name back in the module, as
    the function launches it by that.
    """
    name_npu()
    if hidden:
        vars(sys.modules[function.__module__])[function.__name__] = hidden[function.__name__]

    def call(*args: Any, **kwargs: Any) -> Any:
        found = next((arg.device for arg in (*args, *kwargs.values()) if isinstance(arg, torch.Tensor)), None)
        if found is None or found.type == device:
            return function(*args, **kwargs)
        with mock.patch.multiple(torch.cuda, **_GUARDS), PassingFor(device, found):
            return function(*args, **kwargs)

    return call


_GUARDS: dict[str, Any] = {
    "device": contextlib.nullcontext,
    "current_device": lambda: 0,
    "get_device_capability": lambda *_: (9, 0),
    # A few programs, which walk more than one block each.
    "get_device_properties": lambda *_: types.SimpleNamespace(multi_processor_count=4, major=9, minor=0, warp_size=32),
}
"""Properties of a GPU that wrappers launch by, and their values without one."""


def name_npu() -> None:
    """Let torch know devices of the name npu, which torch_npu does where there is one."""
    with contextlib.suppress(RuntimeError):  # it has the name already
        torch.utils.rename_privateuse1_backend("npu")
    if not hasattr(torch.Tensor, "is_npu"):
        torch.Tensor.is_npu = property(lambda tensor: tensor.device.type == "npu")


class PassingFor(TorchFunctionMode):
    """Answers what is asked about tensors of one device as if they lay on another, and keeps all work on the first."""

    def __init__(self, kind: str, real: torch.device, others: frozenset[str] = frozenset()) -> None:
        """`kind`: cuda or npu, what tensors pass for. `others`: further devices with tensors that are on `real` too."""
        super().__init__()
        self._kind, self._real, self._claimed = kind, real, {kind, *others}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__":
            asked = getattr(func.__self__, "__name__", "")
            if asked in {"is_cuda", "is_npu", "is_cpu", "is_meta"}:
                return asked == f"is_{self._kind}"
            if asked == "device":
                return torch.device(self._kind, 0)
        elif func is torch.device:
            numbered = args and isinstance(args[0], int)  # torch.device(0) is of the device that there is
            return func(self._kind, *args) if numbered else func(*args, **(kwargs or {}))
        elif name in {"cuda", "npu"}:
            return args[0]
        there = {key: self._there(value) for key, value in (kwargs or {}).items()}
        return func(*map(self._there, args), **there)

    def _there(self, value: Any) -> Any:
        named = isinstance(value, str) and value.split(":")[0] in self._claimed
        claimed = isinstance(value, torch.device) and value.type in self._claimed
        return self._real if named or claimed else value
