"""Tensors of a device that is not there: torch's meta tensors, which claim to lie on it.

FakeTensorMode needs a torch built for CUDA, and imports torch._dynamo, which takes longer than compiling most kernels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.function import BackwardCFunction
from torch.overrides import TorchFunctionMode, resolve_name

from perfci.device.capture import Storages, note, note_unknown
from perfci.device.tensors import Mode

DEVICE = torch.device("cuda", 0)
META = torch.device("meta")

FIRST_ADDRESS = 1 << 40
ADDRESS_UNIT = 512  # what torch's allocator aligns fresh memory to

_NAMED = re.compile(r"cuda(:\d+)?")


class _Inside:
    depth = 0  # above 0 if torch itself is at work, whose Python parts have to see the meta device


class VirtualTensor(torch.Tensor):
    """A tensor without memory that has an address, as well aligned as a fresh allocation."""

    @property
    def device(self) -> torch.device:
        return META if _Inside.depth else DEVICE

    @property
    def is_cuda(self) -> bool:
        return not _Inside.depth

    @property
    def is_meta(self) -> bool:
        return bool(_Inside.depth)

    def get_device(self) -> int:
        return 0

    def data_ptr(self) -> int:
        """Address of the first element. 0 for an empty tensor, as of a real one."""
        if not self.numel():
            return 0
        return address(self.untyped_storage()) + self.storage_offset() * self.element_size()

    def __deepcopy__(self, memo: Any) -> torch.Tensor:
        return self.detach().clone()

    def record_stream(self, stream: Any) -> None:
        note("Tensor.record_stream()")

    @property
    def __cuda_array_interface__(self) -> Any:
        raise RuntimeError(note_unknown("captured_offline", "__cuda_array_interface__").kind)

    def __dlpack__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError(note_unknown("captured_offline", "__dlpack__").kind)


class VirtualGenerator(torch.Generator):
    """A generator of the device. Numbers are never drawn."""

    def __new__(cls, device: Any = "cpu") -> VirtualGenerator:
        made: VirtualGenerator = super().__new__(cls, "cpu")
        made._asked = torch.device(device)
        return made

    def __init__(self, device: Any = "cpu") -> None:
        self._asked: torch.device

    @property
    def device(self) -> torch.device:
        return self._asked


_storages, _addresses = Storages(), [FIRST_ADDRESS]  # those that were asked, and their addresses, with the next one


def address(storage: torch.UntypedStorage) -> int:
    """Where a storage lies: the next free place when it is asked for the first time."""
    number = _storages.of(storage)
    if number == len(_addresses) - 1:
        _addresses.append(_addresses[-1] + max(-(-storage.nbytes() // ADDRESS_UNIT), 1) * ADDRESS_UNIT)
    return _addresses[number]


class VirtualDevice(TorchFunctionMode):
    """Sends whatever is asked of the device to meta tensors, and has the results claim to lie on it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.device:
            return DEVICE if args and isinstance(args[0], int) else func(*args, **kwargs)
        if func is torch.Tensor.pin_memory:
            return args[0]
        if func is torch.Tensor.cuda:
            func, args, kwargs = torch.Tensor.to, (args[0], META), {}
        by_number = func is torch.Tensor.to  # which takes a device's number too
        args = [META if _is_device(value, by_number=by_number) else value for value in args]
        kwargs = {
            name: META if name == "device" and _is_device(value, by_number=True) else value
            for name, value in kwargs.items()  # without what only real memory can have
            if name != "pin_memory" and not (isinstance(value, VirtualGenerator) and value.device.type == "cuda")
        }
        try:
            with _inside(), torch._C.DisableTorchFunctionSubclass():
                result = func(*args, **kwargs)
        except (RuntimeError, TypeError) as error:
            if "meta" in str(error).lower():  # it wanted values
                note_unknown("captured_offline", resolve_name(func) or getattr(func, "__name__", str(func)))
            raise
        return _claim(result)


class _MetaOperations(Mode):
    """Has operations that torch starts by itself, such as those of autograd, see the meta device. Draws no numbers."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix("aten::") if hasattr(func, "_schema") else ""
        if name in _FILLING and args[0].is_meta:
            return args[0]
        with _inside():
            if name in _DRAWING and torch.device(kwargs.get("device") or "cpu").type == "meta":
                size = next(value for value in args if isinstance(value, list | tuple))
                return _claim(torch.empty(size, dtype=kwargs.get("dtype") or _DRAWING[name], device=META))
            result = func(*args, **kwargs)
        return result if any(result is value for value in args) else _claim(result)


_FILLING = frozenset({"normal_", "uniform_", "random_", "bernoulli_", "exponential_"})
_DRAWING = {"randn": None, "rand": None, "randint": torch.int64}  # new tensors, with their dtype if none is named


def start() -> None:
    """Have the rest of this thread's life see virtual tensors wherever it asks for the device's."""
    real: Callable[..., int] = torch.UntypedStorage.data_ptr
    backward: Callable[..., Any] = BackwardCFunction.apply

    def data_ptr(storage: torch.UntypedStorage) -> int:
        return address(storage) if storage.device.type == "meta" else real(storage)

    def apply(function: Any, *args: Any) -> Any:
        with outside():
            return backward(function, *args)

    torch.UntypedStorage.data_ptr = data_ptr
    BackwardCFunction.apply = apply
    torch.Generator = VirtualGenerator
    _MetaOperations().__enter__()
    VirtualDevice().__enter__()


@contextmanager
def outside() -> Iterator[None]:
    """The op's own code that torch calls: it has to see the device again."""
    depth, _Inside.depth = _Inside.depth, 0
    try:
        with VirtualDevice():
            yield
    finally:
        _Inside.depth = depth


@contextmanager
def _inside() -> Iterator[None]:
    _Inside.depth += 1
    try:
        yield
    finally:
        _Inside.depth -= 1


def _claim(value: Any) -> Any:
    """A result with its tensors claiming to lie on the device: one, several, or such as `max` gives."""
    if type(value) is torch.Tensor:
        return value.as_subclass(VirtualTensor) if value.is_meta else value
    if type(value) in {tuple, list} or hasattr(value, "n_sequence_fields"):
        return type(value)([_claim(part) for part in value])
    return value


def _is_device(value: Any, *, by_number: bool) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    if isinstance(value, str):
        return _NAMED.fullmatch(value) is not None
    return by_number and isinstance(value, int) and not isinstance(value, bool)
