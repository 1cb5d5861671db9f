"""Files spoilt in the ways in which files are spoilt: cut, flipped, retyped, merged, nested without end."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from perfci.store.layout import text

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([-1, 0, 1, 2**31, 2**63, 2**64, 10**30, -(10**400), 10**400]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 1e-320, 1e308, -1e308, 0.1]),
    st.text(max_size=10),
    st.sampled_from(["", "\x00", "\x1b[31m", "NaN", "a" * 10_000, "\u202e"]),
)
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
)
RAW = (b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"1e-999", b"01", b"+1", b"0x1", b"1_000", b"nul",
       b'"\\ud800"', b'"\\udc00\\ud800"', b'"\\x41"', b'"\xff"', b'"\x01"', b"'a'", b"[" * 5000, b'{"a":' * 5000,
       b"9" * 5000, b"/* */1", b"1,", b"{}{}", b"", b"true", b"null", b"[]", b"{}")  # fmt: skip
"""Text in the place of a value that no encoder would write."""


def file_of(record: Any) -> bytes:
    """The bytes that perfci writes."""
    return text(record).encode()


def json_texts() -> st.SearchStrategy[bytes]:
    """JSON of any kind, with a version that perfci may try to read."""
    tables = st.dictionaries(st.sampled_from(["id", "ops", "plan", "environment", "op", "cases"]), ANYTHING)
    return tables.map(lambda table: json.dumps({"format": 1, **table}).encode())


@st.composite
def mutated(draw: st.DrawFn, whole: bytes) -> bytes:
    """A valid file with one or two faults."""
    data = whole
    for _ in range(draw(st.integers(1, 2))):
        data = draw(draw(st.sampled_from(FAULTS))(data))
    return data


@st.composite
def _cut(draw: st.DrawFn, data: bytes) -> bytes:
    return data[: draw(st.integers(0, len(data)))]


@st.composite
def _flipped(draw: st.DrawFn, data: bytes) -> bytes:
    if not data:
        return data
    at, by = draw(st.integers(0, len(data) - 1)), draw(st.integers(1, 255))
    return data[:at] + bytes([data[at] ^ by]) + data[at + 1 :]


@st.composite
def _doubled(draw: st.DrawFn, data: bytes) -> bytes:
    """A doubled piece, as after a merge: lines, keys, the whole file."""
    first, last = sorted((draw(st.integers(0, len(data))), draw(st.integers(0, len(data)))))
    return data[:last] + data[first:last] + data[last:]


def _marked(data: bytes) -> st.SearchStrategy[bytes]:
    conflict = b"<<<<<<< HEAD\n" + data + b"=======\n" + data + b">>>>>>> other\n"
    return st.sampled_from(
        [b"\xef\xbb\xbf" + data, data.replace(b"\n", b"\r\n"), data.replace(b"\n", b"\r"), conflict,
         data.decode("utf-8", "replace").encode("utf-16"), b"\x00" + data, data + b"\x00", data + b"}"]
    )  # fmt: skip


@st.composite
def _revalued(draw: st.DrawFn, data: bytes) -> bytes:
    """One value of a JSON file replaced by another of any type, its key removed, renamed or doubled."""
    try:
        tree = json.loads(data)
    except (ValueError, RecursionError):
        return data
    tree = copy.deepcopy(tree)
    holders = list(_holders(tree))
    if not holders:
        return data
    holder, key = holders[draw(st.integers(0, len(holders) - 1))]
    what = draw(st.sampled_from(["value", "value", "raw", "raw", "gone", "renamed"]))
    if what == "gone":
        del holder[key]
    elif what == "renamed" and isinstance(holder, dict):
        holder[draw(st.text(max_size=8))] = holder.pop(key)
    elif what == "raw":
        holder[key] = "@@RAW@@"
        return json.dumps(tree).encode("utf-8", "surrogatepass").replace(b'"@@RAW@@"', draw(st.sampled_from(RAW)), 1)
    else:
        holder[key] = draw(ANYTHING)
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def _holders(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Every place of a tree, as its container and key."""
    for key, inner in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield tree, key
        yield from _holders(inner)


FAULTS = (_cut, _flipped, _doubled, _marked, _revalued, _revalued, _revalued)
