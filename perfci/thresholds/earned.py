"""Values that accepted runs have earned: `<device key>/<op>.json` in a thresholds folder, written by perfci."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from perfci.core.errors import StoredFileError
from perfci.core.files import read_regular
from perfci.core.model import FORMAT, Environment
from perfci.store.files import decode, encode
from perfci.thresholds.layers import ALPHA, Earned
from perfci.thresholds.read import NUMBERS
from perfci.thresholds.write import write_value

KEYS = tuple(key for key in NUMBERS if key != ALPHA)  # thresholds that a case can have earned


@dataclass(frozen=True)
class EarnedFile:
    """One op's earned values on one device model."""

    op: str
    device: str  # key
    path: Path
    values: tuple[Earned, ...] = ()
    environment: Environment | None = None  # in which all of them were learnt. None if there is no file
    content: bytes | None = None  # of the file when it was read. None: there is none

    def by_case(self) -> Mapping[str, Mapping[str, float]]:
        """Case id -> key -> value."""
        by_case: dict[str, dict[str, float]] = {}
        for value in self.values:
            by_case.setdefault(value.case, {})[value.key] = value.value
        return by_case


@dataclass(frozen=True)
class _EarnedFile:
    """Such a file."""

    environment: Environment  # without board, host and commit, which others may have
    earned: tuple[Earned, ...]
    format: int = FORMAT


def read_earned(folder: Path, device: str) -> dict[str, EarnedFile]:
    """Earned values of a device in a thresholds folder, by op. Raises StoredFileError for what is not understood."""
    paths = sorted((folder / device).glob("*.json")) if device and Path(device).name == device else ()
    return {path.stem: read_file(path, path.stem, device) for path in paths if not path.name.startswith(".")}


def read_file(path: Path, op: str, device: str) -> EarnedFile:
    """The earned values of one file. None if there is no file. Raises StoredFileError."""
    if not path.exists() and not path.is_symlink():
        return EarnedFile(op, device, path)
    stored, seen = decode(path, _EarnedFile), set[tuple[str, str]]()
    for number, value in enumerate(stored.earned):
        place = {"path": str(path), "place": f"$.earned[{number}]"}
        if value.key not in KEYS or write_value(value.key, value.value) is None:
            raise StoredFileError("file_unexpected", found=f"{value.key} {value.value}", **place)
        if (value.case, value.key) in seen:
            raise StoredFileError("file_unexpected", found=f"{value.key} {value.case}, twice", **place)
        seen.add((value.case, value.key))
    return EarnedFile(op, device, path, stored.earned, stored.environment, read_regular(path))


def write_earned(file: EarnedFile, environment: Environment, values: Iterable[Earned]) -> bytes:
    """The file with these values and no others. Raises StoredFileError for a value that no file can hold."""
    device = replace(environment.device, uuid=None)
    where = replace(environment, device=device, host="", system="", commit=None, dirty=False, branch=None)
    return encode(_EarnedFile(where, tuple(values)), file.path)
