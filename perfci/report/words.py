"""Counts, ratios and ranges in words."""

from __future__ import annotations

from perfci.core import units
from perfci.core.model import Interval, Suite
from perfci.core.wording import say


def cases(count: int) -> str:
    """A count of cases.

    >>> cases(1), cases(2)
    ('1 case', '2 cases')
    """
    return say("{count:case|cases}", count=count)


def performance_cases(count: int) -> str:
    """The same of performance cases."""
    return say("{count:performance case|performance cases}", count=count)


def accuracy_checks(count: int) -> str:
    """The same of accuracy checks."""
    return say("{count:accuracy check|accuracy checks}", count=count)


def suite_word(suite: Suite) -> str:
    """What a verdict about a whole suite is about."""
    known = {
        Suite.ACCURACY: say("accuracy"),
        Suite.PERFORMANCE: say("performance"),
        Suite.COMPILED: say("compiled"),
    }
    return known[suite]


def accuracy_cases(count: int) -> str:
    """The same of accuracy cases."""
    return say("{count:accuracy case|accuracy cases}", count=count)


def accepted_runs(count: int) -> str:
    """The same of accepted runs."""
    return say("{count:accepted run|accepted runs}", count=count)


def since(seconds: float | None) -> str:
    """How long before this run the last accepted one was; empty where nobody knows.

    >>> since(7200), since(3.2 * 86400), since(-60), since(None)
    ('the last one 2 hours before this run', 'the last one 3 days before this run', 'the last one after this run, by \
its clock', '')
    """
    if seconds is None:
        return ""
    if seconds < 0:
        return say("the last one after this run, by its clock")
    if seconds < 60:
        return say("the last one within a minute before this run")
    if seconds < _HOURS:
        return say("the last one {count:minute|minutes} before this run", count=round(seconds / 60))
    if seconds < _DAYS:
        return say("the last one {count:hour|hours} before this run", count=round(seconds / 3600))
    return say("the last one {count:day|days} before this run", count=round(seconds / 86400))


_HOURS, _DAYS = 100 * 60, 48 * 3600
"""Seconds from which on a time is told by hours, and by days."""


def torch_operations(count: int) -> str:
    """The same of torch's operations."""
    return say("{count:torch operation|torch operations}", count=count)


def launches(count: int) -> str:
    """The same of launches."""
    return say("{count:launch|launches}", count=count)


def timed_by(timer: str | None) -> str:
    """How launches were timed, as the end of a sentence.

    >>> timed_by("event"), timed_by(None)
    (', timed by event pairs', '')
    """
    known = {
        "activity": say(", timed by the device's activity records"),
        "event": say(", timed by event pairs"),
        "virtual": say(", timed by a virtual clock"),
    }
    return known.get(timer, say(", timed by {timer}", timer=timer)) if timer else ""


def ratio(value: float | None) -> str:
    """A speedup.

    >>> ratio(1.6234), ratio(None)
    ('1.62x', '-')
    """
    return "-" if value is None else f"{units.significant(value)}x"


def speedup(interval: Interval | None) -> str:
    """A speedup with its interval.

    >>> speedup(Interval(1.62, 1.58, 1.66))
    '1.62x (1.58x to 1.66x)'
    """
    return f"{ratio(interval.value)} ({between(ratio(interval.low), ratio(interval.high))})" if interval else "-"


def between(low: str, high: str) -> str:
    """A range.

    >>> between("1.58x", "1.66x")
    '1.58x to 1.66x'
    """
    return say("{low} to {high}", low=low, high=high)
