"""The walk through a test's file, from its entry on."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from perfci.scaffold.reading import Function, Module
from perfci.scaffold.walking.limits import StopError
from perfci.scaffold.walking.points import points
from perfci.scaffold.walking.statements import Statements
from perfci.scaffold.walking.values import UNKNOWN, Closure, Marker, Walk


def walk(test: Module, entry: str, others: Mapping[str, Module], markers: Mapping[tuple[str, str], Marker]) -> Walk:
    """Follow a test file from its function `entry`, or from its top level where it has none.

    `others` are the sketch's other files by the name that they are imported by; `markers` say of what is defined there
    (module, name) what is the kernel and what the reference.
    """
    walker = _Walker(others, markers)
    try:
        scope = walker.globals_of(test)
        if entry in test.functions:
            walker.enter(test.functions[entry], test, scope)
        else:
            walker.block(test.tree.body, scope, test)
    except (StopError, RecursionError):
        walker.seen.cut = True
    return walker.seen


class _Walker(Statements):
    """Knows the sketch's files, and what in them is kernel and reference."""

    def __init__(self, others: Mapping[str, Module], markers: Mapping[tuple[str, str], Marker]) -> None:
        super().__init__(others)
        self._markers = markers

    def globals_of(self, module: Module) -> dict[str, Any]:
        """A module's names, as far as its top level gives them plain values."""
        scope: dict[str, Any] = {}
        for node in module.tree.body:
            if isinstance(node, Function):
                scope[node.name] = Closure(node, module)
            elif isinstance(node, ast.Import | ast.ImportFrom | ast.Assign | ast.AnnAssign):
                self._statement(node, scope, module)
        return scope

    def enter(self, function: Function, module: Module, scope: dict[str, Any]) -> None:
        """Call a test with every value that it is parametrised with; without any, with its defaults."""
        for given in points(function, lambda node: self.value(node, scope, module)):
            self.call_function(function, module, dict(scope), [], given)

    def attribute_of(self, module: Module, name: str) -> Any:
        """What a file of the sketch has under a name: kernel, reference, a function, a plain value."""
        marker = self._markers.get((module.path.stem, name))
        if marker is not None:
            return marker
        function = module.functions.get(name)
        if function is not None:
            return Closure(function, module)
        return self.globals_of(module).get(name, UNKNOWN)
