"""Where a project keeps its things: the project's root, and the `[tool.perfci]` table of its pyproject.toml."""

import contextlib
import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from perfci.core.errors import UsageError
from perfci.core.files import read_regular
from perfci.core.model import board_key
from perfci.core.variables import is_secret
from perfci.core.wording import say

FILE = "pyproject.toml"
MOST = 1 << 22  # bytes of it

ONE, ALL = "one", "all"  # of the devices of a host
DEVICES = rf"^({ONE}|{ALL}|[0-9]{{1,4}}(,[0-9]{{1,4}})*)\Z"
CLUSTER = r"^ray(://[^\s/@]+:[0-9]{1,5})?\Z"
Program = Annotated[str, Meta(pattern=r"^[^-\s\0][^\0]*\Z")]
Seconds = Annotated[float, Meta(gt=0, le=7 * 24 * 3600.0)]  # no step of a worker may take more than a week


@dataclass(frozen=True)
class Settings:
    """A project's settings. All paths are absolute."""

    root: Path
    kernels: Path  # folder of op folders
    baselines: Path
    thresholds: Path
    reports: Path
    lock_folder: Path | None = None  # folder of the device's lock, mounted in a container. None: for temporary files
    lock_wait_s: Seconds = 3600.0  # how long a run waits for a device or a reports folder that another holds
    time_limit_s: Seconds = 120.0  # how long a worker may take for one step before it counts as hung
    environment: tuple[str, ...] = ()  # names of further variables that workers may see
    fake: Mapping[str, Any] = field(default_factory=dict)  # `[tool.perfci.fake]`: how the fake device behaves
    targets: Annotated[tuple[str, ...], Meta(min_length=1)] = ("sm_90",)  # what is compiled for without a device
    cache_folder: Path | None = None  # folder of compiled figures. None: the user's cache folder
    devices: Annotated[str, Meta(pattern=DEVICES)] = ONE  # devices used side by side: one, all, or indexes such as 0,1
    cluster: Annotated[str, Meta(pattern=CLUSTER)] | None = None  # Ray cluster to check on: ray://HOST:PORT
    language: Literal["en", "zh"] = "en"  # of sentences, tables and reports: en or zh
    quarantine: tuple[Annotated[str, Meta(pattern=r"[^\s-]")], ...] = ()
    """UUIDs of boards whose results never fail a gate. A merge request is judged by its target's list."""
    cleared: tuple[Annotated[str, Meta(pattern=r"[^\s-]")], ...] = ()
    """UUIDs of boards that get work although their runs look sick: they were repaired. Of a merge request, the same."""
    release_tags: Annotated[str, Meta(pattern="^[^-\0][^\0]*$")] = "*"  # tags of releases: * and ? as in a shell
    rounds: Annotated[int, Meta(ge=1, le=1000)] = 5  # how many rounds of one start `perfci try` judges
    backends: Mapping[str, Mapping[Literal["python"], Program]] = field(default_factory=dict)
    """`[tool.perfci.backends.NAME]`: `python`, the interpreter that runs this backend's ops"""

    @property
    def caches(self) -> Path:
        """The folder of what is kept from run to run."""
        home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return self.cache_folder or home / "perfci"


FOLDERS = ("kernels", "baselines", "thresholds", "reports")
GRANTS = ("environment", "lock_folder", "cache_folder", "backends")
"""Settings that give a project's code something, or lead out of the project."""

KEYS = tuple(field.name for field in dataclasses.fields(Settings))[1:]


def load(start: Path) -> Settings:
    """Returns the settings of the nearest folder upwards with a `[tool.perfci]` table or a `kernels` folder.

    Raises UsageError if there is none, and for a table with unknown keys or wrong types.
    """
    for folder in (start.resolve(), *start.resolve().parents):
        table = _read_table(folder / FILE)
        if table is not None or (folder / "kernels").is_dir():
            settings = _make_settings(folder, table or {})
            _refuse_links(settings)
            return settings
    raise UsageError("no_project", folder=str(start.resolve()))


def _refuse_links(settings: Settings) -> None:
    """Raises UsageError for a link among or on the way to the folders of stored files: it may lead into `.git`."""
    for name in ("reports", "baselines", "thresholds", "lock_folder", "cache_folder"):
        folder = getattr(settings, name)
        if folder is None or not folder.is_relative_to(settings.root):
            continue
        inner = folder.relative_to(settings.root)
        way = (settings.root / part for part in (*reversed(inner.parents), inner))
        below = (Path(place, name) for place, folders, _ in os.walk(folder) for name in folders)
        paths = (path for path in (*way, *below) if path != settings.root)
        if link := next((path for path in paths if os.path.islink(path)), None):  # noqa: PTH114 one too long is none
            raise UsageError("folder_linked", path=str(link), name=name)


def at(root: Path) -> Settings:
    """Returns the settings of the project with this folder as its root. Raises UsageError as `load` does."""
    return _make_settings(root, read_table(root))


def take_grants(settings: Settings, data: bytes | None) -> Settings:
    """Returns a project's settings with the GRANTS of another pyproject.toml, as its base has it. None: it has none."""
    granted = _make_settings(settings.root, {})
    with contextlib.suppress(UsageError):
        granted = _make_settings(settings.root, _parse_table(settings.root / FILE, data or b"") or {})
    return dataclasses.replace(settings, **{name: getattr(granted, name) for name in GRANTS})


def read_table(root: Path) -> dict[str, Any]:
    """Returns the `[tool.perfci]` table of a project, empty if it has none. Raises UsageError as `load` does."""
    return _read_table(root / FILE) or {}


def has_table(folder: Path) -> bool:
    """Returns whether a folder's pyproject.toml has a `[tool.perfci]` table. Raises UsageError as `load` does."""
    return _read_table(folder / FILE) is not None


def are_devices(text: str) -> bool:
    """Returns whether a text chooses among the devices of a host.

    >>> are_devices("all"), are_devices("0,1"), are_devices("0;1"), are_devices("")
    (True, True, False, False)
    """
    return re.search(DEVICES, text) is not None


def _read_table(path: Path) -> dict[str, Any] | None:
    """Returns the `[tool.perfci]` table. None if the file has none or does not exist."""
    try:
        data = read_regular(path.resolve(), MOST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UsageError("settings_unreadable", path=str(path), why=error.strerror or str(error)) from error
    return _parse_table(path, data)


def _parse_table(path: Path, data: bytes) -> dict[str, Any] | None:
    import tomllib  # not for `perfci --help`

    try:
        tool = tomllib.loads(data.decode()).get("tool", {})
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, or nested without end
        raise UsageError("settings_damaged", path=str(path), why=str(error)) from error
    table = tool.get("perfci") if isinstance(tool, dict) else None
    if table is not None and not isinstance(table, dict):
        raise UsageError("setting_type", path=str(path), key="perfci", problem=f"{table!r} is no table")
    return table


def _make_settings(root: Path, table: Mapping[str, Any]) -> Settings:
    path, given = str(root / FILE), {"root": "", **{name: name for name in FOLDERS}, **table}
    for key in table:
        if key not in KEYS:
            raise UsageError("setting_not_known", path=path, key=key, known=", ".join(KEYS))
    if isinstance(given.get("devices"), list):
        given["devices"] = ",".join(map(str, given["devices"]))

    def resolve(_: type, value: Any) -> Path | None:
        if not isinstance(value, str) or "\0" in value:
            raise TypeError(f"{value!r} is no path in quotes")
        return root / value

    for name in ("lock_folder", "cache_folder"):
        given[name] = given.get(name) or None
    try:
        settings = msgspec.convert(given, Settings, dec_hook=resolve)
    except msgspec.ValidationError as error:
        problem, _, place = str(error).partition(" - at ")
        key = "".join(re.findall(r"\$\.(\w+)", place))
        raise UsageError("setting_type", path=path, key=key, problem=f"{problem} ({table.get(key)!r})") from error
    for name in FOLDERS[1:]:  # which perfci writes into
        folder = Path(os.path.normpath(getattr(settings, name)))
        inner = folder.relative_to(root).parts if folder.is_relative_to(root) else ()
        if not inner or ".git" in inner:
            problem = say("{folder} is no folder of the project", folder=str(folder))
            raise UsageError("setting_type", path=path, key=name, problem=problem)
    for name in settings.environment:
        if is_secret(name):
            raise UsageError("setting_secret", path=path, key="environment", name=name)
    quarantine, cleared = (
        tuple({board_key(board): board.strip() for board in boards}.values())
        for boards in (settings.quarantine, settings.cleared)
    )
    return dataclasses.replace(settings, quarantine=quarantine, cleared=cleared)
