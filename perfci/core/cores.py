"""How many cores of this machine there are to use."""

import contextlib
import os
import sys
from pathlib import Path


def count_cores() -> int:
    """How many of this machine's cores the process may use at a time."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):  # a container's share, by the second version of cgroups
        share, period = Path("/sys/fs/cgroup/cpu.max").read_text(encoding="ascii").split()
        cores = min(cores, max(int(share) // int(period), 1))
    return cores
