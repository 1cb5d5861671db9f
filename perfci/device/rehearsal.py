"""Torch and Triton for a rehearsal: tensors have no memory, values are not computed, launches are only noted."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import triton
import triton.testing
from torch.overrides import TorchFunctionMode
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from perfci.device.seam import Argument, SketchLaunch
from perfci.device.sketched import kernels
from perfci.device.virtual import VirtualGenerator

META = torch.device("meta")


class Absent(float):
    """Stands for what is not installed, or needs a device: a number, a function, a decorator, a context, a module."""

    path: str
    rehearsal: Rehearsal

    def __new__(cls, rehearsal: Rehearsal, path: str) -> Absent:
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

    def __exit__(self, *_: object) -> None:
        return None

    def __iter__(self) -> Iterator[Any]:
        return iter(())


def parametrize(names: Any, values: Any, **_: Any) -> Callable[[Any], Any]:
    """As pytest.mark.parametrize."""

    def mark(function: Any) -> Any:
        own = types.SimpleNamespace(name="parametrize", args=(names, values))
        function.pytestmark = [*getattr(function, "pytestmark", []), own]
        return function

    return mark


@dataclass
class Rehearsal(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """What is answered while it lasts, and what was launched."""

    device: str  # cuda or npu: where tensors claim to lie
    missing: Collection[str] = ()  # top-level packages that may be absent
    functions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of an absent harness: kernel, reference
    launches: list[SketchLaunch] = field(default_factory=list)

    @contextmanager
    def going(self) -> Iterator[None]:
        """Torch and Triton are replaced meanwhile, in this process."""
        with suppress(RuntimeError):  # torch_npu is installed, and has done so
            torch.utils.rename_privateuse1_backend("npu")
        cuda = torch.cuda
        with ExitStack() as stack:
            for owner, name, value in (
                (torch, "cuda", self.stand_in("torch.cuda")),
                (torch, "npu", self.stand_in("torch.npu")),
                (torch, "Generator", VirtualGenerator),
                (torch.testing, "assert_close", lambda *_, **__: None),
                (torch.Tensor, "npu", lambda tensor, *_, **__: tensor),
                (torch.Tensor, "is_npu", property(lambda _: self.device == "npu")),
                (torch.nn.Module, "npu", lambda module, *_, **__: module),
                (triton.testing, "do_bench", _do_bench),
                (triton.testing.Mark, "run", _run_mark),
                # The first configuration, in the place of a search.
                (Autotuner, "run", lambda tuner, *a, **b: tuner.fn.run(*a, **b | tuner.configs[0].all_kwargs())),
                (JITFunction, "run", lambda kernel, *args, **kwargs: self._launch(kernel, args, **kwargs)),
            ):
                stack.callback(setattr, owner, name, getattr(owner, name, None))
                setattr(owner, name, value)
            triton.runtime.driver.set_active(self.stand_in("triton.driver"))
            sys.meta_path.insert(0, self)
            stack.callback(sys.meta_path.remove, self)
            stack.enter_context(_Tensors(self.device, cuda))
            yield

    kernels = staticmethod(kernels)

    @staticmethod
    def argument(value: Any) -> Argument | None:
        """What a tensor looks like. None for anything else."""
        if not isinstance(value, torch.Tensor):
            return None
        with torch._C.DisableTorchFunction():
            dtype, origin = str(value.dtype).removeprefix("torch."), id(getattr(value, "_origin", value))
            text, numbers = getattr(value, "_made", (None, ()))
            return Argument(tuple(value.shape), dtype, text, numbers, origin)

    @staticmethod
    def tensor(shape: Sequence[int], dtype: str) -> Any:
        return torch.empty(list(shape), dtype=getattr(torch, dtype), device=META)

    @staticmethod
    def evaluate(text: str, params: Mapping[str, Any]) -> Any:
        """A shape or a value, as perfci itself wrote it into make_inputs."""
        return eval(text, {"torch": torch}, dict(params))

    @staticmethod
    def shape_of(value: Any) -> tuple[tuple[int, ...], ...] | None:
        """The shapes of a call's outputs. None if it returns something other than tensors."""
        outputs = value if isinstance(value, list | tuple) else [value]
        return tuple(tuple(each.shape) for each in outputs) if all(map(torch.is_tensor, outputs)) else None

    def stand_in(self, path: str) -> Any:
        """What stands for something by its dotted path."""
        name = path.rpartition(".")[2]
        known = self.functions.get("kernel" if "triton" in path else "reference", {})
        if name in known:
            return known[name]
        if name == "parametrize":
            return parametrize
        return self.device if name.lower() == "device" and not path.startswith("torch.") else Absent(self, path)

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        ours = name.split(".", maxsplit=1)[0] in self.missing
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if ours else None

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = Absent(self, spec.name).__getattr__  # type: ignore[method-assign]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass

    def _launch(self, kernel: Any, args: Sequence[Any], *, grid: Any, **kwargs: Any) -> None:
        parameters = kernel.signature.parameters.values()
        given = {each.name: each.default for each in parameters if each.default is not each.empty}
        given |= dict(zip(kernel.arg_names, args, strict=False)) | kwargs
        found = grid(given) if callable(grid) else grid
        sizes = tuple(int(each) for each in (found if isinstance(found, Sequence) else (found,)))
        constants = {each.name: given[each.name] for each in kernel.params if each.is_constexpr and each.name in given}
        self.launches.append(SketchLaunch(sizes, constants, kernel.src))


def _do_bench(function: Callable[[], Any], *_: Any, quantiles: Any = None, **__: Any) -> Any:
    function()
    return [1.0] * len(quantiles) if quantiles else 1.0


def _run_mark(mark: Any, *_: Any, **__: Any) -> None:
    """Call what `perf_report` decorates with every size and line."""
    for bench in mark.benchmarks if isinstance(mark.benchmarks, list | tuple) else [mark.benchmarks]:
        for value in bench.x_vals:
            sizes = value if isinstance(value, list | tuple) else [value] * len(bench.x_names)
            for line in bench.line_vals:
                mark.fn(**dict(zip(bench.x_names, sizes, strict=True)), **{bench.line_arg: line}, **bench.args)


# --- tensors ----------------------------------------------------------------------------------------------------------

_MADE = frozenset({"randn", "rand", "zeros", "ones", "empty", "randint", "full", "randn_like", "rand_like"})
_FACTORIES = _MADE | {
    "arange", "linspace", "tensor", "as_tensor", "eye", "randperm", "empty_strided", "normal", "logspace",
    "tril_indices", "zeros_like", "ones_like", "empty_like", "full_like", "randint_like",
}  # fmt: skip
_DRAWN = frozenset(
    {"randn", "rand", "randint", "randperm", "normal", "randn_like", "rand_like", "randint_like", "normal_", "uniform_",
     "random_", "bernoulli_", "exponential_"}
)  # fmt: skip
_VALUES: Mapping[str, Any] = {
    "item": 0.0, "tolist": [], "__bool__": False, "__float__": 0.0, "__int__": 0, "__index__": 0, "allclose": True,
    "equal": True, "numpy": np.zeros(()), "__array__": np.zeros(()),
}  # fmt: skip
_SIGNS = {"mul": "*", "__rmul__": "*", "add": "+", "__radd__": "+", "sub": "-", "div": "/", "true_divide": "/"}
_UNARY = frozenset({"abs", "exp", "sigmoid", "tanh", "square", "sqrt", "neg"})
_COPIES = frozenset(
    {"to", "contiguous", "clone", "detach", "float", "half", "bfloat16", "double", "type", "requires_grad_", "cuda",
     "npu", "cpu", "pin_memory"}
)  # fmt: skip
_VIEWS = frozenset({"t", "transpose", "permute", "swapaxes", "T", "mT"})


class _Tensors(TorchFunctionMode):
    """Every tensor is a meta tensor that claims to lie on the device, and knows the expression that made it."""

    def __init__(self, device: str, cuda: Any) -> None:
        super().__init__()
        self._device = device
        self._cuda = cuda

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {name: value for name, value in (kwargs or {}).items() if name != "generator"}
        name = getattr(func, "__name__", "")
        if name == "__get__":
            name = getattr(func.__self__, "__name__", "")
            if name in {"is_cuda", "is_cpu", "is_meta"}:
                return name == f"is_{self._device}"
            if name == "device":
                return torch.device(self._device, 0)
        if func is torch.device:
            return func(self._device, *args) if args and isinstance(args[0], int) else func(*args, **given)
        if name in _VALUES:
            return _VALUES[name]
        if name in {"cuda", "npu", "cpu", "pin_memory"}:
            return args[0]
        if name in _FACTORIES or "device" in given:
            given["device"] = META
        named = (torch.device, str) if name == "to" else torch.device
        args = [META if isinstance(value, named) else value for value in args]
        absent, torch.cuda = torch.cuda, self._cuda  # torch itself asks for it
        try:
            result = _drawn(name, args, given) if name in _DRAWN else func(*args, **given)
            if isinstance(result, torch.Tensor) and not result.is_meta:
                result = result.to(META)
        finally:
            torch.cuda = absent
        if isinstance(result, torch.Tensor):
            _note(name, result, args, given)
        return result


def _drawn(name: str, args: Sequence[Any], given: Mapping[str, Any]) -> Any:
    """A tensor of random numbers without any: torch would import torch._dynamo for them, which takes seconds."""
    if name.endswith("_"):
        return args[0]
    if name.endswith("_like"):
        return torch.empty_like(args[0], dtype=given.get("dtype"), device=META)
    lists = [each for each in (*args, given.get("size")) if isinstance(each, list | tuple)]
    size = lists[-1] if lists else [int(each) for each in args]
    whole = torch.int64 if name in {"randint", "randperm"} else None
    return torch.empty(size, dtype=given.get("dtype") or whole, device=META)


def _note(name: str, result: Any, args: Sequence[Any], given: Mapping[str, Any]) -> None:
    """Note how a tensor was made, as far as a line of Python can express it."""
    first = args[0] if args else None
    text, numbers = getattr(first, "_made", (None, ()))
    if name in _MADE:
        name, numbers = name.removesuffix("_like"), ()
        if name == "randint":
            bounds = [each for each in args if isinstance(each, int)]
            bounds = [given.get("low", 0), given.get("high", 1)] if not bounds else [0, *bounds][-2:]
            numbers = tuple(map(int, bounds))
        elif name == "full":
            numbers = (given.get("fill_value", args[-1]),)
        drawn = "generator=generator, " if name.startswith("rand") else ""
        places = {"randint": "{0}, {1}, {shape}", "full": "{shape}, {0}"}.get(name, "{shape}")
        result._made = (f"torch.{name}({places}, {drawn}dtype={{dtype}}, device=device)", numbers)
    elif text and name in _SIGNS and len(args) == 2 and isinstance(args[1], int | float):
        inner = text if text.endswith(")") else f"({text})"
        result._made = (f"{inner} {_SIGNS[name]} {{{len(numbers)}}}", (*numbers, args[1]))
    elif text and name in _UNARY and len(args) == 1:
        result._made = (f"{text if text.endswith(')') else f'({text})'}.{name}()", numbers)
    elif name in _COPIES | _VIEWS and isinstance(first, torch.Tensor):
        result._made = (text, numbers)
    if name in _COPIES and result is not first and isinstance(first, torch.Tensor):
        result._origin = getattr(first, "_origin", first)
