"""Statements of a test, one after the other."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from perfci.scaffold.reading import Module
from perfci.scaffold.walking.calls import Calls, ReturnedError
from perfci.scaffold.walking.expressions import bind
from perfci.scaffold.walking.limits import MOST_CALLS, MOST_STEPS, StopError
from perfci.scaffold.walking.values import UNKNOWN, Closure, Tensor


class Statements(Calls):
    """Follows statements: both branches where a condition cannot be told, a loop once where its values cannot."""

    def __init__(self, others: Mapping[str, Module]) -> None:
        super().__init__()
        self._others = others
        self._steps = 0

    def block(self, body: Sequence[ast.stmt], scope: dict[str, Any], module: Module) -> None:
        """Follow statements one after the other; raises StopError where it has been enough."""
        for node in body:
            self._statement(node, scope, module)

    def _statement(self, node: ast.stmt, scope: dict[str, Any], module: Module) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS or len(self.seen.calls) >= MOST_CALLS:
            raise StopError
        around, self._current = self._current, node
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method:
            method(node, scope, module)
        self._current = around

    def _import(self, node: ast.Import, scope: dict[str, Any], module: Module) -> None:
        for alias in node.names:
            if alias.name in self._others:
                scope[alias.asname or alias.name] = self._others[alias.name]

    def _importfrom(self, node: ast.ImportFrom, scope: dict[str, Any], module: Module) -> None:
        origin = (node.module or "").split(".")[-1]
        for alias in node.names:
            if origin in self._others:
                scope[alias.asname or alias.name] = self.attribute_of(self._others[origin], alias.name)
            elif alias.name in self._others:
                scope[alias.asname or alias.name] = self._others[alias.name]

    def _functiondef(self, node: ast.FunctionDef, scope: dict[str, Any], module: Module) -> None:
        scope[node.name] = Closure(node, module)

    def _assign(self, node: ast.Assign, scope: dict[str, Any], module: Module) -> None:
        before = len(self.seen.calls)
        value = self.value(node.value, scope, module)
        for target in node.targets:
            bind(target, value, scope)
        if value is not UNKNOWN or len(self.seen.calls) > before:
            self.seen.understood.add(id(node))

    def _annassign(self, node: ast.AnnAssign, scope: dict[str, Any], module: Module) -> None:
        if node.value is not None:
            bind(node.target, self.value(node.value, scope, module), scope)
            self.seen.understood.add(id(node))

    def _augassign(self, node: ast.AugAssign, scope: dict[str, Any], module: Module) -> None:
        if isinstance(node.target, ast.Name):
            both = ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)
            ast.copy_location(both, node)
            ast.fix_missing_locations(both)
            scope[node.target.id] = self.value(both, scope, module)

    def _for(self, node: ast.For, scope: dict[str, Any], module: Module) -> None:
        values = self.value(node.iter, scope, module)
        if not isinstance(values, list | tuple):
            values = [UNKNOWN]
        for value in values:
            before = len(self.seen.calls)
            bind(node.target, value, scope)
            self.block(node.body, scope, module)
            if isinstance(node.target, ast.Name) and node.target.id == "_" and len(self.seen.calls) > before:
                break  # the same call again, for its time

    def _if(self, node: ast.If, scope: dict[str, Any], module: Module) -> None:
        test = self.value(node.test, scope, module)
        main = ast.unparse(node.test) in {"__name__ == '__main__'", "'__main__' == __name__"}
        for body, wanted in ((node.body, True), (node.orelse, False)):
            if main or test is UNKNOWN or isinstance(test, Tensor) or bool(test) is wanted:
                self.block(body, scope, module)

    def _while(self, node: ast.While, scope: dict[str, Any], module: Module) -> None:
        self.block(node.body, scope, module)

    def _with(self, node: ast.With, scope: dict[str, Any], module: Module) -> None:
        self.block(node.body, scope, module)

    def _try(self, node: ast.Try, scope: dict[str, Any], module: Module) -> None:
        self.block([*node.body, *node.orelse, *node.finalbody], scope, module)

    def _expr(self, node: ast.Expr, scope: dict[str, Any], module: Module) -> None:
        before = len(self.seen.calls)
        self.value(node.value, scope, module)
        if len(self.seen.calls) > before:
            self.seen.understood.add(id(node))

    def _assert(self, node: ast.Assert, scope: dict[str, Any], module: Module) -> None:
        self.value(node.test, scope, module)

    def _return(self, node: ast.Return, scope: dict[str, Any], module: Module) -> None:
        raise ReturnedError(self.value(node.value, scope, module) if node.value else None)
