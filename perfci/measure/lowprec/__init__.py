"""Storage in low precision under watch: what is recorded of a stored tensor, and what a bad figure comes from.

declared    what an op says that it stores, held to what it must be
formats     the low-precision formats: their range and their steps
storage     the figures of one stored tensor
histogram   errors in fixed bins, and how far two histograms are apart
accepted    a tensor beside what accepted runs had
causes      the likely cause of a figure beyond its limit
advice      which other way of storing the same tensor would keep the limits

docs/low-precision.md says what each figure means.
"""

from perfci.measure.lowprec.accepted import beside
from perfci.measure.lowprec.advice import FIGURES, Advice, Limit, advice, families, way
from perfci.measure.lowprec.causes import Cause, cause
from perfci.measure.lowprec.declared import planned, stored_tensors
from perfci.measure.lowprec.formats import FORMATS, Format
from perfci.measure.lowprec.histogram import BINS, EDGES, dense, divergence, histogram

__all__ = [
    "BINS",
    "EDGES",
    "FIGURES",
    "FORMATS",
    "Advice",
    "Cause",
    "Format",
    "Limit",
    "advice",
    "beside",
    "cause",
    "dense",
    "divergence",
    "families",
    "histogram",
    "planned",
    "stored_tensors",
    "way",
]
