"""A new op: its four files and its page, all of them written or none."""

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from perfci.core.model import Reason
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


@dataclass(frozen=True)
class Copy:
    """A file that an op gets a copy of, since it does not import it."""

    name: str  # of the copy in the op's folder
    text: str
    original: str  # from the project's root
    digest: str  # of the original


@dataclass(frozen=True)
class Draft:
    """An op's four files, not yet written."""

    texts: Mapping[str, str]  # part -> text of its file
    look: tuple[Reason, ...] = ()  # what could not be derived, for a person to look at
    carried: tuple[Reason, ...] = ()  # what came from where
    copies: tuple[Copy, ...] = ()  # further files of the op's folder
    shared: Mapping[str, str] = field(default_factory=dict)
    """files beside the ops that they share. One that is there stays as it is"""


def write(found: OpPlace, draft: Draft) -> tuple[Path, ...]:
    """Write the four files, a page about them, and what they need: all or none. Returns their paths.

    Raises StoredFileError.
    """
    texts = {found.file(part): draft.texts[part] for part in PARTS}
    page = resources.files("perfci.scaffold").joinpath("templates", "op.md.txt").read_text(encoding="utf-8")
    texts[found.folder / f"{found.op}.md"] = string.Template(page).substitute(op=found.op)
    texts |= {found.folder / copy.name: copy.text for copy in draft.copies}
    beside = {found.kernels / name: text for name, text in draft.shared.items()}
    texts |= {path: text for path, text in beside.items() if not path.exists()}
    edits.write(edits.Edit(path, None, text) for path, text in texts.items())
    return tuple(texts)


def draft_from_template(op: str, folder: Traversable, **facts: str) -> Draft:
    """Returns an op from the templates of its files in a folder, filled in with facts."""
    texts = {part: folder.joinpath(f"{part}.py.txt").read_text(encoding="utf-8") for part in PARTS}
    facts |= {"op": op, **write_imports(op)}
    return Draft({part: string.Template(text).substitute(facts) for part, text in texts.items()})


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
