"""Reads from a Python file's syntax which files it needs. Nothing is imported or run."""

import ast
import functools
import itertools
import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from perfci.core.model import Fact, Reason

IMPORTERS = (
    "__import__", "builtins.__import__", "importlib.__import__", "importlib.import_module", "importlib.resources.files",
)  # fmt: skip
"""Functions that import a module. Its name is known if it is written as a literal."""

BUILTINS = frozenset({"__import__", "eval", "exec"})

DYNAMIC = (
    *IMPORTERS, "eval", "exec", "builtins.eval", "builtins.exec", "imp", "importlib.machinery",
    "importlib.metadata.entry_points", "importlib.resources", "importlib.util.spec_from_file_location",
    "importlib.util.spec_from_loader", "pkgutil", "runpy", "site.addsitedir", "sys.meta_path", "sys.path",
    "sys.path_hooks", "zipimport",
)  # fmt: skip
"""Ways to run code from files that the syntax does not name. Each name includes everything below it."""

NATIVE = (
    "cffi", "ctypes.CDLL", "ctypes.PyDLL", "ctypes.cdll", "pyximport", "torch.classes.load_library",
    "torch.ops.load_library", "torch.utils.cpp_extension",
)  # fmt: skip
"""Ways to build or load compiled code."""

OPENERS = ("ctypes.CDLL", "ctypes.PyDLL")
"""Functions that open a library. One that a literal such as libcuda.so.1 names is the system's, no file of a tree."""

_FILE_NAME = re.compile(r"[\w.\-/]{1,200}")
_LIBRARY = re.compile(r"lib[\w+\-]+\.so[.\d]*")
_NAMED = rb"[ \t]*[\"<]([^\">\n]+)[\">]"  # a header
_INCLUDE = re.compile(
    rb"^[ \t]*(?:#|%:|\?\?=)[ \t]*(?:include(?:_next)?(?:" + _NAMED + rb")?|(?:import|embed)" + _NAMED + b")", re.M
)
_SPACE = re.compile(rb"\\\r?\n|//[^\n]*|/\*.*?\*/", re.DOTALL)  # what C++ takes for none, or for a space


@dataclass(frozen=True)
class Import:
    """One import statement, or a call that imports a module named by a literal."""

    module: str  # dotted; empty in `from . import name`
    names: tuple[str, ...]  # names imported from it, perhaps modules; `*` for everything
    level: int  # of a relative import, as in `ast.ImportFrom`
    line: int
    late: bool  # inside a function, so it runs when the op is called

    def __str__(self) -> str:
        return "." * self.level + self.module


@dataclass(frozen=True)
class Source:
    """The needs of a file."""

    imports: tuple[Import, ...] = ()
    names: frozenset[str] = frozenset()  # texts that may name a file
    paths: frozenset[str] = frozenset()  # texts that are joined to a path, and may name a file or a folder
    includes: tuple[tuple[str, int], ...] = ()  # headers, as C++ in the file names them, and lines; empty: by a macro
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
    nodes = list(_walk(tree))
    imports, bound = _read_imports(nodes)
    understood: set[int] = set()
    for node, late in nodes:
        # A call with one literal names what it imports, or opens.
        if isinstance(node, ast.Call) and len(node.args) == 1 and (text := _read_text(node.args[0])) is not None:
            origin = _find_origin(node.func, bound)
            if origin in IMPORTERS and not node.keywords and not text.startswith("."):
                imports.append(Import(text, (), 0, node.args[0].lineno, late))
                understood |= {id(inner) for inner in ast.walk(node.func)}
            if origin in OPENERS and _LIBRARY.fullmatch(text):
                understood |= {id(inner) for inner in ast.walk(node.func)}
    texts = (text for node, _ in nodes if (text := _read_text(node)) is not None)
    opaque = list(_list_dynamic([node for node, _ in nodes if id(node) not in understood], bound))
    for entry in imports:
        if "*" in entry.names and _may_load(entry.module):
            facts: dict[str, Fact] = {"file": None, "line": entry.line, "what": f"from {entry.module} import *"}
            opaque.append(Reason("imports_unknown", facts))
    return Source(
        imports=tuple(imports),
        names=frozenset(name for text in texts for name in _split(text) if "." in name and _FILE_NAME.fullmatch(name)),
        paths=frozenset(_list_paths(node for node, _ in nodes)),
        includes=list_includes(content),
        # The first line first, and there the longest name: runpy.run_path before runpy.
        opaque=min(
            opaque, key=lambda reason: (reason.facts["line"] or 0, -len(str(reason.facts["what"]))), default=None
        ),
    )


def _split(text: str) -> list[str]:
    """A text, or the words of one that has a compiler's options: --pre-include=scale.cuh names a file."""
    return re.split(r"[=\s]", text) if text.startswith("-") else [text]


def list_includes(content: bytes) -> tuple[tuple[str, int], ...]:
    """Returns the headers that C++ in a file includes, each with its line. Empty is one that a macro names."""
    # Also without comments and lines that go on, but a text in quotes may look like the beginning of a comment.
    plain = _SPACE.sub(lambda gap: b"\n" * gap[0].count(b"\n") if gap[0].startswith(b"/*") else b"", content)
    includes = {
        ((match[1] or match[2] or b"").decode(errors="replace"), text.count(b"\n", 0, match.start()) + 1)
        for text in (content, plain)
        for match in _INCLUDE.finditer(text)
    }
    return tuple(sorted(includes, key=lambda include: include[1]))


def _walk(tree: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """Yields every node, and whether it lies in a function."""
    waiting = [(tree, False)]
    while waiting:
        node, late = waiting.pop()
        yield node, late
        late = late or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        waiting += [(child, late) for child in ast.iter_child_nodes(node)]


def _read_imports(nodes: Iterable[tuple[ast.AST, bool]]) -> tuple[list[Import], dict[str, str]]:
    """Returns the imports, and local names with the modules or functions that they stand for, if these load code."""
    imports, bound = list[Import](), dict[str, str]()
    for node, late in nodes:
        if isinstance(node, ast.Import):
            imports += [Import(name.name, (), 0, node.lineno, late) for name in node.names]
            pairs = [(name.asname, name.name) if name.asname else (name.name.split(".")[0],) * 2 for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = tuple(name.name for name in node.names)
            imports.append(Import(node.module or "", names, node.level, node.lineno, late))
            pairs = [(name.asname or name.name, f"{node.module}.{name.name}") for name in node.names]
            pairs = [] if node.level else pairs
        else:
            continue
        bound |= {name: origin for name, origin in pairs if _may_load(origin)}
    return imports, bound


def _list_dynamic(nodes: Iterable[ast.AST], bound: dict[str, str]) -> Iterator[Reason]:
    """Yields every mention of a way to load code."""
    for node in nodes:
        if isinstance(node, ast.Name | ast.Attribute) and (origin := _find_origin(node, bound)):
            native = _is_below(origin, NATIVE)
            if native or _is_below(origin, DYNAMIC):
                kind = "native_unknown" if native else "imports_unknown"
                yield Reason(kind, {"file": None, "line": node.lineno, "what": origin})


def _find_origin(node: ast.AST, bound: dict[str, str]) -> str | None:
    """The dotted name that an expression stands for, through the file's imports: sys.path for s.path."""
    if isinstance(node, ast.Name):
        return bound.get(node.id, node.id if node.id in BUILTINS else None)
    inner = _find_origin(node.value, bound) if isinstance(node, ast.Attribute) else None
    return f"{inner}.{node.attr}" if inner is not None and isinstance(node, ast.Attribute) else None


@functools.lru_cache(maxsize=4096)
def _may_load(module: str) -> bool:
    """Whether a way of loading code lies in the module, or the module in one."""
    return any(_is_below(module, [way]) or _is_below(way, [module]) for way in (*DYNAMIC, *NATIVE))


def _is_below(name: str, above: Iterable[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in above)


def _list_paths(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """`a/b` of folder / "a" / "b" / name, of os.path.join(folder, "a", "b"), of joinpath and Path alike."""
    for node in nodes:
        parts: list[ast.expr] = []
        if isinstance(node, ast.Call):
            named = getattr(node.func, "attr", None) or getattr(node.func, "id", "")
            parts = node.args if named in {"Path", "join", "joinpath"} else []
        left = node
        while isinstance(left, ast.BinOp) and isinstance(left.op, ast.Div):
            parts, left = [left.right, *parts], left.left
        for are_texts, texts in itertools.groupby(map(_read_text, parts), lambda text: text is not None):
            text = "/".join(map(str, texts)) if are_texts else ""
            if _FILE_NAME.fullmatch(text):
                yield text


def _read_text(node: ast.AST) -> str | None:
    """The text of a literal."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
