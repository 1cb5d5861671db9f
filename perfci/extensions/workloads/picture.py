"""A picture of a step's time line: a row an op, the ones that take most time on top, and one for all other launches."""

import importlib.util
from pathlib import Path
from typing import Any

from perfci.extensions.workloads.records import Workload
from perfci.store.files import write_atomically

ROWS = 9  # ops that have a row
ROW_INCHES = 0.24
THINNEST = 800.0  # parts of the picture's width that a launch takes at least


def draw(workload: Workload, path: Path) -> str | None:
    """Draw the time line into a file. Returns its path, None if nothing was recorded or no pictures can be drawn."""
    if not workload.timeline or importlib.util.find_spec("perfci.extensions.pictures") is None:
        return None
    from perfci.extensions.pictures import style

    with style.apply_style():
        write_atomically(path, style.save_png(_make_figure(workload)))
    return str(path)


def _make_figure(workload: Workload) -> Any:
    from perfci.extensions.pictures import style
    from perfci.extensions.pictures.style import caption

    ops = [op for op in workload.by_op() if any(part.name == op for part in workload.timeline)][:ROWS]
    others = any(part.name not in ops for part in workload.timeline)
    rows = [*ops, *([None] * others)]
    last = max(part.start_us + part.us for part in workload.timeline)
    scale, unit = style.choose_unit(last)
    high = ROW_INCHES * len(rows)
    figure, _ = style.make_figure(caption("{name}: a step", name=style.fit(workload.name, 60)), high + 0.5)
    whole = figure.get_figheight()
    axes = figure.add_axes((1.6 / style.WIDTH, 0.42 / whole, 1 - 1.75 / style.WIDTH, high / whole))
    for place, op in enumerate(rows):
        parts = [part for part in workload.timeline if (part.name == op if op else part.name not in ops)]
        colour = style.SERIES[place % len(style.SERIES)] if op else style.QUIET
        spans = [(part.start_us / scale, max(part.us, last / THINNEST) / scale) for part in parts]
        axes.broken_barh(spans, (place - 0.38, 0.76), color=colour, lw=0)
    names = [style.fit(op, 24) if op else caption("other launches") for op in rows]
    axes.set_yticks(range(len(rows)), names)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, last / scale)
    axes.set_xlabel(unit)
    axes.grid(axis="y", visible=False)
    return figure
