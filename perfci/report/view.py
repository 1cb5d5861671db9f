"""What a report shows, whatever its format: sections of sentences with the marks of `text`, pictures and tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perfci.core import wording
from perfci.core.model import Gate

FOLD_ROWS = 15  # tables with more rows than this are folded if they report no failure


@dataclass(frozen=True)
class Table:
    """A table. `right` has the places of the columns that hold numbers."""

    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    right: frozenset[int] = frozenset()

    @property
    def folded(self) -> bool:
        """Returns whether the table is too long to be shown open."""
        return len(self.rows) > FOLD_ROWS


def make_table(headings: str, rows: Iterable[tuple[str, ...]]) -> Table:
    """Returns a table without columns of dashes alone. headings: "case | time:", a colon aligns to the right."""
    names, cells = headings.split(" | "), tuple(rows)
    kept = [at for at in range(len(names)) if at == 0 or not cells or any(row[at] != "-" for row in cells)]
    translated = wording.phrases(wording.spoken())
    plain = [names[at].rstrip(":") for at in kept]
    return Table(
        columns=tuple(translated.get(name, name) for name in plain),
        rows=tuple(tuple(row[at] for at in kept) for row in cells),
        right=frozenset(place for place, at in enumerate(kept) if names[at].endswith(":")),
    )


@dataclass(frozen=True)
class Picture:
    """A PNG, beside report.md and within the page."""

    file: str
    alt: str
    shows: int = 0  # number of cases in it, if something depends on that
    case: str | None = None  # the case that it is about, if it is about one alone
    png: bytes = b""


@dataclass(frozen=True)
class Message:
    """A long message in full: a traceback, a compiler's output."""

    title: str
    text: str


@dataclass(frozen=True)
class Section:
    """A piece of the report. What it has is shown in the order of these fields."""

    title: str
    texts: tuple[str, ...] = ()  # paragraphs
    lines: tuple[str, ...] = ()  # items of a list
    messages: tuple[Message, ...] = ()
    pictures: tuple[Picture, ...] = ()
    pictures_note: str = ""  # what the pictures leave out
    table: Table = Table()
    parts: tuple[Section, ...] = ()
    folded: bool = False

    def __bool__(self) -> bool:
        """Returns whether it has anything to show. Texts alone only explain what is missing here."""
        return bool(self.lines or self.messages or self.pictures or self.table.rows or self.parts)


@dataclass(frozen=True)
class NextStep:
    """What to type next if a verdict is not the one that was hoped for."""

    verdict: str
    advice: str
    command: str


@dataclass(frozen=True)
class Head:
    """What every reader sees first, whatever the format."""

    sentences: tuple[str, ...]  # what happened, how much, in how many cases and why, then what the gate does
    table: Table  # a row a cause, the gravest first
    gates: tuple[Gate, ...]  # of each row
    reasons: tuple[str, ...]  # of each row
    step: NextStep | None  # what to go on with
    changes: tuple[str, ...] = ()  # the first lines that the change alters, not made harmless yet


@dataclass(frozen=True)
class Report:
    """The whole page."""

    gate: str
    first: tuple[str, ...]  # what comes before everything: how a change alters its judging
    head: Head
    summary: tuple[str, ...]
    ran: Table
    verdicts: Section  # what they are compared with, every row, and reasons that the head does not have
    overview: tuple[Section, ...]  # what is about all ops
    ops: tuple[Section, ...]  # one section an op. The first text counts its verdicts
    untouched: str  # a sentence about ops without a section
    compiled: Section | None
    environment: Table
    clocks: Table
    repeat: str  # the command that repeats the run
    reading: tuple[str, ...]  # how to read this page
    steps: tuple[NextStep, ...]
