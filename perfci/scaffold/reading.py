"""Reading other people's Python by its syntax: never imported, never run."""

from __future__ import annotations

import ast
import difflib
import io
import tokenize
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import UsageError

Function = ast.FunctionDef | ast.AsyncFunctionDef

_MATHS = frozenset(
    {"exp", "exp2", "log", "log2", "sigmoid", "softmax", "sqrt", "rsqrt", "sin", "cos", "erf", "tanh", "sum", "cumsum"}
)
"""Functions of triton.language that need float32 to be right, or to compile at all."""


@dataclass(frozen=True)
class Module:
    """One file of Python."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def shown(self) -> str:
        """The path as people write it where they stand."""
        return shown(self.path)

    @property
    def functions(self) -> dict[str, Function]:
        """Top-level functions; of two with one name the later, as in Python."""
        return {node.name: node for node in self.tree.body if isinstance(node, Function)}

    @property
    def jitted(self) -> list[Function]:
        """Top-level Triton kernels and device functions, those that a later function of their name hides included."""
        return [node for node in self.tree.body if isinstance(node, Function) and is_jitted(node)]

    @property
    def classes(self) -> dict[str, ast.ClassDef]:
        """Top-level classes."""
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}


def shown(path: Path) -> str:
    """A path from the current folder, where it lies below that."""
    here = Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)


def read(path: Path) -> Module:
    """A file's syntax; raises UsageError for one that is missing, unreadable, or no Python (with its line)."""
    try:
        content = path.read_bytes()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape is its author's business
            tree = ast.parse(content, filename=str(path))
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        text = io.TextIOWrapper(io.BytesIO(content), encoding=encoding).read()
    except FileNotFoundError as error:
        raise UsageError("source_missing", file=shown(path)) from error
    except SyntaxError as error:
        raise UsageError("syntax_error", file=shown(path), line=error.lineno, why=error.msg) from error
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise UsageError("source_unreadable", file=shown(path), why=why) from error
    return Module(path, text, tree)


def is_jitted(node: Function) -> bool:
    """Whether a decorator is triton.jit, written in any usual way."""
    names = {dotted(mark.func if isinstance(mark, ast.Call) else mark) for mark in node.decorator_list}
    return bool(names & {"triton.jit", "jit", "tl.jit"})


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a chain of attributes; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner and isinstance(node, ast.Attribute) else ""


def closest(name: str, known: Iterable[str]) -> str | None:
    """The name that was most likely meant."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return close[0] if close else None


def launched(node: ast.AST) -> set[str]:
    """Names of what is launched inside: kernel in `kernel[grid](...)`."""
    calls = (inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return {call.value.id for call in calls if isinstance(call, ast.Subscript) and isinstance(call.value, ast.Name)}


def called(node: ast.AST) -> set[str]:
    """Names of what is called or launched inside."""
    calls = (inner.func for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return {call.id for call in calls if isinstance(call, ast.Name)} | launched(node)


def reached(module: Module, start: str) -> list[ast.AST]:
    """The jitted functions that a function launches or calls, over others of its file too."""
    jitted = {node.name: node for node in module.jitted}
    todo, seen = [start], set[str]()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        nodes = [each for each in (module.functions.get(name), jitted.get(name)) if each is not None]
        todo += [inner for node in nodes for inner in called(node)]
    return [node for name, node in jitted.items() if name in seen]


@dataclass(frozen=True)
class Nature:
    """What a file's Triton kernels do, as far as it decides what can be checked where."""

    casts: bool
    """to float32 somewhere"""
    dot: bool
    maths: bool
    """functions that are wrong, or do not compile, in half precision"""
    atomic: bool

    @property
    def dtypes(self) -> tuple[str, ...]:
        """The dtypes in which a right kernel of this kind comes out right."""
        if self.dot:
            return ("float16", "bfloat16")  # float32 would be multiplied as TF32
        if self.casts:
            return ("float32", "float16", "bfloat16")
        return ("float32",) if self.maths else ("float32", "float16")


def nature(kernels: Sequence[ast.AST]) -> Nature:
    """Of all these functions together."""
    nodes = [node for kernel in kernels for node in ast.walk(kernel)]
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return Nature(
        casts="float32" in names,
        dot="dot" in names,
        maths=bool(names & _MATHS),
        atomic=any(name.startswith("atomic_") for name in names),
    )


# --- edits ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, order=True)
class Patch:
    """Text to put in the place of other text; offsets in characters."""

    start: int
    end: int
    text: str = ""


def span(module: Module, node: ast.AST) -> tuple[int, int]:
    """Where a node stands in its file's text, in characters."""
    lines = module.text.splitlines(keepends=True)
    places = ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))  # type: ignore[attr-defined]
    starts = _starts(lines)
    start, end = (starts[line - 1] + _characters(lines[line - 1], at) for line, at in places)
    return start, end


def renamed(module: Module, node: ast.AST, name: str) -> Patch:
    """Another name for a Name, or for what `def` and `class` define."""
    if isinstance(node, Function | ast.ClassDef):
        start, end = span(module, node)
        keyword = "class" if isinstance(node, ast.ClassDef) else "def"
        at = module.text.index(node.name, module.text.index(keyword, start, end) + len(keyword))
        return Patch(at, at + len(node.name), name)
    return Patch(*span(module, node), name)


def without(module: Module, node: ast.AST) -> Patch:
    """A statement taken out with its lines and decorators; `pass` where a line holds another statement too."""
    lines = module.text.splitlines(keepends=True)
    starts = [*_starts(lines), len(module.text)]
    first = min([node.lineno, *(mark.lineno for mark in getattr(node, "decorator_list", []))])  # type: ignore[attr-defined]
    whole = Patch(starts[first - 1], starts[node.end_lineno])  # type: ignore[attr-defined]
    start, end = span(module, node)
    before, after = module.text[whole.start : start].strip(), module.text[end : whole.end].strip()
    alone = (not before or first < node.lineno) and (not after or after.startswith("#"))  # type: ignore[attr-defined]
    return whole if alone else Patch(start, end, "pass")


def edited(text: str, edits: Iterable[Patch]) -> str:
    """The text with all edits made; of two that overlap the one that begins first and reaches farther."""
    done, at = [], 0
    for edit in sorted(set(edits), key=lambda each: (each.start, -each.end)):
        if edit.start >= at:
            done += [text[at : edit.start], edit.text]
            at = edit.end
    return "".join([*done, text[at:]])


def rename_jitted(module: Module, node: Function) -> list[Patch]:
    """A jitted kernel gets a name of its own, where it is defined, launched, and called by other jitted functions."""
    new = fresh(module, f"_{node.name}_kernel")
    inner = {id(each) for other in module.jitted for each in ast.walk(other)}
    calls = (each.func for each in ast.walk(module.tree) if isinstance(each, ast.Call))
    uses = [call.value for call in calls if isinstance(call, ast.Subscript)]
    uses += [each for each in ast.walk(module.tree) if isinstance(each, ast.Name) and id(each) in inner]
    names = [each for each in uses if isinstance(each, ast.Name) and each.id == node.name]
    return [renamed(module, each, new) for each in (node, *names)]


def rename_all(module: Module, name: str, new: str, *, exact: bool = False) -> list[Patch]:
    """Another name for what the top level defines, wherever the file uses it; `exact` even where it is used already."""
    nodes: list[ast.AST] = [
        node for node in module.tree.body if isinstance(node, Function | ast.ClassDef) and node.name == name
    ]
    nodes += [node for node in ast.walk(module.tree) if isinstance(node, ast.Name) and node.id == name]
    own = new if exact else fresh(module, new)
    return [renamed(module, node, own) for node in nodes]


def fresh(module: Module, name: str) -> str:
    """The name, or one like it that the file does not use."""
    used = {node.id for node in ast.walk(module.tree) if isinstance(node, ast.Name)}
    used |= {node.name for node in ast.walk(module.tree) if isinstance(node, Function | ast.ClassDef)}
    while name in used:
        name = f"{name}_"
    return name


def _starts(lines: Sequence[str]) -> list[int]:
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    return starts[:-1]


def _characters(line: str, offset: int) -> int:
    """Columns in `ast` count bytes of UTF-8."""
    return len(line.encode()[:offset].decode(errors="ignore"))


def parents(tree: ast.AST) -> dict[int, ast.AST]:
    """The node that holds a node, by that one's id."""
    return {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


def assigned(module: Module) -> dict[str, ast.expr]:
    """Values that the top level gives to names, the last one of each."""
    found: dict[str, ast.expr] = {}
    for node in module.tree.body:
        if isinstance(node, ast.Assign):
            found |= {target.id: node.value for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and node.value is not None and isinstance(node.target, ast.Name):
            found[node.target.id] = node.value
    return found


def literal(node: ast.expr | None) -> str | None:
    """A plain value's text: a number, a text, None, a tuple of them, or a name below torch; None for anything else."""
    if node is None:
        return None
    if dotted(node).startswith("torch."):
        return dotted(node)
    try:
        return repr(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None


def imported(tree: ast.AST) -> Iterator[tuple[str, int, int]]:
    """(module, level of a relative import, line) of every import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or "", node.level, node.lineno
