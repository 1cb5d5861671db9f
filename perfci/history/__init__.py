"""What is kept of accepted runs, as numbers: pure, without a device and without torch.

lines    one accepted run of an op as the line that is kept
losses   slow-downs that nobody agreed on, which must not become what later runs are held against
series   each case, and each stored tensor, over the runs, with changes, epochs and steps of the environment
"""

from perfci.history.lines import CACHE_MULTIPLE, from_memory, line, worst_errors
from perfci.history.losses import losses
from perfci.history.series import (
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
    "losses",
    "series",
    "stored_series",
    "worst_errors",
]
