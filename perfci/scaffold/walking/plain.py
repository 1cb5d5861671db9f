"""Operators, range, zip and the like on plain values: numbers, texts, lists. Makes no giants."""

from __future__ import annotations

import ast
import itertools
import operator
from collections.abc import Callable
from typing import Any

from perfci.scaffold.walking.limits import MOST_CALLS, MOST_STEPS
from perfci.scaffold.walking.values import UNKNOWN, Dtype

_NUMBERS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
}  # fmt: skip
_COMPARED: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


def computed(sign: ast.operator, left: Any, right: Any) -> Any:
    """Two numbers, lists or tuples put together; UNKNOWN where the outcome cannot be told, or would be too large."""
    if isinstance(sign, ast.Pow) and isinstance(left, int | float) and isinstance(right, int | float):
        return _tried(operator.pow, left, right) if abs(right) <= 64 else UNKNOWN
    operation = _NUMBERS.get(type(sign))
    numbers = all(isinstance(each, int | float) and abs(each) < 2**64 for each in (left, right))
    if operation is None or not (numbers or _joinable(sign, left, right)):
        return UNKNOWN
    if isinstance(sign, ast.LShift) and right > 64:
        return UNKNOWN
    return _tried(operation, left, right)


def compared(sign: ast.cmpop, values: list[Any]) -> Any:
    """Two plain values or dtypes compared; UNKNOWN for others, and for a chain of more."""
    plain = all(isinstance(each, int | float | str | Dtype) for each in values)
    operation = _COMPARED.get(type(sign))
    if len(values) != 2 or not plain or operation is None:
        return UNKNOWN
    return _tried(operation, *values)


def plain_call(path: str, arguments: list[Any]) -> Any:
    """A call of range, zip and the like, on plain values."""
    if path == "range" and all(isinstance(each, int) for each in arguments) and 0 < len(arguments) <= 3:
        found = _tried(range, *arguments)
        return list(found[:MOST_CALLS]) if isinstance(found, range) else UNKNOWN
    made = _OF_LISTS.get(path)
    if made is None or not arguments or not all(isinstance(each, list | tuple) for each in arguments):
        return UNKNOWN
    return list(itertools.islice(made(*arguments), MOST_CALLS))


_OF_LISTS: dict[str, Callable[..., Any]] = {
    "list": lambda *lists: lists[0],
    "tuple": lambda *lists: lists[0],
    "reversed": lambda *lists: reversed(lists[0]),
    "enumerate": lambda *lists: enumerate(lists[0]),
    "zip": lambda *lists: zip(*lists, strict=False),
    "itertools.product": itertools.product,
    "product": itertools.product,
}


def _joinable(sign: ast.operator, left: Any, right: Any) -> bool:
    """Two lists or tuples that are put together, and make no giant."""
    lists = type(left) is type(right) and isinstance(left, list | tuple)
    return isinstance(sign, ast.Add) and lists and len(left) + len(right) <= MOST_STEPS


def _tried(operation: Callable[..., Any], *values: Any) -> Any:
    try:
        return operation(*values)
    except (ArithmeticError, TypeError, ValueError, MemoryError):
        return UNKNOWN
