"""One perfci a device: an advisory lock on a file, which a dead process cannot leave locked."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perfci.errors import DeviceError

POLL_S = 0.5


@contextmanager
def device_lock(name: str, folder: str | None, waiting: Callable[[str], None]) -> Iterator[None]:
    """Hold the device's lock; calls `waiting` with the holder's name as long as another process has it.

    The kernel drops the lock with its process. Raises DeviceError where the folder cannot be written.
    """
    import fcntl  # not on Windows, where perfci only compares and reports

    path = Path(folder or tempfile.gettempdir()) / f"perfci-{name}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise DeviceError("lock_unwritable", path=str(path), error=str(error)) from error
    try:
        while not _try(handle):
            waiting(os.pread(handle, 200, 0).decode(errors="replace").strip() or "another process")
            time.sleep(POLL_S)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()}".encode(), 0)
        yield
        fcntl.flock(handle, fcntl.LOCK_UN)
    finally:
        os.close(handle)


def _try(handle: int) -> bool:
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
