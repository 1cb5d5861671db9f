"""Makes the JSON Schemas of stored files from the records: `python -m tests.schemas DIR` writes them to a folder.

The site of the docs has them below schemas/. Without DIR those are written anew that editors read, in perfci/schemas.

They are open: a later perfci may write further fields under the same format number, which readers ignore. The tests
check what perfci writes against the same schemas closed. docs/_site/answer.schema.json is written by hand.

Those of what people write, for editors, are closed: the settings in pyproject.toml and the thresholds.
"""

import ast
import functools
import inspect
import itertools
import json
import re
import shutil
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

import perfci.core.model
from perfci.core import settings
from perfci.core.model import FORMAT, Baseline, Expected, Run
from perfci.extensions.agents.logbook import Round
from perfci.extensions.common.accepted_runs import HistoryRun
from perfci.extensions.shards.plans import ShardPlan
from perfci.store.launches import LaunchRow
from perfci.thresholds import read
from perfci.thresholds.case import GATES, CaseThresholds
from perfci.thresholds.layers import Relaxed

SCHEMAS: dict[str, type] = {
    "run.schema.json": Run,
    "baseline.schema.json": Baseline,
    "history.schema.json": HistoryRun,
    "launches.schema.json": LaunchRow,
    "plan.schema.json": ShardPlan,
    "round.schema.json": Round,
}
"""File name -> the record that it describes."""

TITLES: Mapping[type, str] = {
    Run: "perfci: run.json, which check and ci merge write",
    Baseline: "perfci baseline: baselines/<device key>/<op>.json",
    HistoryRun: "perfci history: one line of baselines/<device key>/<op>.history.jsonl",
    LaunchRow: "perfci launches: one line of launches.jsonl.gz",
    Round: "perfci try: one line of kernels/<op>/optimization.jsonl",
    ShardPlan: "perfci ci plan: plan.json, which plan writes and check and merge read",
}

PACKAGED = Path(perfci.core.model.__file__).parents[2] / "schemas"
ANSWER = Path(__file__).parents[1] / "docs" / "_site" / "answer.schema.json"

DIALECT = "https://json-schema.org/draft/2020-12/schema"

UNITS = {
    "_us": "microseconds",
    "_s": "seconds",
    "_bytes": "bytes",
    "_mhz": "megahertz",
    "_w": "watts",
    "_c": "degrees Celsius",
    "_gbps": "gigabytes (1e9 bytes) a second",
    "_tflops": "tera floating-point operations a second",
}
"""The meaning of a field name's ending."""


SAID: Mapping[str, str] = {
    "accuracy": "ids of its accuracy cases",
    "after": "null where it is not set, or not installed",
    "arm": "kernel, reference or base",
    "atol": "absolute tolerance",
    "block": "number of the block within its process and case",
    "branch": "git branch, where one is checked out",
    "cache": "what L2 held when a timed launch began: cold or warm",
    "case": "id of the case: rows=4096,cols=1024,dtype=float16",
    "command": "as it was typed",
    "commit": "its full id",
    "count": "elements compared",
    "created": "ISO 8601, UTC",
    "driver": "version of the device's driver",
    "dtype": "of the case's inputs",
    "facts": "what its sentence holds, by name",
    "format": "version of this format",
    "grid": "programs along each axis",
    "high": "upper end",
    "host": "name of the machine",
    "id": "of the run, its own",
    "index": "number of the block within its process and case",
    "instructions": "how many, all classes together",
    "kernel": "name of the kernel's function",
    "kind": "name of the reason, the same in every language",
    "line": "in that file, where it is known",
    "low": "lower end",
    "name": "of the kernel's function",
    "op": "name of the op",
    "p_faster": "of being faster by more than that",
    "packages": "versions by name",
    "performance": "ids of its performance cases",
    "process": "0 the run's first look; 1, 2, ... fresh processes that measured again",
    "python": "version of the interpreter",
    "raised": "the failure is an exception, not a wrong answer",
    "reference": "of the reference",
    "registers": "of a thread",
    "rtol": "relative tolerance",
    "run_ids": "ids of the runs",
    "runtime": "CUDA or CANN version, with its name",
    "seed": "of the inputs",
    "spills": "registers of a thread that did not fit",
    "stages": "of the software pipeline",
    "system": "operating system, its release and architecture",
    "targets": "what was compiled for: sm_90, gfx942",
    "timer": "activity, event or virtual",
    "value": "the estimate",
    "warps": "of a program",
    "why": "in the words of the person who wrote it",
    "StepCase.kernel": "of the kernel",
    "Summary.launches": "how many",
    "Identity.launches": "in order",
    **{
        name: f"{how} {what} error"
        for short, what in (("abs", "absolute"), ("rel", "relative"))
        for how, name in (("greatest", f"max_{short}"), ("mean", f"mean_{short}"))
    },
    **{f"p{share}_abs": f"{share}th percentile of the absolute error" for share in (50, 90, 99)},
    "rmse": "root of the mean squared error",
}
"""Descriptions of fields with a name that is enough in the code, by name, or by record and name."""


def schema(kind: type) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a record's file. `format` is required: it comes first when a file is read.

    Titles, descriptions and units are those of the records' docstrings and fields.
    """
    whole = msgspec.json.schema(kind)
    definitions = whole["$defs"]
    for name, definition in definitions.items():
        _describe(definition, _class(name, kind))
    top = definitions[kind.__name__]
    if kind is not LaunchRow:  # with a format that is 1 if a line has none
        top["required"] = sorted({*top["required"], "format"})
    name = next(file for file, record in SCHEMAS.items() if record is kind).partition(".")[0]
    return {"$schema": DIALECT, "$id": f"urn:perfci:schema:{name}:{FORMAT}", "title": TITLES[kind], **whole}


def publish(folder: Path) -> None:
    """Writes the schemas of all stored files, and of what `--format json` prints."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ANSWER, folder)
    _write({name: schema(kind) for name, kind in SCHEMAS.items()}, folder)


def write_for_editors(folder: Path) -> None:
    """Writes the schemas that editors read. Run it after a change of settings or thresholds."""
    _write({name: make() for name, make in WRITTEN.items()}, folder)


def _write(schemas: Mapping[str, Any], folder: Path) -> None:
    for name, content in schemas.items():
        text = json.dumps(content, indent=1, sort_keys=True) + "\n"
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _settings() -> dict[str, Any]:
    """Of a whole pyproject.toml, as editors take one for a file. All but `[tool.perfci]` is open."""
    table = msgspec.json.schema(settings.Settings, schema_hook=lambda _: {"type": "string"})["$defs"]["Settings"]
    del table["properties"]["root"], table["required"]
    for name, text in _say(settings.Settings).items():
        if name in table["properties"]:
            entry = table["properties"][name]
            entry |= {"description": text or "folder"}
            if entry.pop("anyOf", None):  # TOML has no null
                del entry["default"]
                entry["type"] = "string"
            if entry.get("default") == {}:  # which msgspec says from 0.23 on
                del entry["default"]
    # Which msgspec says from 0.23 on.
    table["properties"]["backends"]["additionalProperties"]["propertyNames"] = {"enum": ["python"]}
    devices = table["properties"]["devices"]
    devices |= {"type": ["string", "array"], "items": {"type": "integer", "minimum": 0}}
    devices["pattern"] = devices["pattern"].replace(r"\Z", "$")  # which JavaScript does not know
    table |= {"additionalProperties": False, "description": "perfci's settings. Folders are relative to this file."}
    tool = {"type": "object", "properties": {"perfci": table}}
    about = {"title": "pyproject.toml with perfci's settings", "type": "object", "properties": {"tool": tool}}
    return {"$schema": DIALECT, "$id": "urn:perfci:schema:settings", **about}


def _thresholds() -> dict[str, Any]:
    """Of thresholds/default.yaml and of thresholds/<op>.yaml."""
    percentage = {"type": "string", "pattern": f"^{read.PERCENT.pattern}$"}
    # YAML 1.1 takes 1e-3 for text.
    number = {"type": ["number", "string"], "minimum": 0, "pattern": f"^({read.NUMBER.pattern})$"}
    text, day = {"type": "string", "minLength": 1}, {"type": "string", "format": "date"}
    why = {**text, "maxLength": read.WHY_LENGTH}

    def table(properties: Mapping[str, Any], said: Mapping[str, str], needed: Sequence[str] = ()) -> dict[str, Any]:
        told = {name: {**kind, "description": said[name]} for name, kind in properties.items()}
        return {"type": "object", "properties": told, "required": [*needed], "additionalProperties": False}

    kinds = {key: number if "number" in reader.__name__ else percentage for key, reader in read.NUMBERS.items()} | {
        "tau": {"type": "object", "patternProperties": {"^[0-9]": percentage}, "additionalProperties": False},
        "floor_us": {"type": "object", "properties": dict.fromkeys(read.TIMERS, number), "additionalProperties": False},
        "tail": {"enum": list(GATES)},
    }
    case = table({key: kinds[key] for key in read.CASE_KEYS}, _say(CaseThresholds))
    entry = {"case": text, "up_to": percentage, "weaker": {"enum": list(read.WEAKER)}, "why": why, "until": day}
    both = [("case", "up_to", "why", "until"), ("weaker", "why", "until")]
    agreed = [table({name: entry[name] for name in names}, _say(Expected), names) for names in both]
    loose = {"key": {"enum": sorted(read.NUMBERS.keys() - {read.ALPHA})}, "case": text, "device": text,
             "to": {"anyOf": [percentage, number]}, "why": why, "until": day}  # fmt: skip
    relaxed = table(loose, _say(Relaxed), ("key", "why", "until"))
    whole = {
        **{key: {"$ref": f"#/$defs/case/properties/{key}"} for key in case["properties"]},
        "alpha": {**percentage, "description": _say(CaseThresholds)["alpha"]},
        "cases": {"type": "object", "additionalProperties": {"$ref": "#/$defs/case"}},
        "expected": {"type": "array", "items": {"anyOf": agreed}},
        "relaxed": {"type": "array", "items": relaxed},
    }
    about = {"title": "perfci: thresholds/default.yaml, or <op>.yaml", "type": "object", "properties": whole}
    start = {"$schema": DIALECT, "$id": "urn:perfci:schema:thresholds", "$defs": {"case": case}}
    return {**start, **about, "additionalProperties": False}


def _say(kind: type) -> dict[str, str]:
    """What fields that people write are for. What nothing is said of in CaseThresholds belongs to the next."""
    said, words, below = read_words(kind), dict[str, str](), ""
    for name in reversed(inspect.get_annotations(kind)):
        below = said.get(name) or (below if kind is CaseThresholds else "")
        words[name] = re.sub(r"\bNone:", "without it:", below)
    return {**words, **({"why": "for people: why, and where it was agreed on"} if "why" in words else {})}


WRITTEN = {"settings.schema.json": _settings, "thresholds.schema.json": _thresholds}
"""File name -> what makes the schema of a file that people write."""


def fields(kind: type) -> dict[str, str]:
    """A record's fields with their descriptions, first the unit by the name's ending.

    That is what stands beside or below the field in the code, else in SAID. Empty for fields that hold records, which
    speak for themselves.
    """
    said = read_words(kind)
    names = inspect.get_annotations(kind)
    told = {name: said.get(name) or SAID.get(f"{kind.__name__}.{name}") or SAID.get(name, "") for name in names}
    return {name: _joined(_unit(name), re.sub(r"\bNone\b", "null", told[name])) for name in names}


def _describe(definition: dict[str, Any], kind: type | None) -> None:
    if kind is None or "properties" not in definition:
        return
    for name, text in fields(kind).items():
        if text:
            definition["properties"][name]["description"] = text


def _class(name: str, top: type) -> type | None:
    places = (perfci.core.model, inspect.getmodule(top))
    known = [getattr(place, name, None) for place in places]
    return next((item for item in known if isinstance(item, type)), None)


@functools.cache
def read_words(kind: type) -> dict[str, str]:
    """Field -> the text beside or below it."""
    source = textwrap.dedent(inspect.getsource(kind))
    body, lines = ast.parse(source).body[0], source.splitlines()
    assert isinstance(body, ast.ClassDef)
    words = {}
    for field, below in itertools.pairwise([*body.body, ast.Pass()]):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            text = lines[field.lineno - 1].partition("  # ")[2]
            if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
                text = str(below.value.value)
            words[field.target.id] = " ".join(text.split())
    return words


def _joined(unit: str, text: str) -> str:
    return text if not unit or unit in text else "; ".join(filter(None, (unit, text)))


def _unit(name: str) -> str:
    return next((unit for ending, unit in UNITS.items() if name.endswith(ending) or name == ending[1:]), "")


if __name__ == "__main__":
    publish(Path(sys.argv[1])) if sys.argv[1:] else write_for_editors(PACKAGED)
