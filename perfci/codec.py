"""Records to JSON and back; the one home of msgspec."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def encode(record: Any) -> bytes:
    """A frozen dataclass, or anything built of them, as one line of JSON; a number that is not finite becomes null."""
    return msgspec.json.encode(record)


def decode(data: bytes | str, kind: type[T]) -> T:
    """One record of a known type; raises ValueError that names the place where the JSON does not fit it."""
    return msgspec.json.decode(data, type=kind)
