"""The base revision's kernel as an opponent: verified, captured, and proven to run its own code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfci.core.model import Reason
from perfci.device.seam import Accelerator


@dataclass(frozen=True)
class BaseKernel:
    """The kernel as of the base revision, imported beside the kernel under test."""

    kernel: Callable[..., Any]
    root: Path
    """where all that it imports lies"""
    head_root: Path
    """where all lies that the kernel under test imports"""
    inputs: str
    """digest of its make_inputs"""
    cases: frozenset[str]
    """performance cases that the base has too"""
    everything: bool = False
    """duel what is unchanged too"""
    nothing: bool = False
    """duel nothing"""
    audit: frozenset[str] = frozenset()
    """unchanged cases that are duelled all the same"""
    skip_unchanged: bool = True
    """what is unchanged and not duelled is not timed at all"""
    registered: frozenset[str] = frozenset()
    """namespaces of torch operators before either revision was imported"""

    def duels(self, case: str, same: bool | None) -> bool:
        """Whether a case is timed beside the base; what cannot be told is."""
        return not self.nothing and (same is not True or self.everything or case in self.audit)


class InseparableError(Exception):
    """The two revisions cannot be told apart in one process."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.kind)
        self.reason = reason


def refuse_operators(device: Accelerator, before: frozenset[str]) -> None:
    """Raise InseparableError where torch operators were registered since: of two under one name one serves both."""
    if added := sorted(device.registered() - before):
        raise InseparableError(Reason("registers_operators", {"namespace": added[0]}))


def stranger(sources: tuple[str, ...], own: Path, other: Path) -> str | None:
    """A launched function's file that belongs to the other revision; None where every launch is the arm's own."""
    return next((file for file in sources if _within(file, other) and not _within(file, own)), None)


def _within(file: str, root: Path) -> bool:
    return Path(file).is_relative_to(root)
