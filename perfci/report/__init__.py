"""The report of a run: Markdown and pictures in one folder, rendered from the run and its judgements alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfci.model import Judgements, Run
from perfci.report.text import inline
from perfci.store import Launches, read_launches
from perfci.wording import sentence

if TYPE_CHECKING:
    import pandas as pd

REPORT = "report.md"


def write(run: Run, judgements: Judgements, folder: Path, launches: Path | None = None) -> Path:
    """Write `report.md` and its pictures into the folder, replacing those of an earlier report; the report's path.

    `launches` is the folder that holds the raw launches (or that file). With them percentiles are those of all launches
    and their distribution is drawn; without, they come from the blocks' summaries.
    """
    from perfci.report import against, build, frame, markdown, plots
    from perfci.report.sections import Material

    folder.mkdir(parents=True, exist_ok=True)
    table = frame.blocks(run)
    stored = _stored(launches)
    raw = _raw(stored)
    pictures = plots.write(run, judgements, folder, raw)
    spreads, clocks = frame.spreads(table, raw), frame.clocks(table)
    noises = against.noises(run, judgements)
    page = build.report(Material(run, judgements, spreads, clocks, pictures, noises))
    if stored.note:
        page = replace(page, notes=(*page.notes, inline(sentence(stored.note))))
    path = folder / REPORT
    draft = path.with_suffix(".md.part")
    draft.write_text(markdown.render(page), encoding="utf-8", newline="\n")
    return draft.replace(path)


def _stored(launches: Path | None) -> Launches:
    if launches is None:
        return Launches()
    return read_launches(launches if launches.is_dir() else launches.parent)


def _raw(launches: Launches) -> pd.DataFrame | None:
    from perfci.report import frame

    return frame.launches(launches.rows) if launches.rows else None
