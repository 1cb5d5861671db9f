"""A new op: where its folder goes, which names it may not have, and what is written."""

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from perfci.core.errors import UsageError
from perfci.core.files import read_regular
from perfci.core.model import Reason
from perfci.ops.fingerprint.finder import PARTS
from perfci.scaffold.edits import Edit
from perfci.scaffold.edits import write as write_edits
from perfci.scaffold.new import OpPlace, write

TAKEN = frozenset({"torch", "triton", "tl", "perfci", "kernel", "reference", "make_inputs", "source"})
"""Names that the four files use for something else."""


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
    """files beside the ops that they share. An older one of perfci's is renewed"""
    is_ready: bool = True  # a trial has shown that kernel and reference agree
    call: str = ""  # text of the file with the call that a person corrects. Empty if there is nothing to correct


def call_file(place: OpPlace) -> Path:
    """Returns the file with the call of a function for which no form agreed: an op that has it is written anew."""
    return place.folder / f"{place.op}_call.py"


def place_op(name: str, kernels: Path, folders: Mapping[str, Path], *, anew: bool = False) -> OpPlace:
    """Returns the place of a new op: `flash` gives kernels/flash, `attention/flash` gives kernels/attention/flash.

    anew: an op that was not ready may be there. Raises UsageError for a bad name, for what is there already, or if one
    op would hide another from discovery.
    """
    *above, op = name.split("/")
    for part in (*above, op):
        if part[:1] in {"", "_", "."} or "\\" in part:
            raise UsageError("new_folder_name", name=name, part=part)
    if not op.isidentifier() or keyword.iskeyword(op) or op in TAKEN:
        raise UsageError("new_op_name", op=op, guess="op_" + re.sub(r"\W+", "_", op).strip("_"))
    place = OpPlace(op, kernels.joinpath(*above, op), kernels)
    taken = next((place.file(part) for part in PARTS if place.file(part).exists()), None)
    if taken and not (anew and call_file(place).is_file()):
        raise UsageError("new_file_exists", file=str(taken))
    if op in folders and folders[op] != place.folder:
        raise UsageError("new_op_exists", op=op, folder=str(folders[op]))
    for other, folder in folders.items():
        if folder in place.folder.parents or place.folder in folder.parents:
            raise UsageError("new_op_nested", op=op, other=other, folder=str(folder))
    return place


def write_draft(place: OpPlace, draft: Draft) -> tuple[Path, ...]:
    """Write an op's files: all or none. Returns their paths. Raises StoredFileError."""
    further = {place.folder / copy.name: copy.text for copy in draft.copies}
    beside = {place.kernels / name: text for name, text in draft.shared.items()}
    new = {path: text for path, text in beside.items() if not path.exists()}
    before = {path: read_regular(path).decode(errors="replace") for path in beside.keys() - new.keys()}
    call, anew = call_file(place), call_file(place).is_file()
    further |= {call: draft.call} if draft.call and not anew else {}
    written = write(place, draft.texts, further | new, anew=anew)
    if anew and draft.is_ready:
        call.unlink()
    # One of an earlier perfci lacks functions that the op calls. Another's file begins in another way.
    old = [Edit(path, text, beside[path]) for path, text in before.items() if text != beside[path]]
    old = [edit for edit in old if edit.before and edit.before.split("\n")[0] == edit.after.split("\n")[0]]
    write_edits(old)
    return (*written, *(edit.path for edit in old))
