"""Hears calls of ops' functions, wherever they were imported to, and what of them is captured into graphs.

A function gets other code, which notes the call and goes on to the old one. So every name for it is heard.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Mapping
from time import time_ns
from types import FunctionType
from typing import Any, NamedTuple

from perfci.extensions.workloads.attribution import Graph, Heard

LONGEST = 60  # characters of a flag that is recorded
_TABLE = "__perfci_heard__"  # name among a function's globals for what its new code calls


def _trampoline(*args: Any, **kwargs: Any) -> Any:
    return __perfci_heard__["OP"](*args, **kwargs)  # type: ignore[name-defined]  # noqa: F821


class TensorForm(NamedTuple):
    """What is noted of a tensor."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any


class Hearing:
    """Notes calls while `on`, and captures always."""

    def __init__(self, functions: Mapping[str, FunctionType], torch: Any, tick: Callable[[], None]) -> None:
        """tick: called after each call and each replay."""
        self.on = False
        self.calls: list[Heard] = []  # those that were noted, in the order of their ends
        self._driver: Any = None
        self.replays: list[Heard] = []
        self.graphs: dict[int, Graph] = {}
        self.signatures: dict[tuple[Any, ...], int] = {}
        """op, forms of its arguments, names of those that were named, and their forms -> key"""
        self.outputs: dict[int, tuple[TensorForm, ...]] = {}
        self._captured: list[tuple[int, int, int]] = []
        self._tensor, self._cuda, self._tick, self._inside = torch.Tensor, torch.cuda, tick, threading.local()
        self.originals: dict[str, FunctionType] = {}  # the functions, with their code
        self._undo: list[Callable[[], None]] = [self._hear(op, function) for op, function in functions.items()]
        if torch.cuda.is_available():
            self._driver = ctypes.CDLL("libcuda.so.1")
            self._is_v2 = hasattr(self._driver, "cuStreamGetCaptureInfo_v2")
            self._ask = getattr(self._driver, f"cuStreamGetCaptureInfo_v{2 if self._is_v2 else 3}")
            self._undo.append(self._hear_graphs(torch.cuda.CUDAGraph))

    def close(self) -> None:
        """Give every function its code back."""
        while self._undo:
            self._undo.pop()()

    def _hear(self, op: str, function: FunctionType) -> Callable[[], None]:
        code = function.__code__
        original = FunctionType(code, function.__globals__, None, function.__defaults__, function.__closure__)
        original.__kwdefaults__ = function.__kwdefaults__
        self.originals[op] = original
        constants = tuple(op if constant == "OP" else constant for constant in _trampoline.__code__.co_consts)
        # So many variables of outer functions as the closure has, none of which is read.
        replaced = _trampoline.__code__.replace(co_consts=constants, co_freevars=code.co_freevars)
        function.__globals__.setdefault(_TABLE, {})[op] = self._make_listener(op, original)
        function.__code__ = replaced
        return lambda: setattr(function, "__code__", code)

    def _make_listener(self, op: str, original: FunctionType) -> Callable[..., Any]:
        inside, tick, describe, signatures = self._inside, self._tick, self._describe, self.signatures

        def listen(*args: Any, **kwargs: Any) -> Any:
            graph = self._find_graph() if self._driver else None
            if inside.__dict__ or not (self.on or graph):  # a thread's dictionary has something while an op is called
                result = original(*args, **kwargs)
                tick()
                return result
            inside.op = op
            try:
                form = (op, tuple(map(describe, args)), tuple(kwargs), tuple(map(describe, kwargs.values())))
                key, first = signatures.setdefault(form, len(signatures)), self._count_nodes(graph)
                began = time_ns()
                result = original(*args, **kwargs)
                ended = time_ns()
            finally:
                del inside.op
            if key not in self.outputs:
                listed = result if isinstance(result, tuple | list) else (result,)
                self.outputs[key] = tuple(describe(one) for one in listed if isinstance(one, self._tensor))
            if graph:
                self._captured.append((key, first, self._count_nodes(graph)))
            else:
                self.calls.append(Heard(key, began, ended))
            tick()
            return result

        return listen

    def _describe(self, value: Any) -> Any:
        """The form of an argument: never what a tensor holds."""
        if isinstance(value, self._tensor):
            return tuple.__new__(TensorForm, (value.shape, value.stride(), value.dtype))
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, tuple | list):
            return tuple(map(self._describe, value))
        is_plain = type(value).__name__ == "dtype" or hasattr(type(value), "__members__")  # of an Enum
        return (value if isinstance(value, str) else str(value) if is_plain else type(value).__name__)[:LONGEST]

    # --- graphs of CUDA

    def _find_graph(self) -> ctypes.c_void_p | None:
        """The graph that the current stream is captured into. None if it is not."""
        if not self._cuda.is_initialized() or not self._cuda.is_current_stream_capturing():
            return None
        status, graph, number = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_ulonglong()
        stream = ctypes.c_void_p(self._cuda.current_stream().cuda_stream)
        nothing = (None, None) if self._is_v2 else (None, None, None)
        self._ask(stream, ctypes.byref(status), ctypes.byref(number), ctypes.byref(graph), *nothing)
        return graph if graph.value else None

    def _count_nodes(self, graph: ctypes.c_void_p | None) -> int:
        if graph is None:
            return 0
        count = ctypes.c_size_t()
        self._driver.cuGraphGetNodes(graph, None, ctypes.byref(count))
        return count.value

    def _hear_graphs(self, kind: Any) -> Callable[[], None]:
        end, replay = kind.capture_end, kind.replay

        def capture_end(graph: Any) -> None:
            nodes = self._count_nodes(self._find_graph())
            end(graph)
            self.graphs[id(graph)] = Graph(nodes, tuple(self._captured))
            self._captured.clear()

        def heard_replay(graph: Any) -> None:
            began = time_ns()
            replay(graph)
            if self.on:
                self.replays.append(Heard(id(graph), began, time_ns()))
            self._tick()

        def undo() -> None:
            kind.capture_end, kind.replay = end, replay

        kind.capture_end, kind.replay = capture_end, heard_replay
        return undo
