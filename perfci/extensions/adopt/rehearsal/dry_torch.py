"""Torch and Triton for a rehearsal: tensors have no memory, values are not computed, launches are only noted."""

from __future__ import annotations

import functools
import importlib
import inspect
import itertools
import math
import sys
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch._library.triton
import torch.utils._device
import triton
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction

from perfci.extensions.adopt.rehearsal import sketched
from perfci.extensions.adopt.rehearsal.sizes import Trace
from perfci.extensions.adopt.rehearsal.sketched import ANSWERS, Launched, PassingFor, make_driver, name_npu
from perfci.extensions.common.launches import bind_launch
from perfci.extensions.offline.pretender import META, VirtualGenerator


@dataclass(frozen=True)
class SketchLaunch:
    """One launch of a Triton kernel that was not made."""

    grid: tuple[int, ...]
    constants: Mapping[str, Any]  # values of its constexpr parameters
    source: str
    searched: bool = False  # among several configurations, by timing each
    restored: tuple[str, ...] = ()  # arguments that the search gives their values back
    twins: Mapping[str, str] = field(default_factory=dict)  # argument -> an earlier one that is the same tensor
    units: frozenset[str] = frozenset()  # integers that are 1, as the stride of elements side by side
    thin: frozenset[str] = frozenset()  # pointers to integers of 32 bits
    inner: str = ""  # text of the functions that it calls

    @property
    def text(self) -> str:
        """The kernel's text, and that of the functions that it calls."""
        return f"{self.source}\n{self.inner}"


@dataclass(frozen=True)
class Argument:
    """A tensor that a function was called with."""

    shape: tuple[int, ...]
    dtype: str
    text: str | None  # the expression that made it, with {shape} and {dtype}. None if unknown
    marks: tuple[str, ...] = ()  # for each side {}, or a size that it always has
    bounds: tuple[int, int] | None = None  # the least of its integers, and what they lie below. None if unknown


class Absent(float):
    """Stands for what is not installed, or needs a device: a number, a function, a decorator, a context, a module."""

    path: str
    rehearsal: DryTorch

    def __new__(cls, rehearsal: DryTorch, path: str) -> Absent:
        made = super().__new__(cls, 1.0)
        made.path, made.rehearsal = path, rehearsal
        return made

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.rehearsal.stand_in(f"{self.path}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Give a function or a tensor back, as decorators and conversions do."""
        passed = args and (callable(args[0]) or isinstance(args[0], torch.Tensor)) and self.path[:6] != "torch."
        return args[0] if passed else self

    def __getitem__(self, key: Any) -> Any:
        return self

    def __index__(self) -> int:
        return 1

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class Makers:
    """torch as tests get it: dtypes and functions of tensors, and stand-ins for what reaches beyond, such as files."""

    def __init__(self, rehearsal: DryTorch) -> None:
        self._rehearsal = rehearsal

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(torch, name, None)
        harmless = isinstance(attribute, torch.dtype) or (
            callable(attribute) and name in dir(torch._C._VariableFunctions)
        )
        return attribute if harmless and name != "from_file" else self._rehearsal.stand_in(f"torch.{name}")


_ASKED = ("get_device_name", "get_device_capability", "get_device_properties", "current_stream")


@dataclass
class DryTorch:
    """Answers while it lasts, and launches."""

    device: str  # cuda or npu: where tensors claim to lie
    step: Callable[[str], None] = lambda _: None  # hears what is tried
    tuners: dict[Any, Any] = field(default_factory=dict)  # kernel -> what searches its configuration
    functions: dict[str, Any] = field(default_factory=dict)  # what is called in the place of functions of these names
    launches: list[SketchLaunch] = field(default_factory=list)
    now_s: float = 0.0  # that the calls by now usually take
    until: float = math.inf  # second by which no more forms are tried
    spent_s: float = 0.0  # on calls for real
    most_s: float = 3.0  # of the launches of such a call
    asks: bool = False  # a function asked for the device, whose answer a library may keep
    tries_empty: bool = True  # cases without elements are called for real too
    truth: bool = False  # the answer to every condition on values
    values: int = 0  # how often a value of a tensor was asked for, which has none
    trace: Trace | None = None  # of what is done with sizes, if that is asked for
    _real: list[tuple[Any, str, Any]] = field(default_factory=list)  # what is replaced, as it was
    _driver: dict[str, Any] = field(default_factory=dict)  # Triton's, as it was

    @property
    def is_late(self) -> bool:
        """Whether the time for the search of a form is over."""
        return self.now_s > self.until

    @contextmanager
    def going(self) -> Iterator[None]:
        """Torch and Triton are replaced meanwhile, in this process."""
        from unittest import mock  # takes long to import

        name_npu(self.device)
        with ExitStack() as stack:
            # torch imports its compiler for meta tensors, which takes longer than all the rest, and asks nothing of it.
            if "torch._dynamo" not in sys.modules:
                # What is imported meanwhile is forgotten with the stand-in, and this would be imported for each call.
                importlib.import_module("torch.fx.experimental.symbolic_shapes")
                stack.enter_context(mock.patch.dict(sys.modules, {"torch._dynamo": self.stand_in("dynamo")}))
            public = [name for name, value in vars(torch.cuda).items() if name[0] != "_" and callable(value)]
            noted = {name: self._note_asking(ANSWERS[name]) for name in _ASKED}
            answers = {name: self.stand_in(f"torch.cuda.{name}") for name in public} | ANSWERS | noted
            self._real += [(torch.cuda, name, getattr(torch.cuda, name)) for name in answers]
            stack.enter_context(mock.patch.multiple(torch.cuda, **answers))
            for owner, name, value in (
                *([(torch, "npu", self.stand_in("torch.npu"))] if self.device == "npu" else []),
                (torch, "compile", self.stand_in("compile")),
                (torch._library.triton, "is_wrap_triton_enabled", lambda: False),
                (torch, "Generator", VirtualGenerator),
                (torch, "equal", lambda *_: self.truth),  # a mode does not see it in a backward pass
                (torch.Tensor, "npu", lambda tensor, *_, **__: tensor),
                (Autotuner, "run", lambda tuner, *args, **kwargs: self._run_first(tuner, args, kwargs)),
                (Autotuner, "_bench", sketched.bench_nothing),
                (JITFunction, "run", lambda kernel, *args, **kwargs: self._launch(kernel, args, **kwargs)),
                (InterpretedFunction, "run", lambda kernel, *args, **kwargs: self._launch(kernel, args, **kwargs)),
            ):
                self._real.append((owner, name, vars(owner).get(name)))
                stack.enter_context(mock.patch.object(owner, name, value, create=True))
            self._driver = dict(vars(triton.runtime.driver))
            triton.runtime.driver.set_active(make_driver(self.device))
            stack.enter_context(META)
            stack.enter_context(_Tensors(self))
            yield

    @contextmanager
    def real(self) -> Iterator[None]:
        """Torch and Triton are as they were meanwhile, for calls in Triton's interpreter."""
        from unittest import mock

        modes = list[Any]()
        while torch._C._len_torch_function_stack():
            modes.append(torch.overrides._pop_mode())
        # By hand: some sixty patches of mock a call took a sixth of the time of a search.
        replaced = [(owner, name, vars(owner)[name]) for owner, name, value in self._real if value is not None]
        for owner, name, value in self._real:
            if value is not None:
                setattr(owner, name, value)
        try:
            with (
                mock.patch.object(torch.utils._device, "CURRENT_DEVICE", None),
                mock.patch.dict(vars(triton.runtime.driver), self._driver, clear=True),
            ):
                yield
        finally:
            for owner, name, value in replaced:
                setattr(owner, name, value)
            for mode in reversed(modes):
                torch.overrides._push_mode(mode)

    def _note_asking(self, answer: Callable[..., Any]) -> Callable[..., Any]:
        def give(*args: Any, **kwargs: Any) -> Any:
            self.asks = True
            return answer(*args, **kwargs)

        return give

    @staticmethod
    def argument(value: Any) -> Argument | None:
        """The form of a tensor. None for anything else."""
        if not isinstance(value, torch.Tensor):
            return None
        dtype = str(value.dtype).removeprefix("torch.")
        made = getattr(value, "_made", None)
        listed = (made or "").startswith("torch.tensor(")
        return Argument(tuple(value.shape), dtype, made, tuple(map(str, value.shape)) if listed else ())

    @staticmethod
    def evaluate(text: str, params: Mapping[str, Any], dtype: str = "float32") -> Any:
        """A line of make_inputs, as perfci itself wrote it."""
        given = {"torch": torch, "dtype": getattr(torch, dtype), "device": META, "generator": None}
        return eval(text, given, dict(params))

    @staticmethod
    def shape_of(value: Any) -> tuple[tuple[int, ...], ...] | None:
        """The shapes of the tensors that a call returns. None if it returns something, but no tensor."""
        outputs = value if isinstance(value, list | tuple) else [value]
        shapes = tuple(tuple(output.shape) for output in outputs if torch.is_tensor(output))
        return shapes if shapes or value is None else None

    def stand_in(self, path: str) -> Any:
        """A stand-in by its dotted path."""
        name = path.rpartition(".")[2]
        pretended = {"device": self.device, "DEVICE": self.device, "parametrize": self._parametrize, "Benchmark": dict}
        pretended |= {"perf_report": self._report, **self.functions}
        pretended["param"] = lambda *values, **_: values if len(values) > 1 else values[0]
        return (
            Absent(self, path)
            if name not in pretended or path.startswith(("torch.cuda", "torch.npu"))
            else pretended[name]
        )

    def _parametrize(self, names: str | Sequence[str], rows: Sequence[Any], **_: Any) -> Callable[[Any], Any]:
        """As pytest.mark.parametrize, but such that the test can be called without these arguments."""
        keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
        return self._repeat([dict(zip(keys, row if len(keys) > 1 else (row,), strict=True)) for row in rows])

    def _report(self, marks: Any) -> Callable[[Any], Any]:
        """As triton.testing.perf_report: a benchmark is called with every size and line."""
        cases = []
        for mark in marks if isinstance(marks, list | tuple) else [marks]:
            for sizes, line in itertools.product(mark["x_vals"], mark["line_vals"]):
                every = sizes if isinstance(sizes, list | tuple) else [sizes] * len(mark["x_names"])
                fixed = {mark["line_arg"]: line, **mark.get("args", {})}
                cases.append(dict(zip(mark["x_names"], every, strict=True)) | fixed)
        return self._repeat(cases)

    def _repeat(self, cases: Sequence[Mapping[str, Any]]) -> Callable[[Any], Any]:
        def decorate(test: Any) -> Any:
            def run(**given: Any) -> None:
                for case in cases:
                    test(**given, **case)

            run.__name__ = test.__name__
            return run

        return decorate

    def _launch(self, kernel: Any, args: Sequence[Any], *, grid: Any, **kwargs: Any) -> Launched | None:
        if len(self.launches) == _MOST_ROWS:
            raise RuntimeError(f"more than {_MOST_ROWS} launches of one call take too long")
        signature, constant, source = _read_kernel(kernel)
        given, sides = bind_launch(signature, args, kwargs, grid)
        constants = {name: given[name] for name in constant if name in given}
        tuner = self.tuners.get(kernel.fn)
        searched = tuner is not None and len(tuner.configs) > 1 and not getattr(tuner, "user_defined_pre_hook", False)
        names = (getattr(tuner, name, None) or () for name in ("restore_value", "reset_to_zero"))
        restored = tuple(name for listed in names for name in listed)
        tensors = {name: id(value) for name, value in given.items() if isinstance(value, torch.Tensor)}
        first = {number: name for name, number in reversed(tensors.items())}
        twins = {name: first[number] for name, number in tensors.items() if first[number] != name}
        units = frozenset(name for name, value in given.items() if type(value) is int and value == 1)
        thin = frozenset(name for name in tensors if given[name].dtype == torch.int32)
        self.launches.append(
            SketchLaunch(sides, constants, source, searched, restored, twins, units, thin, _read_inner(kernel))
        )
        return Launched(kernel, args, kwargs) if hasattr(kernel, "params") else None

    def _run_first(self, tuner: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The first configuration, in the place of a search."""
        tuner.best_config, kernel = tuner.configs[0], tuner.fn
        while not isinstance(kernel.fn, types.FunctionType):
            kernel = kernel.fn
        self.tuners[kernel.fn] = tuner
        return tuner.fn.run(*args, **{**kwargs, **tuner.best_config.all_kwargs()})


_kernels: dict[Any, tuple[inspect.Signature, list[str], str]] = {}


def _read_kernel(kernel: Any) -> tuple[inspect.Signature, list[str], str]:
    """A kernel's parameters, those of them that are constants, and its text."""
    if kernel.fn not in _kernels:
        signature = inspect.signature(kernel.fn)
        constant = [name for name, one in signature.parameters.items() if "constexpr" in str(one.annotation)]
        _kernels[kernel.fn] = signature, constant, textwrap.dedent(inspect.getsource(kernel.fn))
    return _kernels[kernel.fn]


@functools.cache
def _read_inner(kernel: Any) -> str:
    """The text of the functions that a kernel calls, and that those call."""
    texts, waiting = dict[Any, str](), [kernel.fn]
    while waiting:
        function = waiting.pop()
        called = (function.__globals__.get(name) for name in function.__code__.co_names)
        inner = [one.fn for one in called if isinstance(one, JITFunction | InterpretedFunction) and one.fn not in texts]
        texts |= {one: textwrap.dedent(inspect.getsource(one)) for one in inner}
        waiting += inner
    return "\n".join(texts.values())


# --- tensors ----------------------------------------------------------------------------------------------------------

_MADE: Mapping[str, str] = {
    "randn": "{{shape}}, generator=generator",
    "rand": "{{shape}}, generator=generator",
    "randint": "{low}, {high}, {{shape}}, generator=generator",
    "full": "{{shape}}, {value}",
    "zeros": "{{shape}}",
    "ones": "{{shape}}",
    "empty": "{{shape}}",
    "randperm": "*{{shape}}, generator=generator",
    "arange": "*{{shape}}",
    "linspace": "{start}, {end}, *{{shape}}",
}
"""function of torch -> its arguments but for dtype and device"""

_VALUES: Mapping[str, Any] = {
    "tolist": [], "__float__": 1.0, "__int__": 1, "__index__": 1, "allclose": True,
    "equal": True, "numpy": np.zeros(()), "__array__": np.zeros(()),
}  # fmt: skip
_MOST_CALLS = 4000  # of torch, in a call whose sizes are followed
_MULTIPLY = frozenset({"matmul", "__matmul__", "mm", "bmm"})  # matrices
_SCALARS = frozenset({"item", "__bool__", "__float__", "__int__", "__index__"})
_MOST_ROWS = 1 << 12  # that are gone through one by one, or for which kernels are launched
_SIGNS = {"mul": "*", "__rmul__": "*", "add": "+", "__radd__": "+", "sub": "-", "div": "/", "true_divide": "/"}
_COPIES = frozenset(
    {"to", "contiguous", "clone", "detach", "float", "half", "bfloat16", "double", "type", "requires_grad_"}
)
_CONVERSIONS = frozenset({"to", "int", "long", "short", "bool", "type", "float", "half", "bfloat16", "double"})


class _Tensors(PassingFor):
    """Every tensor is a meta tensor that claims to lie on the device, and knows the expression that made it."""

    def __init__(self, rehearsal: DryTorch) -> None:
        super().__init__(rehearsal.device, META, frozenset({"cuda", "npu", "cpu"}))
        self._rehearsal, self._functions = rehearsal, rehearsal.functions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        self._rehearsal.values += name in _VALUES or name in _SCALARS
        if name in _SCALARS and (count := args[0].numel()) > 1:  # as torch says of one with values
            raise RuntimeError(f"a Tensor with {count} elements cannot be converted to Scalar")
        if name in _VALUES:
            return _VALUES[name]
        if name in {"__iter__", "unbind"} and args[0].shape[:1] > (_MOST_ROWS,):
            raise RuntimeError(f"{args[0].shape[0]} rows one by one take too long")
        if name in {"item", "__bool__"}:
            return self._rehearsal.truth if name == "__bool__" else 1.0 if args[0].is_floating_point() else 1
        if name in {"cpu", "pin_memory"}:
            return args[0]
        if name in self._functions:
            return self._functions[name](*args, **(kwargs or {}))
        if name == "__get__":
            name = getattr(func.__self__, "__name__", "")
        given = {key: value for key, value in (kwargs or {}).items() if key != "generator"}
        if name in {"empty", "zeros", "ones"}:  # with sizes that depend on values
            args = [1 if isinstance(arg, torch.Tensor) else arg for arg in args]
        trace = self._rehearsal.trace
        try:
            result = super().__torch_function__(func, types, args, given)
        except Exception:
            if trace:
                tensors = _list_tensors([*args, *given.values()])
                trace.failed = tuple(getattr(one, "_origin", "") for one in tensors)
                trace.shapes, trace.is_product = [[*map(int, one.shape)] for one in tensors], name in _MULTIPLY
            raise
        if isinstance(result, torch.Tensor) and not (args and result is args[0]):
            result = result if result.is_meta else result.to(META)
            result._made = _describe(name, args, given, result)
        return self._note(trace, name, args, result) if trace else result

    @staticmethod
    def _note(trace: Trace, name: str, args: Sequence[Any], result: Any) -> Any:
        trace.calls += 1
        if trace.calls > _MOST_CALLS:
            raise RuntimeError("the call takes too many steps")
        trace.parts = len(result) if type(result) in (tuple, list) else 0
        if name == "chunk" and result[0].shape != result[-1].shape:
            pairs = zip(args[0].shape, result[0].shape, strict=True)
            trace.notes += [("%", int(whole), trace.parts) for whole, part in pairs if whole != part]
        if args and isinstance(args[0], torch.Tensor):
            if isinstance(result, torch.Tensor) and result is not args[0] and result.dim() == args[0].dim():
                result._origin = getattr(args[0], "_origin", "")
            return trace.see(name, args, result)
        return result


def _list_tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    every = itertools.chain(*(arg if isinstance(arg, list | tuple) else [arg] for arg in args))
    return [one for one in every if isinstance(one, torch.Tensor)]


def _describe(name: str, args: Sequence[Any], given: Mapping[str, Any], result: Any) -> str | None:
    """The expression that makes a tensor, with {shape} and {dtype}. None if no line of Python makes it."""
    maker = name.removesuffix("_like")
    if maker in _MADE:
        bounds = [int(arg) for arg in args if isinstance(arg, int)] or [given.get("low", 0), given.get("high", 1)]
        low, high = [0, 0, *bounds][-2:]
        start, end = [*args, 0, 0][:2]
        value = given.get("fill_value", args[-1] if args else 0)
        arguments = _MADE[maker].format(low=low, high=high, value=value, start=start, end=end)
        return f"torch.{maker}({arguments}, dtype={{dtype}}, device=device)"
    if name == "tensor":
        return f"torch.tensor({args[0]!r}, dtype={{dtype}}, device=device)"
    text: str | None = getattr(args[0], "_made", None) if args else None
    if text is None:
        return None
    inner = text if text.endswith(")") else f"({text})"
    if result.is_floating_point() != args[0].is_floating_point():  # its own dtype is then another's
        inner = inner.replace("{dtype}", str(args[0].dtype))
        return f"{inner}.to({{dtype}})" if name in _CONVERSIONS else f"{inner}.argsort()" if name == "argsort" else None
    if name in _COPIES or result._is_view():
        return text
    if len(args) == 1 and callable(getattr(torch.Tensor, name, None)) and result.shape == args[0].shape:
        return f"{inner}.{name}()"
    number = len(args) == 2 and isinstance(args[1], int | float)
    return f"{inner} {_SIGNS[name]} {args[1]}" if name in _SIGNS and number else None
