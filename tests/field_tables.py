"""The tables of docs/stored-files.md: fields from the published schemas, columns from `perfci report --to csv`."""

import json
from collections.abc import Mapping
from typing import Any

from perfci.extensions.history import tables
from tests.schemas import ANSWER, SCHEMAS, schema

TYPES = {tables.TEXT: "text", tables.WHOLE: "whole number", tables.NUMBER: "number", tables.TRUTH: "true or false"}
PLAIN = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}


def fields(name: str, *but: str) -> str:
    """A heading and a table a record of a schema. but: schemas with records to leave out."""
    shown = {record for other in but for record in _definitions(other)}
    return "\n\n".join(
        _record(record, definition)
        for record, definition in _definitions(name).items()
        if record not in shown and "properties" in definition
    )


def columns(
    always: Mapping[str, tables.Column] = tables.COLUMNS, judged: Mapping[str, tables.Column] = tables.VERDICTS
) -> str:
    """The columns of an export, in order."""
    rows = [(f"`{name}`", TYPES[column.type], column.holds) for name, column in always.items()]
    behind = list(always).index("case") + 1
    rows.insert(behind, ("`param.NAME`", "by its values", "each parameter of the case by its name: `param.rows`"))
    rows += [(f"`{name}`", TYPES[column.type], f"{column.holds}; with `--verdicts`") for name, column in judged.items()]
    return _table(("column", "type", "holds"), rows)


def _definitions(name: str) -> dict[str, Any]:
    whole = schema(SCHEMAS[name]) if name in SCHEMAS else json.loads(ANSWER.read_text(encoding="utf-8"))
    definitions: dict[str, Any] = whole["$defs"]
    return definitions


def _record(name: str, definition: dict[str, Any]) -> str:
    needed = set(definition.get("required", ()))
    rows = [
        (
            f"`{field}`",
            _type(described) if field in needed else f"{_type(described).removesuffix(' or null')}, or missing",
            _cell(described),
        )
        for field, described in definition["properties"].items()
    ]
    return f"### {name}\n\n{definition['description'].splitlines()[0]}\n\n" + _table(("field", "type", "holds"), rows)


def _cell(described: dict[str, Any]) -> str:
    return str(described.get("description", "")).replace("|", "\\|")


def _type(described: dict[str, Any]) -> str:
    if "anyOf" in described:
        kinds = list(dict.fromkeys(_type(kind) for kind in described["anyOf"]))
        return " or ".join(kinds)
    if "$ref" in described:
        return f"{described['$ref'].rpartition('/')[2]}"
    if "enum" in described:
        return "text"
    if "prefixItems" in described:
        return " and ".join(map(_type, described["prefixItems"]))
    if described.get("type") == "array":
        return f"list of {_type(described['items'])}" if "items" in described else "list"
    if described.get("type") == "object":
        return f"map of {_type(described['additionalProperties'])}"
    return PLAIN.get(described.get("type", ""), "null")


def _table(heads: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)
