"""The report of a run in its formats, made from the run and its judgements alone.

rows       the plain view of verdicts, which every format renders
view       what a whole report shows: sections of plain text with a few marks. build makes it
sections   the section of each op, made of the tables of against, speed, accuracy and extensions
markdown   report.md. The extension pictures draws, and writes report.html
data       what `--format json` prints. The extension formats has files that other programs read
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from perfci.core import extensions
from perfci.core.errors import require
from perfci.core.model import Baseline, Judgements, Run
from perfci.core.wording import sentence
from perfci.report.text import plain
from perfci.store.files import write_atomically
from perfci.store.launches import Launches, read_launches

if TYPE_CHECKING:
    from perfci.report.sections import OpExtra

REPORT = "report.md"
PAGE = "report.html"
RENDERER = ("page", "pictures", PAGE)  # arguments of `require` for what writes report.html


@dataclass(frozen=True)
class FileFormat:
    """A file of a run's verdicts."""

    name: str
    file: str
    write: Callable[[Run, Judgements, Mapping[str, Baseline]], bytes]


def list_standard() -> list[str]:
    """Returns the formats that are written if none are named."""
    return ["md", *(made.name for made in extensions.provided("format"))]


def list_formats() -> list[str]:
    """Returns the formats of a report."""
    return [*list_standard(), "html"]


def import_libraries() -> None:
    """Import what verdicts and reports are made with, which takes a second, or several on a slow host."""
    from perfci.statistics import exact

    exact.find_student_quantile(0.5, 1.0)
    with contextlib.suppress(Exception):  # it fails again, in words, where it is needed
        for painter in extensions.provided("pictures"):
            painter.import_libraries()


def write(
    run: Run,
    judgements: Judgements,
    folder: Path,
    launches: Path | None = None,
    baselines: Mapping[str, Baseline] | None = None,
    *,
    extras: Sequence[OpExtra] = (),
    formats: Collection[str] | None = None,
) -> Path:
    """Writes the report's formats in place of an earlier one's. Returns `report.md`'s path, may raise StoredFileError.

    formats: some of `list_formats`. None for those that are written if none are named.
    launches: the raw launches' folder or file. Without it their distribution is not drawn.
    extras: what extensions add to the section of each op.
    """
    from perfci.report import build, frame, markdown
    from perfci.report.sections import Gallery, Material

    folder.mkdir(parents=True, exist_ok=True)
    stored = read_launches(launches if launches.is_dir() else launches.parent) if launches else Launches()
    formats = list_standard() if formats is None else formats
    for made in extensions.provided("format"):
        if made.name in formats:
            write_atomically(folder / made.file, made.write(run, judgements, baselines or {}))
    if {"md", "html"} & {*formats}:
        spreads = frame.pool_spreads(run)
        pictures = folder if "md" in formats else None
        painters = extensions.provided("pictures")
        drawn = (painter(run, judgements, spreads, pictures, stored.rows, extras).draw_all() for painter in painters)
        material = Material(run, judgements, spreads, frame.find_clocks(run), next(drawn, Gallery()), extras)
        report = build.make_report(material, plain(sentence(stored.note)) if stored.note else "")
        if "html" in formats:
            write_atomically(folder / PAGE, require(*RENDERER)(material, report).encode())
        if "md" in formats:
            write_atomically(folder / REPORT, markdown.render(report).encode())
    return folder / REPORT
