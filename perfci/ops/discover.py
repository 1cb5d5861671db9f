"""Which ops a project has, and whether each keeps the four-file contract. Files are read. Nothing is imported.

kernels/<op>/<op>_triton.py        the kernel: a function of the op's name
kernels/<op>/<op>_baseline.py      the reference: the same function, and make_inputs
kernels/<op>/<op>_accuracy.py      binds `accuracy`
kernels/<op>/<op>_performance.py   binds `performance`

Ops may lie in folders of folders, kernels/attention/decode/<op>/, and each level may hold modules that the ops below it
share: kernels/_launch.py, kernels/attention/_masks.py. An op's name is unique, since its baselines and thresholds lie
under that name alone.
"""

from __future__ import annotations

import ast
import difflib
import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import ContractError, UsageError
from perfci.core.model import Fact, Reason
from perfci.core.settings import Settings
from perfci.ops.fingerprint.finder import PARTS, list_folder, op_folders
from perfci.ops.spec import CACHES

ALLOWED_IMPORT = "perfci.device.fake"
"""The only part of perfci that a kernel or a reference may import. Ops for the fake device have no other arrays."""

INPUT_ARGUMENTS = ("device", "seed")
"""Keywords that perfci passes to make_inputs besides the case's own."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class OpFolder:
    """One op and its four files, which need not exist."""

    op: str
    folder: Path
    triton: Path
    baseline: Path
    accuracy: Path
    performance: Path
    place: str = ""
    """folder from the kernels folder, such as attention/decode/paged"""

    @property
    def places(self) -> set[str]:
        """Its folder and the folders around it, from the kernels folder."""
        parts = self.place.split("/")
        return {"/".join(parts[:end]) for end in range(1, len(parts) + 1)}

    @property
    def files(self) -> tuple[Path, ...]:
        """The four files."""
        return self.triton, self.baseline, self.accuracy, self.performance


def ops(settings: Settings) -> tuple[OpFolder, ...]:
    """Returns every op under the kernels folder, by name; `fingerprint.finder.op_folders` says which folders are ops.

    Raises UsageError if the kernels folder is missing, ContractError if two ops share a name, OSError for a folder that
    cannot be read, since its ops would be missed in silence.
    """
    if not settings.kernels.is_dir():
        raise UsageError("no_kernels_folder", folder=str(settings.kernels))
    found = []
    for folder in map(Path, op_folders(str(settings.kernels), list_folder)):
        triton, baseline, accuracy, performance = (folder / f"{folder.name}_{part}.py" for part in PARTS)
        place = folder.relative_to(settings.kernels).as_posix()
        found.append(OpFolder(folder.name, folder, triton, baseline, accuracy, performance, place))
    found.sort(key=lambda op: op.op)
    for first, second in itertools.pairwise(found):
        if first.op == second.op:
            raise ContractError("op_twice", op=first.op, first=str(first.folder), second=str(second.folder))
    return tuple(found)


def select(settings: Settings, names: Iterable[str]) -> tuple[OpFolder, ...]:
    """Returns the project's ops of these names, each once and sorted by name. All of them if no name is given.

    An op is named by its name or by its folder from the kernels folder. A folder of folders names every op in it, if
    no op has that name. Raises as `ops` does, and UsageError for an unknown name, with the nearest one, or if there is
    no op at all: "nothing to check" must not pass for "nothing wrong".
    """
    found = ops(settings)
    if not found:
        raise UsageError("no_ops", folder=str(settings.kernels))
    wanted = {name.rstrip("/") for name in names}
    known_ops = {op.op for op in found}
    places = wanted - known_ops
    known = known_ops.union(*(op.places for op in found))
    for name in sorted(wanted - known):
        if close := difflib.get_close_matches(name, sorted(known), n=1):
            raise UsageError("op_misspelt", op=name, guess=close[0])
        raise UsageError("op_unknown", op=name, known=", ".join(sorted(known_ops)))
    return tuple(op for op in found if not wanted or op.op in wanted or op.places & places)


def check_files(op: OpFolder) -> Reason | None:
    """Returns what is wrong with the op's name, else which of the four files are missing, if any."""
    if not op.op.isidentifier():
        return Reason("op_name", {"op": op.op, "folder": str(op.folder)})
    missing = [path.name for path in op.files if not path.is_file()]
    facts: dict[str, Fact] = {"op": op.op, "files": ", ".join(missing), "folder": str(op.folder)}
    return Reason("file_of_four_missing", facts) if missing else None


def check_contract(op: OpFolder) -> tuple[Reason, ...]:
    """Returns every way in which the op's files, which must exist, break the contract, each with file and line."""
    if not op.op.isidentifier():
        return (Reason("op_name", {"op": op.op, "folder": str(op.folder)}),)
    files: list[_File] = []
    unreadable = []
    for path in op.files:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an invalid escape is its author's business
                files.append(_File(path, ast.parse(path.read_bytes(), filename=str(path))))
        except SyntaxError as error:
            unreadable.append(Reason("syntax_error", {"file": str(path), "line": error.lineno, "why": error.msg}))
        except (OSError, ValueError, RecursionError, MemoryError) as error:  # null bytes; nested too deeply
            why = str(error) or type(error).__name__
            unreadable.append(Reason("source_unreadable", {"file": str(path), "why": why}))
    if unreadable:
        return tuple(unreadable)
    triton, baseline, accuracy, performance = files
    return (
        *_check_functions(op.op, triton, baseline),
        *_check_imports(triton),
        *_check_imports(baseline),
        *_check_suite(accuracy, "accuracy", "Accuracy"),
        *_check_suite(performance, "performance", "Performance"),
        *_check_arguments(performance),
    )


@dataclass(frozen=True)
class _File:
    path: Path
    tree: ast.Module

    def reason(self, problem: str, line: int, **facts: Fact) -> Reason:
        return Reason(problem, {"file": str(self.path), "line": line, **facts})

    def functions(self, name: str) -> list[Function]:
        return [node for node in _top_level(self.tree.body) if isinstance(node, Function) and node.name == name]


def _check_functions(op: str, triton: _File, baseline: _File) -> Iterator[Reason]:
    """Both files define the op once and with the same parameters, and the baseline defines make_inputs."""
    for file in (triton, baseline):
        found = file.functions(op)
        if not found:
            yield file.reason("function_missing", 1, op=op)
        # A second definition shadows the first, such as a wrapper its kernel. Under if and else two are fine.
        plain = [function for function in found if function in file.tree.body]
        for shadowing in plain[1:]:
            yield file.reason("function_shadowed", shadowing.lineno, op=op, first=plain[0].lineno)

    kernels, references = triton.functions(op), baseline.functions(op)
    if kernels and references:
        ours, theirs = _parameters(kernels[-1]), _parameters(references[-1])
        if ours != theirs:
            facts = {"op": op, "kernel": ", ".join(ours), "reference": ", ".join(theirs), "other": baseline.path.name}
            yield triton.reason("parameters_differ", kernels[-1].lineno, **facts)

    makers = baseline.functions("make_inputs")
    if not makers:
        yield baseline.reason("make_inputs_missing", 1, op=op)
        return
    missing = [name for name in INPUT_ARGUMENTS if name not in _parameters(makers[-1])]
    if missing and makers[-1].args.kwarg is None:
        yield baseline.reason("make_inputs_arguments", makers[-1].lineno, op=op, missing=", ".join(missing))


def _check_imports(file: _File) -> Iterator[Reason]:
    for node in ast.walk(file.tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in modules:
            if module.split(".")[0] == "perfci" and not f"{module}.".startswith(f"{ALLOWED_IMPORT}."):
                yield file.reason("imports_perfci", getattr(node, "lineno", 1), module=module)


def _check_suite(file: _File, name: str, kind: str) -> Iterator[Reason]:
    """A suite's file binds the name at the top level, and not to the other kind of suite."""
    bound: ast.Assign | ast.AnnAssign | None = None
    for node in _top_level(file.tree.body):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                bound = node
    if bound is None:
        yield file.reason("suite_missing", 1, name=name, kind=kind)
    elif isinstance(bound.value, ast.Call):
        called = _name(bound.value.func)
        if called in {"Accuracy", "Performance"} and called != kind:
            yield file.reason("suite_wrong_kind", bound.lineno, name=name, kind=kind, found=called)


def _check_arguments(file: _File) -> Iterator[Reason]:
    """Checks `cache` and `peers` of the performance suite, if they are given as plain literals."""
    calls = [node for node in ast.walk(file.tree) if isinstance(node, ast.Call) and _name(node.func) == "Performance"]
    for argument in (argument for call in calls for argument in call.keywords):
        value = argument.value
        if argument.arg == "cache" and isinstance(value, ast.Constant) and value.value not in CACHES:
            yield file.reason("cache_misfit", value.lineno, found=repr(value.value), known=" or ".join(CACHES))
        if argument.arg == "peers" and isinstance(value, ast.Dict):
            names = [key for key in value.keys if isinstance(key, ast.Constant)]
            for at, key in enumerate(names):  # Python silently keeps the last of two
                if key.value in [each.value for each in names[:at]]:
                    yield file.reason("peer_repeated", key.lineno, name=str(key.value))


def _top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run on import, in order, including those under `if`, `try` and `with`."""
    waiting = list(reversed(body))
    while waiting:  # no recursion: every elif is one level deeper
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            inner = (getattr(node, name, []) for name in ("body", "orelse", "finalbody"))
            waiting.extend(reversed([each for block in inner for each in block]))


def _name(function: ast.expr) -> str | None:
    """The last part of a called function's name."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)


def _parameters(function: Function) -> tuple[str, ...]:
    """Names in order, with * and ** for the rest."""
    spec = function.args
    names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
    names += [f"*{spec.vararg.arg}"] if spec.vararg else []
    names += [each.arg for each in spec.kwonlyargs]
    return (*names, *([f"**{spec.kwarg.arg}"] if spec.kwarg else []))
