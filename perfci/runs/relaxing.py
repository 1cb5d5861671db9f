"""A threshold loosened for a time: an entry under `relaxed` in an op's file, checked and written."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from perfci.core.errors import StoredFileError, UsageError
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.ops.spec import matches
from perfci.runs.base import list_known_ops
from perfci.runs.effective_thresholds import place
from perfci.runs.origins import check_device, check_op, list_cases
from perfci.runs.tightening import replace_file
from perfci.thresholds.layers import ALPHA, Relaxed
from perfci.thresholds.place import nearest_first
from perfci.thresholds.read import NUMBERS, WHY_LENGTH, is_pattern, load
from perfci.thresholds.write import value_of, with_relaxed

LONGEST = timedelta(days=366)
"""Longest time that an entry may hold. For a longer time people write a value, not an exception."""


@dataclass(frozen=True)
class RelaxOptions:
    """What is to be loosened."""

    key: str
    op: str
    why: str
    until: str
    case: str | None = None
    device: str | None = None
    to: str | None = None


@dataclass(frozen=True)
class Loosened:
    """The entry and its file."""

    entry: Relaxed
    path: Path
    replaced: bool
    """it took the place of one of the same key, case and device"""


def relax(settings: Settings, options: RelaxOptions, day: date | None = None) -> Loosened:
    """Writes an entry that loosens a threshold until a day, and changes no other line.

    Raises UsageError for what nobody knows, and for an unfit reason, day or value. Raises StoredFileError for a file
    that cannot be read or written.
    """
    today = day or datetime.now(UTC).date()
    written = load(settings.thresholds, list_known_ops(settings), settings.root)
    known = {key: reader for key, reader in NUMBERS.items() if key != ALPHA}
    if options.key not in known:
        raise UsageError("relax_key", key=options.key, keys=nearest_first(options.key, known))
    check_op(settings, options.op, written)
    if options.device is not None:
        check_device(settings, options.device)
    if options.case is not None:
        cases = list_cases(settings, options.op, options.device)
        if not is_pattern(options.case) or (cases and not any(matches(case, options.case) for case in cases)):
            raise UsageError("relax_case", pattern=options.case, op=options.op)
    why = " ".join(options.why.split())
    if not why or len(why) > WHY_LENGTH:
        raise UsageError("relax_why", most=WHY_LENGTH)
    try:
        until = date.fromisoformat(options.until) if len(options.until) == len("2027-01-31") else None
    except ValueError:
        until = None
    if until is None or not today <= until <= today + LONGEST:
        raise UsageError("relax_until", until=options.until)
    try:
        to = None if options.to is None else value_of(options.key, options.to, "--to")
    except StoredFileError as error:
        want = error.reason.facts.get("want") or say("a value")
        raise UsageError("relax_value", key=options.key, found=options.to, want=want) from error

    path = settings.thresholds / f"{options.op}.yaml"
    file = place(path, settings.root)
    entry = Relaxed(options.op, options.key, why, options.until, options.case, options.device, to, file=file)
    content = path.read_bytes() if path.exists() or path.is_symlink() else None
    own = written.ops.get(options.op)
    replaced = any(each.which == entry.which for each in (own.relaxed if own else ()))
    replace_file(settings, path, content, with_relaxed(path, content, entry))
    now = load(settings.thresholds, None, settings.root).ops[options.op].relaxed
    return Loosened(next(each for each in now if each.which == entry.which), path, replaced)
