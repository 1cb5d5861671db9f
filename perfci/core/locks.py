"""Advisory locks on open files: the system drops them with their process, so that a dead one blocks nobody."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

_LONGEST = 1000
"""Bytes of a holder's signature that are read."""


def take(handle: int) -> bool:
    """Take the lock on an open file; False where another process has it. Raises OSError where there are no locks."""
    import fcntl  # not on Windows, where perfci only compares and reports

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def sign(handle: int) -> None:
    """Write into the locked file who has it: process, host, folder, since when."""
    import socket

    text = f"process {os.getpid()} on {socket.gethostname()} in {Path.cwd()}, since {datetime.now(UTC):%H:%M:%S} UTC"
    os.lseek(handle, 0, os.SEEK_SET)
    os.ftruncate(handle, os.write(handle, text.encode(errors="replace")))


def holder(handle: int) -> str:
    """Who signed the file."""
    os.lseek(handle, 0, os.SEEK_SET)
    return os.read(handle, _LONGEST).decode(errors="replace").strip() or "another process"
