"""What is kept of accepted runs, as numbers: pure, without a device and without torch.

lines    one accepted run of an op as the line that is kept
series   each case, and each stored tensor, over the runs, with changes, epochs and steps of the environment
"""

from perfci.store.past.lines import CACHE_MULTIPLE, from_memory, line, worst_errors
from perfci.store.past.series import (
    Point,
    Series,
    StoredPoint,
    StoredSeries,
    environment_steps,
    series,
    stored_series,
)

__all__ = [
    "CACHE_MULTIPLE",
    "Point",
    "Series",
    "StoredPoint",
    "StoredSeries",
    "environment_steps",
    "from_memory",
    "line",
    "series",
    "stored_series",
    "worst_errors",
]
