"""The real packages' wheels: fetched once without what they depend on, and read without being imported."""

from __future__ import annotations

import ast
import subprocess
import sys
import time
import warnings
import zipfile
from functools import cache
from pathlib import Path

from tests.npu.stand_in import cache as cache_folder

PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64")
FRESH_S = 24 * 3600.0
"""So long the newest wheel that was found is taken for the newest."""

_LIMIT_S = 300


class UnreachableError(Exception):
    """The index could not be reached, and the wheel is not in the cache."""


@cache
def wheel(name: str, version: str | None = None) -> Wheel:
    """A release, or the newest; raises UnreachableError."""
    folder = cache_folder() / "wheels" / (f"{name}-{version}" if version else f"{name}-newest")
    found = sorted(folder.glob("*.whl"), key=lambda path: path.stat().st_mtime)
    if not found or (version is None and time.time() - (folder / "asked").stat().st_mtime > FRESH_S):
        said = _download(folder, f"{name}=={version}" if version else name)
        found = sorted(folder.glob("*.whl"), key=lambda path: path.stat().st_mtime)
        if not found:
            raise UnreachableError(said)
        (folder / "asked").touch()
    return Wheel(found[-1])


def _download(folder: Path, requirement: str) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += [word for platform in PLATFORMS for word in ("--platform", platform)]
    command += ["--implementation", "cp", "--python-version", "3.11", "--abi", "cp311", "--dest", str(folder)]
    try:
        done = subprocess.run([*command, requirement], capture_output=True, text=True, check=False, timeout=_LIMIT_S)
    except subprocess.TimeoutExpired:
        return "the index did not answer in time"
    return done.stderr[-500:]


class Wheel:
    """Sources and libraries of one wheel."""

    def __init__(self, path: Path) -> None:
        self.name = "-".join(path.name.split("-")[:2])
        self._files = zipfile.ZipFile(path)
        self._names = frozenset(self._files.namelist())
        self._trees: dict[str, ast.Module] = {}
        self._sought: set[str] = set()

    def text(self, name: str) -> str:
        return self._files.read(name).decode("utf-8")

    def library_says(self, library: str, word: str) -> bool:
        """Whether a shared library holds a text, such as a field's name."""
        return word.encode() in self._files.read(library)

    def files(self, start: str) -> list[str]:
        """Python files below a folder."""
        return sorted(name for name in self._names if name.startswith(start) and name.endswith(".py"))

    def tree(self, file: str) -> ast.Module:
        if file not in self._trees:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SyntaxWarning)  # theirs
                warnings.simplefilter("ignore", DeprecationWarning)
                self._trees[file] = ast.parse(self.text(file))
        return self._trees[file]

    def module(self, dotted: str) -> str | None:
        """The file of a module."""
        base = dotted.replace(".", "/")
        return next((name for name in (f"{base}.py", f"{base}/__init__.py") if name in self._names), None)

    def find(self, dotted: str) -> ast.AST | None:
        """Where a dotted name is defined, through imports and base classes; None if it is not there.

        A submodule is its tree; what comes from a compiled module is the import that brings it.
        """
        if dotted in self._sought:  # modules that import each other's names with a star
            return None
        self._sought.add(dotted)
        try:
            return self._found(dotted.split("."))
        finally:
            self._sought.discard(dotted)

    def _found(self, parts: list[str]) -> ast.AST | None:
        for length in range(len(parts), 0, -1):
            module = ".".join(parts[:length])
            if self.module(module):
                return self._inside(module, parts[length:])
        return None

    def _inside(self, module: str, names: list[str]) -> ast.AST | None:
        file = self.module(module)
        if file is None:
            return None
        if not names:
            return self.tree(file)
        return self._named(module, self.tree(file).body, names)

    def _named(self, module: str, body: list[ast.stmt], names: list[str]) -> ast.AST | None:
        first, *rest = names
        found = None
        for node in _statements(body):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == first:
                found = node if not rest else self._member(module, node, rest)
            elif isinstance(node, ast.Assign | ast.AnnAssign) and first in _targets(node):
                found = node
            elif isinstance(node, ast.ImportFrom) and (name := _imported(node, first)):
                found = self._brought(module, node, [name, *rest]) or found
        return found

    def _brought(self, module: str, node: ast.ImportFrom, names: list[str]) -> ast.AST | None:
        source = self._source(module, node)
        if self.module(source) is None:
            return node if node.names[0].name != "*" else None
        return self.find(".".join([source, *names]))

    def _member(self, module: str, node: ast.AST, names: list[str]) -> ast.AST | None:
        if not isinstance(node, ast.ClassDef):
            return None
        found = self._named(module, node.body, names)
        for base in node.bases if found is None else ():
            found = found or self._inside(module, [*ast.unparse(base).split("."), *names])
        return found

    def _source(self, module: str, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        package = module.split(".")
        is_package = (self.module(module) or "").endswith("__init__.py")
        kept = package[: len(package) - node.level + is_package]
        return ".".join([*kept, *([node.module] if node.module else [])])


def parameters(node: ast.AST) -> set[str] | None:
    """Names that a function or class takes; None where it takes any, or where that can't be read."""
    if isinstance(node, ast.ClassDef):
        makers = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef)}
        maker = makers.get("__init__") or makers.get("__new__")
        return parameters(maker) if maker else None
    if not isinstance(node, ast.FunctionDef) or node.args.kwarg:
        return None
    return {each.arg for each in [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]}


def _statements(body: list[ast.stmt]):
    """Statements of a body, those inside if and try too."""
    for node in body:
        yield node
        for part in ("body", "orelse", "handlers", "finalbody"):
            if isinstance(node, ast.If | ast.Try):
                for inner in getattr(node, part, []):
                    yield from _statements(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def _targets(node: ast.Assign | ast.AnnAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return {each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)}


def _imported(node: ast.ImportFrom, wanted: str) -> str | None:
    """What an import calls a name; with a star it is the name itself, where it is there."""
    named = next((alias.name for alias in node.names if (alias.asname or alias.name) == wanted), None)
    return named or (wanted if node.names[0].name == "*" else None)
