"""Keys and values of threshold files: nothing is skipped in silence."""

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from perfci.core.errors import StoredFileError
from perfci.core.model import Expected
from perfci.core.wording import say
from perfci.thresholds.case import GATES, CaseThresholds, Steps
from perfci.thresholds.layers import ALPHA, Relaxed
from perfci.thresholds.limits import WORK, OpThresholds, Thresholds, override
from perfci.thresholds.place import Place, find_meant, list_yaml, make_unknown_error, read, shorten_text

DEFAULT = "default"
MODEL = "model"  # key of default.yaml: what changes of ops may cost the step of a workload
TIMERS = ("activity", "event", "virtual")
LARGEST = 1e9  # largest number that means anything: microseconds, bytes, times as fast

MOST = 10.0
"""Largest slow-down that an entry can allow, ratio: what takes eleven times as long is a fault, or another op."""

WEAKER = (
    "accelerator cases", "answers", "cases", "flags", "inputs", "kernel", "large cases", "layouts", "numbers",
    "probed dtypes", "probes", "reference", "rejects", "stored tensors", "tolerance", "values", WORK,
)  # fmt: skip
"""Parts of an op's suites that may ask for less since a change, and the work that its kernel leaves to others."""

WHY_LENGTH = 300  # characters of a reason

_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_GLOB = re.compile(r"[*?\[]")
_LENGTH = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?")
NUMBER = re.compile(r"(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%")

Reader = Callable[[Place], Any]


def load(folder: Path, ops: Collection[str] | None = None, root: Path | None = None) -> Thresholds:
    """Read a thresholds folder, if there is one. Raises StoredFileError, naming file and line, for any fault.

    ops: all ops of the project, if files of others are faults. root: the project's, from which files are named.
    """
    shown = (folder.relative_to(root) if root and folder.is_relative_to(root) else folder).as_posix()
    files = list_yaml(folder)
    default, model = CaseThresholds(), dict[str, float]()
    if path := files.pop(DEFAULT, None):
        written = _read_fields(read(path), _DEFAULT_KEYS)
        model = written.pop(MODEL, model)
        default = override(default, written)
    by_op = {}
    for op, path in files.items():
        if ops is not None and op not in ops:
            guess = find_meant(op, {*ops, DEFAULT})
            kind = "thresholds_of_other_op" if guess else "thresholds_of_no_op"
            raise StoredFileError(kind, file=str(path), op=op, meant=guess)
        fields = _read_fields(read(path), _OP_KEYS)
        cases, file = fields.pop("cases", ()), f"{shown}/{path.name}"
        expected = tuple(replace(entry, op=op, file=file) for entry in fields.pop("expected", ()))
        relaxed = tuple(replace(entry, op=op, file=file) for entry in fields.pop("relaxed", ()))
        common = override(default, fields)
        by_op[op] = OpThresholds(common, cases, expected, relaxed=relaxed)
    return Thresholds(default, by_op, shown, model=model)


def _read_fields(place: Place | None, keys: Mapping[str, Reader]) -> dict[str, Any]:
    fields = {}
    for entry in place.items() if place else ():
        if entry.key not in keys:
            where = "default.yaml" if entry.key in _DEFAULT_KEYS else "<op>.yaml" if entry.key in _OP_KEYS else None
            raise entry.error("threshold_key_elsewhere", where=where) if where else make_unknown_error(entry, keys)
        fields[entry.key] = keys[entry.key](entry)
    return fields


# --- numbers ----------------------------------------------------------------------------------------------------------


def make_percentage_reader(
    least: float, most: float, *, above: bool = False, below: bool = False, like: str = "2 %"
) -> Reader:
    """A reader of a percentage, as a ratio. above, below: the end itself is not among the values."""

    def read_percentage(place: Place) -> float:
        lowest = say("above {least} %", least=f"{least:g}") if above else say("from {least} % on", least=f"{least:g}")
        highest = say("below {most} %", most=f"{most:g}") if below else say("up to {most} %", most=f"{most:g}")
        want = say(
            "a percentage {lowest} and {highest}, such as {example}", lowest=lowest, highest=highest, example=like
        )
        match = PERCENT.fullmatch(place.text(want))
        value = float(match[1]) if match else math.nan
        if not least <= value <= most or (above and value == least) or (below and value == most):
            raise place.unlike(want)
        return value / 100

    return read_percentage


def make_number_reader(like: str, *, above: bool = False) -> Reader:
    """A reader of a number. above: it is not 0."""

    def read_number(place: Place) -> float:
        most = f"{LARGEST:.0f}"
        want = say("a number, zero or more, up to {most}, such as {example}", most=most, example=like)
        if above:
            want = say("a number above 0, up to {most}, such as {example}", most=most, example=like)
        text = place.text(want)
        # YAML takes 1e-3 for text, and people write numbers so.
        plain = isinstance(place.node, yaml.ScalarNode) and not place.node.style
        value = float(text) if plain and NUMBER.fullmatch(text) else math.nan
        if not value <= LARGEST or (above and value == 0):
            raise place.unlike(want)
        return value

    return read_number


_ratio = make_percentage_reader(0, 100, below=True)
_slowdown = make_percentage_reader(0, 100, above=True, below=True, like="1 %")  # no two times are ever equal
_microseconds = make_number_reader("0.5")


def _read_steps(place: Place) -> Steps:
    steps: dict[float, float] = {}
    for entry in place.items():
        if not _LENGTH.fullmatch(entry.key) or not float(entry.key) <= LARGEST:
            raise place.unlike(say("kernel lengths in microseconds as keys, such as 40: 1 %"))
        if float(entry.key) in steps:
            raise entry.error("threshold_twice")
        steps[float(entry.key)] = _slowdown(entry)
    if 0.0 not in steps:
        raise place.unlike(say("steps that begin at length 0, such as 0: 5 %"))
    return tuple(sorted(steps.items()))


def _read_tail(place: Place) -> str:
    want = say("one of {known}", known=", ".join(GATES))
    if (text := place.text(want)) not in GATES:
        raise place.unlike(want)
    return text


# --- entries: agreed slow-downs (`expected`), and thresholds that are looser for a time (`relaxed`) -------------------


def read_expected(place: Place) -> tuple[Expected, ...]:
    """Entries under the key `expected`, still without op and file. Raises StoredFileError."""
    example = "{case: ..., up_to: 6 %, why: ..., until: 2027-01-31}"
    up_to = make_percentage_reader(0, 100 * MOST, above=True, like="6 %")
    keys = {"case": read_case, "up_to": up_to, "why": read_why, "until": read_until, "weaker": _read_weaker}
    expected: dict[str, Expected] = {}
    for member in place.members(say("a list with an entry a line, such as {example}", example=f"- {example}")):
        weaker = isinstance(member.node, yaml.MappingNode) and any(part.key == "weaker" for part in member.items())
        needed = ("weaker", "why", "until") if weaker else ("case", "up_to", "why", "until")
        fields = _read_entry(member, {name: keys[name] for name in needed}, needed, example)
        entry = Expected(**{"op": "", "case": "*", "up_to": 0.0, "line": member.line, **fields})
        name = entry.weaker or entry.case
        if name in expected:
            raise member.error("entry_twice", what=shorten_text(name), first=expected[name].line)
        expected[name] = entry
    return tuple(expected.values())


def _read_weaker(place: Place) -> str:
    """Parts of an op's suites that ask for less since a change."""
    want = say("what got weaker, one of {known}", known=", ".join(WEAKER))
    if (text := place.text(want)) not in WEAKER:
        raise place.unlike(want)
    return text


def read_relaxed(place: Place) -> tuple[Relaxed, ...]:
    """Entries under the key `relaxed`, still without op and file. Raises StoredFileError."""
    example = "{key: tau, to: 2 %, why: ..., until: 2027-01-31}"
    readers = {key: reader for key, reader in NUMBERS.items() if key != ALPHA}

    def read_key(entry: Place) -> str:
        text = entry.text(say("the name of a threshold, such as tau"))
        if text not in readers:
            raise make_unknown_error(replace(entry, key=text), readers)
        return text

    def read_device(entry: Place) -> str:
        want = say("the key of a device, as its folder of baselines has it, such as nvidia-h200")
        text = entry.text(want)
        if not text.strip() or "/" in text:
            raise entry.unlike(want)
        return text

    keys: Mapping[str, Reader] = {"key": read_key, "case": read_case, "device": read_device, "to": lambda entry: entry}
    keys = {**keys, "why": read_why, "until": read_until}
    relaxed: dict[Any, Relaxed] = {}
    for member in place.members(say("a list with an entry a line, such as {example}", example=f"- {example}")):
        fields = _read_entry(member, keys, ("key", "why", "until"), example)
        if "to" in fields:
            # Errors name the threshold that has the value.
            fields["to"] = readers[fields["key"]](replace(fields["to"], key=fields["key"]))
        entry = Relaxed(op="", line=member.line, **fields)
        if entry.which in relaxed:
            what = shorten_text(f"{entry.key} {entry.case or ''}".strip())
            raise member.error("entry_twice", what=what, first=relaxed[entry.which].line)
        relaxed[entry.which] = entry
    return tuple(relaxed.values())


def _read_entry(place: Place, keys: Mapping[str, Reader], needed: Sequence[str], example: str) -> dict[str, Any]:
    if not isinstance(place.node, yaml.MappingNode):
        raise place.unlike(say("an entry such as {example}", example=example))
    fields = {}
    for entry in place.items():
        if entry.key not in keys:
            raise make_unknown_error(entry, keys)
        fields[entry.key] = keys[entry.key](entry)
    if missing := [key for key in needed if key not in fields]:
        raise place.error("entry_lacks", missing=", ".join(missing))
    return fields


def is_pattern(text: str) -> bool:
    """Whether this can be the --case pattern of any case: parts of ids are name=value, and have no blanks.

    >>> is_pattern("rows=4096,*"), is_pattern("rows"), is_pattern("rows=1, cols=2"), is_pattern("")
    (True, False, False, False)
    """
    return not re.search(r"\s", text) and all("=" in part or _GLOB.search(part) for part in text.split(","))


def read_case(place: Place) -> str:
    """A --case pattern in quotes. Raises StoredFileError, as the others do."""
    want = say("a pattern for case ids in quotes, without blanks, such as rows=4096,dtype=*")
    if not place.is_a("str") or not is_pattern(place.text(want)):
        raise place.unlike(want)
    return place.text(want)


def read_why(place: Place) -> str:
    """A reason in quotes, on one line."""
    want = say("a reason in quotes, of up to {most} characters", most=WHY_LENGTH)
    text = " ".join(place.text(want).split())
    if not place.is_a("str") or not text or len(text) > WHY_LENGTH:
        raise place.unlike(want)
    return text


def read_until(place: Place) -> str:
    """A day of the calendar, ISO 8601."""
    want = say("a date such as 2027-01-31")
    text = place.text(want)
    try:
        return date.fromisoformat(text if _DATE.fullmatch(text) else "").isoformat()
    except ValueError as error:
        raise place.unlike(want) from error


def quote_text(text: str) -> str:
    r"""As YAML's double quotes write it, on one line.

    >>> print(quote_text('a "b" #: '))
    "a \"b\" #: "
    """
    return str(yaml.safe_dump(text, default_style='"', width=math.inf)).strip()


# --- keys -------------------------------------------------------------------------------------------------------------


def _read_cases(place: Place) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    cases = []
    for entry in place.items():
        if not is_pattern(entry.key):
            raise entry.unlike(say("a pattern for case ids in quotes, without blanks, such as rows=4096,dtype=*"))
        cases.append((entry.key, _read_fields(entry, CASE_KEYS)))
    return tuple(cases)


CASE_KEYS: Mapping[str, Reader] = {
    **dict.fromkeys(("margin", "rsd", "regime", "clip_ratio"), _ratio),
    **dict.fromkeys(("registers", "instructions", "shared_memory", "barriers", "occupancy", "peak_memory"), _ratio),
    **dict.fromkeys(("tensor_instructions", "warpgroup_instructions", "asynchronous_copies"), _ratio),
    **dict.fromkeys(("access_width", "double_buffers"), _ratio),
    **dict.fromkeys(("mean_abs", "rmse", "p99_abs", "max_abs", "stored_p99", "divergence"), make_number_reader("1e-3")),
    "speedup": make_number_reader("1.2", above=True),
    "span_margin": _slowdown,
    "span_floor_us": _microseconds,
    "host_margin": _slowdown,
    "host_floor_us": _microseconds,
    "floor_us": lambda place: _read_fields(place, dict.fromkeys(TIMERS, _microseconds)),
    "tau": _read_steps,
    "tail": _read_tail,
    **dict.fromkeys(("spill_bytes", "local_bytes", "double_instructions"), make_number_reader("16")),
    # What the cache keeps lets a kernel pass the copy. Beyond 140 % no measurement is believed.
    "bandwidth_share": make_percentage_reader(0, 140, above=True, like="80 %"),
    "compile_s": make_number_reader("20", above=True),
}
_DEFAULT_KEYS: Mapping[str, Reader] = {
    **CASE_KEYS, ALPHA: make_percentage_reader(0, 50, above=True, like="1 %"),
    MODEL: lambda place: {entry.key: _slowdown(entry) for entry in place.items()},
}  # fmt: skip
_OP_KEYS: Mapping[str, Reader] = {
    **CASE_KEYS, "cases": _read_cases, "expected": read_expected, "relaxed": read_relaxed,
}  # fmt: skip
NUMBERS: Mapping[str, Reader] = {
    **{key: reader for key, reader in _DEFAULT_KEYS.items() if key not in {"floor_us", "tail", MODEL}},
    "tau": _slowdown,
}
"""How the one number of a key is read, if it stands for every length of kernel: earned, relaxed, --threshold."""
