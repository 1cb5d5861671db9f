"""Verdicts, what they do to a merge request, and the reasons that they carry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from perfci.core.model.bounds import Whole

Fact = str | Whole | float | bool | None
"""A number or word that a sentence about a reason may need."""


@dataclass(frozen=True)
class Reason:
    """Why something is as it is: a kind, and the numbers that its sentence needs (worded by `perfci.core.wording`)."""

    kind: str
    facts: Mapping[str, Fact] = field(default_factory=dict)


class Gate(StrEnum):
    """What a verdict does to the merge request."""

    OK = "ok"
    WARNS = "warns"
    FAILS = "fails"


class Verdict(StrEnum):
    """The answer about one case."""

    PASS = "PASS"
    UNCHANGED = "UNCHANGED"
    IMPROVED = "IMPROVED"
    REGRESSED = "REGRESSED"
    WRONG = "WRONG"
    TOO_SLOW = "TOO_SLOW"
    ERROR = "ERROR"
    INCONCLUSIVE = "INCONCLUSIVE"
    EXPECTED = "EXPECTED"
    DRIFTED = "DRIFTED"
    STALE = "STALE"
    SUSPECT = "SUSPECT"
    REMOVED = "REMOVED"
    NEW = "NEW"

    @property
    def gate(self) -> Gate:
        """What this verdict does to the merge request."""
        if self in _FAILS:
            return Gate.FAILS
        return Gate.WARNS if self in _WARNS else Gate.OK


_FAILS = frozenset({Verdict.REGRESSED, Verdict.WRONG, Verdict.TOO_SLOW, Verdict.ERROR})
_WARNS = frozenset({Verdict.INCONCLUSIVE, Verdict.DRIFTED, Verdict.STALE, Verdict.SUSPECT, Verdict.REMOVED})


class Suite(StrEnum):
    """Which of an op's two suites a case belongs to, or that it is about its compiled kernels."""

    ACCURACY = "accuracy"
    PERFORMANCE = "performance"
    COMPILED = "compiled"
