"""Reads and appends to files that others may have put in their place: plain ones of bounded size alone."""

import errno
import os
import stat
from io import BufferedReader, FileIO
from pathlib import Path

from perfci.core.wording import say

MOST = 1 << 30  # bytes of any file that is read as a whole


def open_regular(path: Path) -> BufferedReader:
    """Opens an ordinary file for reading. Raises OSError for a link, a pipe or a device, without waiting for one."""
    return os.fdopen(_open(path, os.O_RDONLY), "rb")


def append_regular(path: Path) -> FileIO:
    """Opens an ordinary file for appending, unbuffered, and makes it if it is missing. Raises OSError as above."""
    handle = _open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if os.fstat(handle).st_nlink > 1:  # it has a name elsewhere too
        os.close(handle)
        raise OSError(errno.EMLINK, say("it is no plain file"))
    return FileIO(handle, "ab")


def _open(path: Path, flags: int) -> int:
    if path.is_symlink():  # O_NOFOLLOW gives no clear error for it, and Windows has no O_NOFOLLOW
        raise OSError(errno.ELOOP, say("it is a link"))
    careful = ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY", "O_NOINHERIT")
    handle = os.open(path, sum((getattr(os, name, 0) for name in careful), flags), 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, say("it is no plain file"))
    return handle


def read_regular(path: Path, most: int = MOST) -> bytes:
    """Returns the content of an ordinary file. Raises OSError for anything else, and for a file longer than that."""
    with open_regular(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, say("it is longer than {most:size}", most=most))
    return data
