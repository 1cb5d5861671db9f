"""Slow-downs that were agreed on: the entries of `expected` in an op's file, and the lines that make one."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

import yaml

from perfci.core.model import Expected, Suggestion
from perfci.core.wording import say
from perfci.thresholds.limits import Listed, OpThresholds, Thresholds
from perfci.thresholds.place import Place, shortened, unknown

MOST = 10.0
"""Largest slow-down that an entry can allow, ratio: what takes eleven times as long is a fault, or another op."""

WHY_LENGTH = 300
"""Characters of a reason."""

_EXAMPLE = "- {case: ..., up_to: 6 %, why: ..., until: 2027-01-31}"

_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_GLOB = re.compile(r"[*?\[]")


def entries(place: Place) -> tuple[Listed, tuple[Expected, ...]]:
    """What stands under the key `expected`, still without op and file. Raises StoredFileError."""
    members = place.members(say("a list with an entry a line, such as {example}", example=_EXAMPLE))
    found = tuple(_entry(member) for member in members)
    lines: dict[str, int] = {}
    for entry, member in zip(found, members, strict=True):
        if entry.case in lines:
            raise member.error("expected_twice", case=shortened(entry.case), first=lines[entry.case])
        lines[entry.case] = entry.line
    return Listed(place.line, place.column if members else 2), found


def is_pattern(text: str) -> bool:
    """Whether this can be the --case pattern of any case: parts of ids are name=value, and have no blanks.

    >>> is_pattern("rows=4096,*"), is_pattern("rows"), is_pattern("rows=1, cols=2"), is_pattern("")
    (True, False, False, False)
    """
    return not re.search(r"\s", text) and all("=" in part or _GLOB.search(part) for part in text.split(","))


def pattern(text: str, place: Place) -> str:
    """A --case pattern; raises the error of a text that no case can ever fit."""
    if not is_pattern(text):
        raise place.unlike(say("a pattern for case ids, without blanks, such as rows=4096,dtype=*"))
    return text


# --- reading an entry -------------------------------------------------------------------------------------------------


def _entry(place: Place) -> Expected:
    if not isinstance(place.node, yaml.MappingNode):
        raise place.unlike(say("an entry with case, up_to, why and until in braces"))
    fields = {entry.key: _value(entry) for entry in place.items()}
    missing = [key for key in _KEYS if key not in fields]
    if missing:
        raise place.error("expected_lacks", missing=", ".join(missing))
    return Expected(op="", line=place.line, **fields)


def _value(entry: Place) -> Any:
    if entry.key not in _KEYS:
        raise unknown(entry, _KEYS)
    return _KEYS[entry.key](entry)


def read_case(place: Place) -> str:
    """A --case pattern in quotes. Raises StoredFileError, as the others do."""
    if not place.is_a("str"):
        raise place.unlike(say("a pattern for case ids in quotes, such as rows=4096,dtype=*"))
    return pattern(place.text(""), place)


def _up_to(place: Place) -> float:
    want = say("a percentage above 0 % and up to {most} %, such as 6 %", most=f"{100 * MOST:.0f}")
    found = _PERCENT.fullmatch(place.text(want))
    if not found or not 0 < float(found[1]) <= 100 * MOST:
        raise place.unlike(want)
    return float(found[1]) / 100


def read_why(place: Place) -> str:
    """A reason in quotes, on one line."""
    want = say("a reason in quotes, of up to {most} characters", most=WHY_LENGTH)
    text = " ".join(place.text(want).split())
    if not place.is_a("str") or not text or len(text) > WHY_LENGTH:
        raise place.unlike(want)
    return text


def read_until(place: Place) -> str:
    """A day that there is, ISO 8601."""
    want = say("a date such as 2027-01-31")
    text = place.text(want)
    if not _DATE.fullmatch(text):
        raise place.unlike(want)
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise place.unlike(say("{want}, of a day that there is", want=want)) from error


_KEYS: Mapping[str, Callable[[Place], Any]] = {
    "case": read_case,
    "up_to": _up_to,
    "why": read_why,
    "until": read_until,
}


# --- writing one ------------------------------------------------------------------------------------------------------


def suggestion(thresholds: Thresholds, op: str, case: str, up_to: float, until: date) -> Suggestion | None:
    """The entry that would allow this slow-down in this case, as it is to be pasted into the op's file.

    up_to: the slow-down measured, by the upper end of its interval; it is rounded up. None where no entry can: the
    slow-down is beyond all that one may allow, or no pattern names the case.
    """
    percent = _rounded(up_to)
    if percent > 100 * MOST or not is_pattern(case):
        return None
    own = thresholds.ops.get(op, OpThresholds(thresholds.default))
    taken = next((entry.line for entry in own.expected if entry.case == case), None)
    why = f'"{say("say why, and where it was agreed on")}"'
    fields = f"case: {_quoted(case)}, up_to: {percent:g} %, why: {why}, until: {until.isoformat()}"
    return Suggestion(
        file=f"{thresholds.folder}/{op}.yaml",
        line=f"{' ' * (own.listed.indent if own.listed else 2)}- {{{fields}}}",
        below=own.listed.line if own.listed else None,
        replaces=taken,
    )


def _rounded(up_to: float) -> float:
    """Per cent: the next half below 10 %, the next whole below 100 %, the next ten beyond.

    >>> _rounded(0.0412), _rounded(0.045), _rounded(0.123), _rounded(2.34)
    (4.5, 4.5, 13.0, 240.0)
    """
    step = 0.5 if up_to <= 0.1 else 1.0 if up_to <= 1 else 10.0
    return math.ceil(100 * up_to / step - 1e-9) * step


def _quoted(text: str) -> str:
    r"""As YAML's double quotes write it, on one line.

    >>> print(_quoted('a "b" #: '))
    "a \"b\" #: "
    """
    return str(yaml.safe_dump(text, default_style='"', width=math.inf)).strip()
