"""Lines for `thresholds/<op>.yaml` that accept a slow-down which is meant: to be pasted as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby

from perfci.core.model import Judgements, Suggestion
from perfci.core.wording import say
from perfci.report.text import plain

KEY = "expected:"

MOST = 12
"""Most entries of one file that are written out; as JSON the answer has them all."""

ROOM = 3500
"""Most characters of them."""


@dataclass(frozen=True)
class Pasting:
    """What goes to one place of one file."""

    said: str
    """which way of taking a slow-down applies when, and where this one's lines go"""
    lines: tuple[str, ...]
    more: str = ""
    """a sentence about those left out"""


def pastings(judgements: Judgements) -> tuple[Pasting, ...]:
    """The entries that would make this run's slow-downs EXPECTED, by where they are to be put.

    Those that take another's place come first in a file: the others move the lines below them.
    """
    found = [row.suggested for row in judgements.rows if row.suggested]
    placed = sorted(found, key=_place)
    return tuple(_pasting(list(group)) for _, group in groupby(placed, _place))


def _place(suggestion: Suggestion) -> tuple[str, bool, int]:
    replaced = suggestion.replaces
    return suggestion.file, replaced is None, -(replaced or 0)


def _pasting(group: Sequence[Suggestion]) -> Pasting:
    first, ends = group[0], accumulate(len(suggestion.line) for suggestion in group)
    kept = [suggestion.line for suggestion, end in zip(group, ends, strict=True) if end <= ROOM][:MOST]
    left = len(group) - len(kept)
    more = say("Entries that are left out here: {count}; --format json has them all.", count=left) if left else ""
    which = say(
        "If the slow-down is meant: in a merge request, agree on it by the entry below; on the default branch, store "
        "it by perfci accept RUN --slower --why TEXT. perfci thresholds relax is for noise."
    )
    return Pasting(f"{which} {_said(first)}", tuple(_lines(first, kept)), more)


def _said(where: Suggestion) -> str:
    file = plain(where.file)
    if where.replaces is not None:
        return say(
            "Put this into {file} in the place of the entry in line {line}, with the reason filled in; whoever owns "
            "that file approves it with the change:",
            file=file,
            line=where.replaces,
        )
    if where.below is not None:
        return say(
            "Add this to {file} right below line {line}, with the reason filled in; whoever owns that file approves it "
            "with the change:",
            file=file,
            line=where.below,
        )
    return say(
        "Add this at the end of {file}, with the reason filled in; whoever owns that file approves it with the change:",
        file=file,
    )


def _lines(where: Suggestion, entries: Iterable[str]) -> Iterator[str]:
    if where.below is None:
        yield KEY
    yield from entries
