"""What commands ask of a cluster: which one, commands of perfci that its boards run, and the answers."""

import io
import shutil
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfci.core.settings import Settings
from perfci.core.temporary import temporary_folder

HERE = "here"  # in the place of an address: no cluster


@dataclass(frozen=True)
class NodeCommand:
    """A command of perfci for one board of a cluster."""

    words: Sequence[str]
    given: Mapping[Path, bytes] = field(default_factory=dict)  # files that it finds beside those of the work tree
    kept: Sequence[Path] = ()  # files and folders that come back


@dataclass(frozen=True)
class NodeAnswer:
    """What came of it."""

    code: int
    why: str  # the last line of its errors
    out: str
    packed: bytes  # an archive of what is kept


def choose_cluster(on: str | None, settings: Settings) -> str | None:
    """The cluster that --on names, or the project's. None if there is none, or if --on says so."""
    return None if on == HERE else on or settings.cluster


def unpack(packed: bytes, places: Sequence[Path]) -> None:
    """Put the files and folders that a command kept into their places, but for those that are missing."""
    with temporary_folder("cluster") as folder, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
        for number, place in enumerate(places):
            if (found := folder / str(number)).is_dir():
                shutil.copytree(found, place, dirs_exist_ok=True)
            elif found.is_file():
                shutil.copyfile(found, place)
