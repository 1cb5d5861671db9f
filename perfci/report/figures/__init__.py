"""The drawing itself: each picture is plain data first (`Sheet`), then one small PNG.

style       colours, sizes, markers
fonts       which letters a picture can show
sheet       a picture as data: panels, axes, marks
legend letters canvas      how a sheet becomes a PNG
bars        speedups
blocks      block medians over time
duels       kernel against base, block by block
launches    how launches are distributed
sizes       time against size
trends      cases over accepted runs
trails      the same, compact, with this run at the end
roofline    what is reached against measured ceilings
lowprec     errors of storage in low precision, and their trends
"""

from perfci.report.figures.bars import Bar, speedup
from perfci.report.figures.blocks import Trace, traces
from perfci.report.figures.canvas import label, save, style
from perfci.report.figures.duels import Duel, duels
from perfci.report.figures.fonts import drawn
from perfci.report.figures.launches import Distribution, distributions
from perfci.report.figures.lowprec import histograms
from perfci.report.figures.lowprec import trends as storage_trends
from perfci.report.figures.roofline import roofline
from perfci.report.figures.sizes import sizes
from perfci.report.figures.style import LABEL
from perfci.report.figures.trails import Strip, trails
from perfci.report.figures.trends import StoredTrend, Trend, stored_trends, trends

__all__ = [
    "LABEL",
    "Bar",
    "Distribution",
    "Duel",
    "StoredTrend",
    "Strip",
    "Trace",
    "Trend",
    "distributions",
    "drawn",
    "duels",
    "histograms",
    "label",
    "roofline",
    "save",
    "sizes",
    "speedup",
    "storage_trends",
    "stored_trends",
    "style",
    "traces",
    "trails",
    "trends",
]
