"""An op's tuned file: read, changed entry by entry, written as it is laid out, one entry a line."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfci.core.errors import StoredFileError
from perfci.core.wording import say
from perfci.lab.tune.records import Regime, nested
from perfci.lab.tune.search import Choice

ABOUT = "First entry that fits a call: NAME_max holds up to a number, a list any of its values, else equal."


@dataclass(frozen=True)
class TunedFile:
    """A tuned file as it was read; without entries where there is none."""

    path: Path
    text: str = ""
    about: str = ABOUT
    entries: tuple[Mapping[str, Any], ...] = ()

    @property
    def digest(self) -> str:
        """Of its text; empty where there is no file."""
        return hashlib.sha256(self.text.encode()).hexdigest()[:12] if self.text else ""


def read_tuned(path: Path) -> TunedFile:
    """The file; raises StoredFileError for a damaged one."""
    try:
        text = path.read_text(encoding="utf-8")
        tree = json.loads(text)
        entries = tree["configs"]
        sound = isinstance(entries, list) and all(
            isinstance(entry, dict) and isinstance(entry.get("config"), dict) for entry in entries
        )
    except FileNotFoundError:
        return TunedFile(path)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoredFileError("tune_file_damaged", path=str(path), why=str(error)) from error
    if not sound:
        raise StoredFileError("tune_file_damaged", path=str(path), why=say("configs has to be a list of entries"))
    return TunedFile(path, text, str(tree.get("about", ABOUT)), tuple(entries))


def changed(file: TunedFile, regimes: Sequence[Regime], choices: Sequence[Choice], about: str | None = None) -> str:
    """The file's text with what was chosen; its own text where nothing was.

    Of entries with the same bounds the first is replaced. Those behind it serve the calls that it cannot.
    """
    wanted = {choice.regime.label: choice.config for choice in choices if choice.changed}
    if not wanted:
        return file.text
    entries: list[Mapping[str, Any]] = []
    for place, regime in enumerate(regimes):
        config = wanted.pop(regime.label, None)
        if config is not None:
            entries.append({**regime.when, "config": nested(config)})
        elif place < len(file.entries):
            entries.append(file.entries[place])
        elif regime.current is not None:  # of the device that this one varies
            entries.append({**regime.when, "config": nested(regime.current)})
    return _text(about or file.about, entries)


def diff(file: TunedFile, text: str, name: str) -> list[str]:
    """Lines of a unified diff between the file and its new text."""
    old, new = file.text.splitlines(), text.splitlines()
    return list(difflib.unified_diff(old, new, name if old else "nothing", name, lineterm="", n=1))


def _text(about: str, entries: Sequence[Mapping[str, Any]]) -> str:
    lines = ",\n".join(f"    {json.dumps(entry)}" for entry in entries)
    return f'{{\n  "about": {json.dumps(about)},\n  "configs": [\n{lines}\n  ]\n}}\n'
