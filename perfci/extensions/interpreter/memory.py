"""The memory of interpreted launches, which is looked at before it is used: a wild address ends no process.

A launch may use its tensors' elements, and what lies around them in their storage. It may use any memory of the process
if it can have read addresses from one of its tensors, or was given some as numbers. What it uses beside that is noted.
Where it is no tensor's storage either, a place that nothing depends on is used instead. A launch that goes on so ends.
"""

import functools
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from triton.runtime import interpreter

from perfci.core.model import Fact, as_fact
from perfci.device.arrays import leaves
from perfci.device.tensors import GUARD_BYTES

Array = np.ndarray[Any, Any]
Span = tuple[int, int]  # addresses, from the first to behind the last

READS, WRITES = as_fact("reads"), as_fact("writes")
LEAST_ADDRESS = 1 << 32
MOST_OUTSIDE = 64  # accesses, after which a launch ends: a loop over the wrong size may have no end
_FOREIGN = (str(Path(triton.__file__).parent), str(Path(__file__).parent))
_ELSEWHERE = np.zeros(64, np.uint8)


class Launch:
    """One launch: where its tensors lie, and which accesses were outside."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        """Raises ValueError for arguments of which the interpreter has no addresses."""
        self._named = [
            (name, tensor)
            for name, value in arguments.items()
            for tensor in (getattr(one, "base", one) for one in leaves(value))
            if hasattr(tensor, "data_ptr")
        ]
        if not all(isinstance(tensor, torch.Tensor) and tensor.device.type == "cpu" for _, tensor in self._named):
            raise ValueError
        self._numbers = [one for one in leaves(arguments) if type(one) is int and one > LEAST_ADDRESS]
        storages = [tensor.untyped_storage() for _, tensor in self._named]
        self._wholes = [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in storages]
        self._elements = [_span(tensor) for _, tensor in self._named]
        self._spans = [
            (min(begin, first + GUARD_BYTES), max(end, last - GUARD_BYTES))
            for (begin, end), (first, last) in zip(self._elements, self._wholes, strict=True)
        ]
        self.outside: list[Array] = []  # addresses, by access
        self.program = 0  # of the first of them
        self.facts: dict[str, Fact] = {}  # about that one

    def keep_inside(self, pointers: Array, mask: Array | bool, verb: str, width: int) -> Array:
        """Returns the addresses to use in the place of these. width: bytes at each."""
        first, last = pointers.item(0), pointers.item(-1)
        for begin, end in self._spans:
            if begin <= first < end or begin <= last < end:  # most blocks are in one tensor but for masked lanes
                beside = pointers - np.uint64(begin) >= np.uint64(end - begin)  # an address before it wraps
                if not np.count_nonzero(beside) or not np.count_nonzero(np.logical_and(beside, mask)):
                    return pointers
        stray = np.broadcast_to(mask, pointers.shape).astype(bool)  # the interpreter may hold int32
        stray &= ~_lies_in(pointers, self._spans)
        if stray.any() and self._holds_addresses:
            stray &= _lies_in(pointers, self._wholes) | ~_lies_in(pointers, self._mapped)
        if not stray.any():
            return pointers
        self.outside.append(pointers[stray])
        if len(self.outside) >= MOST_OUTSIDE:
            raise IndexError("the launch ends: it hardly uses its tensors")
        if not self.facts:
            self._describe(pointers, int(pointers[stray][0]), verb, width)
        wild = stray & ~_lies_in(pointers, self._wholes)
        return np.where(wild, pointers.dtype.type(_ELSEWHERE.ctypes.data), pointers)

    @functools.cached_property
    def _holds_addresses(self) -> bool:
        wide = [one for _, one in self._named if one.dtype in {torch.int64, torch.uint64} and one.numel()]
        held = any(bool((one.view(torch.int64) > LEAST_ADDRESS).any()) for one in wide)
        return held or bool(_lies_in(np.array(self._numbers, np.uint64), self._mapped).any())

    @functools.cached_property
    def _mapped(self) -> list[Span]:
        """The memory that the process may read."""
        try:
            lines = [line.split() for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
        except OSError:  # not on this system
            return [(0, 1 << 64)]
        pairs = [line[0].split("-") for line in lines if line[1].startswith("r")]
        return [(int(first, 16), int(last, 16)) for first, last in pairs]

    def _describe(self, pointers: Array, address: int, verb: str, width: int) -> None:
        """Note an access by program, line and tensor: one that others of its block lie in, else the nearest."""
        near: list[tuple[bool, int, str, str]] = [
            (
                not _lies_in(pointers, [(begin, end)]).any(),
                max(begin - address, address + width - end),
                name,
                as_fact("before the start") if address < begin else as_fact("past the end"),
            )
            for (name, _), (begin, end) in zip(self._named, self._elements, strict=True)
        ]
        _, far, tensor, side = min(near, default=(True, address, "-", "-"))
        builder = interpreter.interpreter_builder
        self.program = int(np.ravel_multi_index(builder.grid_idx, builder.grid_dim))
        self.facts = {"verb": verb, "far": far, "side": side, "tensor": tensor, **_find_line()}


class _Memory:
    """Stands in for the interpreter's memory, and keeps every access inside."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory
        self.launch: Launch | None = None  # the one under way or the last, if it is looked at

    def load(self, pointers: Array, mask: Array, other: Array, dtype: Any) -> Any:
        return self._memory.load(self._inside(pointers, mask, READS, dtype), mask, other, dtype)

    def store(self, pointers: Array, values: Array, mask: Array) -> Any:
        return self._memory.store(self._inside(pointers, mask, WRITES, values.dtype), values, mask)

    def atomic_rmw(self, kind: Any, pointers: Array, values: Array, mask: Array, order: Any) -> Any:
        return self._memory.atomic_rmw(kind, self._inside(pointers, mask, WRITES, values.dtype), values, mask, order)

    def atomic_cas(self, pointers: Array, expected: Array, values: Array, order: Any) -> Any:
        return self._memory.atomic_cas(self._inside(pointers, True, WRITES, values.dtype), expected, values, order)

    def _inside(self, pointers: Array, mask: Array | bool, verb: str, dtype: Any) -> Array:
        if self.launch is None or not pointers.size:
            return pointers
        return self.launch.keep_inside(pointers, mask, verb, np.dtype(dtype).itemsize)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)


@functools.cache
def guard() -> _Memory:
    """Have every launch of this process keep inside its tensors."""
    memory, run = _Memory(interpreter._interpreter), interpreter.GridExecutor.__call__

    def launch(executor: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            with torch._C.DisableTorchFunction():  # a mode by which tensors pass for those of another device
                memory.launch = Launch({**dict(zip(executor.arg_names, args, strict=False)), **kwargs})
        except (ValueError, RuntimeError):
            memory.launch = None
        try:
            return run(executor, *args, **kwargs)
        except Exception:
            if memory.launch is None or len(memory.launch.outside) < MOST_OUTSIDE:
                raise
            return None

    interpreter._interpreter, interpreter.GridExecutor.__call__ = memory, launch
    return memory


def _find_line() -> dict[str, Fact]:
    """The line of a kernel's file that is run."""
    frame = sys._getframe(1)
    while frame.f_back and frame.f_code.co_filename.startswith(_FOREIGN):
        frame = frame.f_back
    file, here = Path(frame.f_code.co_filename), Path.cwd()
    name = file.relative_to(here).as_posix() if file.is_relative_to(here) else file.name
    return {"file": name, "line": frame.f_lineno}


def _span(tensor: torch.Tensor) -> Span:
    """Where a tensor's elements lie."""
    extent = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return tensor.data_ptr(), tensor.data_ptr() + extent * tensor.element_size()


def _lies_in(addresses: Array, spans: Iterable[Span]) -> Array:
    inside = np.zeros(addresses.shape, bool)
    for begin, end in spans:
        inside |= (addresses >= begin) & (addresses < end)
    return inside
