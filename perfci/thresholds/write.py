"""Threshold files with other values, and everything else in them as it was."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from perfci.core.errors import StoredFileError
from perfci.core.model import Environment
from perfci.core.yaml_edit import make_mapping, quote, read_document, rename_key
from perfci.thresholds import earned
from perfci.thresholds.earned import FIELDS, NONE, EarnedFile
from perfci.thresholds.entries import quoted, read_relaxed
from perfci.thresholds.layers import ALPHA, Earned, Relaxed
from perfci.thresholds.place import Place, decoded, parsed
from perfci.thresholds.read import NUMBERS

CLOSE = 1e-9
"""Relative error of a value that is written and read again."""

Which = tuple[str, str]
"""(case id, key)"""

HEAD = """\
# What accepted runs of {op} on {device} have earned.
# Kept by perfci thresholds tighten --write; a value may be edited and an entry deleted, and comments stay. A value has
# an effect only if it is tighter than {op}.yaml and default.yaml, and only in the environment it was learnt in.
"""


_QUOTED = frozenset({"first", "last", "rescaled", "why"})
"""Fields of an entry that are written in quotes."""


# --- values -----------------------------------------------------------------------------------------------------------


def text_of(key: str, value: float) -> str | None:
    """A value of a key as files write it, 1.5 % or 1.2. None if no file can hold it.

    >>> text_of("tau", 0.015), text_of("speedup", 1.2), text_of("margin", -1.0)
    ('1.5 %', '1.2', None)
    """
    return next((text for text in (_percent(value), _decimal(value)) if _reads_as(key, text, value)), None)


def value_of(key: str, text: str, source: str) -> float:
    """A value of a key as the command line gives it, read as files are. Raises StoredFileError, naming the source."""
    place = parsed(Path(source), text)
    if place is None or not isinstance(place.node, yaml.ScalarNode):
        place = Place(Path(source), 1, key, yaml.ScalarNode("tag:yaml.org,2002:str", text))
    return float(NUMBERS[key](replace(place, key=key)))


def _reads_as(key: str, text: str, value: float) -> bool:
    try:
        found = value_of(key, text, "-")
    except StoredFileError:
        return False
    return math.isclose(found, value, rel_tol=CLOSE, abs_tol=0.0)


def _percent(value: float, digits: int = 12) -> str:
    if not math.isfinite(value):
        return str(value)
    shown = f"{100 * value:.{digits}f}"
    return f"{shown.rstrip('0').rstrip('.')} %"


def _decimal(value: float) -> str:
    """As YAML takes for a number: one with an exponent needs a point and a sign."""
    text = repr(float(value))
    mantissa, _, exponent = text.partition("e")
    if not exponent:
        return mantissa.removesuffix(".0")
    point = mantissa if "." in mantissa else f"{mantissa}.0"
    return f"{point}e{exponent if exponent[0] in '+-' else '+' + exponent}"


# --- earned values ----------------------------------------------------------------------------------------------------


def with_earned(
    file: EarnedFile,
    environment: Environment,
    values: Iterable[Earned] = (),
    dropped: Collection[Which] = (),
    renamed: Mapping[str, str] | None = None,
) -> bytes:
    """The file's content with these values and their records, without the entries dropped, cases under new names.

    environment: in which all that stands there then was learnt; renamed: id in the file -> id. Raises StoredFileError
    for a file whose layout cannot be kept, and for a value that no file can hold.
    """
    fresh = {(each.case, each.key): _fields(file, each) for each in values}
    renamed = renamed or {}
    wanted = earned.flat(environment)
    same_environment = file.environment is not None and earned.flat(file.environment) == wanted
    if file.content is not None and same_environment and not (fresh or dropped or renamed):
        return file.content
    text = decoded(file.path, file.content or b"")
    known = parsed(file.path, text) if text.strip() else None
    if known is None:
        text += HEAD.format(op=file.op, device=file.device) + "environment:\ncases:\n"
    document = read_document(_without(text, fresh, dropped, renamed))
    if document is None or not isinstance(document.data, dict):
        raise StoredFileError("earned_by_hand", file=str(file.path))
    data = document.data
    there = _mapping(data, "environment")
    for name in [] if same_environment else [name for name in there if name not in wanted]:
        del there[name]
    for name in [] if same_environment else [name for name in wanted if there.get(name) != wanted[name]]:
        there[name] = quote(wanted[name])
    for old in [old for old in renamed if old in (data.get("cases") or ())]:
        rename_key(data["cases"], old, quote(renamed[old]))
    for (case, key), fields in fresh.items():
        cases = _mapping(data, "cases")
        if case not in cases:
            cases[quote(case)] = make_mapping()
        entry = _mapping(_mapping(cases, case), key)
        for name, value in fields.items():
            entry[name] = quote(value) if name in _QUOTED else value
    result = document.write()
    _verify(file, result, fresh, dropped, renamed)
    return result.encode()


def _mapping(parent: Any, key: str) -> Any:
    """The mapping under a key. An empty one is put there if there is none."""
    if not isinstance(parent.get(key), dict):
        parent[key] = make_mapping()
    return parent[key]


def _fields(file: EarnedFile, value: Earned) -> dict[str, str]:
    """Fields of an entry as text, in order."""
    numbers = {"value": value.value, "from": value.before, "to": value.after, "bound": value.bound}
    numbers["began"] = value.began
    texts = {name: NONE if number is None else text_of(value.key, number) for name, number in numbers.items()}
    wrong = next((name for name in texts if texts[name] is None), None)
    if wrong:
        raise StoredFileError(
            "earned_unwritable", file=str(file.path), key=value.key, case=value.case, value=numbers[wrong]
        )
    found: dict[str, object] = {
        name: text for name, text in texts.items() if name in {"value", "from", "began"} or text != NONE
    }
    found["predicted"] = None if value.predicted is None else _percent(value.predicted, 4)
    found |= {"date": value.date, "runs": value.runs, "first": value.first, "last": value.last}
    found |= {"rescaled": value.rescaled, "why": value.why}
    return {name: str(found[name]) for name in FIELDS if found.get(name)}


def _without(
    text: str,
    fresh: Mapping[Which, Mapping[str, str]],
    dropped: Collection[Which],
    renamed: Mapping[str, str],
) -> str:
    """The text without the lines of what goes: entries, cases left empty, fields that a new record lacks.

    Lines, not keys of the document, since comments of their own among them stay.
    """
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
    starts = sorted({line for line, _ in _walk_keys(document.data)})
    for mapping, key in gone:
        first = mapping.lc.key(key)[0]
        last = max([first, *(line for line, _ in _walk_keys(mapping[key]))])
        end = next((line for line in starts if line > last), len(lines))
        for index in range(first, end):
            if not lines[index].lstrip().startswith("#"):
                lines[index] = ""
    return "".join(lines)


def _walk_keys(data: Any) -> Iterator[tuple[int, str]]:
    """Line, from 0, and name of every key."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield data.lc.key(key)[0], key  # type: ignore[attr-defined]
            yield from _walk_keys(value)


def _verify(
    file: EarnedFile,
    result: str,
    fresh: Mapping[Which, Mapping[str, str]],
    dropped: Collection[Which],
    renamed: Mapping[str, str],
) -> None:
    """Raise if the new content does not say exactly what it should."""
    wanted = {
        (renamed.get(each.case, each.case), each.key): each.value
        for each in file.values
        if (each.case, each.key) not in dropped
    }
    wanted |= {which: value_of(which[1], fields["value"], "-") for which, fields in fresh.items()}
    try:
        read = earned.parsed_file(file.path, file.op, file.device, parsed(file.path, result), b"", str(file.path))
    except StoredFileError as error:
        raise StoredFileError("earned_by_hand", file=str(file.path)) from error
    if {(each.case, each.key): each.value for each in read.values} != wanted:
        raise StoredFileError("earned_by_hand", file=str(file.path))


# --- relaxed entries --------------------------------------------------------------------------------------------------


def with_relaxed(path: Path, content: bytes | None, entry: Relaxed) -> bytes:
    """An op's file with an entry under `relaxed`. One of the same key, case and device gives way to it.

    Raises StoredFileError for a file that cannot be read, or whose layout cannot be kept.
    """
    text = decoded(path, content or b"")
    line = relaxed_line(entry)
    known = parsed(path, text) if text.strip() else None
    before = _entries(known)
    if known is None:
        end = "\r\n" if "\r\n" in text else "\n"
        result = f"{text}{'' if not text or text.endswith(end) else end}relaxed:{end}  - {line}{end}"
    else:
        document, fresh = read_document(text), read_document(f"relaxed:\n  - {line}\n")
        if document is None or fresh is None or not isinstance(document.data, dict):
            raise StoredFileError("relaxed_by_hand", file=str(path), entry=line)
        if not document.data.get("relaxed"):
            document.data["relaxed"] = fresh.data["relaxed"]
        else:
            same = [index for index, each in enumerate(before) if _identity(each) == _identity(entry)]
            place = document.data["relaxed"]
            if same:
                place[same[0]] = fresh.data["relaxed"][0]
            else:
                place.insert(0, fresh.data["relaxed"][0])
        result = document.write()
    try:
        after = _entries(parsed(path, result))
    except StoredFileError as error:
        raise StoredFileError("relaxed_by_hand", file=str(path), entry=line) from error
    wanted = [*(each for each in before if _identity(each) != _identity(entry)), entry]
    if sorted(map(_describe, after)) != sorted(map(_describe, wanted)):
        raise StoredFileError("relaxed_by_hand", file=str(path), entry=line)
    return result.encode()


def relaxed_line(entry: Relaxed) -> str:
    """The entry as it stands in a file, without its dash."""
    parts = [f"key: {entry.key}"]
    if entry.case is not None:
        parts.append(f"case: {quoted(entry.case)}")
    if entry.device is not None:
        parts.append(f"device: {quoted(entry.device)}")
    if entry.to is not None:
        parts.append(f"to: {text_of(entry.key, entry.to)}")
    return f"{{{', '.join([*parts, f'why: {quoted(entry.why)}', f'until: {entry.until}'])}}}"


def _entries(place: Place | None) -> tuple[Relaxed, ...]:
    found = next((each for each in place.items() if each.key == "relaxed"), None) if place else None
    return read_relaxed(found, {key: NUMBERS[key] for key in NUMBERS if key != ALPHA}) if found else ()


def _identity(entry: Relaxed) -> tuple[str, str | None, str | None]:
    return entry.key, entry.case, entry.device


def _describe(entry: Relaxed) -> str:
    return repr(replace(entry, op="", file="", line=0))
