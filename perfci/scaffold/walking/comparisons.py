"""Comparisons of results in a test, with their tolerances."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from perfci.scaffold.walking.values import Call, Comparison, Tensor

COMPARISONS = ("allclose", "assert_close", "assert_allclose", "isclose")


def comparison(
    name: str, node: ast.Call, arguments: Sequence[Any], keywords: Mapping[str, Any], last: Call | None
) -> Comparison:
    """A call of one of COMPARISONS, with the tolerances that hold there; `last` is the kernel's call before it."""
    usual = {"allclose": (1e-5, 1e-8), "isclose": (1e-5, 1e-8), "assert_allclose": (1e-7, 0.0)}.get(name)
    values = []
    for place, each in enumerate(("rtol", "atol")):
        value = keywords.get(each, arguments[place + 2] if len(arguments) > place + 2 else None)
        value = usual[place] if value is None and usual else value
        values.append(float(value) if isinstance(value, int | float) else None if value is None else float("nan"))
    dtype = next((each.dtype for each in (last.arguments if last else ()) if isinstance(each, Tensor)), None)
    return Comparison(name, node.lineno, values[0], values[1], dtype)
