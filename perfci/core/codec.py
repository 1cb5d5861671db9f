"""Records to JSON and back. The one home of msgspec."""

from pathlib import Path, PurePath
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")


def _spell(value: Any) -> str:
    """A path, the only thing in a record that JSON does not know."""
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"no {type(value).__name__} can be stored")


def _read(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise ValueError(f"no {kind.__name__}: {value!r}")


def encode(record: Any) -> bytes:
    """A frozen dataclass, or anything built of them, as one line of JSON. A number that is not finite becomes null."""
    try:
        return msgspec.json.encode(record, enc_hook=_spell)
    except UnicodeEncodeError:
        return msgspec.json.encode(_storable(msgspec.to_builtins(record, enc_hook=_spell)))


def storable(text: str) -> str:
    r"""The text as UTF-8 can hold it: half a character, as of a file with a name that is no text, is spelt out.

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
        return msgspec.json.decode(data, type=kind, dec_hook=_read)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def convert(value: Any, kind: type[T]) -> T:
    """A plain value, as of a settings file, as a type. Raises ValueError that names what was expected."""
    return msgspec.convert(value, kind, dec_hook=_read)
