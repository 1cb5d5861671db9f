"""Every threshold in force and its source: built in, a file's line, earned with its record, or relaxed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import StrEnum

from perfci import store
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.model import Device, Environment, HistoryRun, Reason, Suite
from perfci.core.settings import Settings
from perfci.ops.spec import is_stored, matches
from perfci.runs.base import list_known_ops
from perfci.runs.effective_thresholds import InForce, over, relaxed_note
from perfci.runs.tightening import read_counted
from perfci.store.history import history_devices, read_history
from perfci.thresholds.earned import earned_devices, read_earned
from perfci.thresholds.layers import ALPHA, STORED_KEYS, TAU, Earned, Relaxed
from perfci.thresholds.limits import CaseThresholds, OpThresholds, Origin, Thresholds
from perfci.thresholds.place import nearest_first
from perfci.thresholds.ratchet import figures
from perfci.thresholds.read import load
from perfci.thresholds.write import show


class Layer(StrEnum):
    """The source of a value."""

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
    """id, None: of every case without a value of its own"""
    key: str
    part: str
    """of a key with several values: a timer, or the kernel length from which on it holds. Else empty"""
    value: float | None
    """None: it gates nothing"""
    text: str
    """the value as files write it"""
    layer: Layer
    origin: Origin
    earned: Earned | None = None
    """its record, also if something looser or stricter is in force"""
    relaxed: Relaxed | None = None
    """the entry by which it is looser now"""

    @property
    def predicted(self) -> float | None:
        """False alarms a case check that were predicted when the value was earned."""
        holds = self.earned and self.layer is Layer.EARNED and not self.earned.edited
        return self.earned.predicted if self.earned and holds else None


@dataclass(frozen=True)
class Explained:
    """An op's thresholds on a device."""

    op: str
    device: str | None
    """key, None if no device has a baseline, a history or earned values"""
    values: tuple[Value, ...]
    apart: str | None = None
    """how the newest accepted run's environment differs from that of the earned values"""
    ended: tuple[Reason, ...] = ()
    """relaxed entries that have no effect any more"""


def explain(settings: Settings, options: ExplainOptions, day: date | None = None) -> list[Explained]:
    """The thresholds in force now, op by op and device by device.

    Raises UsageError for an op, a device, a key or a case that nobody knows, and StoredFileError for files that cannot
    be read. Nothing is measured.
    """
    today = day or datetime.now(UTC).date()
    written = load(settings.thresholds, list_known_ops(settings), settings.root)
    for op in options.ops:
        check_op(settings, op, written)
    keys = CaseThresholds.__dataclass_fields__
    if options.key is not None and options.key not in keys:
        raise UsageError("relax_key", key=options.key, keys=nearest_first(options.key, keys))
    if options.device is not None:
        check_device(settings, options.device)
    ops = list(options.ops) or sorted({*(list_known_ops(settings) or ()), *written.ops})
    devices: list[str | None] = [options.device] if options.device else [*list_devices(settings)] or [None]
    found = [_explain_op(settings, written, op, device, options, today) for op in ops for device in devices]
    if options.pattern is not None and not any(each.case for one in found for each in one.values):
        raise UsageError("relax_case", pattern=options.pattern, op=", ".join(ops))
    return found


def list_cases(settings: Settings, op: str, device: str | None = None) -> list[str]:
    """Case ids of an op that baselines, histories and earned values know, of one device or of all."""
    found: dict[str, None] = {}
    for each in [device] if device else list_devices(settings):
        path = store.baseline_path(settings.baselines, each, op)
        if path.exists():
            found |= dict.fromkeys(case.case for case in store.read_baseline(path).cases)
        history = read_history(settings.baselines, each, op).runs
        for suite in Suite if history else ():
            found |= dict.fromkeys(figures.cases(history[-1], suite))
        file = read_earned(settings.thresholds, each, settings.root).by_op.get(op)
        found |= dict.fromkeys(value.case for value in (file.values if file else ()))
    return list(found)


def list_devices(settings: Settings) -> list[str]:
    """Keys of the devices that have baselines, histories or earned values."""
    stored = {path.parent.name for path in settings.baselines.glob("*/*.json")}
    return sorted({*stored, *history_devices(settings.baselines), *earned_devices(settings.thresholds)})


def check_op(settings: Settings, op: str, written: Thresholds) -> None:
    """Raises UsageError for an op that the project does not have."""
    known = sorted({*(list_known_ops(settings) or ()), *written.ops})
    if op not in known:
        raise UsageError("relax_op", op=op, known=nearest_first(op, known))


def check_device(settings: Settings, device: str) -> None:
    """Raises UsageError for a device of which nothing is stored."""
    known = list_devices(settings)
    if device not in known:
        raise UsageError("relax_device", device=device, known=nearest_first(device, known))


def _explain_op(
    settings: Settings, written: Thresholds, op: str, device: str | None, options: ExplainOptions, today: date
) -> Explained:
    """Values for all cases, then those that differ for a case."""
    try:
        history = read_counted(settings, device, op) if device else ()
    except StoredFileError:  # the history has to be repaired first
        history = ()
    # As for a run in the newest accepted run's environment, else in that of the earned values.
    files = read_earned(settings.thresholds, device or "", settings.root)
    learnt = files.by_op[op].environment if op in files.by_op else None
    where = history[-1].environment if history else learnt
    where = where or Environment(Device("", "", device or ""), None, "", {}, "", "")
    found = over(written, files, where, today.isoformat())
    cases = [case for case in (list_cases(settings, op, device) if device else ()) if matches(case, options.pattern)]
    values = [] if options.pattern is not None else list(_list_values(found, op, None, history, options))
    values += [value for case in cases for value in _list_values(found, op, case, history, options)]
    entries = written.ops[op].relaxed if op in written.ops else ()
    ended = (relaxed_note(each, today) for each in entries if each.about(device) and not each.holds(today))
    return Explained(op, device, tuple(values), found.apart.get(op), tuple(ended))


def _list_values(
    found: InForce, op: str, case: str | None, history: tuple[HistoryRun, ...], options: ExplainOptions
) -> Iterator[Value]:
    """Those of an op as a whole, or those of a case that differ from them. With a pattern, all of the case."""
    common = found.written.ops.get(op, OpThresholds(found.written.default)).common
    now = written = earned = common
    if case is not None:
        now, written = found.limits.for_case(op, case), found.written.for_case(op, case)
        earned = replace(found.limits, loosened={}).for_case(op, case)
    records = {each.key: each for each in (found.earned.by_op[op].values if op in found.earned.by_op else ())
               if each.case == case}  # fmt: skip
    # The time of the kernel in the newest accepted run that has the case.
    lengths = (known.kernel_us.median_us for run in reversed(history) for known in run.cases if known.case == case)
    length = next(lengths, None)
    for key in CaseThresholds.__dataclass_fields__:
        line, record = found.written.find_line(op, case, key), records.get(key)
        stored = is_stored(case) if case is not None else line.file is not None
        if options.key not in {None, key} or (key == ALPHA and case is not None) or (key in STORED_KEYS and not stored):
            continue
        parts = [_split(limits, key, length) for limits in (common, written, earned, now)]
        entries = [each for each in found.limits.loosened.get(op, ()) if each.key == key and each.about(None, case)]
        for part, value in parts[3].items():
            usual, by_people, by_runs = (each.get(part) for each in parts[:3])
            text = f"{value:g}" if key == "floor_us" and value is not None else show(key, value)
            layer, origin, entry = Layer.BUILT_IN if line.file is None else Layer.FILE, line, None
            if value != by_runs and entries:
                layer, entry = Layer.RELAXED, entries[-1]
                origin = Origin(entry.file, entry.line)
            elif by_runs != by_people and record:
                layer, origin = Layer.EARNED, Origin(record.file, record.line)
            if case is None or options.pattern is not None or record or entry or value != usual:
                yield Value(case, key, part, value, text, layer, origin, record, entry)


def _split(limits: CaseThresholds, key: str, length: float | None) -> Mapping[str, float | None]:
    """The numbers of a key: floors by timer, tau by the length from which on it holds, or that of one length."""
    value = getattr(limits, key)
    if key == TAU and length is None:
        return {f"{start:g}" if start else "": tau for start, tau in value}
    if key == TAU:
        return {"": limits.tau_at(length or 0.0)}
    return value if isinstance(value, Mapping) else {"": value}
