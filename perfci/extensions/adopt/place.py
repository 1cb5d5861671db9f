"""Where the folder of a new op goes, and which names it may not have."""

import keyword
import re
from collections.abc import Mapping
from pathlib import Path

from perfci.core.errors import UsageError
from perfci.ops.fingerprint.finder import PARTS
from perfci.scaffold.new import OpPlace

TAKEN = frozenset({"torch", "triton", "tl", "perfci", "kernel", "reference", "make_inputs", "source"})
"""Names that the four files use for something else."""


def place_op(name: str, kernels: Path, known: Mapping[str, Path]) -> OpPlace:
    """Returns the place of a new op: `flash` gives kernels/flash, `attention/flash` gives kernels/attention/flash.

    Raises UsageError for a bad name, for what is there already, or if one op would hide another from discovery.
    """
    *above, op = name.split("/")
    for part in (*above, op):
        if part[:1] in {"", "_", "."} or "\\" in part:
            raise UsageError("new_folder_name", name=name, part=part)
    if not op.isidentifier() or keyword.iskeyword(op) or op in TAKEN:
        raise UsageError("new_op_name", op=op, guess="op_" + re.sub(r"\W+", "_", op).strip("_"))
    found = OpPlace(op, kernels.joinpath(*above, op), kernels)
    taken = next((found.file(part) for part in PARTS if found.file(part).exists()), None)
    if taken:
        raise UsageError("new_file_exists", file=str(taken))
    if op in known and known[op] != found.folder:
        raise UsageError("new_op_exists", op=op, folder=str(known[op]))
    for other, folder in known.items():
        if folder in found.folder.parents or found.folder in folder.parents:
            raise UsageError("new_op_nested", op=op, other=other, folder=str(folder))
    return found
