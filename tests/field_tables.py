"""The tables of docs/stored-files.md: fields from the published schemas, columns from `perfci report --to csv`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perfci.extensions.history import tables
from tests.closed_schemas import published
from tests.schemas import SCHEMAS, schema

TYPES = {tables.TEXT: "text", tables.WHOLE: "whole number", tables.NUMBER: "number", tables.TRUTH: "true or false"}
PLAIN = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}


def fields(*names: str) -> str:
    """A heading and a table a record, each record once."""
    known: set[str] = set()
    parts = []
    for name in names:
        whole = schema(SCHEMAS[name]) if name in SCHEMAS else published(name)
        for record, definition in whole["$defs"].items():
            if record not in known and "properties" in definition:
                known.add(record)
                parts.append(_record(record, definition))
    return "\n\n".join(parts)


def columns(
    always: Mapping[str, tables.Column] = tables.COLUMNS, judged: Mapping[str, tables.Column] = tables.VERDICTS
) -> str:
    """The columns of an export, in order."""
    rows = [(f"`{name}`", TYPES[column.type], column.holds) for name, column in always.items()]
    behind = list(always).index("case") + 1
    rows.insert(behind, ("`param.NAME`", "by its values", "each parameter of the case by its name: `param.rows`"))
    rows += [(f"`{name}`", TYPES[column.type], f"{column.holds}; with `--verdicts`") for name, column in judged.items()]
    return _table(("column", "type", "holds"), rows)


def _record(name: str, definition: dict[str, Any]) -> str:
    needed = set(definition.get("required", ()))
    rows = [
        (
            f"`{field}`",
            _type(told) if field in needed else f"{_type(told).removesuffix(' or null')}, or missing",
            _cell(told),
        )
        for field, told in definition["properties"].items()
    ]
    return f"### {name}\n\n{definition['description'].splitlines()[0]}\n\n" + _table(("field", "type", "holds"), rows)


def _cell(told: dict[str, Any]) -> str:
    return str(told.get("description", "")).replace("|", "\\|")


def _type(told: dict[str, Any]) -> str:
    if "anyOf" in told:
        kinds = list(dict.fromkeys(_type(each) for each in told["anyOf"]))
        return " or ".join(kinds)
    if "$ref" in told:
        return f"{told['$ref'].rpartition('/')[2]}"
    if "enum" in told:
        return "text"
    if told.get("type") == "array":
        return f"list of {_type(told['items'])}" if "items" in told else "list"
    if told.get("type") == "object":
        return f"map of {_type(told['additionalProperties'])}"
    return PLAIN.get(told.get("type", ""), "null")


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)
