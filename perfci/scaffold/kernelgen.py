"""Which of the files in a folder are the sketch that `perfci new OP --from-kernelgen DIR` is about."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field
from pathlib import Path

from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.scaffold.new import PARTS

_FILE = re.compile(
    r"(?P<before>test_)?(?P<op>[A-Za-z]\w*?)(?:_v(?P<version>\d+))?_"
    r"(?:(?P<plain>triton|baseline)|(?:test_(?:\w+_)?)?(?P<test>accuracy|performance))\.py"
)


@dataclass
class SketchVersion:
    """One version of one sketch."""

    op: str
    version: int | None
    files: dict[str, Path] = field(default_factory=dict)
    """part -> file"""

    @property
    def stem(self) -> str:
        """What its files' names begin with."""
        return self.op if self.version is None else f"{self.op}_v{self.version}"


def choose(op: str, folder: Path, version: int | None) -> tuple[SketchVersion, tuple[Reason, ...]]:
    """The sketch of this name, such as broadcast_v1, or the newest version of this op. What else the folder holds.

    A folder's only sketch may become an op of any name. Raises UsageError if there is no such sketch, or not all of it.
    """
    if not folder.is_dir():
        raise UsageError("kernelgen_no_folder", folder=str(folder))
    found: dict[tuple[str, str], SketchVersion] = {}
    for path in sorted(folder.iterdir()):
        if match := _FILE.fullmatch(path.name):
            number = match["version"]
            key = match["op"], number or ""
            sketch = found.setdefault(key, SketchVersion(match["op"], None if number is None else int(number)))
            sketch.files[match["plain"] or match["test"]] = path
    ops = {each.op for each in found.values()}
    if not ops:
        raise UsageError("kernelgen_no_files", folder=str(folder))
    mine = [each for each in found.values() if op in {each.op, each.stem}]
    if not mine and len(ops) == 1:
        mine = list(found.values())
    if not mine:
        known = ", ".join(sorted(each.stem for each in found.values()))
        guess = next(iter(difflib.get_close_matches(op, sorted(ops), n=1)), None)
        kind = "kernelgen_misspelt" if guess else "kernelgen_no_op"
        raise UsageError(kind, op=op, folder=str(folder), guess=guess, known=known)
    wanted = [each for each in mine if version is None or each.version == version]
    if not wanted:
        known = ", ".join(sorted(str(each.version) for each in mine))
        raise UsageError("kernelgen_no_version", op=op, version=version, known=known, folder=str(folder))
    chosen = max(wanted, key=lambda each: each.version or 0)
    if missing := [part for part in PARTS if part not in chosen.files]:
        lacking = ", ".join(f"_{part}" for part in missing)
        raise UsageError("kernelgen_half", missing=lacking, sketch=chosen.stem, folder=str(folder))
    others = sorted(each.stem for each in found.values() if each is not chosen)
    return chosen, (Reason("left_sketches", {"others": ", ".join(others)}),) if others else ()
