"""Every threshold in force, and where it comes from: built in, a file's line, earned with its record, or relaxed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import StrEnum

from perfci import store
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.model import Device, Environment, HistoryRun, Reason, Suite
from perfci.core.settings import Settings
from perfci.ops.spec import is_stored, matches
from perfci.runs.base import known_ops
from perfci.runs.effective_thresholds import InForce, in_force, relaxed_note, shown
from perfci.runs.tightening import counted, family_of
from perfci.store.history import history_devices, read_history
from perfci.thresholds import origins
from perfci.thresholds.earned import earned_devices, read_earned
from perfci.thresholds.layers import ALPHA, STORED_KEYS, TAU, Earned, Relaxed, stricter
from perfci.thresholds.limits import CaseThresholds, Thresholds
from perfci.thresholds.origins import Origin
from perfci.thresholds.place import nearest_first
from perfci.thresholds.ratchet import figures, steps
from perfci.thresholds.ratchet.figures import KEYS
from perfci.thresholds.read import load

LEARNT = frozenset({TAU, *(key.name for key in KEYS)})
"""Keys of which the history may tell how often a value would cry wolf."""


class Layer(StrEnum):
    """What put a value there."""

    BUILT_IN = "built in"
    FILE = "file"
    """of people"""
    EARNED = "earned"
    RELAXED = "relaxed"


@dataclass(frozen=True)
class ExplainOptions:
    """What is to be shown."""

    ops: tuple[str, ...] = ()
    pattern: str | None = None
    device: str | None = None
    key: str | None = None


@dataclass(frozen=True)
class Value:
    """One threshold in force."""

    case: str | None
    """id; None: of every case for which nothing else is said"""
    key: str
    part: str
    """of a key with several values: a timer, or the kernel length from which on it holds; else empty"""
    value: float | None
    """None: it gates nothing"""
    text: str
    """the value as files write it"""
    layer: Layer
    origin: Origin
    earned: Earned | None = None
    """its record, also where something looser or stricter is in force"""
    relaxed: Relaxed | None = None
    """the entry by which it is looser now"""
    predicted: float | None = None
    """false alarms a case check, where the history says enough"""


@dataclass(frozen=True)
class Explained:
    """An op's thresholds on a device."""

    op: str
    device: str | None
    """key; None where no device has a baseline, a history or earned values"""
    values: tuple[Value, ...]
    apart: str | None = None
    """how the newest accepted run's environment differs from the one that earned values were learnt in"""
    ended: tuple[Reason, ...] = ()
    """relaxed entries that have no effect any more"""


def explain(settings: Settings, options: ExplainOptions, day: date | None = None) -> list[Explained]:
    """The thresholds in force now, op by op and device by device.

    Raises UsageError for an op, a device, a key or a case that nobody knows, and StoredFileError for files that cannot
    be read; nothing is measured.
    """
    today = day or datetime.now(UTC).date()
    written = load(settings.thresholds, known_ops(settings), settings.root)
    ops = _ops(settings, options, written)
    _check_key(options)
    places = [(op, device) for op in ops for device in _devices(settings, options)]
    found = [_explained(settings, op, device, options, written, today) for op, device in places]
    if options.pattern is not None and not any(each.case for one in found for each in one.values):
        raise UsageError("relax_case", pattern=options.pattern, op=", ".join(ops))
    return found


def known_cases(settings: Settings, op: str, device: str | None = None) -> list[str]:
    """Case ids of an op that baselines, histories and earned values know, of one device or of all."""
    found: dict[str, None] = {}
    for each in [device] if device else devices(settings):
        path = store.baseline_path(settings.baselines, each, op)
        if path.exists():
            found |= dict.fromkeys(case.case for case in store.read_baseline(path).cases)
        history = read_history(settings.baselines, each, op, last=1).runs
        for suite in Suite if history else ():
            found |= dict.fromkeys(figures.cases(history[-1], suite))
        file = read_earned(settings.thresholds, each, settings.root).by_op.get(op)
        found |= dict.fromkeys(value.case for value in (file.values if file else ()))
    return list(found)


def devices(settings: Settings) -> list[str]:
    """Keys of the devices that have baselines, histories or earned values."""
    stored = {path.parent.name for path in settings.baselines.glob("*/*.json")}
    return sorted({*stored, *history_devices(settings.baselines), *earned_devices(settings.thresholds)})


def check_op(settings: Settings, op: str, written: Thresholds) -> None:
    """Raise UsageError for an op that the project has not."""
    known = sorted({*(known_ops(settings) or ()), *written.ops})
    if op not in known:
        raise UsageError("relax_op", op=op, known=nearest_first(op, known))


def check_device(settings: Settings, device: str) -> None:
    """Raise UsageError for a device of which nothing is stored."""
    known = devices(settings)
    if device not in known:
        raise UsageError("relax_device", device=device, known=nearest_first(device, known))


# --- what is asked for ------------------------------------------------------------------------------------------------


def _ops(settings: Settings, options: ExplainOptions, written: Thresholds) -> list[str]:
    for op in options.ops:
        check_op(settings, op, written)
    return list(options.ops) or sorted({*(known_ops(settings) or ()), *written.ops})


def _devices(settings: Settings, options: ExplainOptions) -> list[str | None]:
    if options.device is not None:
        check_device(settings, options.device)
        return [options.device]
    return [*devices(settings)] or [None]


def _check_key(options: ExplainOptions) -> None:
    known = CaseThresholds.__dataclass_fields__
    if options.key is not None and options.key not in known:
        raise UsageError("relax_key", key=options.key, keys=nearest_first(options.key, known))


# --- one op on one device ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Place:
    """All that is known of an op on a device."""

    op: str
    found: InForce
    history: tuple[HistoryRun, ...]
    files: tuple[origins.Written, ...]
    records: Mapping[tuple[str, str], Earned]
    day: date

    @property
    def alpha(self) -> float:
        return self.found.limits.alpha


def _explained(
    settings: Settings, op: str, device: str | None, options: ExplainOptions, written: Thresholds, day: date
) -> Explained:
    place = _place(settings, op, device, written, day)
    common = [each for each in _values(place, None) if _wanted(each, options)]
    cases = [case for case in (known_cases(settings, op, device) if device else ()) if matches(case, options.pattern)]
    special = [each for case in cases for each in _of_case(place, case, common, whole=options.pattern is not None)]
    values = [*(common if options.pattern is None else ()), *(each for each in special if _wanted(each, options))]
    own = written.ops.get(op)
    ended = [each for each in (own.relaxed if own else ()) if each.about(device) and not each.holds(day)]
    told = tuple(relaxed_note(each, day) for each in ended)
    return Explained(op, device, tuple(values), place.found.apart.get(op), told)


def _place(settings: Settings, op: str, device: str | None, written: Thresholds, day: date) -> _Place:
    history = _history(settings, device, op)
    found = _in_force(settings, op, device, history, written, day)
    file = found.earned.by_op.get(op)
    records = {(each.case, each.key): each for each in (file.values if file else ())}
    return _Place(op, found, history, origins.written(settings.thresholds, op, settings.root), records, day)


def _history(settings: Settings, device: str | None, op: str) -> tuple[HistoryRun, ...]:
    """Without those runs that do not count; none where the history is to be mended."""
    try:
        return counted(settings, device, op)[0] if device else ()
    except StoredFileError:
        return ()


def _in_force(
    settings: Settings, op: str, device: str | None, history: Sequence[HistoryRun], written: Thresholds, day: date
) -> InForce:
    """As for a run in the newest accepted run's environment; without one, in that of what was earned."""
    if device is None:
        return InForce(written, written, read_earned(settings.thresholds, ""), {}, day)
    file = read_earned(settings.thresholds, device, settings.root).by_op.get(op)
    where: Environment | None = history[-1].environment if history else file.environment if file else None
    if where is None:
        where = Environment(Device("", "", device), None, "", {}, "", "")
    return in_force(settings, where, day.isoformat(), known_ops(settings))


def _wanted(value: Value, options: ExplainOptions) -> bool:
    return options.key is None or value.key == options.key


def _of_case(place: _Place, case: str, common: Sequence[Value], *, whole: bool) -> Iterator[Value]:
    """What is otherwise for a case than for all, or all of it."""
    usual = {(each.key, each.part): (each.value, each.layer) for each in common}
    for each in _values(place, case):
        tau = each.key == TAU and not whole and each.earned is None and each.relaxed is None
        differs = usual.get((each.key, each.part)) != (each.value, each.layer)
        if whole or each.earned or each.relaxed or (differs and not (tau and _same_tau(place, case))):
            yield _predicted(place, each)


def _same_tau(place: _Place, case: str) -> bool:
    own = place.found.written.ops.get(place.op)
    return place.found.limits.for_case(place.op, case).tau == (own.common if own else place.found.written.default).tau


def _values(place: _Place, case: str | None) -> Iterator[Value]:
    own = place.found.written.ops.get(place.op)
    limits = own.common if own else place.found.written.default
    if case is not None:
        limits = place.found.limits.for_case(place.op, case)
    for key in CaseThresholds.__dataclass_fields__:
        if (key != ALPHA or case is None) and (key not in STORED_KEYS or _stores(place, case, key)):
            yield from _parts(place, case, key, limits)


def _stores(place: _Place, case: str | None, key: str) -> bool:
    """Whether it is about storage in low precision: the case, or an op that has any or whose files set the key."""
    if case is not None:
        return is_stored(case)
    written = origins.of(place.files, None, key).file is not None
    return written or any(run.stored for run in place.history[-1:])


def _parts(place: _Place, case: str | None, key: str, limits: CaseThresholds) -> Iterator[Value]:
    found = getattr(limits, key)
    if key == TAU:
        length = _length_us(place.history, case) if case is not None else None
        if length is not None:
            yield _value(place, case, key, "", limits.tau_at(length))
        else:
            yield from (_value(place, case, key, f"{start:g}" if start else "", tau) for start, tau in limits.tau)
    elif isinstance(found, Mapping):
        yield from (_value(place, case, key, timer, us) for timer, us in found.items())
    else:
        yield _value(place, case, key, "", found)


def _value(place: _Place, case: str | None, key: str, part: str, value: float | None) -> Value:
    origin = origins.of(place.files, case, key)
    layer = Layer.BUILT_IN if origin.file is None else Layer.FILE
    text = f"{value:g}" if key == "floor_us" and value is not None else shown(key, value)
    if case is None:
        return Value(case, key, part, value, text, layer, origin)
    record = place.records.get((case, key))
    entry = _entry(place, case, key, value)
    if entry:
        return Value(case, key, part, value, text, Layer.RELAXED, Origin(entry.file, entry.line), record, entry)
    if record and place.op not in place.found.apart and value == record.value:
        written = place.found.written.for_case(place.op, case)
        length = _length_us(place.history, case)
        own = written.tau_at(length or 0.0) if key == TAU else getattr(written, key)
        if stricter(key, record.value, own):
            return Value(case, key, part, value, text, Layer.EARNED, Origin(record.file, record.line), record)
    return Value(case, key, part, value, text, layer, origin, record)


def _entry(place: _Place, case: str, key: str, value: float | None) -> Relaxed | None:
    """The entry that makes a value what it is; None where it would be the same without."""
    entries = place.found.limits.loosened.get(place.op, ())
    mine = [each for each in entries if each.key == key and each.about(None, case)]
    record = place.records.get((case, key))
    effective = [each for each in mine if each.to == value or (each.to is None and record and record.value != value)]
    return effective[-1] if effective else None


def _predicted(place: _Place, value: Value) -> Value:
    if value.case is None or value.value is None or value.key not in LEARNT or not place.history:
        return value
    chance = steps.predicted(
        place.history, value.case, value.key, value.value, family=family_of(place.history), alpha=place.alpha
    )
    record = value.earned
    if chance is None and record is not None and value.layer is Layer.EARNED and not record.edited:
        chance = record.predicted
    return replace(value, predicted=chance)


def _length_us(history: Sequence[HistoryRun], case: str | None) -> float | None:
    """Of the kernel in the newest accepted run that has the case."""
    for run in reversed(history):
        known = next((each for each in run.cases if each.case == case), None)
        if known:
            return known.kernel_us.median_us
    return None
