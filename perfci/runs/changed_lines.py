"""The lines by which files of two revisions differ: a few, for a reader who is to see what a change did."""

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

from perfci.core.files import read_regular
from perfci.report.text import shorten

MOST, WIDTH = 12, 120  # lines of an op that are kept, and characters of one
LARGE = 1 << 18  # bytes of a file above which it is not read

_LAST = ("_accuracy.py", "_performance.py", "_baseline.py", ".md")
"""Ends of files that a kernel's time does not depend on."""


def list_lines(names: Iterable[str], before: Path, after: Path) -> tuple[str, ...]:
    """Returns the first lines that differ, as a diff has them: `+++ FILE`, then its lines with - and +.

    names: files below both roots. Those of kernels come first. What is no text, or large, is left out.
    """
    shown: list[str] = []
    for name in sorted(names, key=lambda name: name.endswith(_LAST)):
        old, new = (_read(root, root / name) for root in (before, after))
        if old is None or new is None or len(shown) + 2 > MOST:
            continue
        lines = [line for line in difflib.unified_diff(old, new, n=0, lineterm="") if _is_told(line)]
        shown += [f"+++ {name}", *(shorten(line.rstrip(), WIDTH) for line in lines)] if lines else []
    return tuple(shown[:MOST])


def _is_told(line: str) -> bool:
    return line[:1] in {"-", "+"} and not line.startswith(("--- ", "+++ ")) and bool(line[1:].strip())


def _read(root: Path, path: Path) -> Sequence[str] | None:
    """The lines of a file, none of one that is missing or lies behind a link. None if it cannot be shown."""
    try:
        is_plain = path.is_file() and path.resolve() == root.resolve() / path.relative_to(root)
        data = read_regular(path) if is_plain else b""
        return data.decode().splitlines() if len(data) <= LARGE else None
    except (OSError, UnicodeDecodeError):
        return None
