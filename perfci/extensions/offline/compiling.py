"""Kernels compiled for a target on a machine without it: the op's wrapper runs, launches compile and do nothing.

Triton's cache in memory does not distinguish targets and torch is patched for good, so a process serves one target.
"""

import contextlib
import inspect
import itertools
import os
import re
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from triton.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from perfci.core.errors import DeviceError, PerfciError
from perfci.core.model import Reason, because
from perfci.device.capture import Captured, note_choice, note_unknown, watch_calls
from perfci.device.source import digest, function_text, plain_function, stable
from perfci.extensions.common import binaries
from perfci.extensions.common.launches import bind_launch
from perfci.extensions.common.targets import LINE_FREE, Target
from perfci.extensions.offline import claims
from perfci.extensions.offline.backends import find_compiler
from perfci.extensions.offline.driver import VirtualDriver
from perfci.extensions.offline.pretender import outside, pretend

DEVICE = "cuda"  # what `make_inputs` gets as its device, whatever the target
_MUTE = re.compile("PassManager|error encountered during parsing")  # messages of Triton's compiler without the reason
# Messages about a program that this Triton needs and does not bring, or brings too old: no fault of the kernel.
_TOOL = re.compile(r"(?:linker|ptxas|ld\.lld)\b.*not found|[Cc]annot find (?:ptxas|ld\.lld)|for option 'gpu-name'")


LEAST_TILE = 16  # side of a tile that is tried smaller
LOOK_S = 40  # in which a tile that fits is looked for, from the first kernel that does not


@dataclass
class _Process:
    """The device that this process stands for."""

    target: Target | None = None
    driver: VirtualDriver | None = None  # what kernels of other compilers than Triton are given to
    failed: Any = None  # the jitted function that raised last when it was compiled
    trying: bool = False  # launches bind their arguments and work out their grids, but compile nothing
    message: str | None = None  # what the compiler wrote about it, if its exception has no reason
    refusal: Reason | None = None  # why the target's compiler refused it, if it says that itself
    alive: Callable[[], object] = lambda: None


_process = _Process()


def install(target: Target) -> None:
    """Have this process see the target's board, for the rest of its life. Raises RuntimeError for a second target."""
    if _process.target is not None:
        if _process.target is target:
            return
        raise RuntimeError(f"this process compiles for {_process.target.name}, not for {target.name}")
    _process.target = target
    pretend(target)
    Autotuner.run = choose
    JITFunction.run = _watch_runs(JITFunction.run)
    ignore = lambda *_: None  # noqa: E731 - what load_binary gives in place of registers and spills
    CompiledKernel.n_regs = property(lambda kernel: _usage(kernel, "registers"), ignore)
    CompiledKernel.n_spills = property(lambda kernel: _usage(kernel, "local_bytes") // 4, ignore)
    target.prepare_compiler()
    if target.backend == "cuda" and not torch.version.cuda:
        with contextlib.suppress(AttributeError, RuntimeError):  # the release that Triton's assembler belongs to
            torch.version.cuda = str(triton.knobs.nvidia.ptxas.version)


@dataclass(frozen=True)
class CallOutcome:
    """The outcome of a call."""

    capture: Captured
    value: Any = None  # what it returned
    failure: Reason | None = None  # a kernel does not compile for the target
    raised: BaseException | None = None  # what else went wrong. The call could not be captured


def tell_alive(told: Callable[[], object]) -> None:
    """Have this called before each launch of a kernel, which may compile it: a case may have many, each for a while."""
    _process.alive = told


def add_compiler(backend: str) -> None:
    """Have what another compiler than Triton makes be seen too. Before files of an op are imported."""
    target, compiler = _process.target, find_compiler(backend)
    if target and compiler:
        _process.driver = _process.driver or VirtualDriver(target)
        compiler.prepare(target, _process.driver)


def compile_call(call: Callable[[], Any]) -> CallOutcome:
    """Capture a call. Its kernels are compiled for the target."""
    with watch_calls(around=outside, driver=_process.driver) as capture:
        target = _process.target
        if target and (why := target.explain_no_compiler()):
            capture.unknown(why)
            return CallOutcome(capture)
        try:
            return CallOutcome(capture, call())
        except Exception as error:
            # It may come out of Triton's compiler, or out of loading what that made.
            files = (Path(frame.f_code.co_filename).parts[-3:] for frame, _ in traceback.walk_tb(error.__traceback__))
            if isinstance(error, _UnseenError) or ("triton", "compiler", "compiler.py") not in files:
                return CallOutcome(capture, raised=error)
            refused = _find_refusal(error)
            if isinstance(refused, DeviceError):  # the compiler could not be run to its end
                capture.unknown(refused.reason)
                return CallOutcome(capture)
            if not refused and _TOOL.search(str(error)):
                name = target.name if target else None
                facts = {"triton": triton.__version__, "target": name, "message": _find_cause(error)}
                capture.unknown(Reason("captured_no_tool", facts))
                return CallOutcome(capture)
            return CallOutcome(capture, failure=_compile_failure(error))


def claim_kernels(folder: Path, kept: str) -> None:
    """Compile together with other processes, which claim in the folder what each of them compiles.

    kept: `Compiler.KEPT` of another compiler than Triton.
    """
    compile_kernel = triton.compiler.compile
    claims.share(folder)

    def claim(src: Any, *args: Any, **kwargs: Any) -> Any:
        return None if claims.is_left(f"{src.hash()} {kwargs}") else compile_kernel(src, *args, **kwargs)

    triton.compiler.compile = claim
    if kept:
        with contextlib.suppress(ImportError, AttributeError):  # of another release: some kernels compile twice
            claims.watch(kept)


def build_launchers(kernels: Iterable[Any]) -> None:
    """Build the C code by which Triton launches such kernels into its cache, unless it is there.

    Each process would else do so at its first launches, for which the compiler takes 0.3 s.
    """
    from triton.backends.nvidia import driver

    with contextlib.suppress(Exception):  # no compiler, or no driver: the op's process meets it
        driver.CudaUtils()
        for kernel in (kernel for kernel in kernels if hasattr(kernel, "src")):  # those of Triton
            driver.CudaLauncher(kernel.src, kernel.metadata)


class _UnseenError(AttributeError):
    """A figure of a compiled kernel that no tool gives here. Older Tritons ask for it from within their compiler."""


def _usage(kernel: Any, field: str) -> int:
    used = binaries.usage(kernel)
    if used is None:
        note_unknown("captured_offline", "registers of a compiled kernel without cuobjdump")
        raise _UnseenError(field)
    return int(getattr(used, field))


# --- what does not compile --------------------------------------------------------------------------------------------


def _watch_runs(run: Callable[..., Any]) -> Callable[..., Any]:
    """JITFunction.run that remembers what did not compile. While a tuner asks, it returns what it would launch."""

    def running(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if _process.trying:
            return _describe_launch(self, args, kwargs, grid)
        _process.alive()
        try:
            return run(self, *args, grid=grid, warmup=warmup, **kwargs)
        except Exception as error:
            _process.failed, _process.message, _process.refusal = self, None, None
            if isinstance(refused := _find_refusal(error), PerfciError) and not isinstance(refused, DeviceError):
                _process.refusal = _explain_refusal(refused, run, self, args, kwargs | {"grid": grid, "warmup": warmup})
            elif _MUTE.search(str(error)):
                _process.message = _diagnosis(run, self, args, kwargs | {"grid": grid, "warmup": warmup})
            raise

    return running


def _compile_failure(error: Exception) -> Reason:
    function = plain_function(_process.failed)
    line = getattr(getattr(error, "node", None), "lineno", 1)  # counted from the line of `def`
    facts: dict[str, str | int | None] = {
        "kernel": function.__name__ if function else None,
        "target": _process.target.name if _process.target else None,
        "message": (_process.message or _find_cause(error))[:300],
        "file": Path(function.__code__.co_filename).name if function else None,
        "line": None,
    }
    if function:
        lines, first = inspect.getsourcelines(function)
        below = next((number for number, text in enumerate(lines) if text.lstrip().startswith("def ")), 0)
        facts["line"] = first + below + line - 1
    if why := _process.refusal:
        return Reason(why.kind, facts | {name: fact for name, fact in why.facts.items() if fact is not None})
    return Reason("compile_failed", facts)


def _find_refusal(error: BaseException | None) -> PerfciError | None:
    """The error of a target's compiler behind what Triton raises."""
    while error is not None and not isinstance(error, PerfciError):
        error = error.__cause__ or error.__context__
    return error


def _explain_refusal(refused: PerfciError, run: Callable[..., Any], function: Any, args: Any, kwargs: Any) -> Reason:
    """Why a target's compiler refuses a kernel, with the line in its source, and the tile with which it would fit."""
    ends = time.monotonic() + LOOK_S
    with _with_lines():
        lined = _find_refusal(_try_run(run, function, args, kwargs))
    reason = lined.reason if lined and lined.reason.kind == refused.reason.kind else refused.reason
    if "required" not in reason.facts:  # it is not too large
        return reason
    given = bind_launch(function.signature, args, kwargs, (1,))[0]
    names = [parameter.name for parameter in function.params if parameter.is_constexpr]
    sizes = {name: given[name] for name in names if type(given[name]) is int and given[name] >= LEAST_TILE}
    sizes = {name: size for name, size in sizes.items() if size & (size - 1) == 0}  # as all sides of tiles are
    # One after the other halved, then quartered: a tile that is cut less comes first.
    for part, (name, size) in itertools.product((2, 4, 8), sizes.items()):
        smaller = given | {name: size // part}
        if time.monotonic() > ends:
            break
        if _try_run(run, function, (), smaller | _options(function, kwargs)) is None:
            fits = Reason("tile_fits", {"tile": name, "size": size, "fits": size // part})
            return because(reason.kind, fits, **reason.facts)
    return because(reason.kind, Reason("no_tile_fits"), **reason.facts)


def _options(function: Any, kwargs: Any) -> dict[str, Any]:
    """Of a launch's keywords those that are no parameters of the kernel: its grid and options of the compiler."""
    return {name: value for name, value in kwargs.items() if name not in function.signature.parameters}


def _try_run(run: Callable[..., Any], function: Any, args: Any, kwargs: Any) -> Exception | None:
    """Returns what a launch raises. Its kernel is compiled and not kept."""
    _process.alive()
    try:
        run(function, *args, **kwargs)
    except Exception as error:
        return error
    return None


@contextlib.contextmanager
def _with_lines() -> Iterator[None]:
    """Has Triton tell its compiler the lines of the source."""
    os.environ |= dict.fromkeys(LINE_FREE, "0")
    try:
        yield
    finally:
        os.environ |= LINE_FREE


def _find_cause(error: BaseException) -> str:
    """The first line with the reason: of the cause, of ptxas' complaint, or of the exception."""
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    text = getattr(error, "error_message", None) or str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # ptxas names the temporary file first, which differs from time to time.
    clear = [match[1] for line in lines if (match := re.search(r"\b(?:error|fatal)\s*:\s*(.+)", line))]
    return (clear or lines or [type(error).__name__])[0]


def _diagnosis(run: Callable[..., Any], function: Any, args: Any, kwargs: Any) -> str | None:
    """The first error that the compiler writes to standard error when it compiles once more. None if it writes none."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            with contextlib.suppress(Exception):
                run(function, *args, **kwargs)
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        file.seek(0)
        lines = file.read().decode(errors="replace").splitlines()
    return next((line.split("error:", 1)[1].strip() for line in lines if "error:" in line), None)


# --- autotuners -------------------------------------------------------------------------------------------------------


def choose(self: Any, *args: Any, **kwargs: Any) -> Any:
    """In an autotuner's place: note source and every candidate's launch, and launch the first that compiles."""
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
    if len(self.configs) > 1:
        name = self.base_fn.__name__
        # The kernel's source, all that it calls, and the heuristics between it and the tuner.
        texts, inner = [function_text(self.base_fn)], self.fn
        while not isinstance(inner, JITFunction) and hasattr(inner, "fn"):
            texts.append(stable(getattr(inner, "values", None)))
            inner = inner.fn
        note_choice(f"{name}: source {digest(chr(10).join(texts))}")
        for config in configs:
            _process.trying = True
            try:
                launch = self.fn.run(*args, **kwargs, **config.all_kwargs())
            finally:
                _process.trying = False
            note_choice(f"{name}: perhaps {config}, {launch}")
    try:
        return _first_that_compiles(self, configs, args, kwargs)
    finally:
        self.nargs = None


def _first_that_compiles(tuner: Any, configs: Any, args: Any, kwargs: Any) -> Any:
    error: Exception | None = None
    for config in configs:
        tuner.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
        try:
            return tuner.fn.run(*args, **kwargs, **config.all_kwargs())
        except Exception as failure:
            # Triton's autotuner goes on to the next candidate after these.
            named = type(failure).__name__ in {"CompileTimeAssertionFailure", "PTXASError", "MLIRCompilationError"}
            if not named and not isinstance(failure, OutOfResources):
                raise
            error = failure
    assert error is not None  # an autotuner has at least one config
    raise error


def _describe_launch(function: Any, args: Any, kwargs: Any, grid: Any) -> str:
    """The launch that a call would make: its grid and whatever is no tensor."""
    given, sides = bind_launch(function.signature, args, kwargs, grid)
    plain = {name: value for name, value in given.items() if not hasattr(value, "data_ptr")}
    return f"grid {sides}, {stable(plain, lambda value: 'tensor' if hasattr(value, 'data_ptr') else None)}"
