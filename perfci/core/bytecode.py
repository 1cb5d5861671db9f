"""Bytecode of installed packages where Python keeps none: else every command compiles torch anew, which takes seconds.

It keeps none beside files that it may not write to, or if PYTHONDONTWRITEBYTECODE is set, as in many images. Imports
little: it is needed before anything else of perfci is imported.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import PathFinder
from pathlib import Path


def find_folder(package: str) -> str | None:
    """The folder for bytecode, if Python has and keeps none of an installed package, and was given no other."""
    home = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))  # noqa: PTH111 - never raises
    folder = str(home / "perfci" / "bytecode")
    spec = PathFinder.find_spec(package)
    if sys.pycache_prefix not in {None, folder} or not home.is_absolute() or spec is None or not spec.origin:
        return None
    source = Path(spec.origin)
    beside = source.parent / "__pycache__"
    is_kept = (beside / f"{source.stem}.{sys.implementation.cache_tag}.pyc").exists()
    writable = not os.environ.get("PYTHONDONTWRITEBYTECODE") and os.access(source.parent, os.W_OK)
    return None if is_kept or writable else folder


def keep(package: str) -> None:
    """Have this process keep bytecode if Python has none of a package that it is about to import."""
    if folder := find_folder(package):
        sys.pycache_prefix, sys.dont_write_bytecode = folder, False


@contextmanager
def kept_in(folder: str) -> Iterator[None]:
    """Keep the bytecode of what is imported meanwhile in a folder. Not if it has no name."""
    before = sys.pycache_prefix, sys.dont_write_bytecode
    if folder:
        sys.pycache_prefix, sys.dont_write_bytecode = folder, False
    try:
        yield
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = before
