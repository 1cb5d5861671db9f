"""The files of a shared check: its plan, and the runs of its shards."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import StoredFileError
from perfci.core.files import read_regular
from perfci.core.model import FORMAT, Plan
from perfci.core.model.basics import Amount, Count
from perfci.store import RUN_FILE
from perfci.store.files import copy_files, decode, encode, refuse_to_overwrite_unreadable, write_atomically
from perfci.store.launches import LAUNCHES_FILE


@dataclass(frozen=True)
class ShardedOp:
    """Who measures an op."""

    op: str
    shard: Count  # from 1. 0 if nothing of it is measured
    seconds: Amount = 0.0  # seconds that it may take, by the last run or by its number of cases
    files: str = ""  # digest of all files that it needs, SHA-256 in hexadecimal: a shard measures no others


@dataclass(frozen=True)
class ShardPlan:
    """Fixed before anything is measured, for all shards: plan.json."""

    perfci: str  # version
    created: str  # ISO 8601, UTC
    commit: str | None  # HEAD of the project under test. Null outside a repository
    rules: str  # digest of the thresholds and baselines that judge, SHA-256 in hexadecimal
    alpha: Amount  # share of false alarms allowed in each family
    shards: Count  # how many
    timer: str  # asked for: auto, activity or event
    plan: Plan  # of all shards together
    ops: tuple[ShardedOp, ...] = ()  # in the plan's order
    family: Count = 0
    """performance cases that are tested together, of all shards. How many may be duelled stands in the plan"""
    seconds: Amount = 0.0  # device time of all shards together, estimated
    last: str | None = None  # id of the run with the times that balance the shards
    format: int = FORMAT


def read_plan(path: Path) -> tuple[ShardPlan, str]:
    """A plan.json, and the SHA-256 of the file by which its shards know it. Raises StoredFileError."""
    if not path.exists():
        raise StoredFileError("plan_missing", path=str(path))
    return decode(path, ShardPlan), hashlib.sha256(read_regular(path)).hexdigest()


def write_plan(plan: ShardPlan, path: Path) -> Path:
    """Write a plan.json and give its path. Raises StoredFileError as `write_run` does."""
    refuse_to_overwrite_unreadable(path)
    return write_atomically(path, encode(plan, path))


def list_runs(path: Path) -> list[Path]:
    """A run.json, the one in a folder, or those in the folders of a folder, or in their folders."""
    if not path.is_dir() or (path / RUN_FILE).is_file():
        return [path / RUN_FILE if path.is_dir() else path]
    return sorted([*path.glob(f"*/{RUN_FILE}"), *path.glob(f"*/*/{RUN_FILE}")])


def copy_run(source: Path, target: Path) -> None:
    """Copies the files of a run, and no others. Raises StoredFileError for a link or a pipe among them."""
    logs = sorted(path.relative_to(source).as_posix() for path in (source / "logs").glob("*.log"))
    copy_files((RUN_FILE, f"{RUN_FILE}.sig", LAUNCHES_FILE, *logs), source, target)
