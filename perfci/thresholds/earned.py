"""Values that accepted runs have earned: `<device key>/<op>.yaml` in a thresholds folder, written by perfci.

environment:
device.driver: "580.65.06"
cases:
"rows=4096,dtype=float16":
tau:
value: 0.75 %       # in force, if it is tighter than what people wrote. May be edited by hand
from: 1 %           # from here on the record of the last step
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from perfci.core.codec import convert
from perfci.core.environment import flatten
from perfci.core.model import Device, Environment
from perfci.core.wording import say
from perfci.thresholds.layers import ALPHA, Earned
from perfci.thresholds.place import Place, decode_text, list_yaml, make_unknown_error, parse_yaml, read_bytes
from perfci.thresholds.read import NUMBERS, make_number_reader, make_percentage_reader, read_until

MOST_BYTES = 16 << 20  # largest file that is read: 10 keys of 5,000 cases
NONE = "none"  # what stands if no value was set
LONGEST_WHY = 1000
KEYS = tuple(key for key in NUMBERS if key != ALPHA)  # thresholds that a case can have earned

FIELDS = ("value", "from", "to", "bound", "began", "predicted", "date", "runs", "first", "last", "rescaled", "why")
"""Of an entry, in the order in which perfci writes them."""

_LEFT_OUT = frozenset({"device.key", "device.uuid", "host", "system"})  # the file's name, and what others may have


@dataclass(frozen=True)
class EarnedFile:
    """One op's earned values on one device model."""

    op: str
    device: str  # key
    path: Path
    values: tuple[Earned, ...] = ()
    environment: Environment | None = None  # in which all of them were learnt. None if there is no file
    content: bytes | None = None  # of the file when it was read. None: there is none

    def by_case(self) -> Mapping[str, Mapping[str, float]]:
        """Case id -> key -> value."""
        found: dict[str, dict[str, float]] = {}
        for each in self.values:
            found.setdefault(each.case, {})[each.key] = each.value
        return found


def read_earned(folder: Path, device: str, root: Path | None = None) -> dict[str, EarnedFile]:
    """What a thresholds folder holds for a device, by op. Raises StoredFileError for what is not understood."""
    files = list_yaml(folder / device) if device and Path(device).name == device else {}
    return {op: read_file(path, op, device, root) for op, path in files.items()}


def read_file(path: Path, op: str, device: str, root: Path | None = None) -> EarnedFile:
    """The earned values of one file. None if there is no file. Raises StoredFileError."""
    if not path.exists() and not path.is_symlink():
        return EarnedFile(op, device, path)
    shown = path.relative_to(root).as_posix() if root and path.is_relative_to(root) else str(path)
    content = read_bytes(path, MOST_BYTES)
    return parse_file(path, op, device, parse_yaml(path, decode_text(path, content)), content, shown)


def parse_file(path: Path, op: str, device: str, place: Place | None, content: bytes, shown: str) -> EarnedFile:
    """The same of what such a file holds. Raises StoredFileError."""
    parts = {entry.key: entry for entry in place.items()} if place else {}
    for entry in parts.values():
        if entry.key not in {"environment", "cases"}:
            raise make_unknown_error(entry, ("environment", "cases"))
    if not parts:
        return EarnedFile(op, device, path, content=content)
    if "environment" not in parts:
        raise next(iter(parts.values())).error("earned_lacks_environment")
    where = _read_environment(parts["environment"], device)
    cases = parts["cases"].items() if "cases" in parts and not parts["cases"].is_a("null") else ()
    filled = [case for case in cases if not case.is_a("null")]
    values = [_read_entry(entry, op, case.key, shown) for case in filled for entry in case.items()]
    return EarnedFile(op, device, path, tuple(values), where, content)


def _read_entry(place: Place, op: str, case: str, shown: str) -> Earned:
    key = place.key
    if key not in KEYS:
        raise make_unknown_error(place, KEYS)

    def read_number(entry: Place) -> float:
        return float(NUMBERS[key](replace(entry, key=key)))

    def read_number_or_none(entry: Place) -> float | None:
        return None if entry.text(say("a value, or none")) == NONE else read_number(entry)

    def read_text(entry: Place) -> str:
        want = say("text of up to {most} characters", most=LONGEST_WHY)
        text = " ".join(entry.text(want).split())
        if len(text) > LONGEST_WHY:
            raise entry.unlike(want)
        return text

    readers: Mapping[str, Callable[[Place], Any]] = {
        **dict.fromkeys(("value", "to", "bound"), read_number),
        **dict.fromkeys(("from", "began"), read_number_or_none),
        "predicted": make_percentage_reader(0, 100, like="0.05 %"),
        "date": read_until,
        "runs": lambda entry: int(make_number_reader("20")(entry)),
    }
    found: dict[str, Any] = {}
    line = place.line
    for entry in place.items():
        if entry.key not in FIELDS:
            raise make_unknown_error(entry, FIELDS)
        name = {"from": "before", "to": "after"}.get(entry.key, entry.key)
        found[name] = readers.get(entry.key, read_text)(entry)
        line = entry.line if name == "value" else line
    if "value" not in found:
        raise place.error("earned_lacks_value")
    return Earned(op=op, case=case, key=key, file=shown, line=line, **found)


def flatten_environment(environment: Environment) -> dict[str, str]:
    """What of an environment is kept, by dotted name. No board, no host, no commit."""
    known = ((name, value) for name, value in flatten(environment) if name not in _LEFT_OUT)
    return {name: str(value) for name, value in known if value is not None}


def _read_environment(place: Place, device: str) -> Environment:
    parts: dict[str, dict[str, str]] = {"device": {"kind": "", "name": ""}, "packages": {}, "variables": {}}
    found: dict[str, Any] = {"timer": None, "python": "", "host": "", "system": "", **parts}
    for entry in place.items():
        kind, _, name = entry.key.partition(".")
        text = entry.text(say("a version in quotes"))
        if entry.key in {"timer", "python"}:
            found[entry.key] = text
        elif name and kind in parts and (kind != "device" or name in Device.__dataclass_fields__):
            parts[kind][name] = text
        else:
            raise entry.error("earned_environment", known="device.driver, timer, python, packages.torch")
    parts["device"]["key"] = device
    try:
        return convert(found, Environment, strict=False)
    except ValueError as error:
        raise place.unlike(say("numbers of the device as perfci wrote them")) from error
