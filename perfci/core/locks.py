"""Advisory locks on open files: the system drops them with their process, so that a dead one blocks no one.

Imports little, since folders for temporary files are locked before anything else of perfci is imported.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfci.core.model import Reason

_LONGEST = 1000  # bytes of a holder's signature that are read

POLL_S = 0.5
WAIT_S = 3600.0


def open_lock(path: Path) -> int:
    """Opens or makes a lock's file. Raises OSError for anything else, such as a link: holders write into the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    flags = sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"))
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o666)
    except PermissionError:
        handle = os.open(path, os.O_RDONLY | flags)  # another user's: it can be locked all the same
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        from perfci.core.model import as_fact

        os.close(handle)
        raise OSError(errno.EINVAL, as_fact("it is no plain file"))
    return handle


def take(handle: int) -> bool:
    """Take the lock on an open file. False if another process has it. Raises OSError if there are no locks."""
    import fcntl  # not on Windows, where perfci only compares and reports

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def give_back(handle: int) -> None:
    """Drop the lock, also for a process that has the same open file."""
    with contextlib.suppress(ImportError, OSError):
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_UN)


def take_if_possible(handle: int) -> bool:
    """Take the lock as `take` does. True as well on a system or a file system without such locks."""
    try:
        return take(handle)
    except (ImportError, OSError):
        return True


def sign(handle: int, process: int | None = None, folder: Path | None = None) -> None:
    """Write into the locked file who has it: process, host, folder, since when. None: this process, in its folder."""
    import socket

    who = f"process {process or os.getpid()} on {socket.gethostname()} in {folder or Path.cwd()}"
    text = f"{who}, since {datetime.now(UTC):%H:%M:%S} UTC"
    os.lseek(handle, 0, os.SEEK_SET)
    os.ftruncate(handle, os.write(handle, text.encode(errors="replace")))


def holder(handle: int) -> str:
    """Who signed the file."""
    os.lseek(handle, 0, os.SEEK_SET)
    return os.read(handle, _LONGEST).decode(errors="replace").strip() or "another process"


def find_lock(name: str, folder: Path | None) -> Path:
    """Returns the file of a device's lock. Raises OSError for a name that no file has."""
    if not re.fullmatch(r"[\w.:-]{1,200}", name):
        raise OSError(errno.EINVAL, "no name of a device")
    return (folder or Path(tempfile.gettempdir())) / f"perfci-{name}.lock"


def find_displaced(folder: Path | None) -> Reason | None:
    """Returns where devices' locks lie if the folder for temporary files cannot be used. None if they lie there."""
    from perfci.core.model import Reason

    if folder or os.name != "posix":
        return None
    # Python takes the first that it can write a file into.
    name = next((name for name in ("TMPDIR", "TEMP", "TMP") if os.environ.get(name)), None)
    wanted, used = os.environ[name] if name else "/tmp", tempfile.gettempdir()
    if os.path.realpath(wanted) == os.path.realpath(used):
        return None
    return Reason("lock_displaced", {"wanted": f"{name}={wanted}" if name else wanted, "folder": used})


@contextmanager
def device_lock(
    name: str, folder: Path | None, waiting: Callable[[str], None], limit_s: float = WAIT_S, lent: int | None = None
) -> Iterator[None]:
    """Hold a device's lock, calling `waiting` with another holder's name. Raises DeviceError after `limit_s`.

    lent: its file if a parent has opened it, which then holds it as well until it is closed or given back here.
    """
    from perfci.core.errors import DeviceError

    path = find_lock(name, folder)
    until, handle = time.monotonic() + limit_s, lent
    try:
        handle = open_lock(path) if handle is None else handle
        while not take(handle):
            if time.monotonic() > until:
                raise DeviceError("device_taken", holder=holder(handle), limit_s=limit_s)
            waiting(holder(handle))
            time.sleep(POLL_S)
        with contextlib.suppress(OSError):
            sign(handle)
    except OSError as error:  # also of a file system without locks
        raise DeviceError("lock_unwritable", path=str(path), error=error.strerror or str(error)) from error
    else:
        yield
    finally:
        if handle is not None:
            give_back(handle)
            os.close(handle)
