"""The files that tuning reads and writes: an op's tuned file, and `kernels/_devices/<key>.json` of each device."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfci.core.errors import StoredFileError, UsageError
from perfci.core.wording import say
from perfci.lab.tune.records import Regime, nest
from perfci.lab.tune.search import Choice

ABOUT = "First entry that fits a call: NAME_max holds up to a number, a list any of its values, else equal."

FOLDER = "_devices"
GENERIC = "generic"
"""Key of every device without a description."""


@dataclass(frozen=True)
class TunedFile:
    """A tuned file as it was read. Without entries if there is none."""

    path: Path
    text: str = ""
    about: str = ABOUT
    entries: tuple[Mapping[str, Any], ...] = ()

    @property
    def digest(self) -> str:
        """Of its text, empty if there is no file."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12] if self.text else ""


def read_tuned(path: Path) -> TunedFile:
    """Reads the file. Raises StoredFileError if it is damaged."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = json.loads(text)
        entries = tree["configs"]
        sound = isinstance(entries, list) and all(isinstance(each["config"], dict) for each in entries)
    except FileNotFoundError:
        return TunedFile(path)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoredFileError("tune_file_damaged", path=str(path), why=str(error)) from error
    if not sound:
        raise StoredFileError("tune_file_damaged", path=str(path), why=say("configs has to be a list of entries"))
    return TunedFile(path, text, str(tree.get("about", ABOUT)), tuple(entries))


def change_tuned(
    file: TunedFile, regimes: Sequence[Regime], choices: Sequence[Choice], about: str | None = None
) -> str:
    """The file's text with the choices, one entry a line. Its own text if nothing was chosen.

    Of entries with the same bounds the first is replaced. Those behind it serve the calls that it cannot.
    """
    wanted = {choice.regime.label: choice.config for choice in choices if choice.changed}
    if not wanted:
        return file.text
    entries: list[Mapping[str, Any]] = []
    for place, regime in enumerate(regimes):
        config = wanted.pop(regime.label, None)
        if config is not None:
            entries.append({**regime.when, "config": nest(config)})
        elif place < len(file.entries):
            entries.append(file.entries[place])
        elif regime.current is not None:  # of the device that this one varies
            entries.append({**regime.when, "config": nest(regime.current)})
    lines = ",\n".join(f"    {json.dumps(entry)}" for entry in entries)
    return f'{{\n  "about": {json.dumps(about or file.about)},\n  "configs": [\n{lines}\n  ]\n}}\n'


@dataclass(frozen=True)
class Description:
    """One device's numbers, each with its source."""

    key: str
    values: Mapping[str, Any]
    sources: Mapping[str, str]

    @property
    def numbers(self) -> dict[str, Any]:
        """The values that a rule may name."""
        return {name: value for name, value in self.values.items() if isinstance(value, int | float)}


def read_description(kernels: Path, name: str) -> Description:
    """The description of this name. Raises UsageError if there is none, StoredFileError if it is damaged."""
    folder = kernels / FOLDER
    known = sorted(path.stem for path in folder.glob("*.json"))
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        if close:
            raise UsageError("device_spec_misspelt", spec=name, guess=close[0])
        raise UsageError("device_spec_unknown", spec=name, known=", ".join(known) or "none", folder=str(folder))
    return _read(folder / f"{name}.json")


def read_numbers(kernels: Path, key: str) -> Mapping[str, Any]:
    """Numbers of the device with this key, for rules. Empty if it has no description."""
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
