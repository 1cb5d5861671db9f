"""What a run will measure, fixed before anything is measured."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from perfci.errors import UsageError
from perfci.model import Plan, PlannedOp, Suite

DEFAULT_BUDGET_S = 1.0
"""Seconds of device time a case for the first looks."""

SEED_BITS = 31


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    ops: tuple[str, ...] = ()
    """names; empty for all"""
    pattern: str | None = None
    """--case"""
    device: str = "auto"
    budget_s: float = DEFAULT_BUDGET_S
    seed: int | None = None
    """None draws a fresh one"""
    timer: str = "auto"
    suites: tuple[Suite, ...] = (Suite.ACCURACY, Suite.PERFORMANCE)


def make_plan(request: Request, described: Sequence[PlannedOp], device: str) -> Plan:
    """The plan of a run; raises UsageError where the --case pattern fits no case of any sound op."""
    sound = [op for op in described if op.failure is None]
    if request.pattern is not None and sound and not any(op.accuracy or op.performance for op in sound):
        raise UsageError("no_case_fits", pattern=request.pattern, ops=", ".join(op.op for op in sound))
    return Plan(
        ops=tuple(described),
        seed=draw_seed() if request.seed is None else request.seed,
        budget_s=request.budget_s,
        device=device,
        suites=request.suites,
        filter=request.pattern,
    )


def draw_seed() -> int:
    """A seed that nobody could have known beforehand."""
    return secrets.randbits(SEED_BITS)
