"""Whether processes that a test started still run."""

from __future__ import annotations

from pathlib import Path


def runs(pid: int | str) -> bool:
    """Whether a process runs. One that has ended may be listed for a while if its parent ended first."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
