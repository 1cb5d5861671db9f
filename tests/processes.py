"""Whether processes that a test started still run."""

from __future__ import annotations

from pathlib import Path

NAME = "(__import__('os').readlink('/proc/self/ns/pid') + '/' + str(__import__('os').getpid()))"
"""An expression by which a program names its process to `runs_there`: a worker numbers processes for itself."""


def runs(pid: int | str) -> bool:
    """Whether a process runs. One that has ended may be listed for a while if its parent ended first."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def runs_there(name: str) -> bool:
    """Whether a process runs that named itself by `NAME`."""
    namespace, _, number = name.partition("/")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(line.partition(":")[::2] for line in (folder / "status").read_text().splitlines())
            if str((folder / "ns" / "pid").readlink()) == namespace and status["NSpid"].split()[-1] == number:
                return runs(folder.name)
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended, or is none of ours
    return False
