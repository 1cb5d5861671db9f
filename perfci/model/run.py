"""One execution: its plan, and everything that came of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from perfci.model.measured import OpRun
from perfci.model.place import Environment, Limits
from perfci.model.verdict import Reason, Suite

FORMAT = 1
"""Version of run.json and of the baseline files. 1: the first."""


@dataclass(frozen=True)
class PlannedOp:
    """What an op's suites hold, before anything is measured."""

    op: str
    accuracy: tuple[str, ...] = ()
    performance: tuple[str, ...] = ()
    failure: Reason | None = None
    """the op breaks the contract or does not import"""


@dataclass(frozen=True)
class Plan:
    """Fixed before anything is measured."""

    ops: tuple[PlannedOp, ...]
    seed: int
    """drawn for this run unless given by --seed"""
    budget_s: float
    """device time a case for the first looks, seconds"""
    device: str
    """cuda, npu, cpu or fake"""
    suites: tuple[Suite, ...] = (Suite.ACCURACY, Suite.PERFORMANCE)
    filter: str | None = None
    """the --case pattern; with one, missing cases are not REMOVED"""

    @property
    def family(self) -> int:
        """Number of performance cases that are tested together."""
        return sum(len(op.performance) for op in self.ops)


@dataclass(frozen=True)
class Run:
    """One execution: the artefact from which everything else is rendered."""

    id: str
    created: str
    """ISO 8601, UTC"""
    perfci: str
    """version"""
    command: str
    environment: Environment
    plan: Plan
    ops: tuple[OpRun, ...] = ()
    limits: Limits = field(default_factory=Limits)
    stopped: str | None = None
    """SIGINT or SIGTERM where the run was stopped early"""
    wall_s: float | None = None
    format: int = FORMAT
