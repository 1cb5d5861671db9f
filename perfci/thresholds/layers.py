"""Layers above the values that people wrote: earned ones only tighten, relaxed ones only loosen, --threshold holds.

`built in < default.yaml < <op>.yaml < its cases < earned < relaxed < --threshold`
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from perfci.ops.spec import matches
from perfci.thresholds.case import CaseThresholds

TAU = "tau"
ALPHA = "alpha"

STORED_KEYS = frozenset({"stored_p99", "clip_ratio", "divergence"})
"""Keys of tensors that are stored in low precision, and of no other case."""

HIGHER = frozenset({"speedup", "bandwidth_share", ALPHA})  # keys of which more is stricter


@dataclass(frozen=True)
class Earned:
    """A value that accepted runs have earned, with its record. Ratios are of 1."""

    case: str  # id
    key: str
    value: float  # in force, if it is tighter than what people wrote
    before: float | None = None  # that the last step came from. None: no value was set
    after: float | None = None  # that the last step led to: where `value` is another one, somebody edited it
    bound: float | None = None  # where the steps would end by what was known then
    began: float | None = None  # before the first step. None: no value was set
    predicted: float | None = None  # false alarms a case check that were predicted then
    date: str | None = None
    runs: int | None = None  # how many it was learnt from
    first: str | None = None
    last: str | None = None  # ids of the first and last of these runs
    rescaled: str | None = None  # id of the run with which a loss was accepted, if that was the last step
    why: str = ""

    @property
    def edited(self) -> bool:
        """Whether the value is another one than perfci wrote."""
        return self.after is not None and self.after != self.value


@dataclass(frozen=True)
class Relaxed:
    """An entry that loosens a threshold for a time."""

    op: str
    key: str
    why: str
    until: str  # last day on which it holds, ISO 8601
    case: str | None = None  # --case pattern. None: every case
    device: str | None = None  # key of the only device that it is about. None: every device
    to: float | None = None  # allowed meanwhile. None: what people wrote, whatever was earned
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    @property
    def which(self) -> tuple[str, str | None, str | None]:
        """The key of an entry of a file."""
        return self.key, self.case, self.device

    def holds(self, day: date | None) -> bool:
        """Whether it has any effect on a day. On one that is not known it has."""
        return day is None or day <= date.fromisoformat(self.until)

    def about(self, device: str | None, case: str | None = None) -> bool:
        """Whether it is about a device, by its key, and about a case of the op. None: any."""
        here = self.device is None or device is None or self.device == device
        return here and (case is None or matches(case, self.case))


def is_stricter(key: str, value: float | None, than: float | None) -> bool:
    """Whether a value of a key asks for more than another; None asks for nothing.

    >>> is_stricter("margin", 0.01, 0.02), is_stricter("speedup", 1.1, 1.2), is_stricter("registers", 0.1, None)
    (True, False, True)
    """
    if value is None or than is None:
        return value is not None and than is None
    return value > than if key in HIGHER else value < than


def overlay(
    written: CaseThresholds, earned: Mapping[str, float], relaxed: Sequence[Relaxed], commanded: Mapping[str, float]
) -> CaseThresholds:
    """The values that people wrote, under earned, relaxed and commanded ones. Tau's are of every kernel length."""
    limits = written
    for key in {**earned, **{entry.key: 0.0 for entry in relaxed}, **commanded}:

        def choose(written_value: float | None, key: str = key) -> float | None:
            value = earned[key] if key in earned and is_stricter(key, earned[key], written_value) else written_value
            for entry in relaxed:
                to = written_value if entry.to is None else entry.to
                if entry.key == key and is_stricter(key, value, to):
                    value = to
            return commanded.get(key, value)

        value: Any = getattr(limits, key)
        value = tuple((start, choose(tau)) for start, tau in value) if key == TAU else choose(value)
        limits = replace(limits, **{key: value})
    return limits


def find_strictest(limits: CaseThresholds, key: str) -> float | None:
    """One number for a key: of tau the least of all lengths."""
    if key == TAU:
        return min((tau for _, tau in limits.tau), default=math.inf)
    value: float | None = getattr(limits, key)
    return value
