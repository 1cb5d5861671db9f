"""How long measuring may go on, and how much of that time each op gets. Pure arithmetic on seconds.

A job that reaches its time limit is killed, together with its report and artefacts. So perfci ends earlier: by
`--deadline`, else by GitLab's CI_JOB_TIMEOUT less a reserve. An op may take what the remaining ones do not need.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from perfci.core.model import Deadline, Fact, Reason

OPTION, TIMEOUT, STARTED = "--deadline", "CI_JOB_TIMEOUT", "CI_JOB_STARTED_AT"

RESERVE_S, RESERVE_SHARE = 60.0, 0.05
"""Reserved of a job's time limit for report, note and upload, whichever is more, but at most half of it."""

WIND_DOWN_S, WIND_DOWN_SHARE = 10.0, 0.1
"""How long before the end a worker is asked to end with its block, whichever is less. At the end it is killed."""

SKEW_S = 300.0  # if the clocks of GitLab and a runner differ by more, GitLab's is ignored
LONGEST_S = 90 * 24 * 3600.0  # no job runs longer

START_S, OVERRUN = 30.0, 2.0  # an op may always take a worker's start and so many times what is expected
LEAST_SHARE = 0.25  # of an op's first look that a later look takes: it starts a worker, imports and compiles too


@dataclass(frozen=True)
class JobLimit:
    """The time limit of this job."""

    deadline: Deadline | None = None
    note: Reason | None = None  # which of the job's variables was ignored, and why


NO_LIMIT = JobLimit()


def find(seconds: float | None, variables: Mapping[str, str], now: float) -> JobLimit:
    """Returns the limit by --deadline (0: none, None: not given), or by GitLab's variables of a job at epoch `now`."""
    timeout, started = variables.get(TIMEOUT, ""), variables.get(STARTED, "")
    if seconds == 0 or (seconds is None and not (timeout and started)):
        return NO_LIMIT
    began, note = now, None
    if started:
        began = math.inf
        with contextlib.suppress(ValueError, OverflowError):
            moment = datetime.fromisoformat(started.strip())
            began = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if not now - LONGEST_S <= began <= now + SKEW_S:
            note = Reason("deadline_ignored", {"variable": STARTED, "value": started})
        began = now if note else min(began, now)  # the clocks may differ a little
    if seconds is not None:  # if no one knows when the job began, the option counts from now on
        return JobLimit(_make_deadline(began, seconds, 0.0, OPTION), note)
    limit_s = 0.0
    with contextlib.suppress(ValueError):
        limit_s = float(timeout)
    if not note and not (0 < limit_s <= LONGEST_S and began + limit_s >= now):
        note = Reason("deadline_ignored", {"variable": TIMEOUT, "value": timeout})
    return JobLimit(note=note) if note else JobLimit(_make_deadline(began, limit_s, reserve(limit_s), TIMEOUT))


def reserve(limit_s: float) -> float:
    """Returns the seconds of a job reserved for everything after measuring.

    >>> reserve(60.0), reserve(600.0), reserve(3600.0)
    (30.0, 60.0, 180.0)
    """
    return min(max(RESERVE_S, RESERVE_SHARE * limit_s), limit_s / 2)


def ends(deadline: Deadline) -> float:
    """Returns when measuring must have ended, in seconds since the epoch."""
    return datetime.fromisoformat(deadline.until).timestamp()


def wind_down(deadline: Deadline) -> float:
    """Returns how many seconds before that workers are asked to end."""
    return min(WIND_DOWN_S, WIND_DOWN_SHARE * (deadline.limit_s - deadline.reserve_s))


def facts(deadline: Deadline) -> dict[str, Fact]:
    """Returns the facts of a sentence about the deadline."""
    return {"by": deadline.by, "limit_s": deadline.limit_s, "reserve_s": deadline.reserve_s}


def _make_deadline(began: float, limit_s: float, reserve_s: float, by: str) -> Deadline:
    until = datetime.fromtimestamp(began + limit_s - reserve_s, UTC)
    return Deadline(until.isoformat(timespec="milliseconds").replace("+00:00", "Z"), limit_s, reserve_s, by)


@dataclass(frozen=True)
class Timetable:
    """How long the ops' first looks are expected to take, corrected by how long finished ones took."""

    seconds: Mapping[str, float]  # op -> seconds by an earlier run, or by its number of cases
    took: Mapping[str, float] = field(default_factory=dict)
    known: bool = False  # the seconds are those of an earlier run
    lanes: int = 1  # ops at once

    def noting(self, op: str, took_s: float) -> Timetable:
        """Returns the timetable with the duration of an op's first look."""
        return replace(self, took={**self.took, op: took_s})

    @property
    def pace(self) -> float:
        """How much longer finished ops took than expected. 1 before any has finished."""
        estimated = [op for op in self.took if self.seconds.get(op)]
        expected = sum(self.seconds[op] for op in estimated)
        return sum(self.took[op] for op in estimated) / expected if expected else 1.0

    def expected(self, op: str) -> float:
        """Seconds that an op's first look will take."""
        return self.seconds.get(op, 0.0) * self.pace

    def order(self, ops: Sequence[str], left_s: float | None) -> list[str]:
        """Returns the order in which to begin the ops: as given, or if they do not all fit, the shortest first.

        Of several at once the longest first, or it would run alone at the end.
        """
        if left_s is not None and sum(map(self.expected, ops)) / self.lanes > left_s:
            return sorted(ops, key=lambda op: (self.expected(op), op))
        return [*ops] if self.lanes == 1 else sorted(ops, key=self.expected, reverse=True)

    def allowed(self, op: str, others: Iterable[str], left_s: float) -> float:
        """Returns the seconds that an op may take: what the others do not need, and always a bit more than expected."""
        spare = left_s - sum(map(self.expected, others)) / self.lanes
        return min(left_s, max(spare, START_S + OVERRUN * self.expected(op)))

    def is_ample(self, ops: Iterable[str], left_s: float | None) -> bool:
        """Returns whether each of these ops may take all that it could ever be allowed."""
        return left_s is None or sum(START_S + OVERRUN * self.expected(op) for op in ops) <= left_s

    def later(self, op: str, share: float) -> float:
        """Returns the seconds that a fresh process for a share of an op's cases will take."""
        return self.took.get(op, self.expected(op)) * max(share, LEAST_SHARE)
