"""Keys and values of threshold files: nothing is skipped in silence."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from perfci.core.errors import StoredFileError
from perfci.core.wording import say
from perfci.thresholds.entries import check_pattern, read_expected, read_relaxed
from perfci.thresholds.layers import Relaxed
from perfci.thresholds.limits import CaseThresholds, OpThresholds, Steps, Thresholds, overridden
from perfci.thresholds.place import Place, meant, read, unknown

DEFAULT = "default"
TIMERS = ("activity", "event", "virtual")

LARGEST = 1e9
"""Largest number that means anything: microseconds, bytes, times as fast."""

_Parser = Callable[[Place], Any]


def load(folder: Path, ops: Collection[str] | None = None, root: Path | None = None) -> Thresholds:
    """Read a thresholds folder. Without it, or without default.yaml in it, the built-in values hold.

    ops: all ops of the project, by which a file that belongs to none of them is an error; None leaves that unchecked.
    root: the project's, from which files are named to people. Raises StoredFileError, naming file and line, for
    anything that is not understood: nothing is skipped in silence.
    """
    shown = folder.relative_to(root) if root and folder.is_relative_to(root) else folder
    files = _files(folder)
    path = files.pop(DEFAULT, None)
    default = overridden(CaseThresholds(), _fields_of(path, _DEFAULT_KEYS)) if path else CaseThresholds()
    read_ops = {op: _op(file, default, ops, f"{shown.as_posix()}/{file.name}") for op, file in files.items()}
    return Thresholds(default, read_ops, shown.as_posix())


def _files(folder: Path) -> dict[str, Path]:
    """The folder's files by the names of their ops."""
    if not folder.exists():
        return {}
    if not folder.is_dir():
        raise StoredFileError("file_unreadable", path=str(folder), why=say("it is no folder"))
    found = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in {".yaml", ".yml"} and path.suffix != ".yaml":
            raise StoredFileError("thresholds_ending", file=str(path), name=f"{path.stem}.yaml")
        if path.suffix == ".yaml":
            found[path.stem] = path
    return found


def _op(path: Path, default: CaseThresholds, ops: Collection[str] | None, shown: str) -> OpThresholds:
    if ops is not None and path.stem not in ops:
        guess = meant(path.stem, {*ops, DEFAULT})
        kind = "thresholds_of_other_op" if guess else "thresholds_of_no_op"
        raise StoredFileError(kind, file=str(path), op=path.stem, meant=guess)
    fields = _fields_of(path, _OP_KEYS)
    cases = fields.pop("cases", ())
    listed, entries = fields.pop("expected", (None, ()))
    looser = tuple(replace(entry, op=path.stem, file=shown) for entry in fields.pop("relaxed", ()))
    named = tuple(replace(entry, op=path.stem, file=shown) for entry in entries)
    return OpThresholds(overridden(default, fields), cases, named, listed=listed, relaxed=looser)


# --- keys -------------------------------------------------------------------------------------------------------------


def _fields_of(path: Path, keys: Mapping[str, _Parser]) -> dict[str, Any]:
    place = read(path)
    return _fields(place, keys) if place else {}


def _fields(place: Place, keys: Mapping[str, _Parser]) -> dict[str, Any]:
    return {entry.key: _parser(entry, keys)(entry) for entry in place.items()}


def _parser(entry: Place, keys: Mapping[str, _Parser]) -> _Parser:
    if entry.key in keys:
        return keys[entry.key]
    where = "default.yaml" if entry.key in _DEFAULT_KEYS else "<op>.yaml" if entry.key in _OP_KEYS else None
    raise entry.error("threshold_key_elsewhere", where=where) if where else unknown(entry, keys)


# --- values -----------------------------------------------------------------------------------------------------------

_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")
_NUMBER = re.compile(r"(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_LENGTH = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")


def _percentage(fits: Callable[[float], bool], want: Callable[[], str]) -> Callable[[Place], float]:
    def read_percentage(place: Place) -> float:
        found = _PERCENT.fullmatch(place.text(want()))
        if not found or not fits(float(found[1])):
            raise place.unlike(want())
        return float(found[1]) / 100

    return read_percentage


def _number_of(fits: Callable[[float], bool], want: Callable[[], str]) -> Callable[[Place], float]:
    def read_number(place: Place) -> float:
        text = place.text(want())
        # YAML takes 1e-3 for text, and people write numbers so.
        plain = isinstance(place.node, yaml.ScalarNode) and not place.node.style
        value = float(text) if plain and _NUMBER.fullmatch(text) else math.nan
        if not value <= LARGEST or not fits(value):
            raise place.unlike(want())
        return value

    return read_number


_ratio = _percentage(lambda percent: percent < 100, lambda: say("a percentage from 0 % to below 100 %, such as 2 %"))
_slowdown = _percentage(
    lambda percent: 0 < percent < 100,
    lambda: say("a percentage above 0 %, since no two times are ever equal, and below 100 %, such as 1 %"),
)
_chance = _percentage(
    lambda percent: 0 < percent <= 50, lambda: say("a percentage above 0 % and up to 50 %, such as 1 %")
)
# What the cache keeps lets a kernel pass the copy; beyond 140 % no measurement is believed.
_share = _percentage(
    lambda percent: 0 < percent <= 140, lambda: say("a percentage above 0 % and up to 140 %, such as 80 %")
)
_number = _number_of(
    lambda _: True, lambda: say("a number, zero or more, up to {most}, such as 0.5", most=f"{LARGEST:.0f}")
)
_error = _number_of(
    lambda _: True, lambda: say("a number, zero or more, up to {most}, such as 1e-3", most=f"{LARGEST:.0f}")
)
_target = _number_of(lambda value: value > 0, lambda: say("a number above 0, such as 1.2"))
_seconds = _number_of(lambda value: value > 0, lambda: say("seconds above 0, since every call takes time, such as 20"))


def _floors(place: Place) -> Mapping[str, float]:
    return _fields(place, dict.fromkeys(TIMERS, _number))


def _steps(place: Place) -> Steps:
    steps: dict[float, float] = {}
    for entry in place.items():
        if not _LENGTH.fullmatch(entry.key) or not float(entry.key) <= LARGEST:
            raise place.unlike(say("kernel lengths in microseconds as keys, such as 40: 1 %"))
        if float(entry.key) in steps:
            raise entry.error("threshold_twice")
        steps[float(entry.key)] = _slowdown(entry)
    if 0.0 not in steps:
        raise place.unlike(say("steps that begin at length 0, such as 0: 5 %"))
    return tuple(sorted(steps.items()))


def _cases(place: Place) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    return tuple((check_pattern(entry.key, entry), _fields(entry, _CASE_KEYS)) for entry in place.items())


_CASE_KEYS: Mapping[str, _Parser] = {
    "margin": _ratio,
    "speedup": _target,
    "rsd": _ratio,
    "span_margin": _slowdown,
    "span_floor_us": _number,
    "regime": _ratio,
    "floor_us": _floors,
    "tau": _steps,
    "registers": _ratio,
    "instructions": _ratio,
    "shared_memory": _ratio,
    "occupancy": _ratio,
    "spill_bytes": _number,
    "peak_memory": _ratio,
    "bandwidth_share": _share,
    "compile_s": _seconds,
    "mean_abs": _error,
    "rmse": _error,
    "p99_abs": _error,
    "max_abs": _error,
    "stored_p99": _error,
    "clip_ratio": _ratio,
    "divergence": _error,
}
_DEFAULT_KEYS: Mapping[str, _Parser] = {**_CASE_KEYS, "alpha": _chance}


def _relaxed(place: Place) -> tuple[Relaxed, ...]:
    return read_relaxed(place, {key: parser for key, parser in NUMBERS.items() if key != "alpha"})


_OP_KEYS: Mapping[str, _Parser] = {
    **_CASE_KEYS,
    "cases": _cases,
    "expected": read_expected,
    "relaxed": _relaxed,
}

NUMBERS: Mapping[str, _Parser] = {
    **{key: parser for key, parser in _DEFAULT_KEYS.items() if key != "floor_us"},
    "tau": _slowdown,
}
"""How the one number of a key is read, if it stands for every length of kernel: earned, relaxed, --threshold."""
