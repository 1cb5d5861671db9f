"""What a walk tells of: tensors, dtypes, calls and comparisons, and what it could not tell."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfci.scaffold.reading import Function, Module

MARK = "\N{SECTION SIGN}"
"""Around what is named only when the whole call is known: anonymous sizes, and dtypes."""


@dataclass(frozen=True)
class Dtype:
    """A torch dtype."""

    name: str


@dataclass(frozen=True)
class Tensor:
    """An input as the test makes it."""

    text: str
    """the expression, its sizes as names or as marked numbers, its dtype marked"""
    shape: tuple[str, ...]
    sizes: Mapping[str, int]
    """names in the text -> their values"""
    dtype: str
    line: int


@dataclass(frozen=True)
class Marker:
    """The kernel or the reference, as a function, a class, or an object of it."""

    what: str
    is_class: bool = False


@dataclass(frozen=True)
class Call:
    """One call of the kernel."""

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    line: int


@dataclass(frozen=True)
class Comparison:
    """One comparison of results, with its tolerances where they can be told."""

    name: str
    line: int
    rtol: float | None
    atol: float | None
    dtype: str | None
    """of the last call before it"""


class _Unknown:
    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _Unknown()
"""What cannot be told."""


@dataclass(frozen=True)
class Closure:
    """A function of the sketch, with the file whose names it sees."""

    function: Function | ast.Lambda
    module: Module


@dataclass
class Walk:
    """What was seen on the way."""

    calls: list[Call] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    understood: set[int] = field(default_factory=set)
    """ids of statements whose values are known, or that call kernel or reference"""
    cut: bool = False
    """the test makes more calls than are followed"""
