"""What an expression of a test is."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from perfci.scaffold.reading import Module, dotted
from perfci.scaffold.walking.limits import MOST_CALLS, StopError
from perfci.scaffold.walking.plain import compared, computed
from perfci.scaffold.walking.tensors import DTYPES, combined
from perfci.scaffold.walking.values import UNKNOWN, Dtype, Marker, Tensor


class Expressions:
    """Evaluates expressions; calls among them stand in `calls`."""

    def attribute_of(self, module: Module, name: str) -> Any:
        """What a file of the sketch has under a name."""
        raise NotImplementedError

    def value(self, node: ast.expr, scope: dict[str, Any], module: Module) -> Any:
        """What an expression is; UNKNOWN where that cannot be told. Calls inside are followed all the same."""
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return scope.get(node.id, UNKNOWN)
        method = getattr(self, f"_value_{type(node).__name__.lower()}", None)
        if method:
            return method(node, scope, module)
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.expr):
                self.value(inner, scope, module)
        return UNKNOWN

    def _value_tuple(self, node: ast.Tuple, scope: dict[str, Any], module: Module) -> Any:
        found: list[Any] = []
        for each in node.elts:
            if isinstance(each, ast.Starred):
                inner = self.value(each.value, scope, module)
                found += inner if isinstance(inner, list | tuple) else [UNKNOWN]
            else:
                found.append(self.value(each, scope, module))
        return tuple(found)

    def _value_list(self, node: ast.List, scope: dict[str, Any], module: Module) -> Any:
        return list(self._value_tuple(ast.Tuple(node.elts, ast.Load()), scope, module))

    def _value_lambda(self, node: ast.Lambda, scope: dict[str, Any], module: Module) -> Any:
        if not node.args.args:
            self.value(node.body, dict(scope), module)  # what is timed
        return UNKNOWN

    def _value_ifexp(self, node: ast.IfExp, scope: dict[str, Any], module: Module) -> Any:
        test = self.value(node.test, scope, module)
        if test is UNKNOWN:
            return UNKNOWN
        return self.value(node.body if test else node.orelse, scope, module)

    def _value_compare(self, node: ast.Compare, scope: dict[str, Any], module: Module) -> Any:
        values = [self.value(each, scope, module) for each in (node.left, *node.comparators)]
        return compared(node.ops[0], values)

    def _value_unaryop(self, node: ast.UnaryOp, scope: dict[str, Any], module: Module) -> Any:
        value = self.value(node.operand, scope, module)
        if isinstance(node.op, ast.USub) and isinstance(value, int | float):
            return -value
        return replace(value, text=f"(-{value.text})") if isinstance(value, Tensor) else UNKNOWN

    def _value_binop(self, node: ast.BinOp, scope: dict[str, Any], module: Module) -> Any:
        left, right = self.value(node.left, scope, module), self.value(node.right, scope, module)
        if isinstance(left, Tensor) or isinstance(right, Tensor):
            return combined(node.op, left, right)
        return computed(node.op, left, right)

    def _value_attribute(self, node: ast.Attribute, scope: dict[str, Any], module: Module) -> Any:
        path = dotted(node)
        if path.startswith("torch.") and path.split(".")[-1] in DTYPES and path.count(".") == 1:
            return Dtype(DTYPES[node.attr])
        inner = self.value(node.value, scope, module)
        if isinstance(inner, Module):
            return self.attribute_of(inner, node.attr)
        if isinstance(inner, Tensor) and node.attr == "dtype":
            return Dtype(inner.dtype)
        if isinstance(inner, Tensor) and node.attr in {"T", "mT"}:
            return replace(inner, text=f"{inner.text}.{node.attr}", shape=tuple(reversed(inner.shape)))
        return inner if isinstance(inner, Marker) and node.attr in {"apply", "forward"} else UNKNOWN

    def _value_subscript(self, node: ast.Subscript, scope: dict[str, Any], module: Module) -> Any:
        inner, index = self.value(node.value, scope, module), self.value(node.slice, scope, module)
        if isinstance(inner, list | tuple) and isinstance(index, int) and -len(inner) <= index < len(inner):
            return inner[index]
        return UNKNOWN

    def _value_listcomp(self, node: ast.ListComp, scope: dict[str, Any], module: Module) -> Any:
        found: list[Any] = []
        for inner in self._comprehended(node.generators, dict(scope), module):
            found.append(self.value(node.elt, inner, module))
            if len(found) > MOST_CALLS:
                raise StopError
        return found

    def _comprehended(
        self, generators: Sequence[ast.comprehension], scope: dict[str, Any], module: Module
    ) -> Iterator[dict[str, Any]]:
        if not generators:
            yield scope
            return
        values = self.value(generators[0].iter, scope, module)
        for value in values if isinstance(values, list | tuple) else ():
            inner = dict(scope)
            bind(generators[0].target, value, inner)
            tests = [self.value(test, inner, module) for test in generators[0].ifs]
            if all(test is UNKNOWN or test for test in tests):
                yield from self._comprehended(generators[1:], inner, module)


def bind(target: ast.expr, value: Any, scope: dict[str, Any]) -> None:
    """Give a name, or the names of a tuple, their values."""
    if isinstance(target, ast.Name):
        scope[target.id] = value
    elif isinstance(target, ast.Tuple | ast.List):
        values = value if isinstance(value, list | tuple) else ()
        for number, each in enumerate(target.elts):
            bind(each, values[number] if number < len(values) else UNKNOWN, scope)
