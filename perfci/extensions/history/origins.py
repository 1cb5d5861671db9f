"""Every threshold in force and its source."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from perfci import store
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.model import Device, Environment, Reason
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.extensions.common.accepted_runs import HistoryRun
from perfci.extensions.common.history import history_devices, read_history
from perfci.judge.expected import parse_day
from perfci.ops.discover import pick
from perfci.ops.spec import is_stored, matches
from perfci.runs.effective_thresholds import InForce, over, place, relaxed_note
from perfci.runs.rules import list_known_ops
from perfci.store.files import held, write_atomically
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.earned import read_earned
from perfci.thresholds.layers import ALPHA, STORED_KEYS, TAU, Earned, Relaxed
from perfci.thresholds.limits import OpThresholds, Thresholds
from perfci.thresholds.place import decode_text, list_nearest_first, parse_yaml, read, read_bytes
from perfci.thresholds.read import DEFAULT, NUMBERS, WHY_LENGTH, is_pattern, load, quote_text, read_relaxed
from perfci.thresholds.write import read_value, show, write_value


class Layer(StrEnum):
    """The source of a value."""

    BUILT_IN = "built in"
    FILE = "file"  # of people
    EARNED = "earned"
    RELAXED = "relaxed"


@dataclass(frozen=True)
class Origin:
    """Where a value was written."""

    file: str | None = None  # relative to the project's root. None: built in
    line: int = 0  # 0: the file as a whole
    case: str | None = None  # pattern under which it stands

    def __str__(self) -> str:
        """As people look it up: thresholds/softmax.yaml:12."""
        return "built in" if self.file is None else f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True)
class Value:
    """One threshold in force."""

    case: str | None  # id, None: of every case without a value of its own
    key: str
    part: str  # of a key with several values: a timer, or the kernel length from which on it holds. Else empty
    value: float | str | None  # None: it gates nothing
    text: str  # the value as files write it
    layer: Layer
    origin: Origin
    earned: Earned | None = None  # its record, also if something looser or stricter is in force
    relaxed: Relaxed | None = None  # the entry by which it is looser now

    @property
    def predicted(self) -> float | None:
        """False alarms a case check that were predicted when the value was earned."""
        return self.earned.predicted if self.earned and self.layer is Layer.EARNED and not self.earned.edited else None


@dataclass(frozen=True)
class Explained:
    """An op's thresholds on a device."""

    op: str
    device: str | None  # key, None if no device has a baseline, a history or earned values
    values: tuple[Value, ...]
    apart: str | None = None  # how the newest accepted run's environment differs from that of the earned values
    ended: tuple[Reason, ...] = ()  # relaxed entries that have no effect any more


def explain(
    settings: Settings,
    ops: Sequence[str] = (),
    pattern: str | None = None,
    device: str | None = None,
    key: str | None = None,
    day: date | None = None,
) -> list[Explained]:
    """The thresholds in force now, op by op and device by device. With a pattern all values of the cases that it fits.

    Raises UsageError for what no one knows, and StoredFileError for files that cannot be read. Nothing is measured.
    """
    today = day or datetime.now(UTC).date()
    written = load(settings.thresholds, list_known_ops(settings), settings.root)
    names = pick_ops(settings, ops, written)
    known = CaseThresholds.__dataclass_fields__
    if key is not None and key not in known:
        raise UsageError("relax_key", key=key, keys=list_nearest_first(key, known))
    if device is not None:
        check_device(settings, device)
    keys = list(known) if key is None else [key]
    devices: list[str | None] = [device] if device else [*list_devices(settings)] or [None]

    origins = {op: [*list_origins(written, settings.thresholds, op)] for op in names}

    def explain_op(op: str, device: str | None) -> Explained:
        """Values for all cases, then those that differ for a case."""
        try:
            history = read_counted(settings, device, op) if device else ()
        except StoredFileError:  # the history has to be repaired first
            history = ()
        # As for a run in the newest accepted run's environment, else in that of the earned values.
        files = read_earned(settings.thresholds, device or "")
        learnt = files[op].environment if op in files else None
        nowhere = Environment(Device("", "", device or ""), None, "", {}, "", "")
        where = history[-1].environment if history else learnt or nowhere
        explained = over(written, files, where, today.isoformat())
        cases = [case for case in (list_cases(settings, op, device) if device else ()) if matches(case, pattern)]
        whole = pattern is not None
        every: list[str | None] = [*([] if whole else [None]), *cases]
        values = (
            value
            for case in every
            for value in _list_values(explained, op, case, origins[op], history, keys, whole=whole)
        )
        entries = written.ops[op].relaxed if op in written.ops else ()
        ended = (relaxed_note(entry, today) for entry in entries if entry.about(device) and not entry.holds(today))
        return Explained(op, device, tuple(values), explained.apart.get(op), tuple(ended))

    explained = [explain_op(op, name) for op in names for name in devices]
    if pattern is not None and not any(value.case for one in explained for value in one.values):
        raise UsageError("relax_case", pattern=pattern, op=", ".join(names))
    return explained


def read_counted(settings: Settings, device: str, op: str) -> tuple[HistoryRun, ...]:
    """An op's accepted runs of clean work trees. Raises StoredFileError if the history needs a repair first."""
    counted = read_history(settings.baselines, device, op)
    for problem in counted.problems:
        raise StoredFileError(problem.kind, **problem.facts)
    return tuple(run for run in counted.runs if not run.environment.dirty)


def list_origins(written: Thresholds, folder: Path, op: str) -> Iterator[tuple[str, Origin]]:
    """Yields each key that people wrote, with its place. Of several about a case the last counts."""
    for name in (f"{DEFAULT}.yaml", f"{op}.yaml"):
        whole, shown = read(folder / name) if (folder / name).exists() else None, f"{written.folder}/{name}"
        entries = [*whole.items()] if whole else []
        yield from ((entry.key, Origin(shown, entry.line)) for entry in entries)
        for case in (case for entry in entries if entry.key == "cases" for case in entry.items()):
            yield from ((entry.key, Origin(shown, entry.line, case.key)) for entry in case.items())


def _find_origin(origins: Sequence[tuple[str, Origin]], case: str | None, key: str) -> Origin:
    """Where people wrote the value of a key for a case, or for the op as a whole."""
    fitting = [
        origin for name, origin in origins
        if name == key and (origin.case is None or (case is not None and matches(case, origin.case)))
    ]  # fmt: skip
    return fitting[-1] if fitting else Origin()


def list_cases(settings: Settings, op: str, device: str | None = None) -> list[str]:
    """Case ids of an op that baselines, histories and earned values know, of one device or of all."""
    names: dict[str, None] = {}
    for name in [device] if device else list_devices(settings):
        path = store.baseline_path(settings.baselines, name, op)
        if path.exists():
            names |= dict.fromkeys(case.case for case in store.read_baseline(path).cases)
        history = read_history(settings.baselines, name, op).runs
        for run in history[-1:]:
            cases = (one.case for part in (run.cases, run.accuracy, run.stored) for one in part)
            names |= dict.fromkeys(case for case in cases if case not in run.inconclusive)
        file = read_earned(settings.thresholds, name).get(op)
        names |= dict.fromkeys(value.case for value in (file.values if file else ()))
    return list(names)


def list_devices(settings: Settings) -> list[str]:
    """Keys of the devices that have baselines, histories or earned values."""
    files = (*settings.baselines.glob("*/*.json"), *settings.thresholds.glob("*/*.json"))
    return sorted({path.parent.name for path in files} | {*history_devices(settings.baselines)})


def pick_ops(settings: Settings, names: Sequence[str], written: Thresholds) -> list[str]:
    """The ops that names or globs mean. Raises UsageError for one that the project does not have."""
    return pick(sorted({*(list_known_ops(settings) or ()), *written.ops}), names, "relax_op")


def check_device(settings: Settings, device: str) -> None:
    """Raises UsageError for a device of which nothing is stored."""
    devices = list_devices(settings)
    if device not in devices:
        raise UsageError("relax_device", device=device, known=list_nearest_first(device, devices))


def _list_values(
    in_force: InForce, op: str, case: str | None, origins: Sequence[tuple[str, Origin]], history: Sequence[HistoryRun],
    keys: Sequence[str], *, whole: bool,
) -> Iterator[Value]:  # fmt: skip
    """Those of an op, or those of a case that differ from them. whole: all of the case."""
    common = in_force.written.ops.get(op, OpThresholds(in_force.written.default)).common
    now = written = earned = common
    if case is not None:
        now, written = in_force.limits.for_case(op, case), in_force.written.for_case(op, case)
        earned = replace(in_force.limits, loosened={}).for_case(op, case)
    mine = in_force.earned[op].values if op in in_force.earned else ()
    records = {record.key: record for record in mine if record.case == case}
    # The time of the kernel in the newest accepted run that has the case.
    cases = (timed for run in reversed(history) for timed in run.cases if timed.case == case)
    length = next((timed.kernel_us.median_us for timed in cases), None)
    for key in keys:
        line, record = _find_origin(origins, case, key), records.get(key)
        stored = is_stored(case) if case is not None else line.file is not None
        if (key == ALPHA and case is not None) or (key in STORED_KEYS and not stored):
            continue
        parts = [_split(limits, key, length) for limits in (common, written, earned, now)]
        entries = [
            entry for entry in in_force.limits.loosened.get(op, ()) if entry.key == key and entry.about(None, case)
        ]
        for part, value in parts[3].items():
            usual, by_people, by_runs = (layer.get(part) for layer in parts[:3])
            text = f"{value:g}" if key == "floor_us" and value is not None else show(key, value)
            layer, origin, entry = Layer.BUILT_IN if line.file is None else Layer.FILE, line, None
            if value != by_runs and entries:
                layer, entry = Layer.RELAXED, entries[-1]
                origin = Origin(entry.file, entry.line)
            elif by_runs != by_people and record:
                layer, origin = (
                    Layer.EARNED,
                    Origin(f"{in_force.written.folder}/{in_force.earned[op].device}/{op}.json"),
                )
            if case is None or whole or record or entry or value != usual:
                yield Value(case, key, part, value, text, layer, origin, record, entry)


def _split(limits: CaseThresholds, key: str, length: float | None) -> Mapping[str, float | None]:
    """Returns the numbers of a key: floors by timer, tau by the length from which on it holds, or of one length."""
    value = getattr(limits, key)
    if key == TAU and length is None:
        return {f"{start:g}" if start else "": tau for start, tau in value}
    if key == TAU:
        return {"": limits.tau_at(length or 0.0)}
    return value if isinstance(value, Mapping) else {"": value}


LONGEST = timedelta(days=366)  # that an entry may hold. For longer people write a value, not an exception


def relax(
    settings: Settings,
    key: str,
    op: str,
    *,
    why: str,
    until: str,
    case: str | None = None,
    device: str | None = None,
    to: str | None = None,
    day: date | None = None,
) -> tuple[Relaxed, bool]:
    """Writes an entry that loosens a threshold until a day. Returns it, and whether it took the place of another one.

    Raises UsageError for what no one knows and for an unfit reason, day or value, and StoredFileError for files.
    """
    today = day or datetime.now(UTC).date()
    written = load(settings.thresholds, list_known_ops(settings), settings.root)
    keys = [key for key in NUMBERS if key != ALPHA]
    if key not in keys:
        raise UsageError("relax_key", key=key, keys=list_nearest_first(key, keys))
    fitting = pick_ops(settings, [op], written)
    if len(fitting) > 1:
        raise UsageError("several_ops", name=op, ops=", ".join(fitting))
    [op] = fitting
    if device is not None:
        check_device(settings, device)
    if case is not None:
        known_cases = list_cases(settings, op, device)
        fits = not known_cases or any(matches(id_, case) for id_ in known_cases)
        if not is_pattern(case) or not fits:
            raise UsageError("relax_case", pattern=case, op=op)
    why = " ".join(why.split())
    if not why or len(why) > WHY_LENGTH:
        raise UsageError("relax_why", most=WHY_LENGTH)
    last = parse_day(until) if len(until) == len("2027-01-31") else None
    if last is None or not today <= last <= today + LONGEST:
        raise UsageError("relax_until", until=until)
    try:
        value = None if to is None else read_value(key, to, "--value")
    except StoredFileError as error:
        want = error.reason.facts.get("want") or say("a value")
        raise UsageError("relax_value", key=key, found=to, want=want) from error

    path = settings.thresholds / f"{op}.yaml"
    entry = Relaxed(op, key, why, until, case, device, value)
    content = read_bytes(path) if os.path.lexists(path) else None
    replaced = op in written.ops and any(old.which == entry.which for old in written.ops[op].relaxed)
    replace_file(settings, path, content, write_relaxed(path, content, entry))
    now = load(settings.thresholds, None, settings.root).ops[op].relaxed
    return next(value for value in now if value.which == entry.which), replaced


def replace_file(settings: Settings, path: Path, before: bytes | None, after: bytes) -> None:
    """Writes a thresholds file if it still is as it was read (None: there was none). Raises StoredFileError."""
    refuse_link(settings, path)
    with held(settings.thresholds):
        now = read_bytes(path) if path.exists() else None
        if now != before:
            raise StoredFileError("thresholds_changed_meanwhile", file=place(path, settings.root))
        if after != now:
            write_atomically(path, after)


def refuse_link(settings: Settings, path: Path) -> None:
    """Raises StoredFileError for a thresholds file that is a link, or lies in a folder that is one."""
    link = next((place for place in (path, path.parent) if place.is_symlink() and place != settings.thresholds), None)
    if link:
        raise StoredFileError("thresholds_linked", file=place(link, settings.root))


def write_relaxed(path: Path, content: bytes | None, entry: Relaxed) -> bytes:
    """An op's file with an entry under `relaxed`. Raises StoredFileError for one with a layout that cannot be kept."""
    text = decode_text(path, content or b"")
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += end
    mapping = parse_yaml(path, text) if text.strip() else None
    place = (
        next((entry_item for entry_item in mapping.items() if entry_item.key == "relaxed"), None) if mapping else None
    )
    before = read_relaxed(place) if place else ()
    # The entry as it stands in a file, without its dash.
    named = (("case", entry.case), ("device", entry.device))
    parts = [f"key: {entry.key}", *(f"{name}: {quote_text(text)}" for name, text in named if text is not None)]
    parts += [] if entry.to is None else [f"to: {write_value(entry.key, entry.to)}"]
    line = f"{{{', '.join([*parts, f'why: {quote_text(entry.why)}', f'until: {entry.until}'])}}}"
    if place is None:
        lines += [f"relaxed:{end}", f"  - {line}{end}"]
    else:
        new = f"{' ' * (place.column if before else 2)}- {line}{end}"
        same = next((old.line - 1 for old in before if old.which == entry.which), None)
        at = slice(place.line, place.line) if same is None else slice(same, same + 1)
        lines[at] = [new]

    # Nothing is written that would be read back as anything else.
    result = "".join(lines)
    wanted = {replace(each, op="") for each in (*(old for old in before if old.which != entry.which), entry)}
    try:
        after = {item.key: item for item in tree.items()} if (tree := parse_yaml(path, result)) else {}
        right = "relaxed" in after and set(read_relaxed(after["relaxed"])) == wanted
    except StoredFileError:
        right = False
    if not right:
        raise StoredFileError("relaxed_by_hand", file=str(path), entry=line)
    return result.encode()
