"""perfci's JSON: sorted keys, six significant digits, missing values left out, and one line changes with one case."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from perfci.core.codec import storable

DIGITS = 6  # significant digits of stored numbers: 1 part in a million, far below any timer's noise

ROWS = frozenset({"accuracy", "calls", "cases", "earned", "ops", "others", "performance", "runs", "steps", "timeline"})
"""Lists that are written one element a line."""

_ABSENT: tuple[Any, ...] = (None, (), {})


def text(record: Any) -> str:
    """A record of `perfci.core.model` as the text of its file. An op's part of a growing run is laid out once."""
    ops = getattr(record, "ops", None)
    if not ops or not all(map(dataclasses.is_dataclass, ops)):
        return _object(plain(record), "") + "\n"
    before = dict(_LAID_OUT)
    _LAID_OUT.clear()
    for op in ops:
        _LAID_OUT[id(op)] = before.get(id(op)) or (op, _Text(_value(plain(op), "  ")))
    whole = {**plain(dataclasses.replace(record, ops=())), "ops": [_LAID_OUT[id(op)][1] for op in ops]}
    return _object(whole, "") + "\n"


def line(record: Any) -> str:
    """The same on one line, for files of one record a line."""
    return _line(plain(record)) + "\n"


def plain(value: Any) -> Any:
    """Records as dictionaries, sequences as lists, numbers rounded. A number that is none (NaN, infinity) as None."""
    # Most values of a large run are numbers. So these come first, and those in records need no call.
    kind = type(value)
    if value is None or kind is int or kind is bool:
        return value
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {storable(str(key)): plain(item) for key, item in value.items()}
    if not dataclasses.is_dataclass(kind):
        return value
    members = {}
    for name, optional in _fields(kind):
        item = getattr(value, name)
        if type(item) is float and math.isfinite(item):
            members[name] = float(f"{item:.{DIGITS}g}")
        elif item or not optional or item not in _ABSENT:
            members[name] = plain(item)
    return members


_ENCODER = msgspec.json.Encoder(order="sorted")


def _line(value: Any) -> str:
    """JSON on one line, with a blank behind each comma and colon."""
    return msgspec.json.format(_ENCODER.encode(value), indent=0).decode()


class _Text(str):
    """A value that is laid out already."""


_LAID_OUT: dict[int, tuple[Any, _Text]] = {}  # id of an op's record of the run laid out last -> record and text


@functools.cache
def _fields(kind: type) -> tuple[tuple[str, bool], ...]:
    """Names of a record's fields, and whether reading gives the empty value back if the field is left out."""
    defaults = [
        (field.name, field.default if field.default_factory is dataclasses.MISSING else field.default_factory())
        for field in dataclasses.fields(kind)
    ]
    return tuple((name, default in _ABSENT) for name, default in defaults)


def _object(value: Mapping[str, Any], indent: str) -> str:
    """One member a line."""
    inner = indent + " "
    return _block("{}", [f"{_line(key)}: {_value(value[key], inner, key)}" for key in sorted(value)], indent)


def _value(value: Any, indent: str, key: str | None = None) -> str:
    """One line, but for rows and for what holds rows."""
    if isinstance(value, _Text):
        return value
    if key in ROWS and isinstance(value, list) and value:
        return _block("[]", [_value(item, indent + " ") for item in value], indent)
    if isinstance(value, dict) and not ROWS.isdisjoint(value):
        return _object(value, indent)
    return _line(value)


def _block(brackets: str, items: list[str], indent: str) -> str:
    body = ",\n".join(f"{indent} {item}" for item in items)
    return f"{brackets[0]}\n{body}\n{indent}{brackets[1]}"
