"""Everything that the report's template shows, as finished Markdown text: no arithmetic is left to the template."""

from __future__ import annotations

from dataclasses import dataclass

FOLD_ROWS = 15
"""Rows above which a table that reports no failure is folded."""


@dataclass(frozen=True)
class Table:
    """Cells are escaped Markdown; `right` names the columns that hold numbers."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()

    @property
    def folded(self) -> bool:
        """Whether it is too long to stand open."""
        return len(self.rows) > FOLD_ROWS


@dataclass(frozen=True)
class Picture:
    """A PNG beside the report."""

    file: str
    alt: str
    shows: int = 0
    """cases in it, where anything depends on it"""


@dataclass(frozen=True)
class Part:
    """A titled table of an op's section with what one must know to read it."""

    title: str
    note: str
    table: Table


@dataclass(frozen=True)
class Message:
    """A long message in full: a traceback, a compiler's output."""

    title: str
    block: str


@dataclass(frozen=True)
class History:
    """What the accepted runs of an op say beside this one."""

    damage: str = ""
    """a sentence; with it there is nothing else"""
    title: str = ""
    """plain, as the line of what is folded"""
    lines: tuple[str, ...] = ()
    said: tuple[str, ...] = ()
    """sentences about creep, and steps that nothing explains"""
    pictures: tuple[Picture, ...] = ()
    pictures_note: str = ""
    table: Table = Table((), ())
    """a row a case"""
    marks: Table | None = None
    """what moved the numbers; None where nothing did"""
    marks_note: str = ""


@dataclass(frozen=True)
class Section:
    """One op."""

    name: str
    tally: str
    speedup: str
    """a sentence with the geometric mean; empty of fewer than two cases"""
    changed: str
    """a sentence with the files that a change touches; empty where none are known"""
    problems: tuple[str, ...]
    """sentences about what failed or could not be measured, then notes"""
    messages: tuple[Message, ...]
    speedups: tuple[Picture, ...]
    traces: tuple[Picture, ...]
    traces_note: str
    duels: tuple[Picture, ...]
    distributions: tuple[Picture, ...]
    distributions_note: str
    """what the curves are, and which cases are not drawn"""
    sizes: tuple[Picture, ...]
    rooflines: tuple[Picture, ...]
    parts: tuple[Part, ...]
    facts: tuple[str, ...]
    history: History | None = None
    """None where no history has any of its cases"""
    lowprec: tuple[Picture, ...] = ()
    """of what it stores in low precision"""


@dataclass(frozen=True)
class Compiled:
    """What was compiled without a device."""

    head: str
    """for what, by what, and how the figures are to be read"""
    problems: tuple[str, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Peers:
    """Further implementations beside the kernels."""

    note: str
    lines: tuple[str, ...]
    """one an op"""
    parts: tuple[Part, ...]
    """a table for ops with the same peers"""
    left_out: tuple[str, ...]
    """sentences: which peer has no time in which case, and why"""


@dataclass(frozen=True)
class Step:
    """What to type next where a verdict is not what one hoped for."""

    verdict: str
    advice: str
    command: str
    """a fenced block"""


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
    """what fails, what warns, and what is fine too where that is short"""
    fine: Table | None
    """what is fine, folded away"""
    fine_title: str
    notes: tuple[str, ...]
    means: Part | None
    """the ops' speedups beside each other"""
    peers: Peers | None
    """None where none were asked for, or nothing was timed"""
    roofline: Picture | None
    """of all ops"""
    roofline_note: str
    ops: tuple[Section, ...]
    untouched: str
    """a sentence about ops without a section; empty where all have one"""
    compiled: Compiled | None
    thresholds: Part | None
    """where those in force come from that people did not simply write; None where they wrote all"""
    environment: Table
    clocks: Table
    repeat: str
    """a fenced block with the command that repeats the run"""
    reading: tuple[str, ...]
    """what one must know to read this page"""
    steps: tuple[Step, ...]
