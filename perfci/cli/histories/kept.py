"""What `perfci history` is asked for, and what there is of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.core.settings import Settings
from perfci.git.known import unknown_commits
from perfci.ops.spec import matches
from perfci.store.history import History, history_devices, history_ops, read_history
from perfci.store.past.series import Point, Series, StoredPoint, StoredSeries, series, stored_series


@dataclass(frozen=True)
class HistoryOptions:
    """What is to be shown."""

    ops: tuple[str, ...] = ()
    """names; empty for all"""
    pattern: str | None = None
    device: str | None = None
    last: int | None = None
    """newest runs of each case; None for all where programs read it, else for some"""
    plot: Path | None = None


@dataclass(frozen=True)
class Told:
    """An op on a device, with what is shown of it."""

    history: History
    cases: tuple[Series, ...]
    unknown: tuple[str, ...] | Reason
    """commits that the repository lacks"""
    stored: tuple[StoredSeries, ...] = ()
    """what the op stores in low precision"""

    @property
    def any(self) -> bool:
        """Whether there is anything that fits what was asked for."""
        return bool(self.cases or self.stored)


def kept(options: HistoryOptions, where: Settings) -> list[History]:
    """The histories of these ops and devices. Raises UsageError for a device or an op that none has."""
    devices = _devices(options, where)
    there = {device: history_ops(where.baselines, device) for device in devices}
    known = sorted({op for ops in there.values() for op in ops})
    for op in options.ops:
        if op not in known and devices:
            raise UsageError("history_no_op", op=op, known=", ".join(known))
    return [
        read_history(where.baselines, device, op)
        for device in devices
        for op in there[device]
        if not options.ops or op in options.ops
    ]


def told(options: HistoryOptions, where: Settings) -> list[Told]:
    """Raises UsageError for a device, an op or a case that no history has."""
    found = [_of(each, options, where) for each in kept(options, where)]
    if found and options.pattern is not None and not any(one.any for one in found):
        raise UsageError("no_case_fits", pattern=options.pattern, ops=", ".join(one.history.op for one in found))
    return [one for one in found if one.any or options.pattern is None]


def _devices(options: HistoryOptions, where: Settings) -> list[str]:
    known = history_devices(where.baselines)
    if options.device is None:
        return known
    if options.device not in known:
        raise UsageError("history_no_device", device=options.device, known=", ".join(known) or "-")
    return [options.device]


def _of(found: History, options: HistoryOptions, where: Settings) -> Told:
    cases = tuple(one for one in series(found.runs) if matches(one.case, options.pattern))
    stored = tuple(one for one in stored_series(found.runs) if matches(one.case, options.pattern))
    commits = [run.environment.commit for run in found.runs if run.environment.commit]
    return Told(found, cases, unknown_commits(where.root, commits) if commits else (), stored)


def shown_of(point: Point | StoredPoint) -> float:
    """What a picture shows of a run: microseconds, or p99 of a stored tensor."""
    if isinstance(point, StoredPoint):
        return point.figures.errors.p99_abs or 0.0
    return point.figures.kernel_us.median_us
