"""Calls functions of sketches (their files stay as they are), on any device.

`perfci new` copies this file to kernels/_sketched.py, so it imports nothing of perfci.
"""

import contextlib
import functools
import hashlib
import importlib.util
import inspect
import json
import shutil
import subprocess
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
import triton
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget
from triton.runtime import interpreter
from triton.runtime.autotuner import Autotuner
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction, KernelParam


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


@contextlib.contextmanager
def pretend(device: str) -> Iterator[None]:
    """A device of a kind, cuda or npu, as modules ask for one when they are imported. Where there is one, nothing."""
    name_npu(device)
    run, lacks = subprocess.run, device == "cuda" and shutil.which("nvidia-smi") is None

    def answer(command: Any, *args: Any, **options: Any) -> Any:
        asks = lacks and (command if isinstance(command, str) else " ".join(command)).startswith("nvidia-smi")
        return subprocess.CompletedProcess(command, 0, f"{_BOARD}\n", "") if asks else run(command, *args, **options)

    programs = mock.patch.object(subprocess, "run", answer)
    if torch.cuda.is_available() if device == "cuda" else hasattr(torch, "npu"):
        with programs:  # where a check compiles for a GPU that is not there, torch has one, and no program knows it
            yield
        return
    interpreter.InterpretedFunction, Autotuner._bench = Interpreted, bench_nothing
    absent = [name for name in ("torch_npu",) if device == "npu" and importlib.util.find_spec(name) is None]
    sys.modules.update(dict.fromkeys(absent, _NPU))
    try:
        with programs, answer_for(device), drive(device), PassingFor(device, torch.device("cpu")):
            yield
    finally:
        for name in absent:
            del sys.modules[name]


def leave_out(module: str) -> None:
    """Let the packages of a module be folders alone, as what they import is not there: a compiled part, or a device."""
    *above, _ = module.split(".")
    for count in range(1, len(above) + 1):
        name = ".".join(above[:count])
        if name not in sys.modules and (spec := importlib.util.find_spec(name)):
            sys.modules[name] = package = types.ModuleType(name)
            package.__path__ = list(spec.submodule_search_locations or ())
            package.__spec__ = spec
            if above[1:count]:
                setattr(sys.modules[name.rpartition(".")[0]], above[count - 1], package)


class Launched:
    """The result of a launch: the compiled kernel, which libraries such as FlagGems keep to launch it again."""

    def __init__(self, kernel: Any, args: Any, kwargs: Any) -> None:
        self._kernel, self._names = kernel, [parameter.name for parameter in kernel.params]
        self._given = dict(zip(self._names, args, strict=False))
        self._given |= {name: value for name, value in kwargs.items() if name in self._names}

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        """Returns what launches it with a grid: by all arguments in order, or by those that are no constants."""

        def launch(*args: Any, **kwargs: Any) -> Any:
            free = [parameter.name for parameter in self._kernel.params if not parameter.is_constexpr]
            names = self._names if len(args) > len(free) else free
            given = self._given | dict(zip(names, args, strict=False)) | kwargs
            return self._kernel.run(**given, grid=grid, warmup=False)

        return launch


class Interpreted(InterpretedFunction):
    """A kernel in Triton's interpreter that passes for a compiled one, with the parameters that libraries ask for."""

    __class__ = JITFunction

    def __init__(self, function: Any, **options: Any) -> None:
        super().__init__(function, **options)
        self.signature = inspect.signature(function)
        self.__globals__, self.__module__ = function.__globals__, function.__module__
        self.src = textwrap.dedent(inspect.getsource(function))
        self.cache_key = hashlib.sha256(self.src.encode()).hexdigest()
        plain, takes = {*(options.get("do_not_specialize") or ())}, self.signature.parameters.values()
        self.params = [
            KernelParam(number, take, bool(plain & {number, take.name}), False) for number, take in enumerate(takes)
        ]

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the programs one after the other."""
        super().run(*map(_unwrap, args), **{name: _unwrap(value) for name, value in kwargs.items()})
        return Launched(self, args, kwargs)


def bench_nothing(*_: Any, **__: Any) -> list[float]:
    """Returns the times of a configuration: all alike, as there is nothing to time."""
    return [1.0, 1.0, 1.0]


def _unwrap(value: Any) -> Any:
    """The rest of the tensor in a library's kind of tensor, from its address on."""
    base = getattr(value, "_base", None)
    if isinstance(value, torch.Tensor) or not isinstance(base, torch.Tensor) or not hasattr(value, "data_ptr"):
        return value
    start = (value.data_ptr() - base.data_ptr()) // base.element_size()
    extent = 1 + sum((size - 1) * stride for size, stride in zip(base.shape, base.stride(), strict=True))
    rest = extent - start if base.numel() else 0
    return base.as_strided((rest,), (1,), base.storage_offset() + start).view(value.dtype)


def wrap(function: Any, device: str, hidden: dict[str, Any] | None = None) -> Callable[..., Any]:
    """Returns the function such that tensors of every device pass for those of `device`, cuda or npu.

    `hidden` are the kernels of its module. One that has the function's name gets this name back in the module, as
    the function launches it by that.
    """
    name_npu(device)
    if hidden:
        vars(sys.modules[function.__module__])[function.__name__] = hidden[function.__name__]

    def call(*args: Any, **kwargs: Any) -> Any:
        lists = (arg if isinstance(arg, list | tuple) else [arg] for arg in (*args, *kwargs.values()))
        arrived = next((one.device for arg in lists for one in arg if isinstance(one, torch.Tensor)), None)
        if arrived is None and kwargs.get("device") is not None:  # of a tensor that it makes
            arrived = torch.device(kwargs["device"])
        if arrived is None or arrived.type == device:
            return function(*args, **kwargs)
        kwargs |= {"device": torch.device(device, 0)} if kwargs.get("device") is not None else {}
        driver = drive(device) if arrived.type == "cpu" else contextlib.nullcontext()
        with answer_for(device), driver, _run_eagerly(), PassingFor(device, arrived):
            return function(*args, **kwargs)

    return call


def _run_eagerly() -> contextlib.AbstractContextManager[Any]:
    """What a library compiled by torch.compile runs as it is written: there is no device to compile it for."""
    compiles = "torch._dynamo" in sys.modules and hasattr(torch.compiler, "set_stance")
    return torch.compiler.set_stance("force_eager") if compiles else contextlib.nullcontext()


def gradients(function: Any, place: int = 0, *, copies: bool = False) -> Callable[..., Any]:
    """Returns the function's backward pass: it takes its arguments, and returns the gradients of those that `of` names.

    `place`: of the output that `gradient` belongs to, if there are several. `copies`: the function writes into its
    arguments or the gradient, and gets copies of them.
    """

    @functools.wraps(function)
    def call(*args: Any, of: tuple[torch.Tensor, ...], gradient: torch.Tensor, **kwargs: Any) -> tuple[Any, ...]:
        leaves = {id(one): (one.clone() if copies else one).detach().requires_grad_() for one in of}
        named = {name: leaves.get(id(value), value) for name, value in kwargs.items()}
        outputs = function(*(leaves.get(id(value), value) for value in args), **named)
        output = outputs[place] if isinstance(outputs, list | tuple) else outputs
        return _differentiate(output, tuple(leaves.values()), gradient.to(output.dtype, copy=copies))

    return call


def _differentiate(output: Any, leaves: tuple[Any, ...], gradient: Any) -> tuple[Any, ...]:
    """As torch.autograd.grad, which takes a mode such as PassingFor off: a backward pass would not see the device."""
    run = getattr(torch.autograd.graph, "_engine_run_backward", None)
    if run is None or not torch._C._len_torch_function_stack():
        return torch.autograd.grad(output, leaves, gradient)
    return run((output,), (gradient,), False, False, leaves, allow_unreachable=False, accumulate_grad=False)


_BOARD = "NVIDIA H100 80GB HBM3"
_STREAM = types.SimpleNamespace(cuda_stream=0, synchronize=lambda: None, wait_stream=lambda _: None)
# As text: the search for faults tries sizes around the numbers in the code of a kernel.
_FACTS: dict[str, int] = json.loads(
    '{"major": 9, "minor": 0, "arch": 90, "warp_size": 32, "multi_processor_count": 4, "total_memory": 85899345920, '
    '"L2_cache_size": 52428800, "max_threads_per_multi_processor": 2048, "regs_per_multiprocessor": 65536, '
    '"shared_memory_per_block": 49152, "shared_memory_per_block_optin": 232448, '
    '"shared_memory_per_multiprocessor": 233472}'
)
_CAPABILITY = _FACTS["major"], _FACTS["minor"]
_PROPERTIES = types.SimpleNamespace(name=_BOARD, **_FACTS)


class _Chosen(contextlib.nullcontext[None]):
    """A device that is chosen for some lines."""

    idx = 0


ANSWERS: dict[str, Any] = {
    "is_available": lambda: True,
    "is_bf16_supported": lambda *_: True,
    "device_count": lambda: 1,
    "device": _Chosen,
    "device_of": _Chosen,
    "_DeviceGuard": _Chosen,
    "current_device": lambda: 0,
    "set_device": lambda _: None,
    "current_stream": lambda *_: _STREAM,
    "synchronize": lambda *_: None,
    "empty_cache": lambda: None,
    "get_device_name": lambda *_: _BOARD,
    "get_device_capability": lambda *_: _CAPABILITY,
    # A few programs, which walk more than one block each.
    "get_device_properties": lambda *_: _PROPERTIES,
}
"""What a GPU answers that wrappers launch by, and modules are imported by, where there is none."""


_NPU = mock.MagicMock()


@contextlib.contextmanager
def answer_for(device: str) -> Iterator[None]:
    """Torch answers for a device that is not there meanwhile, and a kernel that it would trace is launched."""
    npu = mock.patch.object(torch, "npu", _NPU, create=True)
    launched = mock.patch("torch._library.triton.is_wrap_triton_enabled", return_value=False, create=True)
    stream = mock.patch("torch._C._cuda_getCurrentRawStream", return_value=0, create=True)
    with launched, stream, mock.patch.multiple(torch.cuda, **ANSWERS) if device == "cuda" else npu:
        yield


@contextlib.contextmanager
def drive(device: str) -> Iterator[None]:
    """Triton has a driver for a device that is not there meanwhile."""
    with mock.patch.dict(vars(triton.runtime.driver)):
        triton.runtime.driver.set_active(make_driver(device))
        yield


def make_driver(device: str) -> Any:
    """Returns a driver of Triton for an H100 or an Ascend NPU, with what libraries ask of it."""
    chip = ("cuda", _FACTS["arch"], _FACTS["warp_size"]) if device == "cuda" else ("npu", "Ascend910B3", 0)
    target = GPUTarget(*chip)
    facts = {
        "multiprocessor_count": _FACTS["multi_processor_count"],
        "max_shared_mem": _FACTS["shared_memory_per_block_optin"],
        "max_num_regs": _FACTS["regs_per_multiprocessor"],
        "warpSize": _FACTS["warp_size"],
    }
    return types.SimpleNamespace(
        get_current_target=lambda: target,
        get_current_device=lambda: 0,
        set_current_device=lambda _: None,
        get_current_stream=lambda *_: 0,
        get_device_capability=lambda *_: _CAPABILITY,
        get_active_torch_device=lambda: torch.device(device, 0),
        get_device_interface=lambda: getattr(torch, device),
        get_empty_cache_for_benchmark=lambda: torch.empty(0),
        clear_cache=lambda _: None,
        get_benchmarker=lambda: lambda *_, **__: [1.0, 1.0, 1.0],
        utils=types.SimpleNamespace(get_device_properties=lambda *_: facts),
    )


def name_npu(device: str) -> None:
    """Let torch know devices of the name npu, which torch_npu does where there is one. For no other device."""
    if device != "npu":
        return
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
