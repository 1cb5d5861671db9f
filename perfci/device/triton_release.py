"""Which Triton is installed, and whether perfci knows it; nothing is imported for that."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

from perfci.core.model import Reason

KNOWN = ((3, 2), (3, 9))
"""First and last release that perfci is made for; docs/versions.md has those that were run."""


@functools.cache
def unknown_triton() -> Reason | None:
    """Why nothing can be done that needs Triton's internals: the release is newer than those that perfci knows."""
    newer = [version for version in versions() if release(version) > KNOWN[1]]
    first, last = ("{}.{}".format(*end) for end in KNOWN)
    return Reason("triton_unknown", {"triton": newer[0], "first": first, "last": last}) if newer else None


def versions() -> list[str]:
    """Of the Triton that ops would import, as its own file says; of all that are installed where that does not say it.

    Metadata are read by zipfile and email, a tenth of what a worker would import.
    """
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return []
    text = Path(spec.origin).read_text(encoding="utf-8", errors="replace")
    if said := re.search(r"""^__version__ *= *["'](\d+\.\d+[^"']*)""", text, re.MULTILINE):
        return [said[1]]
    from perfci.core.environment import installed

    return list(installed(("triton", "triton-ascend", "pytorch-triton")).values())


def release(version: str) -> tuple[int, int]:
    """Major and minor; 0 where a version has no numbers."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    return (*numbers, 0, 0)[0], (*numbers, 0, 0)[1]
