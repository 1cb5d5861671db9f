"""The work of a call on a device, as it runs: torch operations, launches, synchronisations, tuners' choices."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import torch
from triton.runtime.autotuner import Autotuner

from perfci.core.model import Identity, LaunchIdentity, Reason
from perfci.device.launches import Launched, RawParameter, cover, is_covered, watch_launches
from perfci.device.replay import Storages, Tape
from perfci.device.source import artefact, is_installed, is_own, plain_function, stable
from perfci.device.tensors import Mode, TorchArrays, operator_namespaces
from perfci.ops.backends import UNHEARD
from perfci.ops.recording import Recording

BUILT_IN = operator_namespaces() | {"higher_order"}  # of torch itself: this module is imported before any op's files

_OF_STREAMS = ("synchronize", "wait_event", "wait_stream", "record_event")
_OF_EVENTS = ("synchronize", "record", "wait")
# Functions that order work on the device or wait for it, and are no torch operations.
SYNCHRONISING: tuple[tuple[Any, tuple[str, ...]], ...] = (
    (torch._C, ("_cuda_synchronize", "_cuda_setStream", "_accelerator_synchronizeDevice", "_accelerator_setStream")),
    (torch.cuda.Stream, _OF_STREAMS),
    (torch.cuda.Event, _OF_EVENTS),
)
NPU_SYNCHRONISING = (  # the same of torch_npu, if it is loaded: module, class and names
    ("torch_npu._C", None, ("_npu_synchronize", "_npu_setStream")),
    ("torch_npu.npu.streams", "Stream", _OF_STREAMS),
    ("torch_npu.npu.streams", "Event", _OF_EVENTS),
)

OPAQUE = (  # launch device code that cannot be distinguished: module, class, method, and what users call it
    ("torch.cuda", "CUDAGraph", "replay", "a CUDA graph"),
    ("torch_npu.npu.graphs", "NPUGraph", "replay", "an NPU graph"),
    ("torch._inductor.runtime.triton_heuristics", "CachingAutotuner", "run", "torch.compile"),
)
_LOADED = frozenset(sys.modules)

OPTIONS = {  # of launches beside warps and stages: Triton's name, and ours, which no parameter can have
    "shared": "shared memory",
    "num_ctas": "programs of a cluster",
    "cluster_dims": "cluster",
    "launch_cooperative_grid": "cooperative launch",
    "launch_pdl": "dependent launch",
    "tmem_size": "tensor memory",
}

_open: list[Captured] = []


class Captured:
    """The work so far, in words that stay the same as long as the device's work does."""

    def __init__(self) -> None:
        self.launched: list[Launched] = []
        self._operations: list[str] = []
        self._launches: list[LaunchIdentity] = []
        self._choices: list[str] = []
        self._sources: dict[str, None] = {}
        self.blind: Reason | None = None  # what could not be seen first, if anything
        self._storages = Storages()
        self._muted = 0
        self.repeats = False  # launches that only a driver shows: a recording has all that the call does
        self.tape: Tape | None = None

    @property
    def sources(self) -> tuple[str, ...]:
        return tuple(self._sources)

    @property
    def choices(self) -> tuple[str, ...]:
        return tuple(self._choices)

    def identity(self, inputs: str) -> Identity:
        """The call's identity. Unknown if something could not be captured, or if nothing was seen at all."""
        nothing = None if self._operations or self._launches else Reason("captured_nothing")
        return Identity(tuple(self._operations), tuple(self._launches), inputs, self.choices, self.blind or nothing)

    def operation(self, text: str) -> None:
        """Note what happens on the device beside launches."""
        if not self._muted:
            self._operations.append(text)

    def call(self, name: str, args: Any, kwargs: Mapping[str, Any]) -> None:
        if self._muted:
            return
        words = [self.text(value) for value in args]
        words += [f"{key}={self.text(value)}" for key, value in sorted(kwargs.items())]
        self.operation(f"{name}({', '.join(words)})")

    def take(self, function: Any, args: Any, kwargs: Mapping[str, Any], result: Any) -> None:
        """Record an operation, if the call is recorded."""
        if self.tape and not self._muted:
            self.tape.take_operation(function, args, kwargs, result)

    def order(self, text: str) -> None:
        """Note a call that orders the device's work, or waits for it."""
        self.operation(text)
        if self.tape:
            self.tape.refuse(text)

    def choice(self, text: str) -> None:
        """Note once what a tuner chose, or may choose."""
        if text not in self._choices:
            self._choices.append(text)

    def unknown(self, reason: Reason) -> None:
        """Note why the call cannot be captured. The first reason stands."""
        self.blind = self.blind or reason

    def launch(self, launch: Launched) -> None:
        if self._muted:
            return
        if self.tape:
            self.tape.take_launch(launch)
        if launch.kernel.asm:
            self.launched.append(replace(launch, arguments={}, work=None))  # which would keep tensors alive
        self._operations.append(f"launch {launch.name}")
        self._launches.append(self._identity(launch))
        self.repeats |= any(isinstance(value, RawParameter) for value in launch.arguments.values())
        if function := plain_function(launch.function):
            self._sources[function.__code__.co_filename] = None

    @contextmanager
    def mute(self) -> Iterator[None]:
        """Note nothing: a tuner tries its candidates inside."""
        self._muted += 1
        try:
            yield
        finally:
            self._muted -= 1

    def text(self, value: Any) -> str:
        return stable(value, self._special)

    def _special(self, value: Any) -> str | None:
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if isinstance(value, RawParameter):
            return value.text(self._tensor)
        if isinstance(value, torch.device):
            return "cuda" if value.type == "meta" else value.type  # offline the one stands for the other
        # Streams are drawn from a pool: their numbers differ from call to call.
        # A storage would print every byte.
        kinds = (("generator", torch.Generator), ("stream", torch.Stream), ("storage", torch.UntypedStorage))
        return next((name for name, kind in kinds if isinstance(value, kind)), None)

    def _tensor(self, tensor: torch.Tensor) -> str:
        """Which storage, in order of appearance. Dtype, shape, strides and, on the device, alignment."""
        host = tensor.device.type == "cpu"
        shape = f"{str(tensor.dtype).removeprefix('torch.')}[{','.join(map(str, tensor.shape))}]"
        try:
            number, address = self._storages.of(tensor.untyped_storage()), tensor.data_ptr()
        except (RuntimeError, NotImplementedError):  # sparse and nested tensors have no storage
            return f"{tensor.layout} {shape}"
        text = f"#{number} {shape}({','.join(map(str, tensor.stride()))})"
        # The largest power of two that divides the address, up to the 16 bytes that Triton distinguishes.
        return f"cpu {text}" if host else f"{text}@{min(address & -address, 16) or 16}"

    def _identity(self, launch: Launched) -> LaunchIdentity:
        metadata = launch.kernel.metadata
        options = {ours: getattr(metadata, name, None) for name, ours in OPTIONS.items()}
        return LaunchIdentity(
            kernel=launch.name,
            artefact=artefact(launch.kernel),
            grid=launch.grid,
            warps=getattr(metadata, "num_warps", None),
            stages=getattr(metadata, "num_stages", None),
            arguments={name: self.text(value) for name, value in launch.arguments.items()}
            | {name: stable(value) for name, value in options.items() if value and value not in (1, (1, 1, 1))},
        )


def note(text: str) -> None:
    """Note in every capture under way what happens on the device."""
    for capture in _open:
        capture.operation(text)


def note_choice(text: str) -> None:
    """Note in every capture under way what a tuner may choose."""
    for capture in _open:
        capture.choice(text)


def note_unknown(kind: str, what: str) -> Reason:
    """Note in every capture under way what it cannot see, and which line of the op did it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_own(frame.f_code.co_filename):
        frame = frame.f_back
    place = (Path(frame.f_code.co_filename).name, frame.f_lineno) if frame else (None, None)
    reason = Reason(kind, {"what": what, "file": place[0], "line": place[1]})
    for capture in _open:
        capture.unknown(reason)
    return reason


# --- watching ---------------------------------------------------------------------------------------------------------


@contextmanager
def watch_calls(
    around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    tape: Tape | None = None,
    driver: Any = None,
    unheard: Reason | None = None,
) -> Iterator[Captured]:
    """Note what the calls inside do. `around` is entered around the bodies of Python operators. `tape` records them.

    driver: of an extension, which reports all other work. unheard: why there may be such work that none reports.
    """
    capture = Captured()
    capture.tape, capture.blind = tape, unheard
    with ExitStack() as stack:
        stack.enter_context(watch_launches(capture.launch))
        stack.enter_context(_watch_tuners(capture))
        _watch_functions(stack, capture)
        stack.enter_context(_Operations(capture, around))
        _open.append(capture)
        stack.callback(_open.remove, capture)
        if driver:
            stack.enter_context(driver.listen(is_covered))
        yield capture
        if driver or capture.repeats:
            return
        # Packages, and compiled modules of the project, that may launch anything.
        loaded, caches = sys.modules.keys() - _LOADED, _find_caches()
        files = {name: getattr(sys.modules[name], "__file__", None) or "" for name in loaded}
        compiled = {name: file for name, file in files.items() if file.endswith(".so")}
        extensions = [name for name, file in compiled.items() if not _is_known(name, file, caches)]
        for package in sorted([*extensions, *loaded & UNHEARD])[:1]:
            capture.unknown(Reason("captured_package", {"package": package}))


def _find_caches() -> tuple[Path, ...]:
    """Folders of what Triton or torch compiles for itself while it works."""
    folders = [os.environ.get(variable) for variable in ("TRITON_CACHE_DIR", "TRITON_HOME", "TORCHINDUCTOR_CACHE_DIR")]
    return (Path.home() / ".triton", *(Path(folder) for folder in folders if folder))


@functools.cache
def _is_known(name: str, file: str, caches: tuple[Path, ...]) -> bool:
    """Whether a compiled module is installed, or lies in one of the caches."""
    made = name.startswith("__triton") or name in {"cuda_utils", "hip_utils", "npu_utils"}
    return made or is_installed(file) or any(Path(file).is_relative_to(folder) for folder in caches)


class _Operations(Mode):
    """Notes every operation. Looks into operators that are written in Python."""

    def __init__(self, capture: Captured, around: Callable[[], AbstractContextManager[Any]]) -> None:
        super().__init__()
        self._capture = capture
        self._around = around

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self._capture.call(str(func), args, kwargs)
        if getattr(func, "namespace", "higher_order") in BUILT_IN:
            with cover():
                result = func(*args, **kwargs)
            self._capture.take(func, args, kwargs, result)
            return result
        body = _body(func)
        if body is None:
            note_unknown("captured_opaque", f"the operator {func}")
            return func(*args, **kwargs)
        with self._around(), self:
            return body(*args, **kwargs)


class CoverOperations(Mode):
    """Whatever torch's operations inside give the device is theirs."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with cover() if getattr(func, "namespace", "higher_order") in BUILT_IN else nullcontext():
            return func(*args, **(kwargs or {}))


def _body(operator: Any) -> Callable[..., Any] | None:
    """The Python function behind an operator of `torch.library.custom_op` or `triton_op`."""
    definitions = getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", {})
    definition = definitions.get(operator._schema.name)
    bodies = getattr(definition, "_backend_fns", None) or {}
    body: Callable[..., Any] | None = bodies.get("cuda", bodies.get("npu", bodies.get(None)))
    # torch's wrapper imports torch._dynamo when it is first called, which may dispatch further operations.
    inner: Callable[..., Any] | None = getattr(body, "__wrapped__", None)
    return inner if getattr(inner, "__module__", None) == "torch._library.custom_ops" else body


@contextmanager
def _watch_tuners(capture: Captured) -> Iterator[None]:
    """Note what autotuners choose, and nothing of their trials."""
    run, bench = Autotuner.run, Autotuner._bench

    def running(self: Any, *args: Any, **kwargs: Any) -> Any:
        hook = self.pre_hook
        self.pre_hook = _in(capture.mute, hook)  # called for trials only
        try:
            result = run(self, *args, **kwargs)
        finally:
            self.pre_hook = hook
        if len(self.configs) > 1:
            capture.choice(f"{self.base_fn.__name__}: {self.best_config}")
        return result

    with mock.patch.multiple(Autotuner, run=running, _bench=_in(capture.mute, bench)):
        yield


def _in(context: Callable[[], AbstractContextManager[Any]], function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def inside(*args: Any, **kwargs: Any) -> Any:
        with context():
            return function(*args, **kwargs)

    return inside


def _watch_functions(stack: ExitStack, capture: Captured) -> None:
    """Note calls of what orders the device's work, and of what launches code that is not seen."""

    def watch(owner: Any, name: str, report: Callable[..., Any]) -> None:
        function = vars(owner).get(name) if owner is not None else None
        if function is None:
            return

        @functools.wraps(function)
        def reporting(*args: Any, **kwargs: Any) -> Any:
            report(*args)
            return function(*args, **kwargs)

        stack.callback(setattr, owner, name, function)
        setattr(owner, name, reporting)

    owners = list(SYNCHRONISING)
    for module, class_name, names in NPU_SYNCHRONISING:
        owner = sys.modules.get(module)
        owners.append((getattr(owner, class_name, None) if class_name else owner, names))
    for owner, name in ((owner, name) for owner, names in owners for name in names):
        label = f"{getattr(owner, '__qualname__', 'torch')}.{name.removeprefix('_')}()"
        watch(owner, name, lambda *_, label=label: capture.order(label))
    for module, class_name, name, what in OPAQUE:
        owner = getattr(sys.modules.get(module), class_name, None)
        watch(owner, name, lambda *_, what=what: note_unknown("captured_opaque", what))
    # Functions that torch.compile made: under a dispatch mode torch calls the plain ones in their place.
    frames, report = sys.modules.get("torch._dynamo.eval_frame"), functools.partial(note_unknown, "captured_opaque")
    watch(frames, "_maybe_set_eval_frame", lambda made: callable(made) and report("torch.compile"))


def record_call(
    function: Callable[..., Any], inputs: Mapping[str, Any], arrays: TorchArrays, driver: Any = None
) -> Recording | Reason:
    """Call a function once and return the recording, or why there is none. driver: as in `watch_calls`."""
    tape = Tape(inputs, arrays)
    with watch_calls(tape=tape, driver=driver) as captured:
        output = function(**inputs)
    recording = tape.finish(key_of(inputs), output)
    recording = recording and replace(recording, choices=captured.choices)
    return captured.blind or recording or tape.refusal or Reason("captured_nothing")


def noting(program: Callable[..., Any], choices: Sequence[str]) -> Callable[..., Any]:
    """A recorded call that captures know the tuners' choices of."""

    def call(**inputs: Any) -> Any:
        for text in choices:
            note_choice(text)
        return program(**inputs)

    return call if choices else program


def key_of(inputs: Mapping[str, Any]) -> str:
    """All that a call is given but the arrays' content. Two calls with one key do the same on the device."""
    return Captured().text(inputs)
