"""The published schemas, closed: what perfci itself writes has no field that they do not name."""

import functools
import json
from typing import Any

import jsonschema

from tests.schemas import ANSWER, PACKAGED, SCHEMAS, schema

PUBLISHED = tuple(
    f"{name}.schema.json" for name in ("run", "baseline", "history", "launches", "plan", "round", "answer")
)


@functools.cache
def published(name: str) -> dict[str, Any]:
    """As it is on the site of the docs."""
    if name in SCHEMAS:
        return json.loads(json.dumps(schema(SCHEMAS[name])))
    return json.loads((ANSWER if name == ANSWER.name else PACKAGED / name).read_text(encoding="utf-8"))


def faults(document: Any, name: str, *, closed: bool = True) -> list[str]:
    """What in a document does not fit, with its place."""
    return [f"{error.json_path}: {error.message[:200]}" for error in _validator(name, closed).iter_errors(document)]


@functools.cache
def _validator(name: str, closed: bool) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(_closed(published(name)) if closed else published(name))


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: value if key in {"default", "description"} else _closed(value) for key, value in schema.items()}
    named = isinstance(schema.get("properties"), dict) and schema.get("type") == "object"
    return {**inner, "additionalProperties": False} if named else inner
