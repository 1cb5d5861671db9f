"""Counts, ratios and ranges in words."""

from collections.abc import Callable

from perfci.core import units
from perfci.core.model import Interval
from perfci.core.wording import say


def count_cases(count: int) -> str:
    """Returns a count of cases: 1 case, 2 cases."""
    return say("{count:case|cases}", count=count)


def write_count(value: int | None) -> str:
    """Writes a whole number, a dash if it is unknown."""
    return "-" if value is None else str(value)


def write_number(value: float | None) -> str:
    """Writes three significant digits, a dash if it is unknown."""
    return "-" if value is None else units.significant(value)


def write_seconds(value: float | None) -> str:
    """Writes seconds in the unit that fits."""
    return units.time(None if value is None else value * 1e6)


def write_ratio(value: float | None) -> str:
    """Writes a speedup: 1.62x."""
    return "-" if value is None else f"{units.significant(value)}x"


def write_speedup(interval: Interval | None) -> str:
    """Writes a speedup with its interval: 1.62x (1.58x to 1.66x)."""
    ends = write_ends(interval, write_ratio)
    return f"{write_ratio(interval.value if interval else None)}{ends and f' ({ends})'}"


def write_ends(interval: Interval | None, write: Callable[[float], str]) -> str:
    """Writes the ends of an interval, or nothing if they read as its value does."""
    if interval is None:
        return ""
    ends = write_range(write(interval.low), write(interval.high))
    return "" if ends == write(interval.value) else ends


def write_change(ratio: float | None) -> str:
    """Writes a change with its sign."""
    return units.percent(ratio, signed=True)


def write_range(low: str, high: str) -> str:
    """Writes a range: 1.58x to 1.66x. Of ends that read alike one is enough."""
    return low if low == high else say("{low} to {high}", low=low, high=high)
