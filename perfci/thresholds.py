"""Performance thresholds: `default.yaml` and one `<op>.yaml` an op, with strict keys, case patterns and units.

    margin: 2 %              # allowed slow-down against the baseline
    speedup: 1.2             # target: reference time / kernel time
    cases:
      dtype=float32:         # any --case pattern; of several that match, the last wins
        margin: 4 %

Values fall through: built in, then `default.yaml`, then `<op>.yaml`, then its cases. `alpha` belongs to the run as a
whole and stands in `default.yaml` only.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from perfci.errors import StoredFileError
from perfci.spec import matches

DEFAULT = "default"
TIMERS = ("activity", "event", "virtual")

Steps = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class CaseThresholds:
    """What one case is judged by; ratios are of 1, times microseconds."""

    margin: float = 0.02
    """allowed slow-down against the stored baseline; inside the null hypothesis"""
    alpha: float = 0.01
    """chance of any false alarm among all cases of a run"""
    speedup: float | None = None
    """target of reference time / kernel time; None: none"""
    rsd: float = 0.05
    """relative standard deviation of a block's launches that is warned about"""
    span_margin: float = 0.10
    """allowed growth of the time from a launch's first start to its last end: host work is noisier"""
    span_floor_us: float = 5.0
    """growth of the span that never matters: another host alone may cost this much between two kernels"""
    regime: float = 0.05
    """added to both margins where the reference left the baseline's range: another thermal regime"""
    floor_us: Mapping[str, float] = field(default_factory=lambda: {"activity": 0.1, "event": 0.5, "virtual": 0.0})
    """timer -> difference that never matters: what the timer cannot tell"""
    tau: Steps = ((0.0, 0.05), (3.0, 0.025), (10.0, 0.015), (40.0, 0.01))
    """(from this kernel length on, allowed slow-down against the base), ascending"""
    registers: float | None = None
    instructions: float | None = None
    shared_memory: float | None = None
    occupancy: float | None = None
    """allowed growth of what the compiler made against the base's, ratio; of occupancy the allowed loss; None: any"""
    spill_bytes: float | None = None
    """allowed growth of a thread's spills against the base, bytes; None: any"""
    peak_memory: float | None = None
    """allowed growth of the device memory that a call holds at most against the base, ratio; None: any"""

    def floor(self, timer: str | None) -> float:
        """Least difference that matters with this timer, microseconds."""
        return self.floor_us.get(timer or "", max(self.floor_us.values()))

    def tau_at(self, kernel_us: float) -> float:
        """Allowed slow-down of a kernel of this length against its base.

        >>> CaseThresholds().tau_at(12.0)
        0.015
        """
        return next(tau for start, tau in reversed(self.tau) if kernel_us >= start)

    def allowed(self, base_us: float, timer: str | None) -> float:
        """Slow-down against a base of this length that is allowed, ratio: tau, or what the timer cannot tell.

        >>> CaseThresholds().allowed(100.0, "activity"), CaseThresholds().allowed(4.0, "event")
        (0.01, 0.125)
        """
        return max(self.tau_at(base_us), self.floor(timer) / base_us)


@dataclass(frozen=True)
class OpThresholds:
    """Thresholds of one op, with the overrides of its cases in file order."""

    common: CaseThresholds
    cases: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    """(--case pattern, fields of CaseThresholds)"""


@dataclass(frozen=True)
class Thresholds:
    """Everything in a thresholds folder."""

    default: CaseThresholds = field(default_factory=CaseThresholds)
    ops: Mapping[str, OpThresholds] = field(default_factory=dict)

    @property
    def alpha(self) -> float:
        """Chance of any false alarm among all cases of a run."""
        return self.default.alpha

    def for_case(self, op: str, case: str) -> CaseThresholds:
        """What this case is judged by."""
        own = self.ops.get(op)
        if own is None:
            return self.default
        found = own.common
        for pattern, overrides in own.cases:
            if matches(case, pattern):
                found = _overridden(found, overrides)
        return found


def _overridden(limits: CaseThresholds, fields: Mapping[str, Any]) -> CaseThresholds:
    """The limits with what a file says otherwise; a floor that it leaves out stays."""
    merged = {**fields, "floor_us": {**limits.floor_us, **fields["floor_us"]}} if "floor_us" in fields else fields
    return replace(limits, **merged)


def load(folder: Path, ops: Collection[str] | None = None) -> Thresholds:
    """Read a thresholds folder; without it, or without default.yaml in it, the built-in values hold.

    ops: all ops of the project, by which a file that belongs to none of them is an error; None leaves that unchecked.
    Raises StoredFileError, naming file and line, for anything that is not understood: nothing is skipped in silence.
    """
    default = CaseThresholds()
    path = folder / f"{DEFAULT}.yaml"
    if path.is_file():
        default = _overridden(default, _read(path, _DEFAULT_KEYS))
    files = {file.stem: file for file in sorted(folder.glob("*.yaml")) if file.stem != DEFAULT}
    return Thresholds(default, {op: _op(file, default, ops) for op, file in files.items()})


def _op(path: Path, default: CaseThresholds, ops: Collection[str] | None) -> OpThresholds:
    if ops is not None and path.stem not in ops:
        meant = _meant(path.stem, {*ops, DEFAULT})
        kind = "thresholds_of_other_op" if meant else "thresholds_of_no_op"
        raise StoredFileError(kind, file=str(path), op=path.stem, meant=meant)
    fields = _read(path, _OP_KEYS)
    cases = fields.pop("cases", ())
    return OpThresholds(_overridden(default, fields), cases)


# --- YAML with places -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """A value in a file, with what its error message needs."""

    file: Path
    line: int
    key: str
    node: yaml.Node

    @property
    def value(self) -> Any:
        return yaml.constructor.SafeConstructor().construct_document(self.node)

    def error(self, kind: str, **facts: str | float | None) -> StoredFileError:
        return StoredFileError(kind, file=str(self.file), line=self.line, key=self.key, **facts)

    def unlike(self, want: str) -> StoredFileError:
        found = self.node.value if isinstance(self.node, yaml.ScalarNode) else "a list or a mapping"
        return self.error("threshold_value", found=str(found) or "nothing", want=want)

    def items(self) -> Iterator[_Place]:
        """The entries of a mapping, each once."""
        if not isinstance(self.node, yaml.MappingNode):
            raise self.unlike("a mapping of names to values")
        seen: set[str] = set()
        for key, value in self.node.value:
            entry = _Place(self.file, key.start_mark.line + 1, str(key.value), value)
            if entry.key in seen:
                raise entry.error("threshold_twice")
            seen.add(entry.key)
            yield entry


_Parser = Callable[[_Place], Any]


def _read(path: Path, keys: Mapping[str, _Parser]) -> dict[str, Any]:
    try:
        node = yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else None
        problem = getattr(error, "problem", None) or "it is not UTF-8 text"
        raise StoredFileError("thresholds_unreadable", file=str(path), line=line, problem=problem) from error
    return _fields(_Place(path, 1, path.name, node), keys) if node is not None else {}


def _fields(place: _Place, keys: Mapping[str, _Parser]) -> dict[str, Any]:
    return {entry.key: _parser(entry, keys)(entry) for entry in place.items()}


def _parser(entry: _Place, keys: Mapping[str, _Parser]) -> _Parser:
    if entry.key in keys:
        return keys[entry.key]
    where = "default.yaml" if entry.key in _DEFAULT_KEYS else "<op>.yaml" if entry.key in _OP_KEYS else None
    if where:
        raise entry.error("threshold_key_elsewhere", where=where)
    meant = _meant(entry.key, keys)
    kind = "threshold_key_misspelt" if meant else "threshold_key_unknown"
    raise entry.error(kind, meant=meant, keys=", ".join(sorted(keys)))


def _meant(word: str, words: Collection[str]) -> str | None:
    """The known word that is closest, if any is close."""
    return next(iter(difflib.get_close_matches(word, sorted(words), n=1)), None)


# --- values -----------------------------------------------------------------------------------------------------------

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


def _ratio(place: _Place) -> float:
    found = _PERCENT.fullmatch(str(place.value))
    if not found or not float(found[1]) < 100:
        raise place.unlike("a percentage from 0 % to below 100 %, such as 2 %")
    return float(found[1]) / 100


def _slowdown(place: _Place) -> float:
    """An allowance of 0 % could never be met: no two times are ever equal."""
    found = _ratio(place)
    if found == 0:
        raise place.unlike("a percentage above 0 %, since no two times are ever equal, such as 1 %")
    return found


def _chance(place: _Place) -> float:
    found = _ratio(place)
    if not 0 < found <= 0.5:
        raise place.unlike("a percentage above 0 % and up to 50 %, such as 1 %")
    return found


def _number(place: _Place) -> float:
    value = place.value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < float("inf"):
        raise place.unlike("a number, zero or more, such as 0.5")
    return float(value)


def _target(place: _Place) -> float:
    value = _number(place)
    if value == 0:
        raise place.unlike("a number above 0, such as 1.2")
    return value


def _floors(place: _Place) -> Mapping[str, float]:
    return _fields(place, dict.fromkeys(TIMERS, _number))


def _steps(place: _Place) -> Steps:
    starts = {entry.key: entry for entry in place.items()}
    try:
        steps = sorted((float(start), _slowdown(entry)) for start, entry in starts.items())
    except ValueError as error:
        raise place.unlike("kernel lengths in microseconds as keys, such as 40: 1 %") from error
    if not all(math.isfinite(start) for start, _ in steps):
        raise place.unlike("kernel lengths in microseconds as keys, such as 40: 1 %")
    if not steps or steps[0][0] != 0:
        raise place.unlike("steps that begin at length 0, such as 0: 5 %")
    return tuple(steps)


def _cases(place: _Place) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    return tuple((entry.key, _fields(entry, _CASE_KEYS)) for entry in place.items())


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
}
_DEFAULT_KEYS: Mapping[str, _Parser] = {**_CASE_KEYS, "alpha": _chance}
_OP_KEYS: Mapping[str, _Parser] = {**_CASE_KEYS, "cases": _cases}
