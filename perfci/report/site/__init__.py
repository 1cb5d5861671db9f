"""A static site over the kept history: an index of ops and devices, and a page an op and device with its trends.

Each page is one file that needs no other and no network; links are relative, so that the site works from a disk and
below any address. It shares its markup, charts, style and script with `perfci.report.html`.

kept       histories as they are read, with what explains them
trend      how cases went over their runs, as numbers
drawings   charts of trends
cases      the rows of an op's page, and what opening one shows
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
    from perfci.report.site.kept import Kept, Layered, Place


@dataclass(frozen=True)
class Built:
    """What was written."""

    index: Path
    pages: tuple[str, ...]
    """names below the folder"""
    gone: tuple[str, ...]
    """pages that were taken away, since what they showed is gone"""
    notes: tuple[Reason, ...]
    """what the site warns of: histories that could not be read as a whole, or that there is none"""


def build(baselines: Path, thresholds: Path, root: Path, folder: Path, layered: Layered | None = None) -> Built:
    """Write the site over the histories in the baselines folder of the project at `root`.

    layered: what makes of the thresholds that people wrote those in force; without it they are as written.

    A history that cannot be read as a whole is shown as damaged with what is wrong, and the others go on. Raises
    UsageError where `folder` holds anything that perfci did not make, StoredFileError where it cannot be written.
    """
    from perfci.report.site import kept

    known, notes = kept.limits(thresholds, root)
    found = kept.places(baselines)
    if not found:
        shown = baselines.relative_to(root) if baselines.is_relative_to(root) else baselines
        notes = (*notes, Reason("site_without_history", {"folder": shown.as_posix()}))
    histories = kept.all_of(baselines, known, root, *([layered] if layered else []))
    return write(histories, found, root.name, folder, notes)


def write(
    histories: Iterable[Kept], places: Sequence[Place], project: str, folder: Path, notes: Sequence[Reason] = ()
) -> Built:
    """Write the site over histories that are taken one by one; places: of all of them, project: its name.

    Raises as `build` does.
    """
    from perfci.report.site import folder as folders
    from perfci.report.site import pages, trend

    names = [folders.address(place) for place in places]
    before = folders.claim(folder, names)
    entries, said = list[pages.Entry](), list(notes)
    for history in histories:
        op = trend.op(history)
        others = [each for each in places if each.op == history.place.op and each != history.place]
        folders.put(folder, folders.address(history.place), pages.op_page(op, others))
        entries.append(pages.entry(op))
        said += history.problems if history.damaged else ()
    index = folders.put(folder, folders.INDEX, pages.index_page(entries, project, notes))
    return Built(index, tuple(names), folders.finish(folder, before, names), tuple(said))
