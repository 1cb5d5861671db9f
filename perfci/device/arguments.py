"""What a rehearsal sees of calls and launches; without torch, so that it may be imported anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Launch:
    """One launch of a Triton kernel that was not made."""

    grid: tuple[int, ...]
    constants: Mapping[str, Any]
    """values of its constexpr parameters"""
    source: str


@dataclass(frozen=True)
class Argument:
    """A tensor that a function was called with."""

    shape: tuple[int, ...]
    order: tuple[int, ...]
    """its axes from the one with the largest stride to the one with the smallest"""
    dense: bool
    dtype: str
    text: str | None
    """the expression that made it, with {shape} and {0}, {1}, ...; None: not known"""
    numbers: tuple[float, ...]
    """what stands for {0}, {1}, ... in the text"""
    origin: int
    """of tensors that are copies of each other the same"""
