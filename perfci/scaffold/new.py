"""A new op: where its folder goes, what its four files hold, and writing all four of them or none."""

from __future__ import annotations

import contextlib
import keyword
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from perfci.core.errors import StoredFileError, UsageError
from perfci.core.model import Reason

PARTS = ("triton", "baseline", "accuracy", "performance")
"""The four files are `<op>_<part>.py`."""

WIDTH = 120
"""Longest line that is written."""

TAKEN = frozenset({"torch", "triton", "tl", "perfci", "kernel", "reference", "make_inputs", "source"})
"""Names that the four files use for something else."""


@dataclass(frozen=True)
class OpPlace:
    """Where an op goes."""

    op: str
    folder: Path
    kernels: Path
    """the folder of all ops"""

    def file(self, part: str) -> Path:
        """One of the four."""
        return self.folder / f"{self.op}_{part}.py"


@dataclass(frozen=True)
class Draft:
    """An op's four files, not yet written."""

    texts: Mapping[str, str]
    """part -> text of its file"""
    look: tuple[Reason, ...] = ()
    """what could not be derived, for a person to look at"""
    left: tuple[Reason, ...] = ()
    """what a sketch had and the four files do not carry"""
    carried: tuple[Reason, ...] = ()
    """what came from where"""
    own: Mapping[str, str] = field(default_factory=dict)
    """further files of the op's folder, name -> text: somebody's own ones"""
    shared: Mapping[str, str] = field(default_factory=dict)
    """files beside the ops that they share. One that is there stays as it is"""


def place(name: str, kernels: Path, known: Mapping[str, Path]) -> OpPlace:
    """The place of a new op: `flash` gives kernels/flash, `attention/flash` gives kernels/attention/flash.

    `known` are the project's ops with their folders. Raises UsageError for what is no name for a Python function, for
    an op or a file that is there already, and if one of the two folders would hide the other from discovery.
    """
    *above, op = name.split("/")
    for part in (*above, op):
        if part[:1] in {"", "_", "."} or "\\" in part:
            raise UsageError("new_folder_name", name=name, part=part)
    if not op.isidentifier() or keyword.iskeyword(op):
        raise UsageError("new_op_name", op=op, guess=_guess_name(op))
    if op in TAKEN:
        raise UsageError("new_op_name_taken", op=op, guess=_guess_name(op))
    found = OpPlace(op, kernels.joinpath(*above, op), kernels)
    _refuse_known(found, known)
    return found


def write(found: OpPlace, draft: Draft) -> tuple[Path, ...]:
    """Write the four files, and those that they need. Gives their paths.

    All or none: a file that is there already, or one that cannot be written, takes back what was written before it.
    Raises UsageError for the first, StoredFileError for the second.
    """
    folders = [each for each in (found.folder, *found.folder.parents) if not each.exists()]
    texts = {found.file(part): draft.texts[part] for part in PARTS}
    texts |= {found.folder / name: text for name, text in draft.own.items()}
    beside = {found.kernels / name: text for name, text in draft.shared.items()}
    written: list[Path] = []
    try:
        found.folder.mkdir(parents=True, exist_ok=True)
        for path, text in {**texts, **{path: text for path, text in beside.items() if not path.exists()}}.items():
            with path.open("x", encoding="utf-8", newline="\n") as opened:
                written.append(path)
                opened.write(text)
    except BaseException as error:
        for file in written:
            file.unlink(missing_ok=True)
        for folder in folders:
            with contextlib.suppress(OSError):  # another program's file lies in it by now
                folder.rmdir()
        if isinstance(error, FileExistsError):
            raise UsageError("new_file_exists", file=str(error.filename)) from error
        if isinstance(error, OSError):
            place = str(error.filename or found.folder)
            raise StoredFileError("file_unwritable", path=place, why=error.strerror or str(error)) from error
        raise
    return tuple(written)


def plain(op: str) -> Draft:
    """A pointwise op in Triton, ready to run, with comments where one's own goes."""
    return Draft({part: template("op", part, op) for part in PARTS})


def fake(op: str) -> Draft:
    """An op of numpy for the fake device, which needs no torch."""
    return Draft({part: template("fake_op", part, op) for part in PARTS})


def template(kind: str, part: str, op: str) -> str:
    """A template's text, filled in for an op."""
    text = resources.files("perfci.scaffold").joinpath("templates", kind, f"{part}.py.txt").read_text(encoding="utf-8")
    return string.Template(text).substitute(op=op, **suite_imports(op))


def suite_imports(op: str) -> dict[str, str]:
    """How a suite's file imports the reference and the kernel."""
    lines = {}
    for part, names in (("baseline", sorted([f"{op} as reference", "make_inputs"])), ("triton", [f"{op} as kernel"])):
        line = f"from {op}_{part} import {', '.join(names)}"
        broken = "\n".join([f"from {op}_{part} import (", *(f"    {name}," for name in names), ")"])
        lines[f"import_{part}"] = line if len(line) <= WIDTH else broken
    return lines


def _guess_name(op: str) -> str:
    """A name for a function that is close to one that is none."""
    plain = "".join(letter if f"_{letter}".isidentifier() else "_" for letter in op).strip("_")
    if not plain.isidentifier():
        return f"op_{plain}" if plain else "my_op"
    return f"{plain}_op" if keyword.iskeyword(plain) or plain in TAKEN else plain


def _refuse_known(found: OpPlace, known: Mapping[str, Path]) -> None:
    for part in PARTS:
        if found.file(part).exists():
            raise UsageError("new_file_exists", file=str(found.file(part)))
    if found.op in known and known[found.op] != found.folder:
        raise UsageError("new_op_exists", op=found.op, folder=str(known[found.op]))
    for op, folder in known.items():
        if folder in found.folder.parents:
            raise UsageError("new_inside_op", op=found.op, other=op, folder=str(folder))
        if found.folder in folder.parents:
            raise UsageError("new_around_op", op=found.op, other=op, folder=str(folder))
    above = next((each for each in (found.folder, *found.folder.parents) if each.exists()), found.folder)
    if not above.is_dir():
        raise UsageError("new_folder_is_file", file=str(above))
