"""Thresholds that are looser for a time: the entries of `relaxed` in an op's file, read, and written as a line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import yaml

from perfci.core.wording import say
from perfci.thresholds import expected
from perfci.thresholds.layers import Relaxed
from perfci.thresholds.place import Place, shortened, unknown

_EXAMPLE = "- {key: tau, to: 2 %, why: ..., until: 2027-01-31}"

NEEDED = ("key", "why", "until")

KEYS = ("key", "case", "device", "to", "why", "until")


def entries(place: Place, numbers: Mapping[str, Callable[[Place], float]]) -> tuple[Relaxed, ...]:
    """What stands under the key `relaxed`, still without op and file. Raises StoredFileError.

    numbers: how the value of each key that may be relaxed is read.
    """
    members = place.members(say("a list with an entry a line, such as {example}", example=_EXAMPLE))
    found = tuple(_entry(member, numbers) for member in members)
    lines: dict[tuple[str, str | None, str | None], int] = {}
    for entry, member in zip(found, members, strict=True):
        which = entry.key, entry.case, entry.device
        if which in lines:
            case = shortened(entry.case or "-")
            raise member.error("relaxed_twice", what=entry.key, case=case, first=lines[which])
        lines[which] = entry.line
    return found


def _entry(place: Place, numbers: Mapping[str, Callable[[Place], float]]) -> Relaxed:
    if not isinstance(place.node, yaml.MappingNode):
        raise place.unlike(say("an entry with key, to, why and until in braces"))
    places = {entry.key: entry for entry in place.items()}
    for each in places.values():
        if each.key not in KEYS:
            raise unknown(each, KEYS)
    missing = [key for key in NEEDED if key not in places]
    if missing:
        raise place.error("relaxed_lacks", missing=", ".join(missing))
    key = _key(places["key"], numbers)
    found: dict[str, Any] = {"why": expected.read_why(places["why"]), "until": expected.read_until(places["until"])}
    if "case" in places:
        found["case"] = expected.read_case(places["case"])
    if "device" in places:
        found["device"] = _device(places["device"])
    if "to" in places:
        # The value is told by the name of the threshold that it is one of.
        to = places["to"]
        found["to"] = numbers[key](Place(to.file, to.line, key, to.node))
    return Relaxed(op="", key=key, line=place.line, **found)


def _key(place: Place, numbers: Mapping[str, Any]) -> str:
    want = say("the name of a threshold, such as tau")
    text = place.text(want)
    if text not in numbers:
        raise unknown(Place(place.file, place.line, text, place.node), numbers)
    return text


def _device(place: Place) -> str:
    want = say("the key of a device, as its folder of baselines has it, such as nvidia-h200")
    text = place.text(want)
    if not text.strip() or "/" in text:
        raise place.unlike(want)
    return text
