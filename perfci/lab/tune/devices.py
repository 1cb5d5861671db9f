"""Device descriptions, `kernels/_devices/<key>.json`: each number with its source."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfci.core.errors import StoredFileError, UsageError

FOLDER = "_devices"
GENERIC = "generic"


@dataclass(frozen=True)
class Description:
    """One device's numbers."""

    key: str
    values: Mapping[str, Any]
    sources: Mapping[str, str]

    @property
    def numbers(self) -> dict[str, Any]:
        """What a rule may name."""
        return {name: value for name, value in self.values.items() if isinstance(value, int | float)}


def described(kernels: Path, name: str) -> Description:
    """The description of this name; raises UsageError for one that there is not, StoredFileError for a damaged one."""
    folder = kernels / FOLDER
    known = sorted(path.stem for path in folder.glob("*.json"))
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        if close:
            raise UsageError("device_spec_misspelt", spec=name, guess=close[0])
        raise UsageError("device_spec_unknown", spec=name, known=", ".join(known) or "none", folder=str(folder))
    return _read(folder / f"{name}.json")


def describing(kernels: Path, key: str) -> Mapping[str, Any]:
    """Numbers of the device with this key, for rules; none where it has no description."""
    folder = kernels / FOLDER
    fitting = [path for path in folder.glob("*.json") if f"{key}-".startswith(f"{path.stem}-")]
    path = max(fitting, key=lambda each: len(each.stem), default=folder / f"{GENERIC}.json")
    return _read(path).numbers if path.is_file() else {}


def _read(path: Path) -> Description:
    try:
        tree = json.loads(path.read_bytes())
        values = {name: field["value"] for name, field in tree.items()}
        sources = {name: str(field["source"]) for name, field in tree.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoredFileError("device_spec_damaged", path=str(path), why=str(error) or type(error).__name__) from error
    return Description(path.stem, values, sources)
