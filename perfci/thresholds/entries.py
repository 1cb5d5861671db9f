"""Entries of an op's file: agreed slow-downs (`expected`), and thresholds that are looser for a time (`relaxed`)."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from typing import Any

import yaml

from perfci.core.model import Expected, Suggestion
from perfci.core.wording import say
from perfci.thresholds.layers import Relaxed
from perfci.thresholds.limits import Listed, OpThresholds, Thresholds
from perfci.thresholds.place import Place, shortened, unknown

MOST = 10.0
"""Largest slow-down that an entry can allow, ratio: what takes eleven times as long is a fault, or another op."""

WHY_LENGTH = 300
"""Characters of a reason."""

_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_GLOB = re.compile(r"[*?\[]")


def read_expected(place: Place) -> tuple[Listed, tuple[Expected, ...]]:
    """What stands under the key `expected`, still without op and file. Raises StoredFileError."""
    example = "- {case: ..., up_to: 6 %, why: ..., until: 2027-01-31}"
    members = place.members(say("a list with an entry a line, such as {example}", example=example))
    keys = {"case": read_case, "up_to": _read_up_to, "why": read_why, "until": read_until}
    want = say("an entry with case, up_to, why and until in braces")
    lines: dict[str, int] = {}
    found = []
    for member in members:
        entry = Expected(op="", line=member.line, **_read_fields(member, keys, tuple(keys), want, "expected_lacks"))
        if entry.case in lines:
            raise member.error("expected_twice", case=shortened(entry.case), first=lines[entry.case])
        lines[entry.case] = entry.line
        found.append(entry)
    return Listed(place.line, place.column if members else 2), tuple(found)


def read_relaxed(place: Place, numbers: Mapping[str, Callable[[Place], float]]) -> tuple[Relaxed, ...]:
    """What stands under the key `relaxed`, still without op and file. Raises StoredFileError.

    numbers: how to read the value of each key that may be relaxed.
    """
    example = "- {key: tau, to: 2 %, why: ..., until: 2027-01-31}"

    def read_key(entry: Place) -> str:
        text = entry.text(say("the name of a threshold, such as tau"))
        if text not in numbers:
            raise unknown(replace(entry, key=text), numbers)
        return text

    def keep(entry: Place) -> Place:
        return entry

    keys = {
        "key": read_key,
        "case": read_case,
        "device": _read_device,
        "to": keep,
        "why": read_why,
        "until": read_until,
    }
    want = say("an entry with key, to, why and until in braces")
    lines: dict[tuple[str, str | None, str | None], int] = {}
    found = []
    for member in place.members(say("a list with an entry a line, such as {example}", example=example)):
        fields = _read_fields(member, keys, ("key", "why", "until"), want, "relaxed_lacks")
        if "to" in fields:
            # Errors name the threshold whose value it is.
            fields["to"] = numbers[fields["key"]](replace(fields["to"], key=fields["key"]))
        entry = Relaxed(op="", line=member.line, **fields)
        which = entry.key, entry.case, entry.device
        if which in lines:
            raise member.error("relaxed_twice", what=entry.key, case=shortened(entry.case or "-"), first=lines[which])
        lines[which] = entry.line
        found.append(entry)
    return tuple(found)


def _read_fields(
    place: Place, keys: Mapping[str, Callable[[Place], Any]], needed: Sequence[str], want: str, lacks: str
) -> dict[str, Any]:
    if not isinstance(place.node, yaml.MappingNode):
        raise place.unlike(want)
    fields = {}
    for entry in place.items():
        if entry.key not in keys:
            raise unknown(entry, keys)
        fields[entry.key] = keys[entry.key](entry)
    if missing := [key for key in needed if key not in fields]:
        raise place.error(lacks, missing=", ".join(missing))
    return fields


# --- fields -----------------------------------------------------------------------------------------------------------


def is_pattern(text: str) -> bool:
    """Whether this can be the --case pattern of any case: parts of ids are name=value, and have no blanks.

    >>> is_pattern("rows=4096,*"), is_pattern("rows"), is_pattern("rows=1, cols=2"), is_pattern("")
    (True, False, False, False)
    """
    return not re.search(r"\s", text) and all("=" in part or _GLOB.search(part) for part in text.split(","))


def check_pattern(text: str, place: Place) -> str:
    """A --case pattern. Raises StoredFileError for a text that fits no case."""
    if not is_pattern(text):
        raise place.unlike(say("a pattern for case ids, without blanks, such as rows=4096,dtype=*"))
    return text


def read_case(place: Place) -> str:
    """A --case pattern in quotes. Raises StoredFileError, as the others do."""
    if not place.is_a("str"):
        raise place.unlike(say("a pattern for case ids in quotes, such as rows=4096,dtype=*"))
    return check_pattern(place.text(""), place)


def _read_up_to(place: Place) -> float:
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
    """A day of the calendar, ISO 8601."""
    want = say("a date such as 2027-01-31")
    text = place.text(want)
    if not _DATE.fullmatch(text):
        raise place.unlike(want)
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError as error:
        raise place.unlike(say("{want}, of a day that there is", want=want)) from error


def _read_device(place: Place) -> str:
    want = say("the key of a device, as its folder of baselines has it, such as nvidia-h200")
    text = place.text(want)
    if not text.strip() or "/" in text:
        raise place.unlike(want)
    return text


# --- writing one ------------------------------------------------------------------------------------------------------


def suggest_expected(thresholds: Thresholds, op: str, case: str, up_to: float, until: date) -> Suggestion | None:
    """The entry that would allow this slow-down in this case, to be pasted into the op's file.

    up_to: the slow-down measured, by the upper end of its interval. It is rounded up: per cent, to the next half up to
    10 %, the next whole up to 100 %, the next ten beyond. None if it is beyond all that an entry can allow, or if no
    pattern names the case.
    """
    step = 0.5 if up_to <= 0.1 else 1.0 if up_to <= 1 else 10.0
    percent = math.ceil(100 * up_to / step - 1e-9) * step
    if percent > 100 * MOST or not is_pattern(case):
        return None
    own = thresholds.ops.get(op, OpThresholds(thresholds.default))
    taken = next((entry.line for entry in own.expected if entry.case == case), None)
    why = f'"{say("say why, and where it was agreed on")}"'
    fields = f"case: {quoted(case)}, up_to: {percent:g} %, why: {why}, until: {until.isoformat()}"
    return Suggestion(
        file=f"{thresholds.folder}/{op}.yaml",
        line=f"{' ' * (own.listed.indent if own.listed else 2)}- {{{fields}}}",
        below=own.listed.line if own.listed else None,
        replaces=taken,
    )


def quoted(text: str) -> str:
    r"""As YAML's double quotes write it, on one line.

    >>> print(quoted('a "b" #: '))
    "a \"b\" #: "
    """
    return str(yaml.safe_dump(text, default_style='"', width=math.inf)).strip()
