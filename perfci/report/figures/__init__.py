"""The drawing itself, with matplotlib's object interface: no pyplot, no window, no state.

canvas      sizes, colours, fonts, titles, legends; how a PNG is written
bars        speedups
blocks      block medians over time, the distribution of launches
duels       kernel against base, block by block
"""

from perfci.report.figures.bars import Bar, speedup
from perfci.report.figures.blocks import Trace, distributions, traces
from perfci.report.figures.canvas import LABEL, label, save, style
from perfci.report.figures.duels import Duel, duels

__all__ = [
    "LABEL",
    "Bar",
    "Duel",
    "Trace",
    "distributions",
    "duels",
    "label",
    "save",
    "speedup",
    "style",
    "traces",
]
