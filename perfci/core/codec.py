"""Records to JSON and back. The one home of msgspec."""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def encode(record: Any) -> bytes:
    """A frozen dataclass, or anything built of them, as one line of JSON. A number that is not finite becomes null."""
    try:
        return msgspec.json.encode(record)
    except UnicodeEncodeError:
        return msgspec.json.encode(_storable(msgspec.to_builtins(record)))


def storable(text: str) -> str:
    r"""The text as UTF-8 can hold it: half a character, as of a file whose name is no text, is spelt out.

    >>> storable("Zürich"), storable("x\udcff")
    ('Zürich', 'x\\udcff')
    """
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _storable(value: Any) -> Any:
    if isinstance(value, dict):
        return {_storable(key): _storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]
    return storable(value) if isinstance(value, str) else value


def decode(data: bytes | str, kind: type[T]) -> T:
    """One record of a known type. Raises ValueError that names the place where the JSON does not fit it."""
    try:
        return msgspec.json.decode(data, type=kind)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def convert(value: Any, kind: type[T]) -> T:
    """A plain value, as of a settings file, as a type. Raises ValueError that names what was expected."""
    return msgspec.convert(value, kind)
