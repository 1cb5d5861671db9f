"""What a search for configurations is told and finds out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from perfci.core.model import Reason

Value = int | float | str | bool | None
Config = Mapping[str, Value]
"""A configuration's values by name, with dots where it is one of several kernels."""

SEARCH, FINAL, SUITE = "search", "final", "suite"
"""Stages of a candidate: looked at once, held against the best with many blocks, run through the accuracy suite."""


@dataclass(frozen=True)
class Regime:
    """Calls that share one entry of the tuned file."""

    label: str
    when: Mapping[str, Any]
    """what the entry asks for"""
    lists: Mapping[str, tuple[Value, ...]]
    """what each value may be"""
    current: Config | None = None
    """the entry's configuration today; None where there is no entry and the op uses its own"""
    cases: tuple[str, ...] = ()
    """performance cases that it serves"""


@dataclass(frozen=True)
class Tried:
    """One candidate in one stage; kept on disk."""

    regime: str
    config: Config | None
    """None: what the op takes today"""
    stage: str = SEARCH
    shifts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """case -> logarithm of its time over that of the anchor in the same block; below 0 is faster"""
    us: Mapping[str, float] = field(default_factory=dict)
    """case -> time, microseconds"""
    anchor: Config | None = None
    """what it was held against: None for what the op takes today"""
    failure: Reason | None = None
    registers: int | None = None
    """of its most demanding kernel"""
    spills: int | None = None
    shared_bytes: int | None = None

    @property
    def key(self) -> str:
        """The configuration as text."""
        return key(self.config)


def key(config: Config | None) -> str:
    """A configuration as text that is the same for the same values."""
    return "current" if config is None else json.dumps(dict(config), sort_keys=True)


def shown(config: Config | None) -> str:
    """A configuration as people read it.

    >>> shown({"block": 64, "warps": 4}), shown(None)
    ('block=64 warps=4', '')
    """
    return " ".join(f"{name}={_plain(value)}" for name, value in (config or {}).items())


def _plain(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else "null" if value is None else str(value)


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Value]:
    """A configuration with dots in place of nesting.

    >>> flat({"keys": {"block": 16}, "warps": 4})
    {'keys.block': 16, 'warps': 4}
    """
    found: dict[str, Value] = {}
    for name, value in config.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return found


def nested(config: Config) -> dict[str, Any]:
    """The same as it stands in a file.

    >>> nested({"keys.block": 16, "warps": 4})
    {'keys': {'block': 16}, 'warps': 4}
    """
    found: dict[str, Any] = {}
    for name, value in config.items():
        *path, last = name.split(".")
        place = found
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return found
