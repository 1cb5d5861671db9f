"""The calls that a project's tests make. Their text is read, and only what leads to these calls is carried out."""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import math
import re
import types
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from perfci.core.extensions import provided
from perfci.extensions.adopt.rehearsal.axes import Call
from perfci.extensions.adopt.rehearsal.dry_torch import Absent, DryTorch, Makers

MOST_CASES = 32  # of each suite
_MOST_TURNS = 1024  # of a loop, or of a test's parameters
_SPEED = re.compile(r"perf|bench|speed", re.IGNORECASE)
_TESTS = re.compile(rf"test|accuracy|correct|main|{_SPEED.pattern}", re.IGNORECASE)
_PYTHON = (
    "Exception", "abs", "bool", "dict", "enumerate", "float", "int", "isinstance", "len", "list", "max", "min", "set",
    "sorted", "str", "sum", "tuple", "zip",
)  # fmt: skip


class TestReader:
    """Tests of one function.

    Of a file are carried out its assignments, loops, functions and decorators. Every import, assertion and exception is
    left out, and all that comes from elsewhere is a stand-in, but for torch's functions that make tensors.
    """

    def __init__(self, names: set[str], takes: inspect.Signature, going: DryTorch) -> None:
        """`names`: what tests call the function. `takes`: its parameters."""
        self._names, self._signature, self._going = names, takes, going
        self._calls: dict[tuple[str, str], Call] = {}

    def read(self, paths: Sequence[Path]) -> list[Call]:
        """Returns the calls in these files, each case once."""
        op = _Op(self._going, "op")
        op.note = self._note
        self._going.functions |= dict.fromkeys(self._names, op)
        for path in paths:
            self._part = "performance" if _SPEED.search(path.stem) else "accuracy"
            scope = self._carry_out(path)
            for name, test in list(scope.items()):
                if isinstance(test, types.FunctionType) and _TESTS.search(name) and not _list_needed(test):
                    self._part = "performance" if _SPEED.search(f"{path.stem} {name}") else "accuracy"
                    with suppress(TypeError):  # it takes what only pytest gives
                        test()
        self._going.functions.clear()
        return list(self._calls.values())

    def _carry_out(self, path: Path, depth: int = 0) -> _Scope:
        """Definitions of a file."""
        scope = _Scope({name: getattr(builtins, name) for name in _PYTHON})
        scope.going = self._going
        scope |= {"torch": Makers(self._going), "math": math, "itertools": itertools, "__name__": path.stem}
        scope |= {"range": lambda *bounds: range(*bounds)[:_MOST_TURNS], "print": lambda *_, **__: None}
        try:
            text = next(provided("calls"))(path) if path.suffix == ".json" else path.read_text(encoding="utf-8")
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError):
            return scope
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                beside = path.parent / f"{(node.module or '').replace('.', '/')}.py"
                carried = self._carry_out(beside, depth + 1) if depth < 2 and beside.is_file() else {}
                scope |= {key: value for key, value in carried.items() if key.isupper()}
                scope |= {name.asname: self._going.stand_in(name.name) for name in node.names if name.asname}
        tree = ast.fix_missing_locations(_Cut().visit(tree))
        exec(compile(tree, str(path), "exec", dont_inherit=True), scope)
        return scope

    def _note(self, args: Sequence[Any], named: Mapping[str, Any]) -> None:
        try:
            given = self._signature.bind(*args, **named).arguments
        except TypeError:  # another function of this name
            return
        unknown = {name for name, value in given.items() if isinstance(value, Absent)}
        if unknown & {*_list_needed(self._signature)}:
            return
        given = {name: self._going.argument(value) or value for name, value in given.items() if name not in unknown}
        names, frame = dict[str, int](), inspect.currentframe()
        while frame := frame and frame.f_back:
            if isinstance(frame.f_globals, _Scope):
                names |= {key: value for key, value in frame.f_locals.items() if type(value) is int}
        call = Call(self._part, given, names)
        few = sum(part == self._part for part, _ in self._calls) < MOST_CASES
        if few and any(tensor.shape for tensor in call.tensors.values()):
            self._calls.setdefault((self._part, call.key), call)


def _list_needed(function: Any) -> list[str]:
    signature = function if isinstance(function, inspect.Signature) else inspect.signature(function)
    takes = signature.parameters.values()
    return [take.name for take in takes if take.default is take.empty and take.kind < take.VAR_POSITIONAL]


class _Cut(ast.NodeTransformer):
    """Leaves out what leads to no call of the op, and what could reach beyond the tests."""

    def visit(self, node: ast.AST) -> Any:
        """Returns what is carried out in a node's place."""
        self.generic_visit(node)
        match node:
            case ast.Lambda() if not node.args.args:
                return node.body  # what a benchmark is given is called at once
            case ast.Attribute() if node.attr.startswith("_"):
                return ast.Constant(None)
            case ast.With() | ast.Try() | ast.While():
                return node.body
            case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.Raise() | ast.ClassDef() | ast.Global():
                return ast.Pass()
            case ast.stmt():  # what depends on a result that no one computed raises, and the next one has its turn
                ends = ast.ExceptHandler(ast.Name("Exception", ast.Load()), None, [ast.Pass()])
                return ast.Try([node], [ends], [], [])
        return node


class _Scope(dict[str, Any]):
    """Names of a file. A stand-in is what it does not define."""

    going: DryTorch

    def __missing__(self, name: str) -> Any:
        return self.going.stand_in(name)


class _Op(Absent):
    """The function as its tests have it: a function, an attribute of something, or a model."""

    note: Any

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *args: Any, **named: Any) -> Any:
        self.note(args, named)
        return args[0] if args and callable(args[0]) else self  # as a decorator
