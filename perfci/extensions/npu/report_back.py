"""One file from a machine that perfci's authors do not have: the last report, and what the machine shows of itself.

Behind `perfci check --report-back`, for a chip on which perfci has not run yet.
"""

import contextlib
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfci.core import environment
from perfci.core.codec import encode
from perfci.core.files import read_regular
from perfci.core.settings import Settings
from perfci.extensions.npu import host, smi
from perfci.store.files import write_atomically

NAME = "report-back.zip"  # in the reports folder
LIMIT_S = 600.0  # of one command of perfci's
KEPT = ("run.json", "report.md", "junit.xml", "metrics.txt")  # of the reports folder, with its logs
ASKED = (("info",), ("info", "-m"), ("info", "-t", "board", "-i", "0"), ("info", "-t", "common", "-i", "0"),
         ("info", "-t", "power", "-i", "0"))  # fmt: skip
"""What npu-smi is asked: samples of its layouts, which differ between its releases"""


def write(where: Settings, device: str, op: str) -> Path:
    """Writes the file and returns its place. device: as `--device` has it. op: the one that `--selftest` tries.

    It has no kernels of the project, but names of its ops and cases, and this host's name in run.json.
    """
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in _gather(where, device, op):
            archive.writestr(name, text)
    return write_atomically(where.reports / NAME, packed.getvalue())


def _gather(where: Settings, device: str, op: str) -> Iterator[tuple[str, str]]:
    for file in (*(where.reports / name for name in KEPT), *sorted(where.reports.glob("logs/*.log"))):
        if file.is_file():
            with contextlib.suppress(OSError):  # of a link: nothing from elsewhere is sent away
                yield str(file.relative_to(where.reports)), read_regular(file).decode(errors="replace")
    yield "doctor.txt", _run(where, "doctor")
    yield "selftest.json", _run(where, "doctor", "--selftest", op, "--device", device, "--format", "json")
    for words in ASKED:
        yield f"npu-smi {' '.join(words)}.txt", smi.ask(*words) or "no answer\n"
    seen = host.look(os.environ)
    known = {"cann": seen.cann, "home": seen.home, "packages": environment.installed_versions(environment.PACKAGES)}
    yield "machine.json", encode({**known, "variables": environment.telling(os.environ)}).decode()


def _run(where: Settings, *words: str) -> str:
    """What a command of perfci's prints, or why there is nothing."""
    command: Sequence[str] = (sys.executable, "-P", "-m", "perfci", *words, "--project", str(where.root))
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=LIMIT_S, cwd=where.root
        )
    except subprocess.TimeoutExpired:
        return f"ended after {LIMIT_S:.0f} s\n"
    return done.stdout + done.stderr
