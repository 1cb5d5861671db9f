"""Which ops a project has, and what of the four-file contract only their sources show. Nothing is imported here.

Ops may lie in folders of folders, which may hold modules that the ops below share. Names of ops are unique.
"""

import ast
import difflib
import fnmatch
import functools
import hashlib
import itertools
import os
import warnings
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import ContractError, UsageError
from perfci.core.files import read_regular
from perfci.core.model import Fact, Reason
from perfci.core.settings import FILE, Settings
from perfci.ops.backends import BACKENDS, DEFAULT, MARK, list_keys, name_of
from perfci.ops.fingerprint.finder import COPIED, PARTS, list_inside, op_folders

ALLOWED_IMPORT = "perfci.device.fake"
"""The only part of perfci that a kernel or a reference may import. Ops for the fake device have no other arrays."""

NPU = "ascend"  # in `[tool.perfci.backends]`: the interpreter that compiles Triton's kernels for NPUs without one


@dataclass(frozen=True)
class OpFolder:
    """One backend of an op, and its four files, which need not exist."""

    op: str  # its key: see perfci.ops.backends
    folder: Path
    place: str = ""  # folder from the kernels folder, such as attention/decode/paged
    backend: str = DEFAULT

    @property
    def name(self) -> str:
        """The op's, which its files and its function have."""
        return name_of(self.op)

    @property
    def places(self) -> set[str]:
        """Its folder and the folders around it, from the kernels folder."""
        parts = self.place.split("/")
        return {"/".join(parts[:end]) for end in range(1, len(parts) + 1)}

    @property
    def files(self) -> tuple[Path, ...]:
        """The four files, in the order of `PARTS`."""
        return tuple(self.folder / f"{self.name}_{part}.py" for part in (self.backend, *PARTS[1:]))


def ops(settings: Settings) -> tuple[OpFolder, ...]:
    """Returns every backend of each op under the kernels folder, by key. See `fingerprint.finder.op_folders`.

    Raises UsageError without a kernels folder, or for settings of an unknown backend, ContractError if two ops share a
    name, OSError for an unreadable folder.
    """
    if not settings.kernels.is_dir():
        raise UsageError("no_kernels_folder", folder=str(settings.kernels))
    if unknown := next((name for name in settings.backends if name not in {*BACKENDS, NPU}), None):
        path, known = str(settings.root / FILE), ", ".join(BACKENDS)
        raise UsageError("setting_not_known", path=path, key=f"backends.{unknown}", known=known)
    listing = functools.partial(list_inside, (str(settings.root), str(settings.kernels)))
    folders = map(Path, op_folders(str(settings.kernels), listing))
    listed = [
        OpFolder(key, folder, folder.relative_to(settings.kernels).as_posix(), backend)
        for folder in folders
        for key, backend in list_keys(folder).items()
    ]
    listed.sort(key=lambda op: op.op)
    for first, second in itertools.pairwise(listed):
        if first.op == second.op:
            raise ContractError("op_twice", op=first.op, first=str(first.folder), second=str(second.folder))
    return tuple(listed)


def select(settings: Settings, names: Iterable[str]) -> tuple[OpFolder, ...]:
    """Returns what these names mean, sorted by key. Everything if no name is given.

    A name is an op's, a glob, or a folder, which names every op in it. It means the first backend of each; NAME@BACKEND
    means that one, NAME@* all of them, and NAME@BACKEND,BACKEND those of these that it has. Raises as `ops` does, and
    UsageError without ops, and for an unknown name, or a backend that no op of these names has.
    """
    every = ops(settings)
    if not every:
        raise UsageError("no_ops", folder=str(settings.kernels))
    given = [name.rstrip("/") for name in names]
    chosen = {name: _find(every, name) for name in given}
    there = {op.backend for backends in chosen.values() for op in backends}
    for name in given:
        for backend in filter(None, name.partition(MARK)[2].split(",")):
            if not fnmatch.filter(there, backend):
                raise _refuse_backend(every, name, backend)
    wanted = {op.op for backends in chosen.values() for op in backends}
    return tuple(op for op in every if not given or op.op in wanted)


def _find(every: Collection[OpFolder], given: str) -> list[OpFolder]:
    """Returns what one name means."""
    name, mark, backend = given.partition(MARK)
    known_ops = {op.name for op in every}
    fitting = fnmatch.filter(known_ops, name)  # such as fp8_*
    chosen = [op for op in every if (op.name in fitting if fitting else name in op.places)]
    if not chosen:
        if close := difflib.get_close_matches(name, sorted(known_ops.union(*(op.places for op in every))), n=1):
            raise UsageError("op_misspelt", op=name, guess=close[0])
        raise UsageError("op_unknown", op=name, known=", ".join(sorted(known_ops)))
    if not mark:
        return [op for op in chosen if MARK not in op.op]
    backends = [op for op in chosen if any(fnmatch.fnmatch(op.backend, one) for one in backend.split(","))]
    if not backends:
        raise _refuse_backend(chosen, given, backend)
    return backends


def _refuse_backend(chosen: Iterable[OpFolder], given: str, backend: str) -> UsageError:
    name = given.partition(MARK)[0]
    backends = sorted({op.backend for op in chosen if fnmatch.fnmatch(op.name, name)}, key=list(BACKENDS).index)
    return UsageError("backend_unknown", name=name, backend=backend, known=", ".join(backends))


def pick(ops_known: Collection[str], names: Iterable[str], unknown: str) -> list[str]:
    """Returns the ops that these names and globs mean, as they are ordered in `known`. All of them if no name is given.

    Raises UsageError of the kind `unknown` for a name that fits none.
    """
    wanted = set[str]()
    for name in names:
        fitting = fnmatch.filter(ops_known, name)
        if not fitting:
            close = difflib.get_close_matches(name, ops_known, n=1)
            listed = ", ".join([*close, *(op for op in ops_known if op not in close)]) or "-"
            raise UsageError(unknown, op=name, known=listed)
        wanted.update(fitting)
    return [op for op in ops_known if not wanted or op in wanted]


def select_one(settings: Settings, name: str) -> OpFolder:
    """Returns the op of this name or folder. Raises as `select` does, and UsageError if the folder has several."""
    matching = select(settings, (name,))
    if len(matching) > 1:
        raise UsageError("several_ops", name=name, ops=", ".join(op.op for op in matching))
    return matching[0]


def check_files(op: OpFolder) -> Reason | None:
    """Returns what is wrong with the op's name, else which of the four files are missing, if any."""
    if not op.folder.name.isidentifier():
        return Reason("op_name", {"op": op.folder.name, "folder": str(op.folder)})
    missing = [path.name for path in op.files if not path.is_file()]
    facts: dict[str, Fact] = {"op": op.op, "files": ", ".join(missing), "folder": str(op.folder)}
    return Reason("file_of_four_missing", facts) if missing else None


def check_contract(op: OpFolder) -> tuple[Reason, ...]:
    """Returns what breaks the contract in files that can be imported. The worker finds the rest."""
    contract: list[Reason] = []
    for path, tree in _parse_sides(op):
        lines = [node.lineno for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == op.name]
        if len(lines) > 1:  # such as a wrapper that hides its kernel
            facts: dict[str, Fact] = {"file": str(path), "line": lines[1], "op": op.name, "first": lines[0]}
            contract.append(Reason("function_shadowed", facts))
        for module, line in _list_imports(tree):
            if module.split(".")[0] == "perfci" and not f"{module}.".startswith(f"{ALLOWED_IMPORT}."):
                contract.append(Reason("imports_perfci", {"file": str(path), "line": line, "module": module}))
    return tuple(contract)


def find_moved(op: OpFolder, root: Path) -> Reason | None:
    """Returns which file of a kernel or reference has changed since the op got its copy of it. None if none has."""
    for path, tree in _parse_sides(op):
        names = (node for node in tree.body if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == COPIED)
        for node in names:
            try:
                copied = dict(ast.literal_eval(node.value))
            except (TypeError, ValueError):  # what a person wrote there
                continue
            for name, copies in copied.items():
                original, copy = root / str(name), path.with_name(f"_{Path(str(name)).name}")
                places = {"copy": os.path.relpath(copy, root), "file": os.path.relpath(path, root)}
                facts: dict[str, Fact] = {"original": str(name), **places}
                try:
                    now = digest(original)
                    if now not in {copies, digest(copy)}:
                        return Reason("copy_behind", {**facts, "op": op.op, "now": now})
                except OSError:
                    # What lies elsewhere is not on every machine.
                    if Path(os.path.normpath(original)).is_relative_to(root) and not original.exists():
                        return Reason("copy_orphaned", {**facts, "op": op.op})
    return None


def digest(path: Path) -> str:
    """Returns what a file's content is known by, as short as people can compare it. Raises OSError."""
    return hashlib.sha256(read_regular(path.resolve())).hexdigest()[:12]


def _parse_sides(op: OpFolder) -> Iterator[tuple[Path, ast.Module]]:
    """Yields the files of kernel and reference that can be read, with their syntax."""
    for path in op.files[:2]:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an invalid escape is its author's business
                tree = ast.parse(read_regular(path.resolve()), filename=str(path))
        except (SyntaxError, OSError, ValueError, RecursionError, MemoryError):  # importing it shows why
            continue
        yield path, tree


def _list_imports(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)
