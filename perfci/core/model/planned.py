"""What there is to measure of each op, and what of it beside the base revision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from perfci.core.model.measured import Cache
from perfci.core.model.verdict import Reason


class DuelWhat(StrEnum):
    """Which cases are timed side by side with the base revision."""

    CHANGED = "changed"
    """those whose identity changed or cannot be told"""
    ALL = "all"
    NONE = "none"


@dataclass(frozen=True)
class PlannedBase:
    """What the base revision has of an op."""

    same: bool = False
    """its files are the same, so that nothing needs to be run to know it unchanged"""
    changed: tuple[str, ...] = ()
    """files that differ, relative to the project's root"""
    performance: tuple[str, ...] = ()
    """its performance cases"""
    cache: Cache = "cold"
    """what its performance suite says of the L2 cache; both revisions are timed as the change says"""
    failure: Reason | None = None
    """why it cannot be held against at all: no such op, another signature, a broken contract"""
    apart: Reason | None = None
    """why the two revisions need a process each"""


@dataclass(frozen=True)
class PlannedOp:
    """What an op's suites hold, before anything is measured."""

    op: str
    accuracy: tuple[str, ...] = ()
    performance: tuple[str, ...] = ()
    failure: Reason | None = None
    """the op breaks the contract or does not import"""
    signature: tuple[str, ...] = ()
    """parameters of the kernel"""
    cache: Cache = "cold"
    """what the performance suite says of the L2 cache: cold or warm"""
    base: PlannedBase | None = None
    """None without a base revision"""
    audit: tuple[str, ...] = ()
    """cases that are duelled although they are unchanged: a control of the measurement"""
    unlisted: bool = False
    """its cases were not looked up, since all of its files are the base's own"""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """id of a case -> the id that it had before, as the performance suite declares"""
    renamed_from: str | None = None
    """name that the op had before"""
    stored: tuple[str, ...] = ()
    """cases in which it stores tensors in low precision, with * for the tensors' names, which nobody knows yet"""
    peers: tuple[str, ...] = ()
    """names of further implementations that its performance suite knows"""
