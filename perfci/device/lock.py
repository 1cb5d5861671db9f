"""One perfci a device: an advisory lock on a file, which a dead process cannot leave locked."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from perfci.core import locks
from perfci.core.errors import DeviceError

POLL_S = 0.5
WAIT_S = 3600.0


@contextmanager
def device_lock(
    name: str, folder: str | None, waiting: Callable[[str], None], limit_s: float = WAIT_S
) -> Iterator[None]:
    """Hold the device's lock; calls `waiting` with the holder's name as long as another process has it.

    The kernel drops the lock with its process. Raises DeviceError where the folder cannot be written, and where the
    device was not free for `limit_s` seconds.
    """
    path = Path(folder or tempfile.gettempdir()) / f"perfci-{name}.lock"
    handle = _opened(path)
    try:
        _wait(handle, path, waiting, limit_s)
        yield
    finally:
        os.close(handle)  # and with it goes the lock


def _opened(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(PermissionError):
            return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        return os.open(path, os.O_RDONLY)  # another user's: it can be locked all the same
    except OSError as error:
        raise _unwritable(path, error) from error


def _wait(handle: int, path: Path, waiting: Callable[[str], None], limit_s: float) -> None:
    until = time.monotonic() + limit_s
    try:
        while not locks.take(handle):
            if time.monotonic() > until:
                raise DeviceError("device_taken", holder=locks.holder(handle), limit_s=limit_s)
            waiting(locks.holder(handle))
            time.sleep(POLL_S)
    except OSError as error:  # a file system without locks
        raise _unwritable(path, error) from error
    with contextlib.suppress(OSError):
        locks.sign(handle)


def _unwritable(path: Path, error: OSError) -> DeviceError:
    return DeviceError("lock_unwritable", path=str(path), error=error.strerror or str(error))
