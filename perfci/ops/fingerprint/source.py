"""What one Python file says about the files that it needs, read from its syntax; nothing is imported or run."""

from __future__ import annotations

import ast
import functools
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfci.core.model import Reason

IMPORTERS = frozenset(
    {
        "__import__",
        "builtins.__import__",
        "importlib.__import__",
        "importlib.import_module",
        "importlib.resources.files",
    }
)
RUNNERS = frozenset({"eval", "exec", "builtins.eval", "builtins.exec"})
SEARCH_PATH = "sys.path"
BUILTINS = IMPORTERS | RUNNERS

DYNAMIC = (
    "imp", "importlib.machinery", "importlib.metadata.entry_points", "importlib.resources",
    "importlib.util.spec_from_file_location", "importlib.util.spec_from_loader", "pkgutil", "runpy", "site.addsitedir",
    "sys.meta_path", "sys.path_hooks", "zipimport",
)  # fmt: skip
"""Ways to run code of which the syntax does not say the file; a name stands for all below it."""

NATIVE = ("cffi", "pyximport", "torch.utils.cpp_extension")
"""Ways to build compiled code."""

LOADERS = ("ctypes.CDLL", "ctypes.PyDLL", "ctypes.cdll", "torch.classes.load_library", "torch.ops.load_library")
"""Ways to load compiled code: known where the file is written out."""

_WAYS = (*IMPORTERS, *RUNNERS, *DYNAMIC, *NATIVE, *LOADERS, SEARCH_PATH)

_FILE_NAME = re.compile(r"[\w.\-/]{1,200}")


@dataclass(frozen=True)
class Import:
    """One import statement, or a call that imports a module whose name is written out."""

    module: str
    """dotted; empty in `from . import name`"""
    names: tuple[str, ...]
    """what is taken from it, perhaps modules too; `*` for everything"""
    level: int
    """of a relative import, as in `ast.ImportFrom`"""
    line: int
    late: bool
    """inside a function: run while the op is called, not when it is imported"""

    def __str__(self) -> str:
        return "." * self.level + self.module


@dataclass(frozen=True)
class Source:
    """All that a file says."""

    imports: tuple[Import, ...] = ()
    search: tuple[str, ...] = ()
    """folders that it adds to `sys.path`, as written"""
    names: frozenset[str] = frozenset()
    """texts that may name a file"""
    paths: frozenset[str] = frozenset()
    """texts that are put behind a path, and may name a file or a folder"""
    opaque: Reason | None = None
    """why this is not all; which file it is says whoever reads it, since files of one content are read once"""


@functools.lru_cache(maxsize=8192)
def read(content: bytes) -> Source:
    """What a file of this content says; where it is no Python, only why."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is its author's business
            tree = ast.parse(content)
    except SyntaxError as error:
        return Source(opaque=Reason("syntax_error", {"file": None, "line": error.lineno, "why": error.msg}))
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes; nested beyond the parser's depth
        return Source(opaque=Reason("source_unreadable", {"file": None, "why": str(error) or type(error).__name__}))
    return _Reader(_nodes(tree)).source()


Nodes = Mapping[type, Sequence[tuple[Any, bool]]]
"""By type, each with whether it lies in a function."""

_FUNCTIONS = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda})
_WANTED = frozenset({ast.Attribute, ast.BinOp, ast.Call, ast.Constant, ast.Import, ast.ImportFrom, ast.Name})
_LEAVES = frozenset({"arg", "attr", "conversion", "ctx", "id", "kind", "name", "op", "ops", "type_comment"})
_FIELDS = {
    each: tuple(field for field in each._fields if field not in _LEAVES)
    for each in vars(ast).values()
    if isinstance(each, type) and issubclass(each, ast.AST) and each is not ast.Constant
}
"""Where a node holds other nodes, or lists of them."""


def _nodes(tree: ast.AST) -> Nodes:
    """`ast.walk` in a third of its time, since all files of all ops pass through here."""
    found: dict[type, list[tuple[Any, bool]]] = {each: [] for each in _WANTED}
    outer: list[Any] = [tree]
    inner: list[Any] = []
    for todo, late in ((outer, False), (inner, True)):
        while todo:
            node = todo.pop()
            kind = type(node)
            if kind in found:
                found[kind].append((node, late))
            more = inner if kind in _FUNCTIONS else todo
            for field in _FIELDS.get(kind, ()):
                value = getattr(node, field)
                (more.extend if type(value) is list else more.append)(value)
    return found


class _Reader:
    """One file's nodes on their way to a `Source`."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._imports = list(_statements(nodes))
        self._bound = dict(_bindings(nodes))
        self._search: list[str] = []
        self._understood: set[int] = set()
        """nodes that stand for a function whose call could be read"""

    def source(self) -> Source:
        for node, late in self._nodes[ast.Call]:
            self._call(node, late)
        return Source(
            imports=tuple(self._imports),
            search=tuple(self._search),
            names=frozenset(_names(self._nodes)),
            paths=frozenset(_paths(self._nodes)),
            opaque=min(self._opaque(), key=_place, default=None),
        )

    def _call(self, call: ast.Call, late: bool) -> None:
        """Take what a call with plain literals says."""
        origin = self._origin(call.func)
        first = call.args[0] if call.args else None
        if origin in IMPORTERS:
            alone = len(call.args) + len(call.keywords) == 1
            understood = alone and _is_text(first) and self._import(first, late)
        elif origin in RUNNERS:
            understood = _is_text(first) and self._run(first, late)
        elif origin and _is_below(origin, LOADERS):
            understood = _is_text(first)
        else:
            understood = origin is not None and self._extend(origin, call)
        if understood:
            self._understood |= {id(node) for node in ast.walk(call.func)}

    def _import(self, text: ast.expr | None, late: bool) -> bool:
        name = _text(text)
        if name.startswith("."):
            return False
        self._imports.append(Import(name, (), 0, _line(text), late))
        return True

    def _run(self, text: ast.expr | None, late: bool) -> bool:
        """Code that is written out as a text imports like any other."""
        inner = read(_text(text).encode(errors="replace"))
        self._imports += [Import(each.module, each.names, each.level, _line(text), late) for each in inner.imports]
        return inner.opaque is None and not inner.search

    def _extend(self, origin: str, call: ast.Call) -> bool:
        """A relative folder that is written out, put into the search path."""
        if origin not in {f"{SEARCH_PATH}.append", f"{SEARCH_PATH}.insert"} or not call.args:
            return False
        folder = call.args[-1]
        if not _is_text(folder) or _text(folder).startswith("/"):
            return False
        self._search.append(_text(folder))
        return True

    def _opaque(self) -> Iterator[Reason]:
        """Every way of loading code that was not understood, wherever it is mentioned."""
        for each in self._imports:
            if "*" in each.names and _may_give_way(each.module):
                yield _reason("imports_unknown", each.line, f"from {each.module} import *")
        for node, _ in (*self._nodes[ast.Name], *self._nodes[ast.Attribute]):
            origin = self._origin(node)
            kind = _kind(origin) if origin else None
            if origin and kind and id(node) not in self._understood:
                yield _reason(kind, node.lineno, origin)

    def _origin(self, node: ast.AST) -> str | None:
        """The dotted name that an expression stands for, through the file's imports: sys.path for s.path."""
        if isinstance(node, ast.Name):
            return self._bound.get(node.id, node.id if node.id in BUILTINS else None)
        inner = self._origin(node.value) if isinstance(node, ast.Attribute) else None
        return f"{inner}.{node.attr}" if inner is not None and isinstance(node, ast.Attribute) else None


@functools.lru_cache(maxsize=4096)
def _kind(origin: str) -> str | None:
    """The kind of reason that a mention of this is."""
    if _is_below(origin, (*NATIVE, *LOADERS)):
        return "native_unknown"
    return "imports_unknown" if origin in BUILTINS or _is_below(origin, (*DYNAMIC, SEARCH_PATH)) else None


@functools.lru_cache(maxsize=4096)
def _may_give_way(module: str) -> bool:
    """Whether a way of loading code lies in the module, or the module in one."""
    return any(_is_below(module, [way]) or _is_below(way, [module]) for way in _WAYS)


def _statements(nodes: Nodes) -> Iterator[Import]:
    for node, late in nodes[ast.Import]:
        yield from (Import(alias.name, (), 0, node.lineno, late) for alias in node.names)
    for node, late in nodes[ast.ImportFrom]:
        yield Import(node.module or "", tuple(alias.name for alias in node.names), node.level, node.lineno, late)


def _bindings(nodes: Nodes) -> Iterator[tuple[str, str]]:
    """Local names and what they stand for, as far as code can be loaded by it."""
    for node, _ in nodes[ast.Import]:
        for alias in node.names:
            name = alias.name if alias.asname else alias.name.split(".")[0]
            yield from [(alias.asname or name, name)] if _may_give_way(name) else ()
    for node, _ in nodes[ast.ImportFrom]:
        for alias in node.names:
            name = f"{node.module}.{alias.name}"
            yield from [(alias.asname or alias.name, name)] if not node.level and _may_give_way(name) else ()


def _names(nodes: Nodes) -> Iterator[str]:
    for node, _ in nodes[ast.Constant]:
        text = node.value
        if isinstance(text, str) and "." in text and _FILE_NAME.fullmatch(text):
            yield text


def _paths(nodes: Nodes) -> Iterator[str]:
    """`a/b` of folder / "a" / "b", of os.path.join(folder, "a", "b"), folder.joinpath("a", "b") and Path("a", "b")."""
    for node, _ in (*nodes[ast.BinOp], *nodes[ast.Call]):
        parts = list(_divided(node)) if isinstance(node, ast.BinOp) else node.args
        text = "/".join(reversed([_text(part) for part in _trailing_texts(parts)]))
        joins = isinstance(node, ast.BinOp) or _called(node) in {"Path", "join", "joinpath"}
        if joins and _FILE_NAME.fullmatch(text):
            yield text


def _called(call: ast.Call) -> str:
    """The last part of the function's name."""
    return str(getattr(call.func, "attr", None) or getattr(call.func, "id", ""))


def _divided(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        yield from _divided(node.left)
        yield node.right


def _trailing_texts(parts: list[ast.expr]) -> Iterator[ast.expr]:
    """From the last one to the first that is no text."""
    for part in reversed(parts):
        if not _is_text(part):
            return
        yield part


def _is_text(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _text(node: ast.AST | None) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _line(node: ast.expr | None) -> int:
    return node.lineno if node else 0


def _is_below(name: str, above: Iterable[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in above)


def _place(reason: Reason) -> tuple[int, int]:
    """The first line first, and there the longest name: runpy.run_path before runpy."""
    return int(reason.facts["line"] or 0), -len(str(reason.facts["what"]))


def _reason(kind: str, line: int, what: str) -> Reason:
    return Reason(kind, {"file": None, "line": line, "what": what})
