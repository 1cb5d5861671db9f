"""Everything that a report shows: plain text with the marks of `perfci.report.text`, which each format renders.

`perfci.report.rows` is the view of the verdicts alone. The terminal's tables, the note and JUnit need no more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from perfci.core import wording

FOLD_ROWS = 15
"""Rows above which a table that reports no failure is folded."""


@dataclass(frozen=True)
class Table:
    """A table. `right` are the places of the columns that hold numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[int] = frozenset()

    @property
    def folded(self) -> bool:
        """Whether it is too long to stand open."""
        return len(self.rows) > FOLD_ROWS

    def without_empty(self) -> Table:
        """The table without columns that hold nothing but dashes."""
        kept = [i for i in range(len(self.columns)) if i == 0 or any(row[i] != "-" for row in self.rows)]
        rows = tuple(tuple(row[i] for i in kept) for row in self.rows)
        right = frozenset(place for place, i in enumerate(kept) if i in self.right)
        return Table(tuple(self.columns[i] for i in kept), rows, right)


def make_table(headings: str, rows: Iterable[tuple[str, ...]]) -> Table:
    """A table with translated headings: "case | time:". A colon behind a heading puts its column to the right."""
    names = headings.split(" | ")
    right = frozenset(place for place, name in enumerate(names) if name.endswith(":"))
    translated = wording.phrases(wording.spoken())
    columns = (translated.get(name, name) for name in (name.rstrip(":") for name in names))
    return Table(tuple(columns), tuple(rows), right)


@dataclass(frozen=True)
class Picture:
    """A PNG beside the report, and the same as SVG for the page."""

    file: str
    alt: str
    shows: int = 0
    """cases in it, if anything depends on that"""
    case: str | None = None
    """the one that it is about"""
    svg: str = ""


@dataclass(frozen=True)
class Part:
    """A titled table with what one must know to read it."""

    title: str
    note: str
    table: Table


@dataclass(frozen=True)
class Message:
    """A long message in full: a traceback, a compiler's output."""

    title: str
    text: str


@dataclass(frozen=True)
class PastSection:
    """What the accepted runs of an op show beside this one."""

    damage: str = ""
    """a sentence. If there is one, there is nothing else"""
    title: str = ""
    lines: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    """sentences about creep, and steps that nothing explains"""
    pictures: tuple[Picture, ...] = ()
    pictures_note: str = ""
    table: Table = Table((), ())
    """a row a case"""
    marks: Table | None = None
    """what moved the numbers"""
    marks_note: str = ""


@dataclass(frozen=True)
class Section:
    """One op."""

    name: str
    tally: str
    speedup: str
    """a sentence with the geometric mean, empty if there are fewer than two cases"""
    changed: str
    """a sentence with the files that a change touches, empty if none are known"""
    problems: tuple[str, ...]
    """sentences about what failed or could not be measured, then notes"""
    messages: tuple[Message, ...]
    pictures: tuple[Picture, ...]
    """overviews, then those of single cases"""
    pictures_note: str
    """what is left out, empty if nothing is"""
    parts: tuple[Part, ...]
    facts: tuple[str, ...]
    history: PastSection | None = None


@dataclass(frozen=True)
class SharedSection:
    """A section about several ops: compiled kernels, peers."""

    note: str
    lines: tuple[str, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class NextStep:
    """What to type next if a verdict is not what one hoped for."""

    verdict: str
    advice: str
    command: str


@dataclass(frozen=True)
class Report:
    """The whole page."""

    gate: str
    first: tuple[str, ...]
    """what comes before everything: how a change alters its own judging"""
    headline: str
    summary: tuple[str, ...]
    """the whole in a handful of lines"""
    ran: Table
    above: tuple[str, ...]
    """what the verdicts are against"""
    verdicts: Table
    """what fails, what warns, and what is fine too if that is short"""
    fine: Table | None
    """what is fine, folded away"""
    fine_title: str
    notes: tuple[str, ...]
    means: Part | None
    """the ops' speedups beside each other"""
    peers: SharedSection | None
    roofline: Picture | None
    """of all ops"""
    roofline_note: str
    ops: tuple[Section, ...]
    untouched: str
    """a sentence about ops without a section"""
    compiled: SharedSection | None
    thresholds: Part | None
    """where thresholds in force come from that people did not simply write"""
    environment: Table
    clocks: Table
    repeat: str
    """the command that repeats the run"""
    reading: tuple[str, ...]
    """what one must know to read this page"""
    steps: tuple[NextStep, ...]
