"""Where a project keeps its things: the project's root, and the `[tool.perfci]` table of its pyproject.toml."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perfci.core.errors import UsageError
from perfci.core.model import board_key
from perfci.core.wording import LANGUAGES, as_fact

FILE = "pyproject.toml"

LONGEST_S = 7 * 24 * 3600.0
"""More than any step of a worker may take."""

ONE, ALL = "one", "all"
"""Of the devices of a host."""

SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "PRIVATE")
SECRET_ENDING = "_KEY"


@dataclass(frozen=True)
class Settings:
    """A project's settings. All paths are absolute."""

    root: Path
    kernels: Path
    """folder of op folders"""
    baselines: Path
    thresholds: Path
    reports: Path
    lock_folder: Path | None = None
    """folder of the device's lock. None for the system's temporary files. In a container: a mounted one"""
    lock_wait_s: float = 3600.0
    """how long an op waits for a device that another run holds"""
    time_limit_s: float = 120.0
    """how long a worker may take for one step before it counts as hung"""
    environment: tuple[str, ...] = ()
    """names of further variables that workers may see"""
    fake: Mapping[str, Any] = field(default_factory=dict)
    """`[tool.perfci.fake]`: how the fake device behaves"""
    targets: tuple[str, ...] = ("sm_90",)
    """what kernels are compiled for without a device"""
    cache_folder: Path | None = None
    """folder of compiled figures. None for the user's cache folder"""
    devices: str = ONE
    """which of the host's devices are used side by side: one, all, or indexes such as 0,1"""
    language: str = "en"
    """of sentences, tables and reports: one of `perfci.core.wording.LANGUAGES`"""
    quarantine: tuple[str, ...] = ()
    """UUIDs of boards whose results never fail a gate. A merge request is judged by its target's list."""
    release_tags: str = "*"
    """pattern of the tags that are releases: * and ? as in a shell"""


FOLDERS = ("kernels", "baselines", "thresholds", "reports")


def _is_list(value: Any, fits: Callable[[Any], bool] = lambda each: isinstance(each, str)) -> bool:
    return isinstance(value, list) and all(map(fits, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and "\0" not in value


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= LONGEST_S


def _is_index(value: Any) -> bool:
    return type(value) is int and value >= 0


_PATH = (_is_text, as_fact("a path in quotes"))
_TIME = (_is_time, as_fact("a number of seconds above 0 and up to a week"))
KEYS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(FOLDERS, _PATH),
    "lock_folder": _PATH,
    "lock_wait_s": _TIME,
    "cache_folder": _PATH,
    "time_limit_s": _TIME,
    "environment": (_is_list, as_fact("a list of variable names in quotes")),
    "targets": (
        lambda value: _is_list(value) and bool(value),
        as_fact('a list of targets in quotes, such as ["sm_90"]'),
    ),
    "fake": (lambda value: isinstance(value, dict), as_fact("a table [tool.perfci.fake]")),
    "language": (lambda value: value in LANGUAGES, as_fact("one of en, zh in quotes")),
    "devices": (
        lambda value: are_devices(value) if isinstance(value, str) else bool(value) and _is_list(value, _is_index),
        as_fact('"one", "all" or a list of indexes such as [0, 1]'),
    ),
    "quarantine": (
        lambda value: _is_list(value, lambda each: isinstance(each, str) and bool(board_key(each))),
        as_fact('a list of UUIDs of boards in quotes, such as ["GPU-1d0b2a77-91f0-4c3e-8d52-0a6c7d0e9a4b"]'),
    ),
    "release_tags": (
        lambda value: _is_text(value) and bool(value) and not value.startswith("-"),
        as_fact('a pattern of tag names in quotes, such as "v*"'),
    ),
}
"""Key -> whether a value is valid, and what it has to be."""


def load(start: Path) -> Settings:
    """Returns the settings of the project around a folder.

    Its root is the nearest folder from `start` upwards whose pyproject.toml has a `[tool.perfci]` table, or that has a
    `kernels` folder. Raises UsageError if there is none, and for a table with unknown keys or wrong types.
    """
    for folder in (start.resolve(), *start.resolve().parents):
        table = _table(folder / FILE)
        if table is not None or (folder / "kernels").is_dir():
            return _settings(folder, table or {})
    raise UsageError("no_project", folder=str(start.resolve()))


def at(root: Path) -> Settings:
    """Returns the settings of the project whose root this folder is or becomes. Raises UsageError as `load` does."""
    return _settings(root, _table(root / FILE) or {})


def has_table(folder: Path) -> bool:
    """Returns whether a folder's pyproject.toml has a `[tool.perfci]` table. Raises UsageError as `load` does."""
    return _table(folder / FILE) is not None


def is_secret(name: str) -> bool:
    """Returns whether a variable of this name may hold a secret. Secrets never reach a worker.

    >>> is_secret("CI_JOB_TOKEN"), is_secret("api_key"), is_secret("PYTHONPATH")
    (True, True, False)
    """
    upper = name.upper()
    return upper.endswith(SECRET_ENDING) or any(word in upper for word in SECRET_WORDS)


def are_devices(text: str) -> bool:
    """Returns whether a text chooses among the devices of a host.

    >>> are_devices("all"), are_devices("0,1"), are_devices("0;1"), are_devices("")
    (True, True, False, False)
    """
    return text in {ONE, ALL} or re.fullmatch(r"\d{1,4}(,\d{1,4})*", text, re.ASCII) is not None


def _table(path: Path) -> dict[str, Any] | None:
    """Returns the `[tool.perfci]` table. None if the file has none or does not exist."""
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
        raise UsageError(
            "setting_type", path=str(path), key="tool.perfci", wanted=as_fact("a table"), found=_type_of(table)
        )
    return table


def _settings(root: Path, table: Mapping[str, Any]) -> Settings:
    path = str(root / FILE)
    for key, value in table.items():
        if key not in KEYS:
            if close := difflib.get_close_matches(key, KEYS, n=1):
                raise UsageError("setting_misspelt", path=path, key=key, guess=close[0])
            raise UsageError("setting_not_known", path=path, key=key, known=", ".join(KEYS))
        fits, wanted = KEYS[key]
        if not fits(value):
            raise UsageError("setting_type", path=path, key=key, wanted=wanted, found=_type_of(value))
    for name in table.get("environment", ()):
        if is_secret(name):
            raise UsageError("setting_secret", path=path, key="environment", name=name)

    found = dict(table)
    for name in FOLDERS:
        found[name] = root / found.get(name, name)
    for name in ("lock_folder", "cache_folder"):
        found[name] = root / found[name] if found.get(name) else None
    for name in ("environment", "targets"):
        if name in found:
            found[name] = tuple(found[name])
    if isinstance(found.get("devices"), list):
        found["devices"] = ",".join(map(str, found["devices"]))
    found["quarantine"] = tuple({board_key(board): board.strip() for board in found.get("quarantine", ())}.values())
    return Settings(root=root, **found)


def _type_of(value: Any) -> str:
    return f"{value!r} ({type(value).__name__})"
