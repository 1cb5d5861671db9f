"""Calls in a test: of the kernel and the reference, of helpers, of tensors' methods."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from perfci.scaffold.reading import Function, Module, dotted
from perfci.scaffold.walking.comparisons import COMPARISONS, comparison
from perfci.scaffold.walking.expressions import Expressions
from perfci.scaffold.walking.plain import plain_call
from perfci.scaffold.walking.tensors import FACTORIES, tensor_made, tensor_method
from perfci.scaffold.walking.values import UNKNOWN, Call, Closure, Marker, Tensor, Walk


@dataclass
class ReturnedError(Exception):
    """A function that is followed came to its return."""

    value: Any


class Calls(Expressions):
    """Follows calls, and notes those of the kernel and of comparisons."""

    def __init__(self) -> None:
        self.seen = Walk()
        self._current: ast.stmt | None = None
        self._depth = 0

    def block(self, body: Sequence[ast.stmt], scope: dict[str, Any], module: Module) -> None:
        """Follow statements one after the other."""
        raise NotImplementedError

    def globals_of(self, module: Module) -> dict[str, Any]:
        """A module's names, as far as its top level gives them plain values."""
        raise NotImplementedError

    def enter(self, function: Function, module: Module, scope: dict[str, Any]) -> None:
        """Call a test with every value that it is parametrised with; without any, with its defaults."""
        raise NotImplementedError

    def _value_call(self, node: ast.Call, scope: dict[str, Any], module: Module) -> Any:
        arguments = list(self._value_tuple(ast.Tuple(node.args, ast.Load()), scope, module))
        keywords = {each.arg: self.value(each.value, scope, module) for each in node.keywords if each.arg}
        path = dotted(node.func)
        name = path.split(".")[-1] or getattr(node.func, "attr", "")
        if path.startswith("torch.") and name in FACTORIES:
            return tensor_made(name, node, arguments, keywords)
        if name in COMPARISONS:
            self._compare(name, node, arguments, keywords)
            return UNKNOWN
        function = self.value(node.func, scope, module) if not isinstance(node.func, ast.Attribute) else UNKNOWN
        if isinstance(node.func, ast.Attribute):
            found = self._method(node.func, arguments, keywords, scope, module)
            if found is not None:
                return found
            function = self.value(node.func, scope, module)
        if isinstance(function, Marker):
            return self._marked(function, arguments, keywords, node)
        if isinstance(function, Closure) and isinstance(function.function, Function):
            inner = scope if function.module is module else self.globals_of(function.module)
            return self.call_function(function.function, function.module, dict(inner), arguments, keywords)
        return plain_call(path, arguments)

    def _marked(self, marker: Marker, arguments: list[Any], keywords: Mapping[str, Any], node: ast.Call) -> Any:
        if marker.is_class:
            return replace(marker, is_class=False)
        self.seen.understood.add(id(self._current))
        if marker.what == "kernel":
            self.seen.calls.append(Call(tuple(arguments), dict(keywords), node.lineno))
        return UNKNOWN

    def _method(
        self,
        node: ast.Attribute,
        arguments: list[Any],
        keywords: Mapping[str, Any],
        scope: dict[str, Any],
        module: Module,
    ) -> Any:
        """A method of a tensor, or of kernel and reference; None where it is neither."""
        if node.attr == "run" and isinstance(node.value, ast.Name):
            inner = scope.get(node.value.id)
            if isinstance(inner, Closure) and isinstance(inner.function, Function):
                self.enter(inner.function, inner.module, scope)
                return UNKNOWN
        owner = self.value(node.value, scope, module)
        if isinstance(owner, Marker) and node.attr in {"cuda", "to", "eval", "half", "float", "bfloat16", "npu"}:
            return owner
        return tensor_method(owner, node.attr, arguments, keywords) if isinstance(owner, Tensor) else None

    def _compare(self, name: str, node: ast.Call, arguments: list[Any], keywords: Mapping[str, Any]) -> None:
        self.seen.understood.add(id(self._current))
        last = self.seen.calls[-1] if self.seen.calls else None
        self.seen.comparisons.append(comparison(name, node, arguments, keywords, last))

    def call_function(
        self,
        function: Function,
        module: Module,
        scope: dict[str, Any],
        arguments: list[Any],
        keywords: Mapping[str, Any],
    ) -> Any:
        """Follow a function of the sketch; gives what it returns."""
        if self._depth > 8:
            return UNKNOWN
        spec = function.args
        names = [each.arg for each in (*spec.posonlyargs, *spec.args)]
        local = dict(scope)
        for name, default in zip(reversed(names), reversed(spec.defaults), strict=False):
            local[name] = self.value(default, scope, module)
        for each, only in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            local[each.arg] = self.value(only, scope, module) if only else UNKNOWN
        given = dict(zip(names, arguments, strict=False)) | dict(keywords)
        local |= dict.fromkeys(names[: len(names) - len(spec.defaults)], UNKNOWN) | given
        self._depth += 1
        try:
            self.block(function.body, local, module)
        except ReturnedError as returned:
            return returned.value
        finally:
            self._depth -= 1
        return UNKNOWN
