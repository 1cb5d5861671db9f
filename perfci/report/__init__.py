"""The report of a run: Markdown and pictures in one folder, rendered from the run and its judgements alone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from perfci.core.model import Baseline, Judgements, Run
from perfci.core.wording import sentence
from perfci.report.text import plain
from perfci.store.files import write_atomically
from perfci.store.launches import Launches, read_launches

if TYPE_CHECKING:
    import pandas as pd

    from perfci.report.past import Pasts
    from perfci.report.sections import Material
    from perfci.report.sources import Source

REPORT = "report.md"
FORMATS = ("md", "html", "junit", "metrics")
STANDARD = ("md", "junit", "metrics")
"""Formats that are written if none are named."""


def write(
    run: Run,
    judgements: Judgements,
    folder: Path,
    launches: Path | None = None,
    baselines: Mapping[str, Baseline] | None = None,
    *,
    pasts: Pasts | None = None,
    sources: Sequence[Source] = (),
    formats: Collection[str] = STANDARD,
) -> Path:
    """Write `report.md` and its pictures into the folder, replacing those of an earlier report; the report's path.

    `formats` may also name `report.html`, a page by itself, and leave out `junit.xml` or `metrics.txt`.

    `launches` is the folder that holds the raw launches (or that file). With them percentiles are those of all launches
    and their distribution is drawn; without, they come from the blocks' summaries. `baselines`, op -> what is stored
    for it, stand beside the launches where they are of the run's device and timer. `pasts`, op -> what was accepted
    before this run, get a section of each op; `sources` of thresholds in force one of their own.
    """
    from perfci.report import against, build, frame, junit, markdown, metrics, plots
    from perfci.report.sections import Material

    folder.mkdir(parents=True, exist_ok=True)
    table = frame.blocks(run)
    stored = _stored(launches)
    raw = _raw(stored)
    spreads, clocks = frame.spreads(table, raw), frame.clocks(table)
    drawn = plots.write(
        run, judgements, folder, raw, spreads=spreads, baselines=baselines, pasts=pasts, svg="html" in formats
    )
    noises = against.measure_noises(run, judgements)
    material = Material(
        run, judgements, spreads, clocks, drawn.ops, noises, drawn.roofline, pasts or {}, tuple(sources)
    )
    page = build.make_report(material)
    if stored.note:
        page = replace(page, notes=(*page.notes, plain(sentence(stored.note))))
    if "junit" in formats:
        junit.write(run, judgements, folder)
    if "metrics" in formats:
        metrics.write(run, judgements, folder, baselines)
    if "html" in formats:
        _write_page(material, folder, stored, baselines)
    if "md" in formats:
        write_atomically(folder / REPORT, markdown.render(page).encode())
    return folder / REPORT


def _write_page(material: Material, folder: Path, stored: Launches, baselines: Mapping[str, Baseline] | None) -> None:
    from perfci.report.html import put

    put(material, folder, baselines, [sentence(stored.note)] if stored.note else [])


def _stored(launches: Path | None) -> Launches:
    if launches is None:
        return Launches()
    return read_launches(launches if launches.is_dir() else launches.parent)


def _raw(launches: Launches) -> pd.DataFrame | None:
    from perfci.report import frame

    return frame.launches(launches.rows) if launches.rows else None
