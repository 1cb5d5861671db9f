"""The site's folder: names of its pages, and the marker by which perfci knows that it made the folder.

A page's name is made from the device's key or the op's name alone, so that links last as other ops come and go: the
name itself if it is safe everywhere, else what is safe of it with a few digits of its hash. So two names that differ
only by case, which some disks take for one, have two pages.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

from perfci.core.errors import StoredFileError, UsageError
from perfci.report.site.kept import OpOnDevice
from perfci.report.text import file_name
from perfci.store.files import write_atomically

MARKER = ".perfci-site.json"
"""In the folder: which pages are perfci's own, and so may be replaced and taken away."""

INDEX = "index.html"

_SAFE = re.compile(r"[a-z0-9_][a-z0-9_-]{0,59}")
_TAKEN = re.compile(r"con|prn|aux|nul|com\d|lpt\d|index")
"""Names that some systems keep for themselves, and one that a server shows in place of its folder."""

_PAGE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}/[A-Za-z0-9_][A-Za-z0-9_-]{0,79}\.html")


def safe_name(name: str) -> str:
    """A file's or folder's name for an op or device, without ending.

    >>> safe_name("softmax"), safe_name("SoftMax"), safe_name("con")
    ('softmax', 'SoftMax-51f52cf3', 'con-1143da2b')
    """
    if _SAFE.fullmatch(name) and not _TAKEN.fullmatch(name):
        return name
    return f"{file_name(name)}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def name_page(place: OpOnDevice) -> str:
    """Path of a place's page in the site's folder."""
    return f"{safe_name(place.device)}/{safe_name(place.op)}.html"


def claim(folder: Path, pages: Iterable[str]) -> frozenset[str]:
    """Make the folder, or take one that perfci made before. Returns the pages that it has from then.

    From here on the marker names those and the new ones, so that a run that dies midway leaves nothing unknown. Raises
    UsageError for a file, for a folder with anything in it that perfci did not make, and for a damaged marker.
    """
    before, marker = frozenset[str](), folder / MARKER
    if folder.exists() and not folder.is_dir():
        raise UsageError("site_folder_file", path=str(folder))
    if marker.is_file():
        try:
            found = json.loads(marker.read_bytes())["pages"]
            before = frozenset(name for name in found if _PAGE.fullmatch(name))
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise UsageError("site_marker_damaged", path=str(marker)) from error
    elif folder.exists():
        try:
            taken = any(folder.iterdir())
        except OSError as error:
            raise StoredFileError("file_unreadable", path=str(folder), why=error.strerror or str(error)) from error
        if taken:
            raise UsageError("site_folder_taken", folder=str(folder))
    _mark(folder, before | set(pages))
    return before


def finish(folder: Path, before: Iterable[str], pages: Iterable[str]) -> tuple[str, ...]:
    """Remove the pages of ops that are gone, and folders that are empty then. Returns the names of the pages."""
    now = frozenset(pages)
    gone = tuple(sorted(set(before) - now))
    for name in gone:
        with contextlib.suppress(OSError):  # somebody took it away already
            (folder / name).unlink()
        with contextlib.suppress(OSError):  # it holds other pages
            (folder / name).parent.rmdir()
    _mark(folder, now)
    return gone


def put(folder: Path, name: str, page: str) -> Path:
    """Write one page, whole or not at all. Raises StoredFileError."""
    return write_atomically(folder / name, page.encode("utf-8", "replace"))


def _mark(folder: Path, pages: Iterable[str]) -> None:
    text = json.dumps({"pages": sorted(pages)}, indent=1) + "\n"
    write_atomically(folder / MARKER, text.encode())
