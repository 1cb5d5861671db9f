"""The published JSON Schemas of run.json and of the baseline files, generated from the records themselves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from perfci.model import Baseline, Run
from perfci.store.files import write_atomically

SCHEMAS: dict[str, type] = {"run.schema.json": Run, "baseline.schema.json": Baseline}
"""File name -> the record that it describes."""

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema(kind: type) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a record's file. `format` is required: it comes first when a file is read."""
    found = msgspec.json.schema(kind)
    top = found["$defs"][kind.__name__]
    top["required"] = sorted({*top["required"], "format"})
    return {"$schema": DIALECT, **found}


def write_schemas(folder: Path) -> tuple[Path, ...]:
    """Write every published schema. Maintenance: run it after a change of the records, beside `model.FORMAT`."""
    return tuple(write_atomically(folder / name, _text(kind)) for name, kind in SCHEMAS.items())


def _text(kind: type) -> bytes:
    return (json.dumps(schema(kind), indent=1, sort_keys=True) + "\n").encode()
