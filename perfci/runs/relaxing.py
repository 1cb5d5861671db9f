"""A threshold loosened for a time: an entry under `relaxed` in an op's file, checked and written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from perfci.core.errors import StoredFileError, UsageError
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.ops.spec import matches
from perfci.runs.base import known_ops
from perfci.runs.effective_thresholds import place, shown
from perfci.runs.origins import check_device, check_op, devices, known_cases
from perfci.runs.tightening import replace_file
from perfci.thresholds.earned import read_earned
from perfci.thresholds.expected import WHY_LENGTH, is_pattern
from perfci.thresholds.layers import ALPHA, Relaxed, stricter, strictest
from perfci.thresholds.limits import Thresholds
from perfci.thresholds.place import nearest_first
from perfci.thresholds.read import NUMBERS, load
from perfci.thresholds.write import value_of, with_relaxed

LONGEST = timedelta(days=366)
"""How far away the last day of an entry may be: what is to hold for longer is a value, not an exception."""


@dataclass(frozen=True)
class Wishes:
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
    """The entry, where it was written."""

    entry: Relaxed
    path: Path
    replaced: bool
    """it took the place of one of the same key, case and device"""


def relax(settings: Settings, wishes: Wishes, day: date | None = None) -> Loosened:
    """Write an entry that loosens a threshold until a day, and no line beside it.

    Raises UsageError for what nobody knows, for a reason or day that will not do, and where it would loosen nothing;
    StoredFileError for a file that cannot be read or written.
    """
    today = day or datetime.now(UTC).date()
    written = load(settings.thresholds, known_ops(settings), settings.root)
    _check(settings, wishes, written, today)
    to = _to(wishes)
    entry = Relaxed(wishes.op, wishes.key, _why(wishes.why), wishes.until, wishes.case, wishes.device, to)
    path = settings.thresholds / f"{wishes.op}.yaml"
    entry = replace(entry, file=place(path, settings.root))
    _refuse_without_effect(settings, wishes, written, entry)
    content = path.read_bytes() if path.exists() or path.is_symlink() else None
    own = written.ops.get(wishes.op)
    same = [each for each in (own.relaxed if own else ()) if _same(each, entry)]
    replace_file(settings, path, content, with_relaxed(path, content, entry))
    now = load(settings.thresholds, None, settings.root).ops[wishes.op].relaxed
    return Loosened(next(each for each in now if _same(each, entry)), path, bool(same))


def _same(one: Relaxed, other: Relaxed) -> bool:
    return (one.key, one.case, one.device) == (other.key, other.case, other.device)


def _check(settings: Settings, wishes: Wishes, written: Thresholds, today: date) -> None:
    known = {key: parser for key, parser in NUMBERS.items() if key != ALPHA}
    if wishes.key not in known:
        raise UsageError("relax_key", key=wishes.key, keys=nearest_first(wishes.key, known))
    check_op(settings, wishes.op, written)
    if wishes.device is not None:
        check_device(settings, wishes.device)
    if wishes.case is not None:
        cases = known_cases(settings, wishes.op, wishes.device)
        fits = any(matches(case, wishes.case) for case in cases) if cases else True
        if not is_pattern(wishes.case) or not fits:
            raise UsageError("relax_case", pattern=wishes.case, op=wishes.op)
    if not _why(wishes.why) or len(_why(wishes.why)) > WHY_LENGTH:
        raise UsageError("relax_why", most=WHY_LENGTH)
    _check_until(wishes.until, today)


def _check_until(text: str, today: date) -> None:
    try:
        until = date.fromisoformat(text) if len(text) == len("2027-01-31") else None
    except ValueError:
        until = None
    if until is None or not today <= until <= today + LONGEST:
        raise UsageError("relax_until", until=text)


def _why(text: str) -> str:
    return " ".join(text.split())


def _to(wishes: Wishes) -> float | None:
    if wishes.to is None:
        return None
    try:
        return value_of(wishes.key, wishes.to, "--to")
    except StoredFileError as error:
        want = error.reason.facts.get("want") or say("a value")
        raise UsageError("relax_value", key=wishes.key, found=wishes.to, want=want) from error


def _refuse_without_effect(settings: Settings, wishes: Wishes, written: Thresholds, entry: Relaxed) -> None:
    """An entry that loosens nothing on any device is a slip."""
    keys = [wishes.device] if wishes.device else devices(settings)
    earned = [read_earned(settings.thresholds, key, settings.root).by_op.get(wishes.op) for key in keys]
    values = [
        each.value
        for file in earned
        for each in (file.values if file else ())
        if each.key == wishes.key and entry.about(None, each.case)
    ]
    if entry.to is None:
        if not values:
            raise UsageError("relax_nothing", key=wishes.key, op=wishes.op)
        return
    cases = [case for case in known_cases(settings, wishes.op, wishes.device) if matches(case, wishes.case)]
    limits = [written.for_case(wishes.op, case) for case in cases or [wishes.case or ""]]
    in_force = [*values, *(value for each in limits if (value := strictest(each, wishes.key)) is not None)]
    if not any(stricter(wishes.key, value, entry.to) for value in in_force):
        holds = shown(wishes.key, in_force[0]) if in_force else "-"
        facts = {"key": wishes.key, "to": shown(wishes.key, entry.to), "holds": holds}
        raise UsageError("relax_tighter", **facts, op=wishes.op, file=entry.file)
