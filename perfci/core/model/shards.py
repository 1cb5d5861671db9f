"""A plan whose ops are shared out over several runners: plan.json."""

from __future__ import annotations

from dataclasses import dataclass

from perfci.core.model.bounds import Amount, Count
from perfci.core.model.run import FORMAT, Plan


@dataclass(frozen=True)
class ShardedOp:
    """Who measures an op."""

    op: str
    shard: Count
    """from 1. 0 if nothing of it is measured"""
    seconds: Amount = 0.0
    """seconds that it may take, by the last run or by its number of cases"""
    files: str = ""
    """digest of all files that it needs, SHA-256 in hexadecimal: a shard measures no others"""


@dataclass(frozen=True)
class ShardPlan:
    """Fixed before anything is measured, for all shards: plan.json."""

    perfci: str
    """version"""
    created: str
    """ISO 8601, UTC"""
    commit: str | None
    """HEAD of the project under test; null outside a repository"""
    rules: str
    """digest of the thresholds and baselines that judge, SHA-256 in hexadecimal"""
    alpha: Amount
    """share of false alarms allowed in each family"""
    shards: Count
    """how many"""
    timer: str
    """asked for: auto, activity or event"""
    plan: Plan
    """of all shards together"""
    ops: tuple[ShardedOp, ...] = ()
    """in the plan's order"""
    family: Count = 0
    """performance cases that are tested together, of all shards; how many may be duelled stands in the plan"""
    seconds: Amount = 0.0
    """device time of all shards together, estimated"""
    last: str | None = None
    """id of the run by whose times the shards are balanced"""
    format: int = FORMAT
