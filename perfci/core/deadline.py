"""Until when measuring may go on, and what of it each op may have: pure arithmetic on seconds.

A job that runs into its own time limit is killed, and its report and artefacts with it. So perfci ends before: by what
`--deadline` says, else by GitLab's CI_JOB_TIMEOUT less a reserve. The first looks of all ops come before a later look
of any. An op may take what the others left do not need: one that takes longer than expected eats up slack, and little
of another op's time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from perfci.core.model import Deadline, Fact, Reason

OPTION, TIMEOUT, STARTED = "--deadline", "CI_JOB_TIMEOUT", "CI_JOB_STARTED_AT"

RESERVE_S, RESERVE_SHARE = 60.0, 0.05
"""Kept of a job's time limit, whichever is more: a report of 500 cases takes 10 s on two cores, the note some requests,
artefacts are uploaded at what the network gives; a longer job has more of them. Never more than half of a short one."""

WIND_DOWN_S, WIND_DOWN_SHARE = 10.0, 0.1
"""How long before its end a worker is asked to end by itself, whichever is less: then the block under way, the timer's
records and the suspicions are still had. One that is still there at the end, such as one that compiles, is killed."""

SKEW_S = 300.0
"""Most that the clocks of GitLab and of a runner differ by before the one is not believed."""

LONGEST_S = 90 * 24 * 3600.0
"""No job runs longer: what is more is no number of seconds."""

START_S, OVERRUN = 30.0, 2.0
"""What an op may take in any case: a worker's start, and so many times what is expected, which is a guess at first."""

LEAST_SHARE = 0.25
"""Of an op's first look: a later look of few of its cases starts a worker, imports and compiles as that did."""


@dataclass(frozen=True)
class Found:
    """The time limit of this job."""

    deadline: Deadline | None = None
    note: Reason | None = None
    """what of the job's variables was ignored"""


NO_LIMIT = Found()


def find(seconds: float | None, variables: Mapping[str, str], now: float) -> Found:
    """The time limit by the option, else by GitLab's variables where both are set.

    seconds: of --deadline, 0 for none at all, None where it was not given. now: seconds since the epoch. What the
    variables say is ignored with a note where it is no date, no number of seconds, or where the job would have begun
    in the future or have been over by now.
    """
    timeout, started = variables.get(TIMEOUT), variables.get(STARTED)
    if seconds == 0 or (seconds is None and not (timeout and started)):
        return Found()
    began = _began(started, now)
    if isinstance(began, Reason):
        # Where nobody knows when the job began, the option counts from now on.
        return Found(None if seconds is None else _deadline(now, seconds, 0.0, OPTION), began)
    if seconds is not None:
        return Found(_deadline(began, seconds, 0.0, OPTION))
    return _by_timeout(timeout or "", began, now)


def reserve(limit_s: float) -> float:
    """Seconds of a job that are kept for all that comes after measuring.

    >>> reserve(60.0), reserve(600.0), reserve(3600.0)
    (30.0, 60.0, 180.0)
    """
    return min(max(RESERVE_S, RESERVE_SHARE * limit_s), limit_s / 2)


def ends(deadline: Deadline) -> float:
    """When measuring has to have ended, seconds since the epoch."""
    return datetime.fromisoformat(deadline.until).timestamp()


def wind_down(deadline: Deadline) -> float:
    """Seconds before that at which workers are asked to end."""
    return min(WIND_DOWN_S, WIND_DOWN_SHARE * (deadline.limit_s - deadline.reserve_s))


def facts(deadline: Deadline) -> dict[str, Fact]:
    """What a sentence says of it."""
    return {"by": deadline.by, "limit_s": deadline.limit_s, "reserve_s": deadline.reserve_s}


def _deadline(began: float, limit_s: float, reserve_s: float, by: str) -> Deadline:
    until = datetime.fromtimestamp(began + limit_s - reserve_s, UTC)
    return Deadline(until.isoformat(timespec="milliseconds").replace("+00:00", "Z"), limit_s, reserve_s, by)


def _began(started: str | None, now: float) -> float | Reason:
    """When the job began, seconds since the epoch; now where nobody says, or where the clocks differ a little."""
    if not started:
        return now
    began = _moment(started)
    if began is None:
        return Reason("deadline_malformed", {"variable": STARTED, "value": started})
    believed = now - LONGEST_S <= began <= now + SKEW_S
    return min(began, now) if believed else _clocks_apart(STARTED, abs(began - now))


def _by_timeout(timeout: str, began: float, now: float) -> Found:
    limit_s = _seconds(timeout)
    if limit_s is None:
        return Found(note=Reason("deadline_malformed", {"variable": TIMEOUT, "value": timeout}))
    if began + limit_s < now:
        return Found(note=_clocks_apart(TIMEOUT, now - began - limit_s))
    return Found(_deadline(began, limit_s, reserve(limit_s), TIMEOUT))


def _clocks_apart(variable: str, off_s: float) -> Reason:
    return Reason("deadline_clock", {"variable": variable, "off_s": round(off_s, 1)})


def _moment(text: str) -> float | None:
    try:
        found = datetime.fromisoformat(text.strip())
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _seconds(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if math.isfinite(found) and 0 < found <= LONGEST_S else None


# --- who gets how much of it ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Timetable:
    """What the ops' first looks are expected to take, corrected by what those of them took that are done."""

    seconds: Mapping[str, float]
    """op -> by an earlier run, or by its number of cases"""
    lanes: int = 1
    """devices that are used side by side"""
    took: Mapping[str, float] = field(default_factory=dict)

    def noting(self, op: str, took_s: float) -> Timetable:
        """The same, knowing that an op's first look took so long."""
        return replace(self, took={**self.took, op: took_s})

    @property
    def pace(self) -> float:
        """How much longer the ops that are done took than expected; 1 before any is."""
        known = [op for op in self.took if self.seconds.get(op)]
        expected = sum(self.seconds[op] for op in known)
        return sum(self.took[op] for op in known) / expected if expected else 1.0

    def expected(self, op: str) -> float:
        """Seconds that an op's first look will take."""
        return self.seconds.get(op, 0.0) * self.pace

    def order(self, ops: Sequence[str], left_s: float | None) -> list[str]:
        """In which order to begin them.

        Where they would not all fit, the shortest first: then most of them are done. Else on several devices the
        longest first, so that all end at about the same time, and on one as they come.
        """
        if left_s is not None and sum(map(self.expected, ops)) > left_s * self.lanes:
            return sorted(ops, key=lambda op: (self.expected(op), op))
        return sorted(ops, key=lambda op: (-self.expected(op), op)) if self.lanes > 1 else [*ops]

    def allowed(self, op: str, others: Iterable[str], left_s: float) -> float:
        """Seconds that an op may take: what the others do not need, and some more than expected in any case."""
        spare = left_s - sum(map(self.expected, others)) / self.lanes
        return min(left_s, max(spare, START_S + OVERRUN * self.expected(op)))

    def later(self, op: str, share: float) -> float:
        """Seconds that a fresh process for a share of an op's cases will take."""
        return self.took.get(op, self.expected(op)) * max(share, LEAST_SHARE)
