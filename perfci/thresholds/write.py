"""Threshold files with other values, and everything else in them as it was: line by line, never written anew. Pure.

Only what changes is replaced, at the place where the parser saw it, so that comments, order, quotes and line ends that
people chose survive; the result is read again before it is given to anybody.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from perfci.core.errors import StoredFileError
from perfci.core.model import Environment
from perfci.thresholds import earned, relaxed
from perfci.thresholds.earned import FIELDS, NONE, EarnedFile
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
# an effect only where it is tighter than {op}.yaml and default.yaml, and only in the environment it was learnt in.
"""


@dataclass(frozen=True)
class _Edit:
    """Characters that are replaced; an insertion where both ends are one."""

    start: int
    end: int
    text: str


# --- values -----------------------------------------------------------------------------------------------------------


def text_of(key: str, value: float) -> str | None:
    """A value of a key as files write it, 1.5 % or 1.2; None where no file can hold it.

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


def quoted(text: str) -> str:
    r"""As YAML's double quotes write it, on one line.

    >>> print(quoted('a "b" #: '))
    "a \"b\" #: "
    """
    return str(yaml.safe_dump(text, default_style='"', width=math.inf)).strip()


# --- earned values ----------------------------------------------------------------------------------------------------


def with_earned(
    file: EarnedFile,
    environment: Environment,
    values: Iterable[Earned] = (),
    dropped: Collection[Which] = (),
    renamed: Mapping[str, str] | None = None,
) -> bytes:
    """The file's content with these values and their records, without the entries dropped, cases under new names.

    environment: in which all that stands there then was learnt; renamed: id in the file -> id. Raises StoredFileError,
    naming the line, for a file that cannot be changed line by line, and for a value that no file can hold.
    """
    fresh = {(each.case, each.key): _fields(file, each) for each in values}
    text = decoded(file.path, file.content or b"")
    place = parsed(file.path, text) if text.strip() else None
    if place is None:
        result = text + HEAD.format(op=file.op, device=file.device) + _environment_lines(environment, "\n")
        result += "cases:\n" + "".join(_case_lines(case, entries, 2, "\n") for case, entries in _grouped(fresh))
    else:
        result = _edited(text, [*_all_edits(file, text, place, environment, fresh, {*dropped}, renamed or {})])
    _verify(file, result, fresh, {*dropped}, renamed or {})
    return result.encode()


def _fields(file: EarnedFile, value: Earned) -> dict[str, str]:
    """Fields of an entry as they are written, in order."""
    numbers = {"value": value.value, "from": value.before, "to": value.after, "bound": value.bound}
    numbers["began"] = value.began
    texts = {name: NONE if number is None else text_of(value.key, number) for name, number in numbers.items()}
    wrong = next((name for name in texts if texts[name] is None), None)
    if wrong:
        raise StoredFileError(
            "earned_unwritable", file=str(file.path), key=value.key, case=value.case, value=numbers[wrong]
        )
    found = {
        name: text for name, text in texts.items() if text and (name in {"value", "from", "began"} or text != NONE)
    }
    if value.predicted is not None:
        found["predicted"] = _percent(value.predicted, 4)
    rest = {"date": value.date, "runs": value.runs and str(value.runs)}
    quotes = {"first": value.first, "last": value.last, "rescaled": value.rescaled, "why": value.why}
    found |= {name: str(text) for name, text in rest.items() if text}
    found |= {name: quoted(text) for name, text in quotes.items() if text}
    return {name: found[name] for name in FIELDS if name in found}


def _grouped(fresh: Mapping[Which, Mapping[str, str]]) -> list[tuple[str, dict[str, Mapping[str, str]]]]:
    found: dict[str, dict[str, Mapping[str, str]]] = {}
    for (case, key), fields in fresh.items():
        found.setdefault(case, {})[key] = fields
    return list(found.items())


def _case_lines(case: str, entries: Mapping[str, Mapping[str, str]], indent: int, end: str) -> str:
    lines = "".join(_entry_lines(key, fields, indent + 2, end) for key, fields in entries.items())
    return f"{' ' * indent}{quoted(case)}:{end}{lines}"


def _entry_lines(key: str, fields: Mapping[str, str], indent: int, end: str) -> str:
    lines = [f"{' ' * indent}{key}:", *(f"{' ' * (indent + 2)}{name}: {text}" for name, text in fields.items())]
    return "".join(f"{line}{end}" for line in lines)


def _environment_lines(environment: Environment, end: str) -> str:
    lines = ["environment:", *(f"  {name}: {quoted(value)}" for name, value in earned.flat(environment).items())]
    return "".join(f"{line}{end}" for line in lines)


def _all_edits(
    file: EarnedFile,
    text: str,
    place: Place,
    environment: Environment,
    fresh: Mapping[Which, Mapping[str, str]],
    dropped: Collection[Which],
    renamed: Mapping[str, str],
) -> Iterator[_Edit]:
    end = _line_end(text)
    _refuse_shared(file, place.node, set())
    _refuse_flow(file, place.node)
    for _, value in place.node.value:
        _refuse_flow(file, value)
    parts = {str(key.value): (key, value) for key, value in place.node.value}
    if file.environment is None or earned.flat(file.environment) != earned.flat(environment):
        yield from _environment_edits(text, parts["environment"], earned.flat(environment), end)
    cases = parts.get("cases")
    waiting = dict(fresh)
    if cases is not None and isinstance(cases[1], yaml.MappingNode):
        for key, value in cases[1].value:
            if isinstance(value, yaml.MappingNode):
                yield from _case_edits(file, text, (key, value), waiting, dropped, renamed, end)
    if waiting:
        yield _new_cases(text, cases, waiting, end)


def _case_edits(
    file: EarnedFile,
    text: str,
    pair: tuple[yaml.Node, yaml.Node],
    waiting: dict[Which, Mapping[str, str]],
    dropped: Collection[Which],
    renamed: Mapping[str, str],
    end: str,
) -> Iterator[_Edit]:
    """What changes of one case; what is done is taken out of `waiting`."""
    name, node = pair
    case = str(name.value)
    now = renamed.get(case, case)
    _refuse_flow(file, node)
    mine = [which for which in waiting if which[0] == now]
    there = {str(key.value): (key, value) for key, value in node.value}
    if not mine and all((case, key) in dropped for key in there):
        yield _deletion(text, pair)
        return
    if now != case:
        yield _Edit(name.start_mark.index, name.end_mark.index, quoted(now))
    for key, entry in there.items():
        if (now, key) in waiting:
            yield from _entry_edits(text, entry, waiting.pop((now, key)), end)
        elif (case, key) in dropped:
            yield _deletion(text, entry)
    added = [_entry_lines(which[1], waiting.pop(which), _column(node), end) for which in mine if which in waiting]
    if added:
        yield _insertion(text, _end(text, pair), "".join(added), end)


def _entry_edits(text: str, pair: tuple[yaml.Node, yaml.Node], fields: Mapping[str, str], end: str) -> Iterator[_Edit]:
    """Every field that there is gets its new text; those that are no longer so go, and new ones come last."""
    node = pair[1]
    there = {str(key.value): (key, value) for key, value in node.value}
    for name, (key, value) in there.items():
        if name in fields:
            yield _replaced(text, value, fields[name], end)
        elif not _in_braces(node):
            yield _deletion(text, (key, value))
    missing = {name: fields[name] for name in fields if name not in there}
    if not missing:
        return
    if _in_braces(node):
        at = node.end_mark.index - 1
        yield _Edit(at, at, "".join(f", {name}: {value}" for name, value in missing.items()))
    else:
        lines = "".join(f"{' ' * _column(node)}{name}: {value}{end}" for name, value in missing.items())
        yield _insertion(text, _end(text, pair), lines, end)


def _replaced(text: str, node: yaml.Node, value: str, end: str) -> _Edit:
    start, stop = node.start_mark.index, node.end_mark.index
    if start == stop:
        return _Edit(start, stop, f" {value}")
    return _Edit(start, stop, value + (end if text[stop - 1] == "\n" else ""))


def _environment_edits(
    text: str, pair: tuple[yaml.Node, yaml.Node], wanted: Mapping[str, str], end: str
) -> Iterator[_Edit]:
    """The fields of an environment that are another now, line by line."""
    there = {str(key.value): (key, value) for key, value in pair[1].value}
    for name, (key, value) in there.items():
        if name not in wanted:
            yield _deletion(text, (key, value))
        elif value.value != wanted[name]:
            yield _replaced(text, value, quoted(wanted[name]), end)
    missing = {name: value for name, value in wanted.items() if name not in there}
    if missing:
        indent = " " * (_column(pair[1]) if there else 2)
        lines = "".join(f"{indent}{name}: {quoted(value)}{end}" for name, value in missing.items())
        yield _insertion(text, _end(text, pair), lines, end)


def _new_cases(
    text: str, cases: tuple[yaml.Node, yaml.Node] | None, waiting: Mapping[Which, Mapping[str, str]], end: str
) -> _Edit:
    indent = _column(cases[1]) if cases and isinstance(cases[1], yaml.MappingNode) else 2
    lines = "".join(_case_lines(case, entries, indent, end) for case, entries in _grouped(waiting))
    if cases is None:
        return _insertion(text, len(text), f"cases:{end}{lines}", end)
    return _insertion(text, _end(text, cases), lines, end)


def _verify(
    file: EarnedFile,
    result: str,
    fresh: Mapping[Which, Mapping[str, str]],
    dropped: Collection[Which],
    renamed: Mapping[str, str],
) -> None:
    """Raise where the new content does not say exactly what it is to say."""
    wanted = {
        (renamed.get(each.case, each.case), each.key): each.value
        for each in file.values
        if (each.case, each.key) not in dropped
    }
    wanted |= {which: value_of(which[1], fields["value"], "-") for which, fields in fresh.items()}
    try:
        place = parsed(file.path, result, fast=True)
        read = earned.parsed_file(file.path, file.op, file.device, place, b"", str(file.path)).values
    except StoredFileError as error:
        raise _unchangeable(file.path, 1) from error
    if {(each.case, each.key): each.value for each in read} != wanted:
        raise _unchangeable(file.path, 1)


# --- relaxed entries --------------------------------------------------------------------------------------------------


def with_relaxed(path: Path, content: bytes | None, entry: Relaxed) -> bytes:
    """An op's file with an entry under `relaxed`; one of the same key, case and device gives way to it.

    Raises StoredFileError for a file that cannot be read, or not be changed line by line.
    """
    text = decoded(path, content or b"")
    end, line = _line_end(text), relaxed_line(entry)
    place = parsed(path, text) if text.strip() else None
    parts = {str(key.value): (key, value) for key, value in place.node.value} if place else {}
    pair = parts.get("relaxed")
    if place is not None:
        _entries(place)
    edit = _relaxed_edit(text, pair, place, entry, line, end)
    result = _edited(text, [edit])
    try:
        read_again = _entries(parsed(path, result))
    except StoredFileError as error:
        raise _unchangeable(path, 1, line) from error
    wanted = [each for each in _entries(place) if _same(each) != _same(entry)]
    if sorted(map(_said, read_again)) != sorted(map(_said, [*wanted, entry])):
        raise _unchangeable(path, 1, line)
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


def _relaxed_edit(
    text: str,
    pair: tuple[yaml.Node, yaml.Node] | None,
    place: Place | None,
    entry: Relaxed,
    line: str,
    end: str,
) -> _Edit:
    if pair is None:
        column = " " * (_column(place.node) if place else 0)
        return _insertion(text, len(text), f"{column}relaxed:{end}{column}  - {line}{end}", end)
    key, value = pair
    if isinstance(value, yaml.SequenceNode):
        for node in value.value:
            alone = yaml.SequenceNode(value.tag, [node], flow_style=False)
            known = relaxed.entries(Place(Path("-"), 1, "relaxed", alone), _numbers())
            if known and _same(known[0]) == _same(entry):
                stop = node.end_mark.index if _in_braces(node) else len(text[: _end(text, (node, node))].rstrip("\r\n"))
                return _Edit(node.start_mark.index, stop, line)
        indent = _column(value)
    else:
        indent = _column(key) + 2
    return _insertion(text, _next_line(text, key.end_mark.index), f"{' ' * indent}- {line}{end}", end)


def _entries(place: Place | None) -> tuple[Relaxed, ...]:
    found = next((each for each in place.items() if each.key == "relaxed"), None) if place else None
    return relaxed.entries(found, _numbers()) if found else ()


def _numbers() -> dict[str, Callable[[Place], float]]:
    return {key: parser for key, parser in NUMBERS.items() if key != ALPHA}


def _same(entry: Relaxed) -> tuple[str, str | None, str | None]:
    return entry.key, entry.case, entry.device


def _said(entry: Relaxed) -> str:
    return repr(replace(entry, op="", file="", line=0))


# --- text -------------------------------------------------------------------------------------------------------------


def _edited(text: str, edits: Sequence[_Edit]) -> str:
    """The text with the edits made; those at one place in their order."""
    parts, at = [], 0
    for edit in sorted(edits, key=lambda each: each.start):
        parts += [text[at : edit.start], edit.text]
        at = max(at, edit.end)
    return "".join([*parts, text[at:]])


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_start(text: str, index: int) -> int:
    return text.rfind("\n", 0, index) + 1


def _next_line(text: str, index: int) -> int:
    """Where the line after the one of this character begins; the text's end after the last."""
    found = text.find("\n", index)
    return len(text) if found < 0 else found + 1


def _in_braces(node: yaml.Node) -> bool:
    """Whether a list or mapping stands in brackets or braces."""
    return isinstance(node, yaml.CollectionNode) and bool(node.flow_style)


def _column(node: yaml.Node) -> int:
    return int(node.start_mark.column)


def _last(node: yaml.Node) -> yaml.Node:
    """The scalar, or what stands in brackets, that ends a value."""
    while isinstance(node, yaml.CollectionNode) and node.value and not node.flow_style:
        node = node.value[-1][1] if isinstance(node, yaml.MappingNode) else node.value[-1]
    return node


def _end(text: str, pair: tuple[yaml.Node, yaml.Node]) -> int:
    """Where the line begins that follows a key's value, comments after it aside."""
    last = max(pair[0].end_mark.index, _last(pair[1]).end_mark.index)
    return last if last and text[last - 1] == "\n" else _next_line(text, last)


def _deletion(text: str, pair: tuple[yaml.Node, yaml.Node]) -> _Edit:
    """A key with its value goes; comments that stand on lines of their own in it stay."""
    start, stop = _line_start(text, pair[0].start_mark.index), _end(text, pair)
    return _Edit(start, stop, _comments(text[start:stop]))


def _comments(text: str) -> str:
    return "".join(line for line in text.splitlines(keepends=True) if line.lstrip().startswith("#"))


def _insertion(text: str, at: int, lines: str, end: str) -> _Edit:
    """Whole lines before the one that begins here; a last line without its end gets one."""
    return _Edit(at, at, lines if not at or text[at - 1] == "\n" else end + lines)


# --- what cannot be changed line by line ------------------------------------------------------------------------------


def _refuse_shared(file: EarnedFile, node: yaml.Node, seen: set[int]) -> None:
    """What an alias repeats would change in two places at once."""
    if id(node) in seen:
        raise _unchangeable(file.path, node.start_mark.line + 1)
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for _, value in node.value:
            _refuse_shared(file, value, seen)


def _refuse_flow(file: EarnedFile, node: yaml.Node) -> None:
    if _in_braces(node) and node.value:
        raise _unchangeable(file.path, node.start_mark.line + 1)


def _unchangeable(path: Path, line: int, wanted: str | None = None) -> StoredFileError:
    if wanted is not None:
        return StoredFileError("relaxed_by_hand", file=str(path), entry=wanted)
    return StoredFileError("earned_by_hand", file=str(path), line=line)
