"""What a call does on a device, noted while it runs: torch operations, launches, synchronisations, tuners' choices."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from triton.runtime.autotuner import Autotuner

from perfci.core.model import Reason
from perfci.device.launches import watched_launches
from perfci.device.noted import Captured, listening, note_unknown
from perfci.device.source import inputs_digest, is_installed
from perfci.device.tensors import operator_namespaces

__all__ = ["Captured", "Mode", "captured", "inputs_digest"]

BUILT_IN = operator_namespaces() | {"higher_order"}
"""Namespaces of torch's own operators: this module is imported before any op's files."""

SYNCHRONISING = (
    (torch._C, "_cuda_synchronize"),
    (torch._C, "_cuda_setStream"),
    (torch._C, "_accelerator_synchronizeDevice"),
    (torch._C, "_accelerator_setStream"),
    (torch.cuda.Stream, "synchronize"),
    (torch.cuda.Stream, "wait_event"),
    (torch.cuda.Stream, "wait_stream"),
    (torch.cuda.Stream, "record_event"),
    (torch.cuda.Event, "synchronize"),
    (torch.cuda.Event, "record"),
    (torch.cuda.Event, "wait"),
)
"""Functions that order work on the device or wait for it, and are no torch operations."""

NPU_SYNCHRONISING = (
    ("torch_npu._C", None, ("_npu_synchronize", "_npu_setStream")),
    ("torch_npu.npu.streams", "Stream", ("synchronize", "wait_event", "wait_stream", "record_event")),
    ("torch_npu.npu.streams", "Event", ("synchronize", "record", "wait")),
)
"""The same of torch_npu, where it is loaded: module, class and names."""

OPAQUE = (
    ("torch.cuda", "CUDAGraph", "replay", "a CUDA graph"),
    ("torch_npu.npu.graphs", "NPUGraph", "replay", "an NPU graph"),
    ("torch._inductor.runtime.triton_heuristics", "CachingAutotuner", "run", "torch.compile"),
)
"""Ways to launch device code that cannot be told apart: module, class, method, and what users call it."""

LAUNCHERS = ("cupy", "cutlass", "numba.cuda", "pycuda", "tilelang")
"""Packages that launch kernels of their own, which are not seen at all."""

_LOADED = frozenset(sys.modules)


@contextmanager
def captured(around: Callable[[], AbstractContextManager[Any]] = nullcontext) -> Iterator[Captured]:
    """Note what the calls inside do on the device; not while timing.

    `around` is entered around the bodies of Python operators, which run outside every mode.
    """
    capture = Captured()
    with ExitStack() as stack:
        stack.enter_context(watched_launches(capture.launch))
        stack.enter_context(_watched_tuners(capture))
        stack.enter_context(_watched_functions(capture))
        stack.enter_context(_Operations(capture, around))
        stack.enter_context(listening(capture))
        yield capture
        if package := _launcher():
            capture.unknown(Reason("captured_package", {"package": package}))


def _launcher() -> str | None:
    """A package, or a compiled module of the project's own, that the op has imported and that may launch anything."""
    fresh = sys.modules.keys() - _LOADED
    files = {name: getattr(sys.modules[name], "__file__", None) or "" for name in fresh}
    own = [name for name, file in files.items() if file.endswith(".so") and not _is_torchs(name, Path(file))]
    return min([*own, *(name for name in LAUNCHERS if name in sys.modules)], default=None)


def _is_torchs(name: str, path: Path) -> bool:
    """Whether a compiled module is installed, or one that Triton or torch compiles for itself while it works."""
    folders = [os.environ.get(variable) for variable in ("TRITON_CACHE_DIR", "TRITON_HOME", "TORCHINDUCTOR_CACHE_DIR")]
    caches = [Path.home() / ".triton", *(Path(folder) for folder in folders if folder)]
    made = name.startswith("__triton") or name in {"cuda_utils", "hip_utils", "npu_utils"}
    return made or is_installed(str(path)) or any(path.is_relative_to(folder) for folder in caches)


class Mode(TorchDispatchMode):
    """A dispatch mode that stands for itself: torch hides others from torch._dynamo, whose import takes a second."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


class _Operations(Mode):
    """Notes every operation; looks into operators that are written in Python."""

    def __init__(self, capture: Captured, around: Callable[[], AbstractContextManager[Any]]) -> None:
        super().__init__()
        self._capture = capture
        self._around = around

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._capture.call(str(func), args, kwargs)
        if getattr(func, "namespace", "higher_order") in BUILT_IN:
            return func(*args, **kwargs)
        body = _body(func)
        if body is None:
            note_unknown("captured_opaque", f"the operator {func}")
            return func(*args, **kwargs)
        with self._around(), self:
            return body(*args, **kwargs)


def _body(operator: Any) -> Callable[..., Any] | None:
    """The Python function behind an operator of `torch.library.custom_op` or `triton_op`."""
    definitions = getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", {})
    definition = definitions.get(operator._schema.name)
    bodies = getattr(definition, "_backend_fns", None) or {}
    body: Callable[..., Any] | None = bodies.get("cuda", bodies.get("npu", bodies.get(None)))
    # torch's own wrapper imports torch._dynamo when it is first called, which may dispatch operations of its own.
    inner: Callable[..., Any] | None = getattr(body, "__wrapped__", None)
    return inner if getattr(inner, "__module__", None) == "torch._library.custom_ops" else body


@contextmanager
def _watched_tuners(capture: Captured) -> Iterator[None]:
    """Note what autotuners choose, and nothing of their trials."""
    run, bench = Autotuner.run, Autotuner._bench

    def running(self: Any, *args: Any, **kwargs: Any) -> Any:
        hook = self.pre_hook
        self.pre_hook = _in(capture.muted, hook)  # called for trials only
        try:
            result = run(self, *args, **kwargs)
        finally:
            self.pre_hook = hook
        if len(self.configs) > 1:
            capture.choice(f"{self.base_fn.__name__}: {self.best_config}")
        return result

    Autotuner.run, Autotuner._bench = running, _in(capture.muted, bench)
    try:
        yield
    finally:
        Autotuner.run, Autotuner._bench = run, bench


def _in(context: Callable[[], AbstractContextManager[Any]], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    return inside


@contextmanager
def _watched_functions(capture: Captured) -> Iterator[None]:
    """Note calls of what orders the device's work, and of what launches code that is not seen."""
    with ExitStack() as stack:
        for owner, name in (*SYNCHRONISING, *_of_npu()):
            label = f"{getattr(owner, '__qualname__', 'torch')}.{name.removeprefix('_')}()"
            stack.enter_context(_told(owner, name, functools.partial(capture.operation, label)))
        for module, class_name, name, what in OPAQUE:
            owner = getattr(sys.modules.get(module), class_name, None)
            tell = functools.partial(note_unknown, "captured_opaque", what)
            stack.enter_context(_told(owner, name, tell))
        stack.enter_context(_watched_compiler())
        yield


def _of_npu() -> Iterator[tuple[Any, str]]:
    for module, class_name, names in NPU_SYNCHRONISING:
        owner = sys.modules.get(module)
        owner = getattr(owner, class_name, None) if class_name else owner
        yield from ((owner, name) for name in names if owner is not None)


@contextmanager
def _watched_compiler() -> Iterator[None]:
    """Note functions that torch.compile made: under a dispatch mode torch calls the plain ones in their place."""
    frames = sys.modules.get("torch._dynamo.eval_frame")
    own = getattr(frames, "_maybe_set_eval_frame", None)
    if own is None:
        yield
        return

    def telling(callback: Any) -> Any:
        if callable(callback):
            note_unknown("captured_opaque", "torch.compile")
        return own(callback)

    setattr(frames, "_maybe_set_eval_frame", telling)  # noqa: B010 - the module is no module to the type checker
    try:
        yield
    finally:
        setattr(frames, "_maybe_set_eval_frame", own)  # noqa: B010


@contextmanager
def _told(owner: Any, name: str, tell: Callable[[], Any]) -> Iterator[None]:
    """Call `tell` before every call of a function, if there is such a function."""
    own = vars(owner).get(name) if owner is not None else None
    if own is None:
        yield
        return

    @functools.wraps(own)
    def telling(*args: Any, **kwargs: Any) -> Any:
        tell()
        return own(*args, **kwargs)

    setattr(owner, name, telling)
    try:
        yield
    finally:
        setattr(owner, name, own)
