"""Every threshold in force and its source: built in, a file's line, earned with its record, or relaxed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from enum import StrEnum

from perfci import store
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.model import Device, Environment, Reason, Suite
from perfci.core.settings import Settings
from perfci.ops.spec import is_stored, matches
from perfci.runs.base import list_known_ops
from perfci.runs.effective_thresholds import InForce, in_force, relaxed_note, shown
from perfci.runs.tightening import count_family, read_counted
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
"""Keys for which the history may show how often a value gives a false alarm."""


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
    predicted: float | None = None
    """false alarms a case check, if the history is long enough"""


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
    places: list[str | None] = [options.device] if options.device else [*list_devices(settings)] or [None]
    found = [_OpExplainer(settings, op, device, written, options, today).explain() for op in ops for device in places]
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
        history = read_history(settings.baselines, each, op, last=1).runs
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


class _OpExplainer:
    """All that is known of an op on a device."""

    def __init__(
        self,
        settings: Settings,
        op: str,
        device: str | None,
        written: Thresholds,
        options: ExplainOptions,
        day: date,
    ) -> None:
        self._settings, self._op, self._device, self._written = settings, op, device, written
        self._options, self._day = options, day
        try:
            self._history = read_counted(settings, device, op)[0] if device else ()
        except StoredFileError:  # the history has to be repaired first
            self._history = ()
        files = read_earned(settings.thresholds, device or "", settings.root if device else None)
        file = files.by_op.get(op)
        if device is None:
            self._found = InForce(written, written, files, {}, day)
        else:
            # As for a run in the newest accepted run's environment, else in that of the earned values.
            where: Environment | None = file.environment if file else None
            where = self._history[-1].environment if self._history else where
            where = where or Environment(Device("", "", device), None, "", {}, "", "")
            self._found = in_force(settings, where, day.isoformat(), list_known_ops(settings))
        earned = self._found.earned.by_op.get(op)
        self._records = {(each.case, each.key): each for each in (earned.values if earned else ())}
        self._files = origins.written(settings.thresholds, op, settings.root)

    def explain(self) -> Explained:
        """Values for all cases, then those that differ for a case."""
        pattern = self._options.pattern
        whole = pattern is not None
        cases = list_cases(self._settings, self._op, self._device) if self._device else []
        common = [*self._list_values(None)]
        values = [] if whole else [*common]
        values += [
            each for case in cases if matches(case, pattern)
            for each in self._list_special(case, common, whole=whole)
        ]  # fmt: skip
        own = self._written.ops.get(self._op)
        relaxed = [each for each in (own.relaxed if own else ()) if each.about(self._device)]
        return Explained(
            self._op,
            self._device,
            tuple(values),
            self._found.apart.get(self._op),
            tuple(relaxed_note(each, self._day) for each in relaxed if not each.holds(self._day)),
        )

    def _list_special(self, case: str, common: Sequence[Value], *, whole: bool) -> Iterator[Value]:
        """The values of a case that differ from those for all, or all of them."""
        usual = {(each.key, each.part): (each.value, each.layer) for each in common}
        own = self._written.ops.get(self._op)
        default = own.common if own else self._written.default
        same_tau = self._found.limits.for_case(self._op, case).tau == default.tau
        for each in self._list_values(case):
            recorded = each.earned or each.relaxed
            differs = usual.get((each.key, each.part)) != (each.value, each.layer)
            if whole or recorded or (differs and not (each.key == TAU and same_tau)):
                yield self._predict(each)

    def _list_values(self, case: str | None) -> Iterator[Value]:
        own = self._written.ops.get(self._op)
        limits = own.common if own else self._written.default
        if case is not None:
            limits = self._found.limits.for_case(self._op, case)
        for key in CaseThresholds.__dataclass_fields__:
            if self._options.key not in {None, key}:
                continue
            if (key == ALPHA and case is not None) or (key in STORED_KEYS and not self._is_stored(case, key)):
                continue
            found = getattr(limits, key)
            if key == TAU and case is not None and (length := self._find_length(case)) is not None:
                yield self._describe(case, key, "", limits.tau_at(length))
            elif key == TAU:
                yield from (self._describe(case, key, f"{start:g}" if start else "", tau) for start, tau in limits.tau)
            elif isinstance(found, Mapping):
                yield from (self._describe(case, key, timer, us) for timer, us in found.items())
            else:
                yield self._describe(case, key, "", found)

    def _is_stored(self, case: str | None, key: str) -> bool:
        """Whether the case, or any case of the op, is about storage in low precision."""
        if case is not None:
            return is_stored(case)
        written = origins.of(self._files, None, key).file is not None
        return written or any(run.stored for run in self._history[-1:])

    def _describe(self, case: str | None, key: str, part: str, value: float | None) -> Value:
        origin = origins.of(self._files, case, key)
        layer = Layer.BUILT_IN if origin.file is None else Layer.FILE
        text = f"{value:g}" if key == "floor_us" and value is not None else shown(key, value)
        if case is None:
            return Value(case, key, part, value, text, layer, origin)
        record = self._records.get((case, key))
        # The entry that makes the value what it is: it would be another one without.
        entries = self._found.limits.loosened.get(self._op, ())
        mine = [each for each in entries if each.key == key and each.about(None, case)]
        loose = [each for each in mine if each.to == value or (each.to is None and record and record.value != value)]
        if loose:
            entry = loose[-1]
            return Value(case, key, part, value, text, Layer.RELAXED, Origin(entry.file, entry.line), record, entry)
        if record and self._op not in self._found.apart and value == record.value:
            written = self._found.written.for_case(self._op, case)
            own = written.tau_at(self._find_length(case) or 0.0) if key == TAU else getattr(written, key)
            if stricter(key, record.value, own):
                layer, origin = Layer.EARNED, Origin(record.file, record.line)
        return Value(case, key, part, value, text, layer, origin, record)

    def _predict(self, value: Value) -> Value:
        if value.case is None or value.value is None or value.key not in LEARNT or not self._history:
            return value
        family, alpha = count_family(self._history), self._found.limits.alpha
        chance = steps.predicted(self._history, value.case, value.key, value.value, family=family, alpha=alpha)
        record = value.earned
        if chance is None and record is not None and value.layer is Layer.EARNED and not record.edited:
            chance = record.predicted
        return replace(value, predicted=chance)

    def _find_length(self, case: str) -> float | None:
        """Time of the kernel in the newest accepted run that has the case, microseconds."""
        for run in reversed(self._history):
            for known in run.cases:
                if known.case == case:
                    return known.kernel_us.median_us
        return None
