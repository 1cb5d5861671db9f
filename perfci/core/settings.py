"""Where a project keeps its things: the project's root, and the `[tool.perfci]` table of its pyproject.toml."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfci.core.errors import UsageError
from perfci.core.model import board_key
from perfci.core.wording import LANGUAGES, say

FILE = "pyproject.toml"

LONGEST_S = 7 * 24 * 3600.0
"""More than any step of a worker may take."""

ONE, ALL = "one", "all"
"""Of the devices of a host."""

SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "PRIVATE")
SECRET_ENDING = "_KEY"


@dataclass(frozen=True)
class Settings:
    """A project's settings; all paths are absolute."""

    root: Path
    kernels: Path
    """folder of op folders"""
    baselines: Path
    thresholds: Path
    reports: Path
    lock_folder: Path | None = None
    """where the device's lock lies; None for the system's folder of temporary files. In a container: a mounted one"""
    lock_wait_s: float = 3600.0
    """how long an op waits for a device that another run holds"""
    time_limit_s: float = 120.0
    """how long a worker may take over one step before it counts as hung"""
    environment: tuple[str, ...] = ()
    """names of further variables that workers may see"""
    fake: Mapping[str, Any] = field(default_factory=dict)
    """`[tool.perfci.fake]`: what the fake device is told to do"""
    targets: tuple[str, ...] = ("sm_90",)
    """what kernels are compiled for where there is no device"""
    cache_folder: Path | None = None
    """where compiled figures are kept; None for the user's folder of caches"""
    devices: str = ONE
    """which of the host's devices are used side by side: one, all, or indexes such as 0,1"""
    language: str = "en"
    """of sentences, tables and reports: one of `perfci.core.wording.LANGUAGES`"""
    quarantine: tuple[str, ...] = ()
    """UUIDs of boards whose results advise, and gate nothing; a merge request is judged by its target's"""
    release_tags: str = "*"
    """pattern of the tags that are releases: * and ? as in a shell"""


FOLDERS = ("kernels", "baselines", "thresholds", "reports")
KEYS = (
    *FOLDERS,
    "lock_folder",
    "lock_wait_s",
    "cache_folder",
    "time_limit_s",
    "environment",
    "targets",
    "fake",
    "language",
    "devices",
    "quarantine",
    "release_tags",
)


def load(start: Path) -> Settings:
    """Settings of the project around a folder.

    Its root is the nearest folder from `start` upwards whose pyproject.toml has a `[tool.perfci]` table, or that has a
    `kernels` folder. Raises UsageError where there is none, and for a table with unknown keys or wrong types.
    """
    for folder in (start.resolve(), *start.resolve().parents):
        table = _table(folder / FILE)
        if table is not None or (folder / "kernels").is_dir():
            return _settings(folder, table or {})
    raise UsageError("no_project", folder=str(start.resolve()))


def at(root: Path) -> Settings:
    """Settings of the project whose root this folder is, or is to become; raises UsageError as `load` does."""
    return _settings(root, _table(root / FILE) or {})


def has_table(folder: Path) -> bool:
    """Whether a folder's pyproject.toml has a `[tool.perfci]` table; raises UsageError as `load` does."""
    return _table(folder / FILE) is not None


def is_secret(name: str) -> bool:
    """Whether a variable of this name may hold a secret: such a one never reaches a worker.

    >>> is_secret("CI_JOB_TOKEN"), is_secret("api_key"), is_secret("PYTHONPATH")
    (True, True, False)
    """
    upper = name.upper()
    return upper.endswith(SECRET_ENDING) or any(word in upper for word in SECRET_WORDS)


def are_devices(text: str) -> bool:
    """Whether a text chooses among the devices of a host.

    >>> are_devices("all"), are_devices("0,1"), are_devices("0;1"), are_devices("")
    (True, True, False, False)
    """
    return text in {ONE, ALL} or re.fullmatch(r"\d{1,4}(,\d{1,4})*", text, re.ASCII) is not None


def _table(path: Path) -> dict[str, Any] | None:
    """The `[tool.perfci]` table; None where the file has none, or does not exist."""
    import tomllib  # not for `perfci --help`

    try:
        tool = tomllib.loads(path.read_text(encoding="utf-8")).get("tool", {})
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError("settings_unreadable", path=str(path), why=error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or nested without end
        raise UsageError("settings_damaged", path=str(path), why=str(error)) from error
    table = tool.get("perfci") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError("setting_type", path=str(path), key="tool.perfci", wanted=say("a table"), found=_found(table))
    return table


def _settings(root: Path, table: Mapping[str, Any]) -> Settings:
    path = root / FILE
    _refuse_unknown(path, table)
    reader = _Reader(path, table)
    folders = {name: root / reader.text(name, name) for name in FOLDERS}
    lock, cache = reader.text("lock_folder", ""), reader.text("cache_folder", "")
    return Settings(
        root=root,
        **folders,
        lock_folder=root / lock if lock else None,
        lock_wait_s=reader.seconds("lock_wait_s", Settings.lock_wait_s),
        time_limit_s=reader.seconds("time_limit_s", Settings.time_limit_s),
        environment=reader.names("environment"),
        fake=reader.table("fake"),
        targets=reader.targets("targets", Settings.targets),
        cache_folder=root / cache if cache else None,
        language=reader.language("language"),
        devices=reader.devices("devices"),
        quarantine=reader.boards("quarantine"),
        release_tags=reader.tags("release_tags"),
    )


def _refuse_unknown(path: Path, table: Mapping[str, Any]) -> None:
    unknown = next((key for key in table if key not in KEYS), None)
    if unknown is None:
        return
    close = difflib.get_close_matches(unknown, KEYS, n=1)
    if close:
        raise UsageError("setting_misspelt", path=str(path), key=unknown, guess=close[0])
    raise UsageError("setting_not_known", path=str(path), key=unknown, known=", ".join(KEYS))


@dataclass(frozen=True)
class _Reader:
    """Typed look-ups in the table; each raises UsageError naming file and key for a value of another type."""

    path: Path
    values: Mapping[str, Any]

    def text(self, key: str, default: str) -> str:
        value = self.values.get(key, default)
        return value if isinstance(value, str) and "\0" not in value else self._refuse(key, say("a path in quotes"))

    def seconds(self, key: str, default: float) -> float:
        value = self.values.get(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 < value <= LONGEST_S:
            self._refuse(key, say("a number of seconds above 0 and up to a week"))
        return float(value)

    def names(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            self._refuse(key, say("a list of variable names in quotes"))
        secret = next((name for name in value if is_secret(name)), None)
        if secret:
            raise UsageError("setting_secret", path=str(self.path), key=key, name=secret)
        return tuple(value)

    def boards(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(board, str) and board_key(board) for board in value):
            uuid = '["GPU-1d0b2a77-91f0-4c3e-8d52-0a6c7d0e9a4b"]'
            self._refuse(key, say("a list of UUIDs of boards in quotes, such as {uuid}", uuid=uuid))
        return tuple({board_key(board): board.strip() for board in value}.values())

    def targets(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value = self.values.get(key, list(default))
        if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
            self._refuse(key, say('a list of targets in quotes, such as ["sm_90"]'))
        return tuple(value)

    def language(self, key: str) -> str:
        value = self.text(key, Settings.language)
        return (
            value
            if value in LANGUAGES
            else str(self._refuse(key, say("one of {known} in quotes", known=", ".join(LANGUAGES))))
        )

    def tags(self, key: str) -> str:
        value = self.values.get(key, Settings.release_tags)
        if not isinstance(value, str) or not value or value.startswith("-") or "\0" in value:
            self._refuse(key, say('a pattern of tag names in quotes, such as "v*"'))
        return str(value)

    def devices(self, key: str) -> str:
        value = self.values.get(key, Settings.devices)
        if isinstance(value, list) and value and all(type(index) is int and index >= 0 for index in value):
            return ",".join(map(str, value))
        known = isinstance(value, str) and are_devices(value)
        return str(value) if known else str(self._refuse(key, say('"one", "all" or a list of indexes such as [0, 1]')))

    def table(self, key: str) -> Mapping[str, Any]:
        value = self.values.get(key, {})
        return value if isinstance(value, dict) else self._refuse(key, say("a table [tool.perfci.{key}]", key=key))

    def _refuse(self, key: str, wanted: str) -> Any:
        raise UsageError("setting_type", path=str(self.path), key=key, wanted=wanted, found=_found(self.values[key]))


def _found(value: Any) -> str:
    return f"{value!r} ({type(value).__name__})"
