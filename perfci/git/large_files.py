"""Files of Git LFS: git has a pointer with a digest, the work tree the content. Git LFS itself is not run."""

import contextlib
import hashlib
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

from perfci.core.files import open_regular, read_regular

_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-.*\n)*oid sha256:([0-9a-f]{64})\nsize \d+\n"
)
_LONGEST = 1024  # bytes of a pointer, by its specification


def is_content(path: Path, pointer: bytes) -> bool:
    """Returns whether a file of the work tree is what the pointer stands for."""
    match = _POINTER.fullmatch(pointer)
    with contextlib.suppress(OSError):
        if match:
            with open_regular(path) as file:
                return hashlib.file_digest(file, "sha256").hexdigest() == match[1].decode()
    return False


def fill(paths: Iterable[Path], common: Path) -> None:
    """Puts the content in the place of each pointer, if the repository has it. Otherwise the pointer stays."""
    for path in paths:
        with contextlib.suppress(OSError):
            if path.is_symlink() or path.stat().st_size > _LONGEST:
                continue
            pointer = read_regular(path)
            if match := _POINTER.fullmatch(pointer):
                digest = match[1].decode()
                content = common / "lfs" / "objects" / digest[:2] / digest[2:4] / digest
                if is_content(content, pointer):
                    shutil.copyfile(content, path)
