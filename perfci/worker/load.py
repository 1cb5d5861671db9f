"""Import an op's two suite files and check the contract. Runs in the worker only."""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from time import perf_counter
from types import MappingProxyType, ModuleType
from typing import Any, Self, TypeVar

from perfci.core import PACKAGE
from perfci.core.errors import ContractError, PerfciError
from perfci.core.model import Cache, Fact
from perfci.device.source import plain_function, source_text, stable
from perfci.ops.backends import BACKENDS, MARK, backend_of, find_backends, find_kernel, name_of
from perfci.ops.fingerprint.tree import IMPORT_ROOTS
from perfci.ops.spec import CACHES, Accuracy, Params, Performance, case_id, matches
from perfci.worker.contract import (
    check_earlier_names,
    check_names,
    check_peers,
    check_quantised,
    check_ranks,
    check_suite,
    check_tolerance,
    checking,
)

_Suite = TypeVar("_Suite", Accuracy, Performance)

INSTALLED = frozenset({"site-packages", "dist-packages"})  # folders of what is installed

_MESSAGE_LIMIT = 600
_ERROR = re.compile(r"error\b", re.IGNORECASE)
_HINTS = re.compile(r"\n(?=Search for `|CUDA kernel errors might|For debugging consider|Compile with `TORCH)")
"""Where torch's advice on errors of a device begins: to wait for each launch, which has been done."""

_LONGEST_DEFAULT = 60  # characters of a parameter's default


@dataclass(frozen=True)
class LoadedOp:
    """An op's declarations, imported."""

    accuracy: Accuracy
    performance: Performance
    function: Callable[..., Any] | None = None  # what users call: OP of the backend's file
    wrappers: Mapping[str, str] = field(default_factory=dict)
    """accuracy or performance, if its kernel is another function -> that function as a text"""
    import_s: float = 0.0  # what importing the kernel's file took, with all that it imported first

    def timed_suite(self, cache: Cache | None = None) -> Performance:
        """Returns the performance suite. What the accuracy suite allows holds for timed outputs too."""
        accurate, timed = self.accuracy, self.performance
        return dataclasses.replace(
            timed,
            reduces=timed.reduces or accurate.reduces,
            tolerance=timed.tolerance or accurate.tolerance,
            mutates=accurate.mutates if timed.mutates is None else timed.mutates,
            cache=cache or timed.cache,
        )

    def judged_by(self, base: LoadedOp) -> LoadedOp:
        """Returns this op's kernel in the base's suites. What it stores and its peers stay.

        The kernel is the function that users call, unless the base's suites wrap it.
        """
        accuracy, timed = self.accuracy, self.performance
        kernels: dict[str, dict[str, Any]] = {}
        for name, suite in (("accuracy", accuracy), ("performance", timed)):
            kernel = self.function if self.function and name not in base.wrappers else suite.kernel
            kernels[name] = {"kernel": kernel, "backend": suite.backend}
        return dataclasses.replace(
            self,
            accuracy=dataclasses.replace(base.accuracy, quantised=accuracy.quantised, **kernels["accuracy"]),
            performance=dataclasses.replace(base.performance, peers=timed.peers, **kernels["performance"]),
        )


def choose_cases(
    cases: Sequence[Params],
    pattern: str | None,
    names: Sequence[str] | None = None,
    now: Mapping[str, str] = MappingProxyType({}),
) -> list[Params]:
    """Returns the cases with these ids. Without ids, those that fit the --case pattern.

    now: of an id, another for it.
    """
    by_id = [(now.get(case_id(params), case_id(params)), params) for params in cases]
    return [params for case, params in by_id if (matches(case, pattern) if names is None else case in names)]


def load_op(op: str, folder: Path, shared: Path, *, peers: bool = False, elsewhere: bool = False) -> LoadedOp:
    """Import both suites, and the backend of a key, which they are to judge.

    peers: and the op's other backends, which become peers of its first one. elsewhere: the backend's file is not run,
    and its function cannot be called.
    Raises ContractError that names file and line for whatever the files do wrong.
    """
    name, kernel = name_of(op), find_kernel(op, folder)
    paths = {suite: folder / f"{name}_{suite}.py" for suite in ("accuracy", "performance")}
    with import_from(folder, shared), _Stopwatch(kernel, runs=not elsewhere) as stopwatch:
        accuracy = _give_kernel(import_suite(paths["accuracy"], "accuracy", Accuracy), op, kernel)
        performance = _give_kernel(import_suite(paths["performance"], "performance", Performance), op, kernel)
    if os.environ.get("TRITON_INTERPRET") != "1" and accuracy.accelerator_cases:
        accuracy = dataclasses.replace(accuracy, cases=(*accuracy.cases, *accuracy.accelerator_cases))
    function = _find_function(name, kernel)
    if elsewhere and function:
        vars(function)["__signature__"] = inspect.signature(accuracy.reference)  # as it was found where the file runs
    with checking(file := paths["accuracy"].name):
        check_suite(accuracy, file)
        check_names(accuracy)
        check_tolerance(accuracy)
        check_quantised(accuracy, file)
        check_ranks(accuracy, file)
    with checking(file := paths["performance"].name):
        check_suite(performance, file)
        check_tolerance(performance)
        if performance.cache not in CACHES:
            raise ContractError("cache_misfit", file=file, found=repr(performance.cache), known=" or ".join(CACHES))
        check_earlier_names(op, accuracy, performance, file)
        check_peers(performance, file)
    if peers and MARK not in op:
        with import_from(folder, shared):
            others = {f"{name}{MARK}{other}": _import_peer(name, other) for other in find_backends(name, folder)[1:]}
        performance = dataclasses.replace(performance, peers={**others, **performance.peers})
    suites = {"accuracy": accuracy, "performance": performance}
    wrappers = {
        name: _describe_wrapper(suite.kernel, kernel) for name, suite in suites.items() if suite.kernel is not function
    }
    return LoadedOp(accuracy, performance, function, wrappers, stopwatch.seconds)


class _Stopwatch:
    """Takes the time that a file's import takes. runs: False to put another function in place of what it holds."""

    def __init__(self, file: Path, *, runs: bool = True) -> None:
        self._file, self._runs, self.seconds = file, runs, 0.0

    def __enter__(self) -> Self:
        if "torch" in sys.modules:  # what users import anyway is none of the op's work
            with suppress(ImportError):
                importlib.import_module("triton")
        sys.meta_path.insert(0, self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.meta_path.remove(self)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """The file's module, timed. None for any other."""
        spec = PathFinder.find_spec(name, path) if name.rpartition(".")[2] == self._file.stem else None
        if spec is None or spec.origin != str(self._file):
            return None
        loader: Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            began = perf_counter()
            if not self._runs:
                return setattr(module, self._file.parent.name, _lacking(f"{self._file.name} is not run here"))
            try:
                with _interpreted(self._file):
                    execute(module)
            finally:
                self.seconds += perf_counter() - began

        loader.exec_module = exec_module
        return spec


@contextmanager
def _interpreted(file: Path) -> Iterator[None]:
    """Has Helion interpret what a kernel's file declares, where Triton would: it refuses to be asked for both."""
    own = backend_of(file) == "helion" and os.environ.get("TRITON_INTERPRET") == "1"
    os.environ.update({"TRITON_INTERPRET": "0", "HELION_INTERPRET": "1"} if own else {})
    try:
        yield
    finally:
        os.environ.update({"TRITON_INTERPRET": "1", "HELION_INTERPRET": "0"} if own else {})


def _find_function(op: str, file: Path) -> Callable[..., Any] | None:
    """Returns the function of a kernel's file that users of an op call. None if its suites did not import that."""
    modules = [module for module in sys.modules.copy().values() if getattr(module, "__file__", None) == str(file)]
    return next((getattr(module, op, None) for module in modules), None)


def _give_kernel(suite: _Suite, op: str, file: Path) -> _Suite:
    """Returns a suite that judges the backend of this key, in this file: it holds for every backend of its op.

    A kernel that is neither the reference nor a backend's function stays that of the first one. Raises ContractError.
    """
    name = name_of(op)
    suite = dataclasses.replace(suite, backend=backend_of(file))
    functions: list[Any] = [getattr(sys.modules.get(f"{name}_{backend}"), name, None) for backend in BACKENDS]
    if not any(suite.kernel is function for function in (suite.reference, *functions)):
        if MARK in op:
            raise ContractError("backend_wrapped", op=name, file=file.name, suite=type(suite).__name__)
        return suite
    try:
        function = getattr(importlib.import_module(file.stem), name, None)
    except (Exception, SystemExit) as error:
        raise ContractError("import_failed", suite=file.name, **describe_exception(error, file.parent)) from error
    if not callable(function):
        raise ContractError("backend_lacks_function", file=file.name, op=name)
    return dataclasses.replace(suite, kernel=function)


def _import_peer(op: str, backend: str) -> Callable[..., Any]:
    """Returns the function of an op's other backend, or one that raises for each case why there is none."""
    try:
        function: Callable[..., Any] = getattr(importlib.import_module(f"{op}_{backend}"), op)
    except (Exception, SystemExit) as error:
        return _lacking(f"{type(error).__name__}: {error}")
    else:
        return function


def _lacking(why: str) -> Callable[..., Any]:
    def lacking(**_: Any) -> Any:
        raise NotImplementedError(why)

    return lacking


def _describe_wrapper(function: Callable[..., Any], file: Path) -> str:
    """Returns a function's name and what it is bound to, and its text unless it stands in the kernel's file."""
    plain = plain_function(function)
    name = f"{getattr(plain, '__module__', '')}.{getattr(plain, '__qualname__', repr(function))}"
    bound = stable([getattr(function, "args", ()), getattr(function, "keywords", {})])
    is_wrapper = plain is not None and plain.__code__.co_filename != str(file)
    return "\n".join([name, bound, source_text(plain, plain.__code__) if is_wrapper and plain else ""])


def import_roots(folder: Path, shared: Path) -> list[str]:
    """Returns the folders that an op's imports are looked for in: its own, and each above up to that of all ops."""
    above = folder.parents if folder.is_relative_to(shared) else ()
    between = [parent for parent in above if parent != shared and parent.is_relative_to(shared)]
    return [str(folder), *map(str, between), str(shared)]


def project_roots(root: Path) -> list[str]:
    """Returns the folders of a project that its packages are imported from: the root and `src`."""
    return [os.path.normpath(root / name) for name in IMPORT_ROOTS if (root / name).is_dir()]


def suite_roots(path: Path) -> list[str]:
    """Returns the folders that imports of a suite are looked for in, or of a file in a folder that is no op's.

    Nothing for any other file.
    """
    from perfci.core import settings  # which workers do not need

    folder = path.parent
    try:
        where = settings.load(folder)
    except PerfciError:  # without a project or with damaged settings: `perfci.main` reports it
        return []
    is_suite = path.stem.rpartition("_")[0] == folder.name
    if not folder.is_relative_to(where.kernels) or not (is_suite or folder.name.startswith("_")):
        return []
    return [*import_roots(folder, where.kernels), *project_roots(where.root)]


def describe_exception(error: BaseException, folder: Path) -> dict[str, Fact]:
    """Returns type, message, and the last line of the op's and the project's files that the exception passed through.

    A worker works in the project's folder.
    """
    if described := getattr(error, "described", None):  # it was raised in another process
        return dict(described)
    frames = traceback.extract_tb(error.__traceback__)
    places = [_name_own(Path(frame.filename), folder) for frame in frames]
    at = next((at for at in reversed(range(len(frames))) if places[at]), len(frames) - 1)
    said = _HINTS.split(str(error), maxsplit=1)[0].replace(f"{Path.cwd()}{os.sep}", "")
    if len(said) > _MESSAGE_LIMIT:  # a compiler may show all of a program before what is wrong with it
        said = "\n".join(line for line in said.splitlines() if _ERROR.search(line)) or said
    return {
        "error": type(error).__name__,
        "message": " ".join(said.split())[:_MESSAGE_LIMIT] or "no message",
        "file": (places[at] or Path(frames[at].filename).name) if frames else None,
        "line": frames[at].lineno if frames else None,
        **({"missing_module": error.name} if isinstance(error, ModuleNotFoundError) else {}),
    }


def _name_own(file: Path, folder: Path) -> str:
    """The name of a file of the op, the path of one of the project. Empty for any other, such as an installed one."""
    if file.is_relative_to(folder):
        return file.name
    here = Path.cwd()
    foreign = INSTALLED.intersection(file.parts) or file.is_relative_to(PACKAGE) or not file.is_relative_to(here)
    return "" if foreign else file.relative_to(here).as_posix()


def list_signature(function: Any) -> tuple[str, ...]:
    """Returns a function's parameters in order, as they are written, and what it returns.

    Such as `x: Tensor`, `/`, `*`, `factor=2`, `**options`, `-> Tensor`.
    """
    signature = inspect.signature(function)
    parameters, parts = list(signature.parameters.values()), list[str]()
    kinds = [one.kind for one in parameters]
    for at, one in enumerate(parameters):
        if one.kind is one.KEYWORD_ONLY and not {one.KEYWORD_ONLY, one.VAR_POSITIONAL}.intersection(kinds[:at]):
            parts.append("*")
        default = "" if one.default is one.empty else f"={stable(one.default)[:_LONGEST_DEFAULT]}"
        parts.append(str(one.replace(annotation=_shorten(one.annotation), default=one.empty)) + default)
        if one.kind is one.POSITIONAL_ONLY and one.kind not in kinds[at + 1 :]:
            parts.append("/")
    returned = _shorten(signature.return_annotation)
    return (*parts, *([] if returned is inspect.Signature.empty else [f"-> {returned}"]))


class _Text(str):
    """An annotation that is shown as it is, without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _shorten(annotation: Any) -> Any:
    """Returns an annotation as a text, without the modules of its names. One that is missing stays so."""
    if annotation is inspect.Signature.empty:
        return annotation
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return _Text(re.sub(r"\b(?:\w+\.)+(?=\w)", "", text)[:_LONGEST_DEFAULT])


@contextmanager
def import_from(folder: Path, shared: Path) -> Iterator[None]:
    """Has imports look in an op's folders, as when a suite is run by its path."""
    before = list(sys.path)
    sys.path[:0] = import_roots(folder, shared)
    try:
        yield
    finally:
        sys.path[:] = before


def import_suite(path: Path, name: str, kind: type[Any]) -> Any:
    """Returns what a file binds to a name, imported as when it is run by its path. ContractError if it is no `kind`."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # noqa: PT018 - a path that ends in .py has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ContractError("import_failed", suite=path.name, **describe_exception(error, path.parent)) from error
    suite = getattr(module, name, None)
    if not isinstance(suite, kind):
        raise ContractError("suite_not_built", file=path.name, name=name, kind=kind.__name__)
    return suite
