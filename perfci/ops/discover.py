"""Which ops a project has, and whether each keeps the four-file contract; read from disk, nothing is imported.

kernels/<op>/<op>_triton.py        the kernel: a function of the op's name
kernels/<op>/<op>_baseline.py      the reference: the same function, and make_inputs
kernels/<op>/<op>_accuracy.py      binds `accuracy`
kernels/<op>/<op>_performance.py   binds `performance`

Ops may lie in folders of folders, kernels/attention/decode/<op>/, and each level may hold modules that the ops below it
share: kernels/_launch.py, kernels/attention/_masks.py. An op's name is its own whatever folder it lies in, since its
baselines and thresholds lie under that name alone.
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
"""The one part of perfci that a kernel or a reference may import: ops for the fake device have no other arrays."""

INPUT_ARGUMENTS = ("device", "seed")
"""Keywords that perfci gives to make_inputs beside the case's own."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class OpFolder:
    """One op and its four files, whether or not they exist."""

    op: str
    folder: Path
    triton: Path
    baseline: Path
    accuracy: Path
    performance: Path
    place: str = ""
    """folder from the kernels folder, such as attention/decode/paged"""

    @property
    def files(self) -> tuple[Path, ...]:
        """The four."""
        return self.triton, self.baseline, self.accuracy, self.performance


def ops(settings: Settings) -> tuple[OpFolder, ...]:
    """Every op under the kernels folder, by name; `fingerprint.finder.op_folders` says which folders are ops.

    Raises UsageError where the kernels folder is missing, ContractError where two ops share a name, OSError for a
    folder that cannot be read, since its ops would be missed in silence.
    """
    if not settings.kernels.is_dir():
        raise UsageError("no_kernels_folder", folder=str(settings.kernels))
    folders = op_folders(str(settings.kernels), list_folder)
    found = sorted((_op(Path(folder), settings.kernels) for folder in folders), key=lambda op: op.op)
    for first, second in itertools.pairwise(found):
        if first.op == second.op:
            raise ContractError("op_twice", op=first.op, first=str(first.folder), second=str(second.folder))
    return tuple(found)


def select(settings: Settings, names: Iterable[str]) -> tuple[OpFolder, ...]:
    """The project's ops of these names, each once and sorted by name; all of them where no name is given.

    An op is named by its name, or by its folder from the kernels folder; a folder of folders names every op in it,
    unless an op has that name. Raises as `ops` does, and UsageError where there is no op at all, since nothing to check
    must not pass for nothing wrong, or for a name that no op has, with the nearest one.
    """
    found = ops(settings)
    if not found:
        raise UsageError("no_ops", folder=str(settings.kernels))
    wanted = {name.rstrip("/") for name in names}
    known_ops = {op.op for op in found}
    places = wanted - known_ops
    known = known_ops.union(*(_places(op) for op in found))
    for name in sorted(wanted - known):
        raise _unknown(name, sorted(known_ops), sorted(known))
    return tuple(op for op in found if not wanted or op.op in wanted or _places(op) & places)


def check_files(op: OpFolder) -> Reason | None:
    """The files of the four that are missing, if any; before that, a folder's name that cannot be an op's."""
    if not op.op.isidentifier():
        return Reason("op_name", {"op": op.op, "folder": str(op.folder)})
    missing = [path.name for path in op.files if not path.is_file()]
    facts: dict[str, Fact] = {"op": op.op, "files": ", ".join(missing), "folder": str(op.folder)}
    return Reason("file_of_four_missing", facts) if missing else None


def check_contract(op: OpFolder) -> tuple[Reason, ...]:
    """Every way in which the op's files break the contract, each with file and line; the files must exist."""
    if not op.op.isidentifier():
        return (Reason("op_name", {"op": op.op, "folder": str(op.folder)}),)
    files = [_read(path) for path in op.files]
    broken = tuple(file for file in files if isinstance(file, Reason))
    return broken or tuple(_violations(op, *(file for file in files if isinstance(file, _File))))


@dataclass(frozen=True)
class _File:
    path: Path
    tree: ast.Module

    def reason(self, problem: str, line: int, **facts: Fact) -> Reason:
        return Reason(problem, {"file": str(self.path), "line": line, **facts})

    def functions(self, name: str) -> list[Function]:
        return [node for node in _top_level(self.tree.body) if isinstance(node, Function) and node.name == name]


def _op(folder: Path, kernels: Path) -> OpFolder:
    triton, baseline, accuracy, performance = (folder / f"{folder.name}_{part}.py" for part in PARTS)
    place = folder.relative_to(kernels).as_posix()
    return OpFolder(folder.name, folder, triton, baseline, accuracy, performance, place)


def _places(op: OpFolder) -> set[str]:
    """Its folder and the folders that it lies in, from the kernels folder."""
    parts = op.place.split("/")
    return {"/".join(parts[:end]) for end in range(1, len(parts) + 1)}


def _unknown(name: str, ops: list[str], known: list[str]) -> UsageError:
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return UsageError("op_misspelt", op=name, guess=close[0])
    return UsageError("op_unknown", op=name, known=", ".join(ops))


def _read(path: Path) -> _File | Reason:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is its author's business
            return _File(path, ast.parse(path.read_bytes(), filename=str(path)))
    except SyntaxError as error:
        return Reason("syntax_error", {"file": str(path), "line": error.lineno, "why": error.msg})
    except (OSError, ValueError, RecursionError, MemoryError) as error:  # null bytes; nested beyond the parser's depth
        return Reason("source_unreadable", {"file": str(path), "why": str(error) or type(error).__name__})


def _violations(op: OpFolder, triton: _File, baseline: _File, accuracy: _File, performance: _File) -> Iterator[Reason]:
    yield from _check_function(op.op, triton)
    yield from _check_function(op.op, baseline)
    yield from _check_same_parameters(op.op, triton, baseline)
    yield from _check_make_inputs(op.op, baseline)
    yield from (reason for file in (triton, baseline) for reason in _check_imports(file))
    yield from _check_suite(accuracy, "accuracy", "Accuracy")
    yield from _check_suite(performance, "performance", "Performance")
    yield from _check_cache(performance)
    yield from _check_peers(performance)


def _check_function(op: str, file: _File) -> Iterator[Reason]:
    """One top-level function of the op's name; a second would shadow the first, such as a wrapper its kernel."""
    found = file.functions(op)
    if not found:
        yield file.reason("function_missing", 1, op=op)
    plain = [function for function in found if function in file.tree.body]  # under if and else, two are no shadowing
    for shadowing in plain[1:]:
        yield file.reason("function_shadowed", shadowing.lineno, op=op, first=plain[0].lineno)


def _check_same_parameters(op: str, triton: _File, baseline: _File) -> Iterator[Reason]:
    kernels, references = triton.functions(op), baseline.functions(op)
    if not kernels or not references:
        return
    ours, theirs = _parameters(kernels[-1]), _parameters(references[-1])
    if ours != theirs:
        facts = {"op": op, "kernel": ", ".join(ours), "reference": ", ".join(theirs), "other": baseline.path.name}
        yield triton.reason("parameters_differ", kernels[-1].lineno, **facts)


def _check_make_inputs(op: str, baseline: _File) -> Iterator[Reason]:
    found = baseline.functions("make_inputs")
    if not found:
        yield baseline.reason("make_inputs_missing", 1, op=op)
        return
    names = _parameters(found[-1])
    missing = [name for name in INPUT_ARGUMENTS if name not in names]
    if missing and found[-1].args.kwarg is None:
        yield baseline.reason("make_inputs_arguments", found[-1].lineno, op=op, missing=", ".join(missing))


def _check_imports(file: _File) -> Iterator[Reason]:
    for node in ast.walk(file.tree):
        for module in _imported(node):
            if module.split(".")[0] == "perfci" and not f"{module}.".startswith(f"{ALLOWED_IMPORT}."):
                yield file.reason("imports_perfci", getattr(node, "lineno", 1), module=module)


def _imported(node: ast.AST) -> list[str]:
    """Modules that a statement imports, with the name where it comes from a package: `perfci.device.fake`."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def _check_suite(file: _File, name: str, kind: str) -> Iterator[Reason]:
    """A suite's file binds the name at the top level, and not to the other kind of suite."""
    bound = [node for node in _top_level(file.tree.body) if name in _bound(node)]
    if not bound:
        yield file.reason("suite_missing", 1, name=name, kind=kind)
        return
    made = _called(bound[-1])
    if made in {"Accuracy", "Performance"} and made != kind:
        yield file.reason("suite_wrong_kind", bound[-1].lineno, name=name, kind=kind, found=made)


def _check_cache(file: _File) -> Iterator[Reason]:
    """What the suite says of the cache, where it says so in plain letters."""
    for given in _given(file, "cache"):
        if isinstance(given.value, ast.Constant) and given.value.value not in CACHES:
            facts = {"found": repr(given.value.value), "known": " or ".join(CACHES)}
            yield file.reason("cache_misfit", given.value.lineno, **facts)


def _check_peers(file: _File) -> Iterator[Reason]:
    """A name that stands twice in a mapping of peers: Python keeps the last one in silence."""
    for given in (each.value for each in _given(file, "peers") if isinstance(each.value, ast.Dict)):
        names = [key for key in given.keys if isinstance(key, ast.Constant)]
        seen = [key.value for key in names]
        for at, key in enumerate(names):
            if key.value in seen[:at]:
                yield file.reason("peer_repeated", key.lineno, name=str(key.value))


def _given(file: _File, name: str) -> list[ast.keyword]:
    """What the performance suite is given by a keyword, in plain letters."""
    calls = [node for node in ast.walk(file.tree) if isinstance(node, ast.Call) and _name(node.func) == "Performance"]
    return [keyword for call in calls for keyword in call.keywords if keyword.arg == name]


def _top_level(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run on import, in order, those under `if`, `try` and `with` included."""
    waiting = list(reversed(body))
    while waiting:  # no recursion: every elif is one level deeper
        node = waiting.pop()
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            inner = (getattr(node, name, []) for name in ("body", "orelse", "finalbody"))
            waiting.extend(reversed([each for block in inner for each in block]))


def _bound(node: ast.stmt) -> set[str]:
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        targets = [node.target]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _called(node: ast.stmt) -> str | None:
    """Name of what an assignment calls: `Accuracy` in `accuracy = perfci.Accuracy(...)`."""
    value = getattr(node, "value", None)
    return _name(value.func) if isinstance(value, ast.Call) else None


def _name(function: ast.expr) -> str | None:
    """What a function is called by, without where it comes from."""
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)


def _parameters(function: Function) -> tuple[str, ...]:
    """Names in order, with * and ** where the function takes the rest."""
    spec = function.args
    names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
    names += [f"*{spec.vararg.arg}"] if spec.vararg else []
    names += [each.arg for each in spec.kwonlyargs]
    return (*names, *([f"**{spec.kwarg.arg}"] if spec.kwarg else []))
