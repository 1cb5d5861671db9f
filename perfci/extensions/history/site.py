"""A static site over the kept history, in git or in a store: an index, and a page an op and device with its trends.

Links are relative, so that the site works from a disk and below any address. Histories are read one at a time, since
all of them would not fit into memory.
"""

from __future__ import annotations

import contextlib
import tomllib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfci.core.errors import UsageError
from perfci.core.files import open_regular, read_regular
from perfci.core.model import Reason
from perfci.core.settings import MOST
from perfci.core.wording import say, sentence
from perfci.extensions.common.history import history_devices, history_ops
from perfci.extensions.history.site_op import (
    INDEX,
    Entry,
    OpOnDevice,
    count_states,
    read_kept,
    render_op,
    render_page,
)  # fmt: skip
from perfci.report.text import NAME_LIMIT, plain
from perfci.store.files import write_atomically

if TYPE_CHECKING:
    from perfci.extensions.history.database import HistoryStore

MARKED = 1000  # bytes at the beginning of a page that have the mark of perfci's own


@dataclass(frozen=True)
class Built:
    """The files that were written."""

    index: Path
    pages: tuple[str, ...]  # names below the folder
    gone: tuple[str, ...]  # pages that were removed, since what they showed is gone
    notes: tuple[Reason, ...]  # warnings: histories that could not be read as a whole, or that there is none


def build(baselines: Path, root: Path, folder: Path, store: HistoryStore | None = None) -> Built:
    """Write the site over the histories in the baselines folder of the project at `root`, damaged ones marked as such.

    store: read in place of the baselines. Raises UsageError if `folder` holds anything that perfci did not make,
    StoredFileError if it cannot be written.
    """
    ops = store.list_ops() if store else {key: history_ops(baselines, key) for key in history_devices(baselines)}
    places = sorted(OpOnDevice(device, op) for device in ops for op in ops[device])
    project = root.name  # unless it has a name of its own
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        project = str(tomllib.loads(read_regular(root / "pyproject.toml", MOST).decode())["project"]["name"])
    shown = baselines.relative_to(root) if baselines.is_relative_to(root) else baselines
    notes = [] if places else [Reason("site_without_history", {"folder": shown.as_posix()})]
    warnings, entries = list(notes), list[Entry]()
    names = [place.page for place in places]
    claim_folder(folder)
    for place in places:
        record = read_kept(baselines, place, root, store)
        page, entry = render_op(record, [other for other in places if other.op == place.op and other != place], project)
        write_atomically(folder / place.page, page.encode("utf-8", "replace"))
        entries.append(entry)
        warnings += record.problems if record.damaged else ()
    index = render_index(entries, project, notes)  # last, as it leads to all others
    path = write_atomically(folder / INDEX, index.encode("utf-8", "replace"))
    return Built(path, tuple(names), remove_pages(folder, names), tuple(warnings))


def render_index(entries: Sequence[Entry], project: str, notes: Sequence[Reason] = ()) -> str:
    """The index: a table of ops and devices, the gravest first."""
    return render_page(
        "site_index.html.j2",
        title=say("{project}: kernels over time", project=plain(project, 80)),
        project=plain(project, NAME_LIMIT),
        plain=plain,
        entries=sorted(entries, key=lambda one: (one.state.rank, one.place)),
        devices=[plain(device, NAME_LIMIT) for device in sorted({one.place.device for one in entries})],
        notes=[plain(sentence(note)) for note in notes],
        chips=count_states([one.state for one in entries]),
    )


# --- the folder -------------------------------------------------------------------------------------------------------


def claim_folder(folder: Path) -> None:
    """Raises UsageError for a file, and for a folder with anything in it but no page of perfci's site."""
    if folder.exists() and not folder.is_dir():
        raise UsageError("site_folder_file", path=str(folder))
    is_ours = map(is_own, (folder / INDEX, *folder.glob("*/*.html")))
    if folder.exists() and any(folder.iterdir()) and not any(is_ours):
        raise UsageError("site_folder_taken", folder=str(folder))


def is_own(path: Path) -> bool:
    """Whether a file is a page of such a site, which `frame.html.j2` marks."""
    with contextlib.suppress(OSError), open_regular(path) as file:
        return b'content="perfci site_' in file.read(MARKED)
    return False


def remove_pages(folder: Path, pages: Collection[str]) -> tuple[str, ...]:
    """Remove the pages of ops that are gone, and folders that are empty then. Returns the names of the pages."""
    found = sorted(path for path in folder.glob("*/*.html") if is_own(path))
    gone = [path for path in found if path.relative_to(folder).as_posix() not in pages]
    for path in gone:
        with contextlib.suppress(OSError):  # it is gone already, or the folder holds other pages
            path.unlink()
            path.parent.rmdir()
    return tuple(path.relative_to(folder).as_posix() for path in gone)
