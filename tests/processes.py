"""Whether processes that a test started still run."""

from pathlib import Path

NAME = "(__import__('os').readlink('/proc/self/ns/pid') + '/' + open('/proc/self/stat').read().replace(' ', '/'))"
"""An expression by which a program names its process to `runs_there`: a worker numbers processes for itself."""


def runs(pid: int | str) -> bool:
    """Whether a process runs. One that has ended may be listed for a while if its parent ended first."""
    try:
        return _read_stat(pid)[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def runs_there(name: str) -> bool:
    """Whether a process runs that named itself by `NAME`."""
    namespace, number, *_ = name.split("/")
    began = name.rpartition(")/")[2].split("/")[BEGAN]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = dict(line.partition(":")[::2] for line in (folder / "status").read_text().splitlines())
            if str((folder / "ns" / "pid").readlink()) == namespace and status["NSpid"].split()[-1] == number:
                # Both numbers may be another's by now, but it began later.
                return runs(folder.name) and _read_stat(folder.name)[BEGAN] == began
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue  # it has ended, or is none of ours
    return False


BEGAN = 19


def _read_stat(pid: int | str) -> list[str]:
    """What the kernel tells of a process, from its state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
