"""Threshold files with other values, and everything else in them as it was."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from perfci.core.errors import StoredFileError
from perfci.core.model import Environment, Suggestion
from perfci.core.units import percent
from perfci.core.wording import say
from perfci.core.yaml_edit import make_mapping, quote, read_document, rename_key
from perfci.thresholds import earned
from perfci.thresholds.earned import FIELDS, NONE, EarnedFile
from perfci.thresholds.layers import Earned, Relaxed
from perfci.thresholds.limits import OpThresholds, Thresholds
from perfci.thresholds.place import Place, decode_text, parse_yaml
from perfci.thresholds.read import MOST, NUMBERS, is_pattern, quote_text, read_relaxed

CLOSE = 1e-9  # relative error of a value that is written and read again
Which = tuple[str, str]  # (case id, key)

HEAD = """\
# What accepted runs of {op} on {device} have earned.
# Kept by perfci thresholds tighten --write; a value may be edited and an entry deleted, and comments stay. A value has
# an effect only if it is tighter than {op}.yaml and default.yaml, and only in the environment it was learnt in.
"""

_QUOTED = frozenset({"first", "last", "rescaled", "why"})  # fields of an entry that are written in quotes


# --- values -----------------------------------------------------------------------------------------------------------


def write_value(key: str, value: float) -> str | None:
    """A value of a key as files write it, 1.5 % or 1.2. None if no file can hold it.

    >>> write_value("tau", 0.015), write_value("speedup", 1.2), write_value("margin", -1.0)
    ('1.5 %', '1.2', None)
    """
    decimal = yaml.safe_dump(float(value)).splitlines()[0].removesuffix(".0")
    for text in (_write_percent(value), decimal) if math.isfinite(value) else ():
        try:
            if math.isclose(read_value(key, text, "-"), value, rel_tol=CLOSE, abs_tol=0.0):
                return text
        except StoredFileError:
            continue
    return None


def show(key: str, value: float | str | None) -> str:
    """A value as people read it: with four digits, no more. A dash for none."""
    if value is None or isinstance(value, str):
        return value or "-"
    return write_value(key, float(f"{value:.4g}")) or percent(value)


def read_value(key: str, text: str, source: str) -> float:
    """A value of a key as the command line gives it, read as files are. Raises StoredFileError, naming the source."""
    place = parse_yaml(Path(source), text)
    if place is None or not isinstance(place.node, yaml.ScalarNode):
        place = Place(Path(source), 1, key, yaml.ScalarNode("tag:yaml.org,2002:str", text))
    return float(NUMBERS[key](replace(place, key=key)))


def _write_percent(value: float, digits: int = 12) -> str:
    return f"{100 * value:.{digits}f}".rstrip("0").rstrip(".") + " %"


# --- earned values ----------------------------------------------------------------------------------------------------


def write_earned(
    file: EarnedFile,
    environment: Environment,
    values: Iterable[Earned] = (),
    dropped: Collection[Which] = (),
    renamed: Mapping[str, str] | None = None,
) -> bytes:
    """The file's content with these values, without the entries dropped, with cases renamed, id in the file -> id.

    Raises StoredFileError for a file whose layout cannot be kept, and for a value that no file can hold.
    """
    fresh = {(each.case, each.key): _write_fields(file, each) for each in values}
    renamed = renamed or {}
    wanted = earned.flatten_environment(environment)
    same_environment = file.environment is not None and earned.flatten_environment(file.environment) == wanted
    if file.content is not None and same_environment and not (fresh or dropped or renamed):
        return file.content
    text = decode_text(file.path, file.content or b"")
    if not text.strip() or parse_yaml(file.path, text) is None:
        text += HEAD.format(op=file.op, device=file.device) + "environment:\ncases:\n"
    document = read_document(_delete_entries(text, fresh, dropped, renamed))
    if document is None or not isinstance(document.data, dict):
        raise StoredFileError("earned_by_hand", file=str(file.path))
    if not same_environment:
        there = _find_mapping(document.data, "environment")
        for name in [name for name in there if name not in wanted]:
            del there[name]
        for name in [name for name in wanted if there.get(name) != wanted[name]]:
            there[name] = quote(wanted[name])
    for old in [old for old in renamed if old in (document.data.get("cases") or ())]:
        rename_key(document.data["cases"], old, quote(renamed[old]))
    for (case, key), fields in fresh.items():
        cases = _find_mapping(document.data, "cases")
        if case not in cases:
            cases[quote(case)] = make_mapping()
        entry = _find_mapping(_find_mapping(cases, case), key)
        for name, value in fields.items():
            entry[name] = quote(value) if name in _QUOTED else value
    result = document.write()

    # Nothing is written that would be read back as anything else.
    kept = [each for each in file.values if (each.case, each.key) not in dropped]
    expected = {(renamed.get(each.case, each.case), each.key): each.value for each in kept}
    expected |= {which: read_value(which[1], fields["value"], "-") for which, fields in fresh.items()}
    try:
        read = earned.parse_file(file.path, file.op, file.device, parse_yaml(file.path, result), b"", str(file.path))
    except StoredFileError as error:
        raise StoredFileError("earned_by_hand", file=str(file.path)) from error
    if {(each.case, each.key): each.value for each in read.values} != expected:
        raise StoredFileError("earned_by_hand", file=str(file.path))
    return result.encode()


def _find_mapping(parent: Any, key: str) -> Any:
    """The mapping under a key. An empty one is put there if there is none."""
    if not isinstance(parent.get(key), dict):
        parent[key] = make_mapping()
    return parent[key]


def _write_fields(file: EarnedFile, value: Earned) -> dict[str, str]:
    """Fields of an entry as text, in order."""
    numbers = {"value": value.value, "from": value.before, "to": value.after, "bound": value.bound}
    found: dict[str, object] = {}
    for name, number in (numbers | {"began": value.began}).items():
        text = NONE if number is None else write_value(value.key, number)
        if text is None:
            facts = {"file": str(file.path), "key": value.key, "case": value.case, "value": number}
            raise StoredFileError("earned_unwritable", **facts)
        if text != NONE or name in {"from", "began"}:
            found[name] = text
    found["predicted"] = None if value.predicted is None else _write_percent(value.predicted, 4)
    found |= {name: getattr(value, name) for name in ("date", "runs", "first", "last", "rescaled", "why")}
    return {name: str(found[name]) for name in FIELDS if found.get(name)}


def _delete_entries(
    text: str, fresh: Mapping[Which, Mapping[str, str]], dropped: Collection[Which], renamed: Mapping[str, str]
) -> str:
    """The text without entries that go, empty cases and old fields of new records. By line, so that comments stay."""
    document = read_document(text)
    cases = document.data.get("cases") if document and isinstance(document.data, dict) else None
    if document is None or not isinstance(cases, dict):
        return text
    gone: list[tuple[Any, str]] = []
    for case, entries in cases.items():
        now = renamed.get(case, case)
        keys = [key for key in (entries or ()) if (case, key) in dropped and (now, key) not in fresh]
        if keys and len(keys) == len(entries) and not any(which[0] == now for which in fresh):
            gone.append((cases, case))
            continue
        gone += [(entries, key) for key in keys]
        for key in (key for key in (entries or ()) if (now, key) in fresh):
            gone += [(entries[key], name) for name in entries[key] if name not in fresh[now, key]]
    if any(mapping.fa.flow_style() for mapping, _ in gone):
        for mapping, key in gone:
            del mapping[key]
        return document.write()
    lines = text.splitlines(keepends=True)
    starts = sorted(set(_list_lines(document.data)))
    for mapping, key in gone:
        first = mapping.lc.key(key)[0]
        last = max([first, *_list_lines(mapping[key])])
        end = next((line for line in starts if line > last), len(lines))
        for index in range(first, end):
            if not lines[index].lstrip().startswith("#"):
                lines[index] = ""
    return "".join(lines)


def _list_lines(data: Any) -> Iterator[int]:
    """The line of every key, from 0."""
    for key, value in data.items() if isinstance(data, dict) else ():
        yield data.lc.key(key)[0]
        yield from _list_lines(value)


# --- relaxed entries --------------------------------------------------------------------------------------------------


def write_relaxed(path: Path, content: bytes | None, entry: Relaxed) -> bytes:
    """An op's file with an entry under `relaxed`. Raises StoredFileError for one whose layout cannot be kept."""
    text = decode_text(path, content or b"")
    end = "\r\n" if "\r\n" in text else "\n"
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += end
    known = parse_yaml(path, text) if text.strip() else None
    place = next((each for each in known.items() if each.key == "relaxed"), None) if known else None
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
        same = next((each.line - 1 for each in before if each.which == entry.which), None)
        at = slice(place.line, place.line) if same is None else slice(same, same + 1)
        lines[at] = [new]

    # Nothing is written that would be read back as anything else.
    result = "".join(lines)
    wanted = {replace(each, op="") for each in (*(each for each in before if each.which != entry.which), entry)}
    try:
        after = {each.key: each for each in read.items()} if (read := parse_yaml(path, result)) else {}
        right = "relaxed" in after and set(read_relaxed(after["relaxed"])) == wanted
    except StoredFileError:
        right = False
    if not right:
        raise StoredFileError("relaxed_by_hand", file=str(path), entry=line)
    return result.encode()


# --- entries under `expected` -----------------------------------------------------------------------------------------


def suggest_expected(thresholds: Thresholds, op: str, case: str, up_to: float, until: date) -> Suggestion | None:
    """The entry that would allow this slow-down in this case, to be pasted into the op's file.

    up_to: the upper end of the measured interval, ratio, which is rounded up. None if no entry can allow it.
    """
    step = 0.5 if up_to <= 0.1 else 1.0 if up_to <= 1 else 10.0
    percent = math.ceil(100 * up_to / step - 1e-9) * step
    if percent > 100 * MOST or not is_pattern(case):
        return None
    own = thresholds.ops.get(op, OpThresholds(thresholds.default))
    taken = next((entry.line for entry in own.expected if entry.case == case), None)
    why = f'"{say("say why, and where it was agreed on")}"'
    fields = f"case: {quote_text(case)}, up_to: {percent:g} %, why: {why}, until: {until.isoformat()}"
    indent, below = (own.listed.indent, own.listed.line) if own.listed else (2, None)
    return Suggestion(f"{thresholds.folder}/{op}.yaml", f"{' ' * indent}- {{{fields}}}", below, taken)
