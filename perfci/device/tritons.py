"""The installed Triton: which release, and whether perfci knows it. Imports neither Triton nor torch."""

import functools
import importlib.util
import re
from pathlib import Path

from perfci.core.environment import installed_versions
from perfci.core.model import Reason

KNOWN = ((3, 2), (3, 9))  # first and last release that perfci is made for. docs/versions.md has those that were run


@functools.cache
def explain_unknown_triton() -> Reason | None:
    """Why nothing can be done that needs Triton's internals: the release is newer than those that perfci knows."""
    newer = [version for version in find_triton_versions() if release(version) > KNOWN[1]]
    first, last = ("{}.{}".format(*end) for end in KNOWN)
    return Reason("triton_unknown", {"triton": newer[0], "first": first, "last": last}) if newer else None


def find_triton_versions() -> list[str]:
    """Of the Triton that ops would import, by its file. Of all that are installed if the file does not name it."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return []
    text = Path(spec.origin).read_text(encoding="utf-8", errors="replace")
    if triton_versions := re.search(r"""^__version__ *= *["'](\d+\.\d+[^"']*)""", text, re.MULTILINE):
        return [triton_versions[1]]
    return list(installed_versions(("triton", "triton-ascend", "pytorch-triton")).values())


def release(version: str) -> tuple[int, int]:
    """Major and minor. 0 if a version has no numbers."""
    major, minor, *_ = *map(int, re.findall(r"\d+", version)[:2]), 0, 0
    return major, minor
