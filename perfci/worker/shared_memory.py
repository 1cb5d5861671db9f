"""What a worker leaves in /dev/shm goes with it. Without a separate one, all processes of its user share it."""

import contextlib
import os
import shutil
from pathlib import Path

FOLDER = Path("/dev/shm")


def identify() -> int:
    """Returns the number of the file system there, which is another one if it is another memory. 0 if there is none."""
    with contextlib.suppress(OSError):
        return FOLDER.stat().st_dev
    return 0


def list_files() -> frozenset[str]:
    """Returns the names of what is there."""
    with contextlib.suppress(OSError):
        return frozenset(path.name for path in FOLDER.iterdir())
    return frozenset()


def remove_new(before: frozenset[str]) -> None:
    """Remove what this user's processes have made there since, unless one of them still uses it."""
    left = {name for name in list_files() - before if _is_ours(name)}
    used = _list_used() if left else frozenset()
    for path in (FOLDER / name for name in left - used):
        with contextlib.suppress(OSError):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink()


def _is_ours(name: str) -> bool:
    with contextlib.suppress(OSError):
        return (FOLDER / name).lstat().st_uid == os.getuid()
    return False


def _list_used() -> frozenset[str]:
    """Names of what some process has open or mapped, as far as this one may look."""
    used = set[str]()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            lines = (process / "maps").read_text().splitlines()
            for link in [*(process / "fd").iterdir()]:
                with contextlib.suppress(OSError):  # it was closed meanwhile
                    lines.append(str(link.readlink()))
            used.update(line.partition(f"{FOLDER}/")[2].partition("/")[0] for line in lines)
    return frozenset(used)
