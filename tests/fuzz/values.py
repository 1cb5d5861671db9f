"""Arbitrary values of perfci's records, within what a stored file may hold: sound by type, absurd otherwise."""

import collections.abc
import dataclasses
import enum
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

import msgspec
from hypothesis import strategies as st

NASTY = (
    "\x1b[31mred\x1b[0m",
    "\x1b]8;;http://evil\x07link\x1b]8;;\x07",
    "\x9b31m\x07\x08",
    "a\nb\r\nc\u2028d",
    "\u202egnp.exe",
    "| a | `b` | <script>alert(1)</script>",
    "[x](http://evil) ![y](z) @all #1 **bold** $x^2$",
    "../../etc/passwd",
    "\x00",
    "\ufeff\ud7ff\U0001f600 数字",
    "{x} {0} {x:us} %s [red]rich[/red] [/]",
    "a" * 3000,
    "",
)
"""Possible characters of a name, an id or a message."""

PLAIN = ("softmax", "rows=1,dtype=float16", "rows=2,dtype=float16", "kernel", "0123abcd", "cuda", "none")
NAMES = ("softmax", "softmax_2", "op-3", *NASTY)
CASES = ("rows=1,dtype=float16", "rows=2,dtype=float16", "rows=1,dtype=float32", *NASTY)

texts = st.one_of(
    st.sampled_from(PLAIN), st.sampled_from(NASTY), st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
)
KINDS = ("kernel_raised", "wrong_values", "captured_opaque", "crashed", "time_limit", "no_such_kind", "unchanged_files")

FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "op": st.sampled_from(NAMES),
    "case": st.sampled_from(CASES),
    "kind": st.one_of(st.sampled_from(KINDS), st.deferred(lambda: st.sampled_from(_kinds())), texts),
    "format": st.just(1),
    "process": st.integers(0, 4),
    "key": st.sampled_from(["nvidia-h200", "nvidia-h200", "fake-one", *NASTY]),
    "timer": st.sampled_from(["activity", "event", "virtual", *NASTY]),
    "throttle": st.lists(st.sampled_from(["thermal", "power_cap", *NASTY]), max_size=2).map(tuple),
}
"""By a field's name: what is looked up by others has to be met now and then."""


@cache
def _kinds() -> list[str]:
    from perfci.core.wording import catalogue

    return sorted(catalogue())


def records(kind: type, **fixed: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Values of a record; its fields named here come from these strategies."""
    return _record(kind, fixed)


def of(kind: Any) -> st.SearchStrategy[Any]:
    """Values of any type that a field may have."""
    return _values(kind)


@cache
def _values(kind: Any) -> st.SearchStrategy[Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated:
        return _bounded(arguments[0], arguments[1])
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    if origin in (typing.Union, types.UnionType):
        return st.one_of(*(_values(argument) for argument in sorted(arguments, key=lambda one: one is not type(None))))
    if origin is tuple and arguments[-1] is Ellipsis:
        return st.lists(_values(arguments[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*(_values(argument) for argument in arguments))
    if origin is collections.abc.Mapping:
        return st.dictionaries(texts, _values(arguments[1]), max_size=2)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from(list(kind))
    if dataclasses.is_dataclass(kind):
        return st.deferred(lambda: _record(kind, {}))
    if isinstance(kind, type) and issubclass(kind, tuple):  # with named fields
        fields = typing.get_type_hints(kind, include_extras=True).values()
        return st.tuples(*map(_values, fields)).map(lambda values: kind(*values))
    return _PLAIN[kind]


def _record(kind: type, fixed: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    chosen = {field.name: _field(field.name, hints[field.name]) for field in dataclasses.fields(kind)}
    return st.builds(kind, **(chosen | fixed))


def _field(name: str, hint: Any) -> st.SearchStrategy[Any]:
    """By its name, if others have it too and its type is plain; else by its type."""
    if name not in FIELDS or dataclasses.is_dataclass(hint):
        return _values(hint)
    absent = st.none() if type(None) in typing.get_args(hint) else st.nothing()
    return FIELDS[name] | absent


def _bounded(kind: type, limits: msgspec.Meta) -> st.SearchStrategy[Any]:
    low, high = limits.ge, limits.le
    if kind is int:
        return st.one_of(st.integers(max(low, 0), min(high, 300)), st.sampled_from([low, high]), st.integers(low, high))
    some = st.floats(max(low, 1e-3), min(high, 1e4)).map(_rounded)
    return st.one_of(some, some, some, st.sampled_from([low, high]), st.floats(low, high).map(_rounded))


def _rounded(value: float) -> float:
    """As files keep it: six significant digits."""
    return float(f"{value:.6g}")


_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    bytes: st.binary(max_size=12),
    bool: st.booleans(),
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.one_of(st.floats(0, 100), st.floats(allow_nan=False, allow_infinity=False)).map(_rounded),
    type(None): st.none(),
    Any: st.none(),
}
