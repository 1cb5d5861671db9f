"""Calls of ops heard while a program runs, and the case that each is, as the op's `make_inputs` takes it.

`case_of(**arguments)` beside `make_inputs`, if there is such a function, says so: it gets tensors without content on
torch's device meta. Else the suite's cases show which size of which tensor is which parameter.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import inspect
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from time import time_ns
from types import FunctionType
from typing import Any, NamedTuple

from perfci.extensions.workloads.attribution import Graph, Heard
from perfci.extensions.workloads.records import Call, write_params
from perfci.ops.spec import Performance

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


CASE_OF = "case_of"

_Place = tuple[str, str, int]  # parameter of the kernel, what of it (size, rest, dtype, value, given), which axis


class Fitter:
    """Finds the cases of an op's calls."""

    def __init__(self, suite: Performance, torch: Any) -> None:
        self._suite, self._torch = suite, torch
        self._usual, self._optional = _list_defaults(suite.kernel), _list_defaults(suite.make_inputs)

    def fit(self, call: Call, names: Mapping[str, Any]) -> Call:
        """Returns the call with its case, and with the bytes and operations that the suite declares for it.

        Raises whatever the functions of the op raise. The case stays unknown if no cases of the suite show it.
        """
        suite = self._suite
        case_of = getattr(inspect.getmodule(inspect.unwrap(suite.make_inputs)), CASE_OF, None)
        given = {name: self._make_meta(value) for name, value in names.items()} if case_of else {}
        params = case_of(**given) if case_of else self.infer(names)
        if params is None:
            return call
        moved, flops = (None if count is None else int(count(**params)) for count in (suite.bytes_moved, suite.flops))
        return replace(call, params=write_params(params), bytes_moved=moved, flops=flops)

    def infer(self, names: Mapping[str, Any]) -> dict[str, Any] | None:
        """Returns the parameters for which `make_inputs` makes arguments of these forms. None if none are found."""
        names, first_case = {**self._usual, **names}, self._suite.cases[0]
        told = dict(_list_places(names))
        for first in ("size", "rest"):  # of x with three axes, rows may be the last but one, or all but the last joined
            params = dict[str, Any]()
            for name, (usual, places) in self._places.items():
                values = (told.get(place) for place in sorted(places, key=lambda place: place[1] != first))
                params[name] = next((value for value in values if value is not None), None) if places else usual
            kept = {name: one for name, one in params.items() if name in first_case or one != self._optional[name]}
            with contextlib.suppress(Exception):
                if _is_alike(self._make(kept), names):
                    return kept
        return None

    @functools.cached_property
    def _places(self) -> dict[str, tuple[Any, list[_Place]]]:
        """Parameter -> its value in the first case, and the places of arguments that have it in all cases."""
        cases = [{**self._optional, **case} for case in self._suite.cases]
        told = [dict(_list_places(self._make(case))) for case in cases]
        return {
            name: (usual, [place for place in told[0] if all(
                type(value := places.get(place)) is type(case.get(name)) and value == case.get(name)
                for case, places in zip(cases, told, strict=True)
            )])
            for name, usual in {**self._suite.cases[0], **cases[0]}.items()
        }  # fmt: skip

    def _make(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Forms of the arguments of a case, defaults included. No memory is taken for them."""
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            made = self._suite.make_inputs(**params, device="cpu", seed=0)
        return self._usual | {
            name: TensorForm(tuple(value.shape), tuple(value.stride()), value.dtype)
            if isinstance(value, self._torch.Tensor)
            else value
            for name, value in made.items()
        }

    def _make_meta(self, form: Any) -> Any:
        if not isinstance(form, TensorForm):
            return form
        return self._torch.empty_strided(form.shape, form.strides, dtype=form.dtype, device="meta")


def _list_defaults(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {one.name: one.default for one in parameters if one.default is not one.empty}


def _list_places(made: Mapping[str, Any]) -> Iterator[tuple[_Place, Any]]:
    """Yields all that arguments tell: sizes from the front and the back, products of leading ones, dtypes, flags."""
    for name, form in made.items():
        yield (name, "given", 0), form is not None
        if isinstance(form, TensorForm):
            yield (name, "dtype", 0), form.dtype
            for axis in range(-len(form.shape), 0):
                yield (name, "size", axis), form.shape[axis]
                yield (name, "rest", axis), math.prod(form.shape[:axis])
        else:
            yield (name, "value", 0), form


def _is_alike(made: Mapping[str, Any], names: Mapping[str, Any]) -> bool:
    """Whether arguments have the forms of a call, but for leading axes that were joined."""
    for left, right in ((made.get(name), names.get(name)) for name in {*made, *names}):
        if isinstance(left, TensorForm) and isinstance(right, TensorForm):
            one, other = (
                (math.prod(form.shape), form.shape[-1:], form.strides[-1:], form.dtype) for form in (left, right)
            )
            if one != other:
                return False
        elif isinstance(left, TensorForm) or isinstance(right, TensorForm) or left != right:
            return False
    return True
