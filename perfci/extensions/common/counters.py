"""Hardware counters of several kernels as one."""

from collections import defaultdict
from collections.abc import Iterable, Mapping


def average_counters(rows: Iterable[tuple[Mapping[str, float], float]]) -> dict[str, float]:
    """Means of what some kernels have, weighted."""
    sums, weights = defaultdict[str, float](float), defaultdict[str, float](float)
    for row, weight in rows:
        for name, value in row.items():
            sums[name] += weight * value
            weights[name] += weight
    return {name: total / weights[name] for name, total in sums.items() if weights[name]}
