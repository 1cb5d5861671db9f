"""Slow-downs that people agreed on beforehand, and the lines that would record one."""

from __future__ import annotations

from dataclasses import dataclass, field

from perfci.core.model.bounds import Amount, Count


@dataclass(frozen=True)
class Expected:
    """An entry under `expected` in `thresholds/<op>.yaml`; two are the same that say the same, wherever they stand."""

    op: str
    case: str
    """--case pattern of the cases that it is about"""
    up_to: Amount
    """slow-down that it allows: against the base, the stored baseline, or the time that the speedup target allows"""
    why: str
    until: str
    """the last day on which it holds, ISO 8601"""
    file: str = field(default="", compare=False)
    """relative to the project's root"""
    line: Count = field(default=0, compare=False)
    added: bool = field(default=False, compare=False)
    """by the merge request itself: its base has no such entry"""


@dataclass(frozen=True)
class Suggestion:
    """An entry that would make a slow-down EXPECTED, as it is to be pasted."""

    file: str
    """relative to the project's root"""
    line: str
    """the entry, indented as the file's list is"""
    below: int | None = None
    """line of the file's `expected:`, below which it goes. None if the file has none, or is not there"""
    replaces: int | None = None
    """line of the file's entry for this very case, whose place it takes"""
