"""Which chains a project has: kernels/_chains/<name>_chain.py, found without importing anything."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci.core.errors import UsageError

FOLDER = "_chains"
"""In the kernels folder; no op, since its name begins with an underscore."""

ENDING = "_chain.py"


@dataclass(frozen=True)
class ChainFile:
    """One chain."""

    name: str
    path: Path


def known_chains(kernels: Path) -> tuple[ChainFile, ...]:
    """Every chain below a kernels folder, by name."""
    folder = kernels / FOLDER
    found = sorted(path for path in folder.glob(f"*{ENDING}") if path.is_file() and path.name[0] not in "._")
    return tuple(ChainFile(path.name.removesuffix(ENDING), path) for path in found)


def chain_files(kernels: Path) -> tuple[ChainFile, ...]:
    """The same; raises UsageError where there is none."""
    found = known_chains(kernels)
    if not found:
        raise UsageError("chain_none", folder=str(kernels / FOLDER))
    return found


def select(found: Sequence[ChainFile], name: str | None) -> tuple[ChainFile, ...]:
    """The chain of a name, or all of them; raises UsageError for a name that none has, with the nearest one."""
    if name is None:
        return tuple(found)
    chosen = tuple(each for each in found if each.name == name)
    if not chosen:
        known = [each.name for each in found]
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)
        raise UsageError("chain_unknown", chain=name, guess=near[0], known=", ".join(known))
    return chosen
