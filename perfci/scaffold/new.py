"""A new op: its four files and its page, all of them written or none."""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from perfci.ops.fingerprint.finder import PARTS
from perfci.scaffold import edits

WIDTH = 120  # longest line that is written


@dataclass(frozen=True)
class OpPlace:
    """Where an op goes."""

    op: str
    folder: Path
    kernels: Path  # the folder of all ops

    def file(self, part: str) -> Path:
        """Returns the path of one of the four files."""
        return self.folder / f"{self.op}_{part}.py"


def write(
    place: OpPlace, texts: Mapping[str, str], further: Mapping[Path, str], *, anew: bool = False
) -> tuple[Path, ...]:
    """Write the four files by their parts, a page about them, and further files: all or none. Returns their paths.

    anew: in the place of those that are there. Raises StoredFileError.
    """
    page = resources.files("perfci.scaffold").joinpath("templates", "op.md.txt").read_text(encoding="utf-8")
    files = {place.file(part): texts[part] for part in PARTS}
    files |= {place.folder / f"{place.op}.md": string.Template(page).substitute(op=place.op), **further}
    edits.write(edits.Edit(path, "" if anew else None, text) for path, text in files.items())
    return tuple(files)


def fill_templates(op: str, folder: Traversable, **facts: str) -> dict[str, str]:
    """Returns an op's files by their parts, from the templates in a folder, filled in with facts."""
    texts = {part: folder.joinpath(f"{part}.py.txt").read_text(encoding="utf-8") for part in PARTS}
    facts |= {"op": op, **write_imports(op)}
    return {part: string.Template(text).substitute(facts) for part, text in texts.items()}


def write_imports(op: str) -> dict[str, str]:
    """Returns the lines by which a suite's file imports the reference and the kernel."""
    names = {"baseline": sorted([f"{op} as reference", "make_inputs"]), "triton": [f"{op} as kernel"]}
    lines = {}
    for part, imported in names.items():
        line = f"from {op}_{part} import {', '.join(imported)}"
        broken = "\n".join(fit(f"from {op}_{part} import (", imported, ")"))
        lines[f"import_{part}"] = line if len(line) <= WIDTH else broken
    return lines


def fit(head: str, items: Sequence[str], tail: str, indent: str = "") -> list[str]:
    """Returns `head item, item tail` on one line if it fits, else an item a line."""
    line = f"{head}{', '.join(items)}{tail}"
    if len(line) + len(indent) <= WIDTH:
        return [line]
    return [head, *(f"    {item}," for item in items), tail]
