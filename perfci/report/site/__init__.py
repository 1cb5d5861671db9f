"""A static site over the kept history: an index of ops and devices, and a page an op and device with its trends.

Each page is one file that needs no other and no network. Links are relative, so that the site works from a disk and
below any address. It shares its markup, charts, style and script with `perfci.report.html`.

kept       histories as they are read, with what explains them
pages      the two kinds of pages
folder     names of pages, and the folder that perfci made and may tidy
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfci.core.model import Reason

if TYPE_CHECKING:
    from perfci.report.site.kept import Kept, OpOnDevice


@dataclass(frozen=True)
class Built:
    """What was written."""

    index: Path
    pages: tuple[str, ...]
    """names below the folder"""
    gone: tuple[str, ...]
    """pages that were removed, since what they showed is gone"""
    notes: tuple[Reason, ...]
    """warnings: histories that could not be read as a whole, or that there is none"""


def build(baselines: Path, root: Path, folder: Path) -> Built:
    """Write the site over the histories in the baselines folder of the project at `root`.

    A history that cannot be read as a whole is shown as damaged with what is wrong, and the others go on. Raises
    UsageError if `folder` holds anything that perfci did not make, StoredFileError if it cannot be written.
    """
    from perfci.report.site import kept

    found = kept.places(baselines)
    shown = baselines.relative_to(root) if baselines.is_relative_to(root) else baselines
    notes = () if found else (Reason("site_without_history", {"folder": shown.as_posix()}),)
    return write(kept.read_all(baselines, root), found, root.name, folder, notes)


def write(
    histories: Iterable[Kept], places: Sequence[OpOnDevice], project: str, folder: Path, notes: Sequence[Reason] = ()
) -> Built:
    """Write the site over histories that are taken one by one. places: those of all of them. project: its name.

    Raises as `build` does.
    """
    from perfci.report.site import folder as folders
    from perfci.report.site import pages

    names = [folders.name_page(place) for place in places]
    before = folders.claim(folder, names)
    entries, warnings = list[pages.Entry](), list(notes)
    for history in histories:
        others = [each for each in places if each.op == history.place.op and each != history.place]
        page, entry = pages.render_op(history, others)
        folders.put(folder, folders.name_page(history.place), page)
        entries.append(entry)
        warnings += history.problems if history.damaged else ()
    index = folders.put(folder, folders.INDEX, pages.render_index(entries, project, notes))
    return Built(index, tuple(names), folders.finish(folder, before, names), tuple(warnings))
