"""Temporary folders that do not outlive their process for long, however it ends."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from perfci.core import locks

_PREFIX = "perfci-"
_OWNER = ".owner"  # file that the folder's process has locked as long as it lives


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Makes a folder, which goes when the block ends, or with the next run if the process is killed."""
    made = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{purpose}-")).resolve()
    handle = None
    try:
        if hasattr(os, "geteuid"):  # else no one looks for it
            handle = locks.open_lock(made / "new")
            locks.take_if_possible(handle)
            (made / "new").rename(made / _OWNER)  # locked before it has its name
        (made / "files").mkdir()
        yield made / "files"
    finally:
        if handle is not None:
            os.close(handle)
        shutil.rmtree(made, ignore_errors=True)  # a stopped run's workers may still write there for a moment


def remove_abandoned() -> None:
    """Removes the folders of this user's processes that were killed."""
    for owner in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_OWNER}"):
        with contextlib.suppress(AttributeError, OSError):  # a system without users or locks keeps them
            if owner.parent.is_symlink() or owner.parent.lstat().st_uid != os.geteuid():
                continue
            handle = locks.open_lock(owner)
            try:
                if locks.take(handle):
                    shutil.rmtree(owner.parent, ignore_errors=True)
            finally:
                os.close(handle)
