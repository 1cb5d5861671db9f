"""Tier 0 of identity: all files that an op's code can come from, by content. Nothing is imported, compiled or run.

Two revisions whose fingerprints are the same run the same code, so long as the toolchain is the same. What the syntax
does not tell makes a fingerprint opaque, and an opaque one is the same as none.
"""

from __future__ import annotations

from pathlib import Path

from perfci.ops.fingerprint.tree import Fingerprint, Tree


def fingerprint(root: Path, kernels: Path, op: str) -> Fingerprint:
    """The fingerprint of one op of the project at `root`; a `Tree` reads what several ops share only once."""
    return Tree(root, kernels).fingerprint(op)


def same(head: Fingerprint, base: Fingerprint) -> bool:
    """Whether both certainly run the same code."""
    return head.opaque is None and base.opaque is None and head.digest == base.digest


def changed_files(head: Fingerprint, base: Fingerprint) -> tuple[str, ...]:
    """The files that differ, or that only one of the two needs, by name."""
    return tuple(sorted({name for name, _ in head.files.items() ^ base.files.items()}))
