"""The report as one self-contained page: `report.html`, which needs no network, and no JavaScript to be read.

markup     the report's texts as HTML
table      the table of cases
cases      what is told of a case when its row is opened
page       all of it, in one file; beside it the templates, style.css and page.js, which `perfci.report.site` shares
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfci.core.model import Baseline, Judgements, Run
from perfci.core.wording import sentence
from perfci.store.files import write_atomically
from perfci.store.launches import read_launches

if TYPE_CHECKING:
    from perfci.report.past import Pasts
    from perfci.report.sections import Material
    from perfci.report.sources import Source

REPORT = "report.html"


def write(
    run: Run,
    judgements: Judgements,
    folder: Path,
    launches: Path | None = None,
    baselines: Mapping[str, Baseline] | None = None,
    pasts: Pasts | None = None,
    sources: Sequence[Source] = (),
) -> Path:
    """Write `report.html` into the folder, replacing an earlier one; its path.

    `launches` is the folder that holds the raw launches (or that file): with them distributions are those of all
    launches, without those of the blocks' medians. `baselines`, op -> what is stored for it, stand beside them where
    they are of the run's device and timer. `pasts`, op -> what was accepted before this run, are drawn
    in each op's section; `sources` of thresholds in force have one of their own. Raises StoredFileError where a file
    cannot be read or written.
    """
    from perfci.report import against, frame, plots
    from perfci.report.sections import Material

    folder.mkdir(parents=True, exist_ok=True)
    stored = read_launches(launches if launches.is_dir() else launches.parent) if launches else None
    raw = frame.launches(stored.rows) if stored and stored.rows else None
    table = frame.blocks(run)
    spreads = frame.spreads(table, raw)
    drawn = plots.write(run, judgements, None, raw, spreads=spreads, baselines=baselines, pasts=pasts, svg=True)
    material = Material(
        run, judgements, spreads, frame.clocks(table), drawn.ops, against.measure_noises(run, judgements),
        drawn.roofline, pasts or {}, tuple(sources),
    )  # fmt: skip
    notes = [sentence(stored.note)] if stored and stored.note else []
    return put(material, folder, baselines, notes)


def put(
    material: Material, folder: Path, baselines: Mapping[str, Baseline] | None = None, notes: Sequence[str] = ()
) -> Path:
    """The same from what the Markdown report is made of, so that both share the work; notes are added to the page's."""
    from perfci.report.html import page

    return write_atomically(folder / REPORT, page.render(material, baselines or {}, notes).encode())
