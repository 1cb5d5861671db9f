"""The candidates of a search for configurations, their results, and the file that keeps them."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from perfci.core.codec import decode, encode
from perfci.core.errors import StoredFileError
from perfci.core.files import append_regular, read_regular
from perfci.core.model import Fact, Reason
from perfci.store.files import write_atomically

Value = int | float | str | bool | None
Config = Mapping[str, Value]  # a configuration's values by name, with dots if it is one of several kernels

SEARCH, FINAL, SUITE = "search", "final", "suite"
"""Stages of a candidate: timed once, compared with the best over many blocks, run through the accuracy suite."""


@dataclass(frozen=True)
class Regime:
    """Calls that share one entry of the tuned file."""

    label: str
    when: Mapping[str, Any]  # what the entry asks for
    lists: Mapping[str, tuple[Value, ...]]  # what each value may be
    current: Config | None = None
    """the entry's configuration today, None if there is no entry and the op uses its own"""
    cases: tuple[str, ...] = ()  # performance cases that it serves


@dataclass(frozen=True)
class Attempt:
    """One candidate in one stage, as it is kept on disk."""

    regime: str
    config: Config | None  # None: what the op takes today
    stage: str = SEARCH
    shifts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """case -> logarithm of its time over that of the anchor in the same block, below 0 is faster"""
    us: Mapping[str, float] = field(default_factory=dict)  # case -> time, microseconds
    anchor: Config | None = None  # what it was compared with: None for what the op takes today
    failure: Reason | None = None

    @property
    def key(self) -> str:
        """The configuration as text."""
        return key(self.config)


def key(config: Config | None) -> str:
    """A configuration as text that is the same for the same values."""
    return "current" if config is None else json.dumps(dict(config), sort_keys=True)


def describe_config(config: Config | None) -> str:
    """A configuration for people.

    >>> describe_config({"block": 64, "tma": True}), describe_config(None)
    ('block=64 tma=true', '')
    """
    values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in (config or {}).items()}
    return " ".join(f"{name}={value}" for name, value in values.items())


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A configuration with dots instead of nesting.

    >>> flatten({"keys": {"block": 16}, "warps": 4})
    {'keys.block': 16, 'warps': 4}
    """
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def nest(config: Config) -> dict[str, Any]:
    """The same as it stands in a file.

    >>> nest({"keys.block": 16, "warps": 4})
    {'keys': {'block': 16}, 'warps': 4}
    """
    nested: dict[str, Any] = {}
    for name, value in config.items():
        *path, last = name.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


# --- the file of a search: a line about the search, then one line for each candidate ----------------------------------


@dataclass(frozen=True)
class SearchHead:
    """The question of a search. Another one starts anew."""

    asked: Mapping[str, Fact]
    seed: int
    format: Literal[1] = 1


@dataclass
class SearchFile:
    """A search's file."""

    path: Path
    head: SearchHead
    tried: list[Attempt]
    resumed: bool = False
    anew: bool = False  # this search has replaced another one in the file

    def add(self, tried: Attempt) -> None:
        """Keeps one more. It is on disk when this returns."""
        self.tried.append(tried)
        with append_regular(self.path) as file:
            file.write(encode(tried) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def open_search(path: Path, asked: Mapping[str, Fact], seed: int | None, fresh_seed: int) -> SearchFile:
    """The search in a file if it asks the same, else a new one. Raises StoredFileError if the file is damaged."""
    file: SearchFile | None = None
    if path.exists():
        # The text after the last newline was being written when the search ended.
        head, *others = read_regular(path).split(b"\n")[:-1] or [b""]
        number = 1
        try:
            file = SearchFile(path, decode(head, SearchHead), [])
            for number, line in enumerate(others, start=2):  # noqa: B007 - the error names it
                file.tried.append(decode(line, Attempt))
        except ValueError as error:
            raise StoredFileError("tune_state_damaged", path=str(path), line=number, why=str(error)) from error
    if file and file.head.asked == asked and seed in {None, file.head.seed}:
        search = file
        search.resumed = bool(search.tried)
    else:
        search = SearchFile(path, SearchHead(asked, fresh_seed if seed is None else seed), [], anew=file is not None)
    write_atomically(path, b"".join(encode(record) + b"\n" for record in (search.head, *search.tried)))
    return search
