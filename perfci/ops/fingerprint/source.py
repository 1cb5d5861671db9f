"""Reads from a Python file's syntax which files it needs. Nothing is imported or run."""

from __future__ import annotations

import ast
import functools
import itertools
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
"""Ways to run code whose file the syntax does not name. Each name includes everything below it."""

NATIVE = ("cffi", "pyximport", "torch.utils.cpp_extension")
"""Ways to build compiled code."""

LOADERS = ("ctypes.CDLL", "ctypes.PyDLL", "ctypes.cdll", "torch.classes.load_library", "torch.ops.load_library")
"""Ways to load compiled code. The file is known if it is written as a literal."""

_WAYS = (*IMPORTERS, *RUNNERS, *DYNAMIC, *NATIVE, *LOADERS, SEARCH_PATH)

_FILE_NAME = re.compile(r"[\w.\-/]{1,200}")


@dataclass(frozen=True)
class Import:
    """One import statement, or a call that imports a module named by a literal."""

    module: str
    """dotted; empty in `from . import name`"""
    names: tuple[str, ...]
    """names imported from it, perhaps modules; `*` for everything"""
    level: int
    """of a relative import, as in `ast.ImportFrom`"""
    line: int
    late: bool
    """inside a function, so it runs when the op is called"""

    def __str__(self) -> str:
        return "." * self.level + self.module


@dataclass(frozen=True)
class Source:
    """What a file needs."""

    imports: tuple[Import, ...] = ()
    search: tuple[str, ...] = ()
    """folders that it adds to `sys.path`, as written"""
    names: frozenset[str] = frozenset()
    """texts that may name a file"""
    paths: frozenset[str] = frozenset()
    """texts that are joined to a path, and may name a file or a folder"""
    opaque: Reason | None = None
    """why there may be more. The caller adds the file, since files of one content are read once."""


@functools.lru_cache(maxsize=8192)
def read(content: bytes) -> Source:
    """Returns what a file of this content needs, or only why if it is no Python."""
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
    """Turns one file's nodes into a `Source`."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._imports: list[Import] = []
        self._bound: dict[str, str] = {}
        """local name -> the module or function that it stands for, if code can be loaded by it"""
        self._search: list[str] = []
        self._understood: set[int] = set()
        """nodes that name a function whose call could be read"""

    def source(self) -> Source:
        for node, late in self._nodes[ast.Import]:
            for alias in node.names:
                self._imports.append(Import(alias.name, (), 0, node.lineno, late))
                name = alias.name if alias.asname else alias.name.split(".")[0]
                if _may_load(name):
                    self._bound[alias.asname or name] = name
        for node, late in self._nodes[ast.ImportFrom]:
            names = tuple(alias.name for alias in node.names)
            self._imports.append(Import(node.module or "", names, node.level, node.lineno, late))
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if not node.level and _may_load(name):
                    self._bound[alias.asname or alias.name] = name
        for node, late in self._nodes[ast.Call]:
            if self._understands(node, late):
                self._understood |= {id(each) for each in ast.walk(node.func)}
        texts = (node.value for node, _ in self._nodes[ast.Constant])
        return Source(
            imports=tuple(self._imports),
            search=tuple(self._search),
            names=frozenset(
                text for text in texts if isinstance(text, str) and "." in text and _FILE_NAME.fullmatch(text)
            ),
            paths=frozenset(_paths(self._nodes)),
            # the first line first, and there the longest name: runpy.run_path before runpy
            opaque=min(
                self._opaque(), key=lambda each: (each.facts["line"] or 0, -len(str(each.facts["what"]))), default=None
            ),
        )

    def _understands(self, call: ast.Call, late: bool) -> bool:
        """Reads a call that loads code; returns whether its literals say which."""
        origin = self._origin(call.func)
        literal = call.args[0] if call.args else None
        text = _text(literal)
        if origin in IMPORTERS:
            if text is None or text.startswith(".") or len(call.args) + len(call.keywords) > 1:
                return False
            self._imports.append(Import(text, (), 0, call.args[0].lineno, late))
            return True
        if origin in RUNNERS:  # code written as a literal imports like any other
            if text is None:
                return False
            inner = read(text.encode(errors="replace"))
            line = call.args[0].lineno
            self._imports += [Import(each.module, each.names, each.level, line, late) for each in inner.imports]
            return inner.opaque is None and not inner.search
        if origin and _is_below(origin, LOADERS):
            return text is not None
        if origin in {f"{SEARCH_PATH}.append", f"{SEARCH_PATH}.insert"} and call.args:
            folder = _text(call.args[-1])
            if folder is not None and not folder.startswith("/"):
                self._search.append(folder)
                return True
        return False

    def _opaque(self) -> Iterator[Reason]:
        """Yields every way of loading code that was not understood."""
        for each in self._imports:
            if "*" in each.names and _may_load(each.module):
                what = f"from {each.module} import *"
                yield Reason("imports_unknown", {"file": None, "line": each.line, "what": what})
        for node, _ in (*self._nodes[ast.Name], *self._nodes[ast.Attribute]):
            origin = self._origin(node)
            kind = _kind(origin) if origin else None
            if kind and id(node) not in self._understood:
                yield Reason(kind, {"file": None, "line": node.lineno, "what": origin})

    def _origin(self, node: ast.AST) -> str | None:
        """Returns the dotted name that an expression stands for, through the file's imports: sys.path for s.path."""
        if isinstance(node, ast.Name):
            return self._bound.get(node.id, node.id if node.id in BUILTINS else None)
        inner = self._origin(node.value) if isinstance(node, ast.Attribute) else None
        return f"{inner}.{node.attr}" if inner is not None and isinstance(node, ast.Attribute) else None


@functools.lru_cache(maxsize=4096)
def _kind(origin: str) -> str | None:
    """Returns the kind of reason for a mention of this name, if it can load code."""
    if _is_below(origin, (*NATIVE, *LOADERS)):
        return "native_unknown"
    return "imports_unknown" if origin in BUILTINS or _is_below(origin, (*DYNAMIC, SEARCH_PATH)) else None


@functools.lru_cache(maxsize=4096)
def _may_load(module: str) -> bool:
    """Returns whether a way of loading code lies in the module, or the module in one."""
    return any(_is_below(module, [way]) or _is_below(way, [module]) for way in _WAYS)


def _is_below(name: str, above: Iterable[str]) -> bool:
    return any(name == each or name.startswith(f"{each}.") for each in above)


def _paths(nodes: Nodes) -> Iterator[str]:
    """`a/b` of folder / "a" / "b", of os.path.join(folder, "a", "b"), folder.joinpath("a", "b") and Path("a", "b")."""
    for node, _ in (*nodes[ast.BinOp], *nodes[ast.Call]):
        if isinstance(node, ast.BinOp):
            parts = list(_divided(node))
        elif (getattr(node.func, "attr", None) or getattr(node.func, "id", "")) in {"Path", "join", "joinpath"}:
            parts = node.args
        else:
            continue
        trailing = itertools.takewhile(lambda text: text is not None, map(_text, reversed(parts)))
        text = "/".join(reversed([str(each) for each in trailing]))
        if _FILE_NAME.fullmatch(text):
            yield text


def _divided(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        yield from _divided(node.left)
        yield node.right


def _text(node: ast.AST | None) -> str | None:
    """Returns the text of a literal."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
