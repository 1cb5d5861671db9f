"""Entries of people's files that loosen a threshold for a time."""

import os
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from perfci.core.errors import StoredFileError, UsageError
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.extensions.history.origins import check_device, list_cases, pick_ops
from perfci.judge.expected import parse_day
from perfci.ops.spec import matches
from perfci.runs.effective_thresholds import place
from perfci.runs.rules import list_known_ops
from perfci.store.files import held, write_atomically
from perfci.thresholds.layers import ALPHA, Relaxed
from perfci.thresholds.place import decode_text, list_nearest_first, parse_yaml, read_bytes
from perfci.thresholds.read import NUMBERS, WHY_LENGTH, is_pattern, load, quote_text, read_relaxed
from perfci.thresholds.write import read_value, write_value

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
        after = {item.key: item for item in read.items()} if (read := parse_yaml(path, result)) else {}
        right = "relaxed" in after and set(read_relaxed(after["relaxed"])) == wanted
    except StoredFileError:
        right = False
    if not right:
        raise StoredFileError("relaxed_by_hand", file=str(path), entry=line)
    return result.encode()
