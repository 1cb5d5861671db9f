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
from perfci.core.settings import Settings
from perfci.ops.fingerprint.finder import COPIED, PARTS, list_inside, op_folders

ALLOWED_IMPORT = "perfci.device.fake"
"""The only part of perfci that a kernel or a reference may import. Ops for the fake device have no other arrays."""


@dataclass(frozen=True)
class OpFolder:
    """One op and its four files, which need not exist."""

    op: str
    folder: Path
    place: str = ""  # folder from the kernels folder, such as attention/decode/paged

    @property
    def places(self) -> set[str]:
        """Its folder and the folders around it, from the kernels folder."""
        parts = self.place.split("/")
        return {"/".join(parts[:end]) for end in range(1, len(parts) + 1)}

    @property
    def files(self) -> tuple[Path, ...]:
        """The four files, in the order of `PARTS`."""
        return tuple(self.folder / f"{self.op}_{part}.py" for part in PARTS)


def ops(settings: Settings) -> tuple[OpFolder, ...]:
    """Returns every op under the kernels folder, by name. See `fingerprint.finder.op_folders`.

    Raises UsageError without a kernels folder, ContractError if two ops share a name, OSError for an unreadable folder.
    """
    if not settings.kernels.is_dir():
        raise UsageError("no_kernels_folder", folder=str(settings.kernels))
    listing = functools.partial(list_inside, (str(settings.root), str(settings.kernels)))
    folders = sorted(map(Path, op_folders(str(settings.kernels), listing)), key=lambda folder: folder.name)
    listed = [OpFolder(folder.name, folder, folder.relative_to(settings.kernels).as_posix()) for folder in folders]
    for first, second in itertools.pairwise(listed):
        if first.op == second.op:
            raise ContractError("op_twice", op=first.op, first=str(first.folder), second=str(second.folder))
    return tuple(listed)


def select(settings: Settings, names: Iterable[str]) -> tuple[OpFolder, ...]:
    """Returns the project's ops of these names, folders or globs, sorted by name. All of them if no name is given.

    A folder of folders names every op in it. Raises as `ops` does, and UsageError for an unknown name or without ops.
    """
    every = ops(settings)
    if not every:
        raise UsageError("no_ops", folder=str(settings.kernels))
    known_ops = {op.op for op in every}
    given = [name.rstrip("/") for name in names]
    wanted = {
        name for name_or_glob in given for name in fnmatch.filter(known_ops, name_or_glob) or [name_or_glob]
    }  # such as fp8_*
    places = wanted - known_ops
    names_of_all = known_ops.union(*(op.places for op in every))
    for name in sorted(wanted - names_of_all):
        if close := difflib.get_close_matches(name, sorted(names_of_all), n=1):
            raise UsageError("op_misspelt", op=name, guess=close[0])
        raise UsageError("op_unknown", op=name, known=", ".join(sorted(known_ops)))
    return tuple(op for op in every if not wanted or op.op in wanted or op.places & places)


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
    if not op.op.isidentifier():
        return Reason("op_name", {"op": op.op, "folder": str(op.folder)})
    missing = [path.name for path in op.files if not path.is_file()]
    facts: dict[str, Fact] = {"op": op.op, "files": ", ".join(missing), "folder": str(op.folder)}
    return Reason("file_of_four_missing", facts) if missing else None


def check_contract(op: OpFolder) -> tuple[Reason, ...]:
    """Returns what breaks the contract in files that can be imported. The worker finds the rest."""
    contract: list[Reason] = []
    for path, tree in _parse_sides(op):
        lines = [node.lineno for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == op.op]
        if len(lines) > 1:  # such as a wrapper that hides its kernel
            facts: dict[str, Fact] = {"file": str(path), "line": lines[1], "op": op.op, "first": lines[0]}
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
