"""How long `perfci --help` takes, and what it imports. The goal is 0.3 s of wall time on an idle machine.

python benchmarks/startup.py [--repeats N] [-- COMMAND...]

Wall time and CPU time, the best and the median of so many starts: warm, and cold, which means that the files which a
start reads were dropped from the page cache (by posix_fadvise, except those that another process has mapped). On a
machine that others use at the same time the CPU time is the figure to look at.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

AIM_S = 0.3
SLOWEST = 12


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("command", nargs="*", default=["--help"])
    asked = parser.parse_args()
    command = [sys.executable, "-m", "perfci", *asked.command]
    files = _files(command)
    print(f"{' '.join(['perfci', *asked.command])}: {asked.repeats} starts each, {machine()}")
    for name, dropped in (("warm", ()), ("cold", files)):
        wall, cpu = zip(*(_started(command, dropped) for _ in range(asked.repeats)), strict=True)
        print(
            f"{name}: wall {min(wall):.2f} s (median {statistics.median(wall):.2f}), "
            f"CPU {min(cpu):.2f} s (median {statistics.median(cpu):.2f}); the aim is {AIM_S} s"
        )
    print(f"{len(files)} files read; the slowest imports, with all that they import:")
    print(*_slowest(command), sep="\n")


def machine() -> str:
    """What the figures were taken on, in words."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    place = f"{platform.system()} {platform.machine()}, {_cpu()}"
    return f"Python {platform.python_version()}, {place}, {cores} cores{load}"


def _cpu() -> str:
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "unknown processor")


def _started(command: Sequence[str], dropped: Sequence[str]) -> tuple[float, float]:
    """Seconds of one start: wall, and CPU of user and system together."""
    for file in dropped:
        _drop(file)
    before, began = os.times(), time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    wall, after = time.perf_counter() - began, os.times()
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return wall, spent


def _drop(file: str) -> None:
    handle = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def _files(command: Sequence[str]) -> list[str]:
    """Every module's file that a start reads, the compiled one if there is one."""
    code = (
        "import atexit, sys\n"
        "def told():\n"
        "    for module in list(sys.modules.values()):\n"
        "        for name in ('__cached__', '__file__'):\n"
        "            print(getattr(module, name, None) or '', file=sys.stderr)\n"
        "atexit.register(told)\n"
        f"sys.argv = {['perfci', *command[3:]]!r}\n"
        "import runpy; runpy.run_module('perfci', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return sorted({line for line in done.stderr.splitlines() if Path(line).is_file()})


def _slowest(command: Sequence[str]) -> list[str]:
    """Imports by the time that they take with all that they import, the longest first."""
    done = subprocess.run([command[0], "-X", "importtime", *command[1:]], capture_output=True, text=True, check=True)
    rows = [line.split("|") for line in done.stderr.splitlines() if line.count("|") == 2 and "package" not in line]
    rows.sort(key=lambda row: -int(row[1]))
    return [f"  {int(row[1]) / 1000:6.1f} ms {row[2].rstrip()}" for row in rows[:SLOWEST]]


if __name__ == "__main__":
    main()
