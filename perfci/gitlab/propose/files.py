"""What another job left in the folders of baselines and thresholds, read as data: nothing of it is run or believed.

Regular files only, with the names that perfci gives, of bounded size. What is changed is read by perfci's own readers
before anything of it is proposed.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from perfci import store
from perfci.core.errors import StoredFileError, UsageError
from perfci.core.settings import Settings
from perfci.store.history import ENDING, read_history
from perfci.thresholds.earned import read_file
from perfci.thresholds.read import load

MOST_BYTES = 16 << 20
"""Of one file."""

MOST_CHANGED_BYTES = 48 << 20
"""Of all changed files together: they go into one request."""

MOST_FILES = 20_000

_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,99}"
_BASELINES = re.compile(rf"(?P<device>{_NAME})/(?P<op>{_NAME}?)(?P<ending>{re.escape(ENDING)}|\.json)")
_THRESHOLDS = re.compile(rf"(?:(?P<device>{_NAME})/)?(?P<op>{_NAME})(?P<ending>\.yaml)")


class Kind(StrEnum):
    """What a file holds."""

    BASELINE = "baseline"
    HISTORY = "history"
    THRESHOLDS = "thresholds"
    OTHER = "other"
    """nothing that perfci writes"""


@dataclass(frozen=True)
class File:
    """A file as the other job left it."""

    path: str
    """in the repository"""
    place: Path
    """here"""
    kind: Kind
    op: str
    device: str
    """key; empty for thresholds that people write"""
    content: bytes

    def blob(self, like: str) -> str:
        """The id that git gives to this content, in a repository whose ids look like this one."""
        return blob_id(self.content, like)


def blob_id(content: bytes, like: str) -> str:
    """The id that git gives to a file's content, in a repository whose ids look like this one.

    >>> blob_id(b"", "0" * 40)
    'e69de29bb2d1d6434b8b29ae775ad8c2e48c5391'
    """
    digest = hashlib.sha256 if len(like) == 64 else hashlib.sha1
    return digest(b"blob %d\0" % len(content) + content).hexdigest()


def folders(settings: Settings, prefix: str) -> dict[str, str]:
    """Baselines and thresholds -> where they lie in the repository. Raises UsageError for one that lies outside."""
    found = {}
    for name, folder in (("baselines", settings.baselines), ("thresholds", settings.thresholds)):
        if not folder.is_relative_to(settings.root):
            raise UsageError("propose_outside", folder=str(folder), name=name)
        found[name] = prefix + folder.relative_to(settings.root).as_posix()
    return found


def read(source: Path, settings: Settings, prefix: str) -> tuple[File, ...]:
    """All files of the two folders below `source`, by path.

    Raises UsageError for a folder that is not there, and for what is no regular file, or too large, or too many.
    """
    found: list[File] = []
    here = [settings.baselines, settings.thresholds]
    inner = [folder.relative_to(settings.root) for folder in here if folder.is_relative_to(settings.root)]
    if not any((source / each).is_dir() for each in inner):
        raise UsageError("propose_nothing_there", folder=str(source), names=", ".join(map(str, inner)))
    for each, pattern in zip(inner, (_BASELINES, _THRESHOLDS), strict=True):
        _refuse_links(source, each)
        for path in _walk(source / each):
            name = path.relative_to(source / each).as_posix()
            found.append(_file(f"{prefix}{each.as_posix()}/{name}", path, pattern.fullmatch(name)))
            if len(found) > MOST_FILES:
                raise UsageError("propose_too_many", folder=str(source / each), most=MOST_FILES)
    return tuple(sorted(found, key=lambda file: file.path))


def _refuse_links(source: Path, inner: Path) -> None:
    """Nor may a folder on the way be a link elsewhere."""
    for part in (inner, *inner.parents):
        if (source / part).is_symlink() and part != Path():
            raise UsageError("propose_not_regular", path=str(source / part))


def _walk(folder: Path) -> Iterator[Path]:
    for where, names, files in os.walk(folder, followlinks=False):
        names.sort()
        for name in (*names, *files):
            path = Path(where, name)
            mode = path.lstat().st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise UsageError("propose_not_regular", path=str(path))
            if stat.S_ISREG(mode):
                yield path


def _file(path: str, place: Path, name: re.Match[str] | None) -> File:
    size = place.lstat().st_size
    if size > MOST_BYTES:
        raise UsageError("propose_too_large", path=str(place), size=size, most=MOST_BYTES)
    content = place.read_bytes()
    if name is None:
        return File(path, place, Kind.OTHER, "", "", content)
    known = {ENDING: Kind.HISTORY, ".json": Kind.BASELINE, ".yaml": Kind.THRESHOLDS}
    groups = name.groupdict()
    return File(path, place, known[groups["ending"]], groups["op"], groups.get("device") or "", content)


def check(changed: Sequence[File]) -> None:
    """Read the changed files by perfci's own readers.

    Raises UsageError for a file that perfci does not write, and StoredFileError for one that it cannot read.
    """
    if sum(len(file.content) for file in changed) > MOST_CHANGED_BYTES:
        total = sum(len(file.content) for file in changed)
        raise UsageError("propose_too_large", path=str(changed[0].place.parent), size=total, most=MOST_CHANGED_BYTES)
    for file in changed:
        if file.kind is Kind.OTHER:
            raise UsageError("propose_other_file", path=file.path)
        if file.kind is Kind.BASELINE:
            store.read_baseline(file.place)
        if file.kind is Kind.HISTORY:
            _check_history(file)
        if file.kind is Kind.THRESHOLDS and file.device:
            read_file(file.place, file.op, file.device)
    for folder in _written(changed):
        load(folder)


def _written(changed: Iterable[File]) -> Iterable[Path]:
    """Folders of changed thresholds that people write."""
    mine = (file for file in changed if file.kind is Kind.THRESHOLDS and not file.device)
    return dict.fromkeys(file.place.parent for file in mine)


def _check_history(file: File) -> None:
    found = read_history(file.place.parents[1], file.device, file.op, follow=False)
    if found.problems:
        raise StoredFileError(found.problems[0].kind, **found.problems[0].facts)
