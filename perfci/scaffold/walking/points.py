"""What parametrised tests and Triton's benchmarks are called with, as their decorators say."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from perfci.scaffold.reading import Function, dotted
from perfci.scaffold.walking.values import UNKNOWN

Evaluate = Callable[[ast.expr], Any]
"""Tells what an expression is where the function stands."""


def points(function: Function, evaluate: Evaluate) -> Iterator[dict[str, Any]]:
    """Every combination of the values that decorators give a function's parameters; one that is empty without any."""
    axes: list[list[dict[str, Any]]] = []
    for mark in function.decorator_list:
        if isinstance(mark, ast.Call) and dotted(mark.func).endswith("parametrize") and len(mark.args) > 1:
            names = evaluate(mark.args[0])
            axes.append(_points(names, evaluate(mark.args[1])))
        elif isinstance(mark, ast.Call) and dotted(mark.func).endswith("perf_report"):
            axes.append(_benchmark(mark, evaluate))
    for point in itertools.product(*axes):
        yield {name: value for part in point for name, value in part.items()}


def _benchmark(mark: ast.Call, evaluate: Evaluate) -> list[dict[str, Any]]:
    """The points of a triton.testing.Benchmark."""
    written = [*mark.args, *(each.value for each in mark.keywords if each.arg == "benchmarks")]
    inner = next((each for one in written for each in (one.elts if isinstance(one, ast.List) else [one])), None)
    if not isinstance(inner, ast.Call):
        return [{}]
    given = {each.arg: evaluate(each.value) for each in inner.keywords if each.arg}
    names, values = given.get("x_names", UNKNOWN), given.get("x_vals", UNKNOWN)
    if not isinstance(names, list | tuple) or not isinstance(values, list | tuple):
        return [{}]
    fixed = next((each.value for each in inner.keywords if each.arg == "args"), None)
    more = _dictionary(fixed, evaluate)
    rows = [value if isinstance(value, list | tuple) else [value] * len(names) for value in values]
    return [dict(zip(names, row, strict=False)) | more for row in rows]


def _dictionary(node: ast.expr | None, evaluate: Evaluate) -> dict[str, Any]:
    if not isinstance(node, ast.Dict):
        return {}
    keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
    return {str(key): evaluate(value) for key, value in zip(keys, node.values, strict=True) if key}


def _points(names: Any, values: Any) -> list[dict[str, Any]]:
    if isinstance(names, str):
        names = [each.strip() for each in names.split(",")]
    if not isinstance(names, list | tuple) or not isinstance(values, list | tuple):
        return [{}]
    rows = [value if len(names) > 1 and isinstance(value, list | tuple) else [value] for value in values]
    return [dict(zip(names, row, strict=False)) for row in rows]
