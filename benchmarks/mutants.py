"""Random faults: every edit that a few rules can make to the jitted functions of the kernels, no one choosing them.

An edit replaces one piece of one line, so that a mutant is shown as a diff of one line. Rules follow what people get
wrong: operators, directions of comparisons, constants off by one, masks and conditions left out, casts, strides.
"""

from __future__ import annotations

import ast
import difflib
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

BINARY = {
    ast.Add: ("+", "-"), ast.Sub: ("-", "+"), ast.Mult: ("*", "+"), ast.Div: ("/", "*"), ast.FloorDiv: ("//", "%"),
    ast.Mod: ("%", "//"), ast.BitAnd: ("&", "|"), ast.BitOr: ("|", "&"), ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"), ast.BitXor: ("^", "&"),
}  # fmt: skip
COMPARED = {
    ast.Lt: ("<", "<=", ">"), ast.LtE: ("<=", "<", ">="), ast.Gt: (">", ">=", "<"), ast.GtE: (">=", ">", "<="),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="),
}  # fmt: skip
CALLS = {
    "maximum": "minimum", "minimum": "maximum", "max": "min", "min": "max", "exp": "exp2", "exp2": "exp",
    "atomic_add": "atomic_max", "sqrt": "rsqrt", "rsqrt": "sqrt", "num_programs": "program_id",
}  # fmt: skip
NARROWER = {"int64": "int32", "float32": "float16", "float64": "float32"}
HINTS = frozenset(
    {"num_stages", "num_warps", "eviction_policy", "cache_modifier", "flatten", "warp_specialize", "loop_unroll_factor",
     "disallow_acc_multi_buffer", "disable_licm", "volatile"}
)  # fmt: skip
"""Arguments that change how fast a kernel is, not what it computes."""


SPEED = frozenset({"AGAIN", "STAGES", "FLATTEN", "AHEAD"})
"""Constants of these kernels that do likewise."""


@dataclass(frozen=True, order=True)
class Mutant:
    """One edit of one line."""

    path: str
    """below kernels/"""
    function: str
    line: int
    start: int
    stop: int
    """columns, in characters"""
    after: str
    rule: str
    span: tuple[int, int]
    """first and last line of the statement, as far as it belongs to no other"""

    def planted(self, text: str) -> str:
        """Returns the file's text with the edit."""
        lines = text.splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.start] + self.after + line[self.stop :]
        return "".join(lines)

    def parses(self, text: str) -> bool:
        """Whether the file is still Python, and another program than before."""
        try:
            return ast.dump(ast.parse(self.planted(text))) != ast.dump(ast.parse(text))
        except SyntaxError:
            return False

    def diff(self, text: str) -> str:
        """Returns a unified diff without lines around the edit."""
        pair = (lines_of.splitlines(keepends=True) for lines_of in (text, self.planted(text)))
        return "".join(difflib.unified_diff(*pair, f"a/{self.path}", f"b/{self.path}", n=0)).strip()


def jitted(folder: Path) -> Iterator[tuple[str, str, ast.FunctionDef]]:
    """Every jitted function below the folder: its file, that file's text, its tree."""
    for path in sorted(folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(mark) for mark in node.decorator_list):
                yield path.relative_to(folder).as_posix(), text, node


def users(folder: Path) -> dict[str, list[str]]:
    """File below the folder -> the ops that it belongs to the kernel of, by what each op's file imports."""
    ops_of: dict[str, list[str]] = {}
    for op in sorted(path.parent.name for path in folder.glob("*/*_triton.py")):
        todo, seen = [f"{op}/{op}_triton.py"], set[str]()
        while todo:
            if (file := todo.pop()) in seen:
                continue
            seen.add(file)
            for node in ast.walk(ast.parse((folder / file).read_text(encoding="utf-8"))):
                names = [name.name for name in node.names] if isinstance(node, ast.Import) else []
                if isinstance(node, ast.ImportFrom) and node.module:
                    names += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
                paths = [f"{name.replace('.', '/')}.py" for name in names]
                todo += [near for path in paths for near in (path, f"{op}/{path}") if (folder / near).is_file()]
        for file in sorted(seen):
            ops_of.setdefault(file, []).append(op)
    return ops_of


def every_mutant(folder: Path) -> list[Mutant]:
    """All edits of the kernels that ops launch, in the order of files and lines. Some leave a file no longer Python."""
    ops_of = users(folder)
    functions = (function for function in jitted(folder) if function[0] in ops_of)
    return sorted({mutant for path, text, node in functions for mutant in _Function(path, text, node).mutants()})


def draw(mutants: Iterable[Mutant], folder: Path, number: int, seed: int) -> list[Mutant]:
    """Returns so many of them that Python can parse.

    Each time a line at random, then a rule, then an edit of it: neither long lines nor fertile rules weigh more.
    """
    rng, lines = random.Random(seed), dict[tuple[str, int], list[Mutant]]()
    for mutant in mutants:
        lines.setdefault((mutant.path, mutant.line), []).append(mutant)
    drawn: list[Mutant] = []
    while lines and len(drawn) < number:
        left = lines[place := rng.choice(list(lines))]
        rule = rng.choice(sorted({mutant.rule for mutant in left}))
        chosen = rng.choice([mutant for mutant in left if mutant.rule == rule])
        left.remove(chosen)
        if not left:
            del lines[place]
        if chosen.parses((folder / chosen.path).read_text(encoding="utf-8")):
            drawn.append(chosen)
    return drawn


class _Function:
    """One jitted function and the edits of it."""

    def __init__(self, path: str, text: str, node: ast.FunctionDef) -> None:
        self._path, self._node = path, node
        self._lines = text.splitlines()
        self._parameters = [parameter.arg for parameter in (*node.args.args, *node.args.kwonlyargs)]

    def mutants(self) -> Iterator[Mutant]:
        body = self._node.body
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]
        for statement in (node for top in body for node in ast.walk(top) if isinstance(node, ast.stmt)):
            inner = [part for name in ("body", "orelse") for part in getattr(statement, name, [])]
            last = max(statement.lineno, min((part.lineno for part in inner), default=1 << 30) - 1)
            span = statement.lineno, min(last, statement.end_lineno or last)
            for rule, number, *columns, after in self._edits(statement):
                line = self._lines[number - 1]
                start, stop = (len(line.encode()[:column].decode()) for column in columns)
                if line[start:stop] != after:
                    yield Mutant(self._path, self._node.name, number, start, stop, after, rule, span)

    def _edits(self, statement: ast.stmt) -> Iterator[tuple[str, int, int, int, str]]:
        """(rule, line, first column, last column, text) of the statement itself, without those that it contains."""
        if isinstance(statement, ast.AugAssign) and type(statement.op) in BINARY:
            before, after = BINARY[type(statement.op)]
            yield from self._between(statement.target, statement.value, f"{before}=", f"{after}=", "operator")
        if isinstance(statement, ast.If | ast.While) and ast.unparse(statement.test) not in SPEED:
            yield from self._replace(statement.test, f"not ({ast.unparse(statement.test)})", "condition")
        nodes = [node for node in ast.iter_child_nodes(statement) if not isinstance(node, ast.stmt)]
        while nodes:
            node = nodes.pop()
            if isinstance(node, ast.keyword) and node.arg in HINTS:
                continue
            if isinstance(statement, ast.AnnAssign) and node is statement.annotation:
                continue
            if isinstance(statement, ast.Assert):
                continue
            nodes += ast.iter_child_nodes(node)
            yield from self._edits_of(node)

    def _edits_of(self, node: ast.AST) -> Iterator[tuple[str, int, int, int, str]]:
        match node:
            case ast.BinOp() if type(node.op) in BINARY:
                before, after = BINARY[type(node.op)]
                yield from self._between(node.left, node.right, before, after, "operator")
                if isinstance(node.op, ast.BitAnd | ast.Mult | ast.Add | ast.Sub | ast.FloorDiv):
                    rule = "mask" if isinstance(node.op, ast.BitAnd) else "term"
                    yield from self._replace(node, ast.unparse(node.left), rule)
                    if not isinstance(node.op, ast.FloorDiv | ast.Sub):
                        yield from self._replace(node, ast.unparse(node.right), rule)
            case ast.Compare() if type(node.ops[0]) in COMPARED and len(node.ops) == 1:
                before, *others = COMPARED[type(node.ops[0])]
                for after in others:
                    yield from self._between(node.left, node.comparators[0], before, after, "comparison")
            case ast.BoolOp():
                yield from self._between(
                    node.values[0], node.values[1], *(("and", "or") if isinstance(node.op, ast.And) else ("or", "and")),
                    "condition",
                )  # fmt: skip
            case ast.UnaryOp(op=ast.USub() | ast.Not() | ast.Invert()):
                yield from self._replace(node, ast.unparse(node.operand), "sign")
            case ast.IfExp() if ast.unparse(node.test) not in SPEED:
                # A mask that masks nothing costs time and is no fault.
                kept = [branch for branch in (node.body, node.orelse) if ast.unparse(branch) == "None"]
                for branch in kept or (node.body, node.orelse):
                    yield from self._replace(node, ast.unparse(branch), "condition")
            case ast.Constant(value=bool(value)):
                yield from self._replace(node, str(not value), "constant")
            case ast.Constant(value=int(value)):
                yield from self._replace(node, str(value + 1), "constant")
                if value:
                    yield from self._replace(node, str(value - 1), "constant")
            case ast.Constant(value=float(value)):
                yield from self._replace(node, repr(value * 1.01 if value else 1.0), "constant")
                yield from self._replace(node, repr(value * 2 if value else -1.0), "constant")
            case ast.Name(ctx=ast.Load()) if node.id in self._parameters and node.id not in SPEED:
                yield from self._swaps(node)
            case ast.Attribute() if node.attr in NARROWER:
                yield from self._replace(node, f"{ast.unparse(node.value)}.{NARROWER[node.attr]}", "cast")
            case ast.Call():
                yield from self._calls(node)

    def _swaps(self, node: ast.Name) -> Iterator[tuple[str, int, int, int, str]]:
        """A parameter in another's place: the next of the same kind, by the last part of its name."""
        kind = node.id.split("_")[-1]
        alike = [parameter for parameter in self._parameters if parameter.split("_")[-1] == kind]
        if kind not in {"stride", "ptr"} and not kind.isdigit():
            alike = [
                parameter
                for parameter in self._parameters
                if parameter.isupper() == node.id.isupper() and parameter[-3:] != "ptr"
            ]
            alike = [name for name in alike if ("stride" in name) == ("stride" in node.id)]
        if len(alike) > 1:
            other = alike[(alike.index(node.id) + 1) % len(alike)]
            yield from self._replace(node, other, "swap")

    def _calls(self, node: ast.Call) -> Iterator[tuple[str, int, int, int, str]]:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in CALLS and isinstance(node.func, ast.Attribute):
            yield from self._replace(node.func, f"{ast.unparse(node.func.value)}.{CALLS[name]}", "call")
        if name == "to" and isinstance(node.func, ast.Attribute):
            yield from self._replace(node, f"({ast.unparse(node.func.value)})", "cast")
        if name == "where" and len(node.args) == 3:
            for kept in node.args[1:]:
                yield from self._replace(node, f"({ast.unparse(kept)})", "mask")
        if name == "cdiv" and len(node.args) == 2:
            yield from self._replace(node, f"({ast.unparse(node.args[0])}) // ({ast.unparse(node.args[1])})", "call")
        if name in {"maximum", "minimum"} and len(node.args) == 2:
            for kept in node.args:
                yield from self._replace(node, f"({ast.unparse(kept)})", "term")
        places = {"load": {1: "mask", 2: "other"}, "store": {2: "mask"}}.get(name, {})
        for place, rule in places.items():
            given = node.args[place : place + 1] + [keyword.value for keyword in node.keywords if keyword.arg == rule]
            for value in given:
                yield from self._replace(value, "None", rule)

    def _replace(self, node: ast.expr, text: str, rule: str) -> Iterator[tuple[str, int, int, int, str]]:
        if node.end_lineno == node.lineno and node.end_col_offset is not None:
            kept = text if isinstance(node, ast.Name | ast.Constant | ast.Attribute) else f"({text})"
            yield rule, node.lineno, node.col_offset, node.end_col_offset, kept

    def _between(
        self, left: ast.expr, right: ast.expr, before: str, after: str, rule: str
    ) -> Iterator[tuple[str, int, int, int, str]]:
        """The operator between two operands on one line."""
        if left.end_lineno != right.lineno or left.end_col_offset is None:
            return
        text = self._lines[right.lineno - 1].encode()[left.end_col_offset : right.col_offset].decode()
        if text.count(before) == 1:
            start = left.end_col_offset + len(text[: text.index(before)].encode())
            yield rule, right.lineno, start, start + len(before.encode()), after
