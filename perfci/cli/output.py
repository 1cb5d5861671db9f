"""Printing: lines and tables for people, JSON for programs, and the answer of everything that judges."""

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from perfci.cli.exits import exit_code
from perfci.core import commands
from perfci.core.codec import encode
from perfci.core.model import Gate, Judgements, Reason, Run
from perfci.core.settings import Settings
from perfci.core.wording import join, say, sentence
from perfci.judge.accuracy import take_once
from perfci.report import data, rows
from perfci.report.peers import describe_peers
from perfci.report.steps import make_pastings
from perfci.report.summary import make_head
from perfci.report.text import BLOCK_LIMIT, NAME_LIMIT, plain, spell
from perfci.report.view import Table, make_table
from perfci.runs.decide import read_context

_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|(?<=##)\\[|(?<=##vso)\\[")
"""What in JSON's strings a terminal, a log or an eye takes for more than text, as far as the encoder leaves it."""

STYLES = {Gate.FAILS: "bold red", Gate.WARNS: "bold yellow", Gate.OK: "green"}

_NARROWEST = 14  # width that a column keeps on the narrowest terminal, with the gap behind it


@dataclass(frozen=True)
class Paragraph:
    """A text without terminal commands. A terminal folds it at its indent. In a log it is one line."""

    text: str | Reason
    indent: int = 0
    style: str = ""
    folds: bool = True  # not what is to be copied

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        words = plain(self.text if isinstance(self.text, str) else sentence(self.text), BLOCK_LIMIT)
        if console.is_terminal and words and self.folds:
            yield Padding(Text(words, style=self.style), (0, 0, 0, self.indent), expand=False)
        else:
            yield Text(" " * self.indent + words, style=self.style, no_wrap=True, overflow="ignore")


@dataclass(frozen=True)
class Grid:
    """A table without lines, as wide as its cells. On a narrow terminal it leaves columns out or folds their cells."""

    table: Table
    title: str = ""
    minor: tuple[str, ...] = ()  # headings of columns that are left out first, before those on the right
    styles: Sequence[str] = ()  # of the rows' first cells
    below: Sequence[Iterable[RenderableType]] = ()  # what is printed under each row
    indent: int = 2

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        limit = NAME_LIMIT if console.is_terminal else BLOCK_LIMIT
        rows = [tuple(plain(cell, limit) for cell in row) for row in self.table.rows]
        widths = [2 + max(map(cell_len, column)) for column in zip(self.table.columns, *rows, strict=True)]
        kept = list(range(len(widths)))
        room = options.max_width - self.indent if console.is_terminal else sys.maxsize
        if sum(widths) > room:
            kept = [at for at in kept if self.table.columns[at] not in self.minor]
        while len(kept) > 1 and sum(min(widths[at], _NARROWEST) for at in kept) > room:
            kept.pop()
        while len(kept) > 1 and sum(widths[at] for at in kept) > room:
            widths[max(kept, key=widths.__getitem__)] -= 1

        def show(cells: Sequence[str], first: str, rest: str = "") -> RenderResult:
            line = RichTable.grid(padding=(0, 2, 0, 0))
            for at in kept:
                justify: JustifyMethod = "right" if at in self.table.right else "left"
                line.add_column(width=widths[at] - 2, justify=justify, overflow="fold")
            shown = (_fold(cells[at], widths[at] - 2) for at in kept)
            line.add_row(*(Text(cell, style=first if at == 0 else rest) for at, cell in zip(kept, shown, strict=True)))
            return console.render(
                Padding(line, (0, 0, 0, self.indent), expand=False),
                options.update(width=sum(widths[at] for at in kept) + self.indent),
            )

        if self.title:
            yield Text(self.title, style="italic")
        yield from show(self.table.columns, "dim", "dim")
        for at, row in enumerate(rows):
            yield from show(row, self.styles[at] if self.styles else "")
            yield from self.below[at] if self.below else ()


def _fold(cell: str, width: int) -> str:
    """Breaks a cell that is too wide behind its commas and blanks, so that the parameters of a case stay whole."""
    lines = [""]
    for part in re.split(r"(?<=[, ])", cell):
        if lines[-1] and cell_len(lines[-1] + part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return "\n".join(lines)


def print_parts(parts: Iterable[RenderableType], console: Console | None = None) -> None:
    """Prints for a terminal or a log. A plain string is a line."""
    out = console or Console(highlight=False)
    for part in parts:
        # In a log a line is a line: nothing is cut to a width that no one has.
        line = Paragraph(part) if isinstance(part, str) else part
        out.print(line, soft_wrap=not out.is_terminal, crop=False)


def print_lines(*lines: str) -> None:
    """Prints lines as they are, also for the clipboard."""
    for line in lines:
        print(line)


def print_json(answer: Any) -> None:
    """Prints an answer for programs. Each reason in it has its sentence beside it."""
    write_json(encode(data.write_plain(answer)).decode())


def print_found(answer: Any, parts: Iterable[RenderableType], *, json: bool, console: Console | None = None) -> None:
    """Prints an answer for programs, or its parts for people."""
    if json:
        print_json(answer)
    else:
        print_parts(parts, console)


def write_json(json: str) -> None:
    """Prints JSON without terminal commands. It is written as bytes, so that no line ends change."""
    text = _UNSEEN.sub(lambda match: f"\\u{ord(match.group()):04x}", json.rstrip("\n"))
    sys.stdout.buffer.write(text.encode() + b"\n")


FINE_ROWS = 40  # Most rows shown of what is fine. The report has all.
_INDENT = 14  # where sentences stand under their row


def list_verdicts(judgements: Judgements, run: Run | None = None, reading: str = "") -> Iterator[RenderableType]:
    """Returns the verdict table with the notes, what failed first. Each reason is printed under its row.

    Of the statistics one line is shown, which names with `reading` the place of the others.
    """
    doubt = rows.find_doubt(judgements)
    judgements = replace(judgements, notes=tuple(note for note in judgements.notes if note.kind not in rows.STATISTICS))
    first, above, last = rows.split_notes(judgements, run)
    yield from (Paragraph(note, style=STYLES[Gate.WARNS]) for note in first)
    head = make_head(run, judgements)
    styles = [STYLES[gate] for gate in head.gates]
    for text in head.sentences[:-1]:  # the last one is about the gate
        yield Paragraph(spell(text, ""), style=styles[0] if styles else "")
    if head.table.rows:
        cells = tuple(tuple(spell(cell, "") for cell in row) for row in head.table.rows)
        yield Grid(replace(head.table, rows=cells), styles=styles, indent=0)
        for line in head.step.command.splitlines() if head.step else ():
            yield Paragraph(say("Next: {advice}", advice=line), folds=False)
        yield from (Paragraph(line, 2, "dim", folds=False) for line in head.changes)
        yield ""
    yield from map(Paragraph, above)
    shown = sorted(rows.make_rows(judgements), key=lambda row: not row.aloud)
    aloud = sum(row.aloud for row in shown)
    kept, left = shown[: aloud + FINE_ROWS], shown[aloud + FINE_ROWS :]
    yield from _show_rows(kept, aloud)
    if left:
        tally = rows.write_tally(rows.count_verdicts(left).items())
        yield Paragraph(say("... and {tally} more; the report lists them all.", tally=tally), style="dim")
    if run:
        yield Paragraph(_describe_origin(run), style="dim")
        limits = take_once(op.unavailable for op in run.static.ops) if run.static and not run.ops else []
        yield from (Paragraph(why, style="dim") for why in limits)
    yield from (Paragraph(note, style="dim") for note in last)
    if doubt is not None:
        sure = say("How sure: at most {chance:%} chance of any false alarm. {reading}", chance=doubt, reading=reading)
        yield Paragraph(sure.rstrip(), style="dim")


def list_failed(judgements: Judgements, *, strict: bool) -> Iterator[RenderableType]:
    """Returns the rows that fail the gate, each with its reason, and nothing else."""
    failed = [
        row for row in rows.make_rows(judgements) if row.gate is Gate.FAILS or (strict and row.gate is Gate.WARNS)
    ]
    return _show_rows(failed, len(failed))


def _show_rows(kept: Sequence[rows.VerdictRow], aloud: int) -> Iterator[RenderableType]:
    """Returns the table of verdicts. The first `aloud` rows are about what is not fine."""
    below: list[list[Paragraph]] = []
    for at, row in enumerate(kept):
        repeated = at > aloud and row.sentence == kept[at - 1].sentence
        quiet = row.quiet or repeated or not row.sentence
        below.append([] if quiet else [Paragraph(row.sentence, _INDENT, "" if row.aloud else "dim")])
    numbers = ((row.change, row.change_range or "-", row.speedup, row.speedup_range or "-") for row in kept)
    table = make_table(
        "verdict | op and case | change: | interval: | speedup: | interval: | kernel: | host: | reference:",
        (
            (str(row.verdict), f"{row.op} {row.where}", *cells, row.kernel, row.host, row.reference)
            for row, cells in zip(kept, numbers, strict=True)
        ),
    )
    if kept:
        yield Grid(table, minor=(say("interval"),), styles=[STYLES[row.gate] for row in kept], below=below, indent=0)


def _describe_origin(run: Run) -> str:
    """Returns where the numbers come from."""
    where, static = run.environment, run.static
    commit = say(", commit {commit}", commit=where.commit[:12]) if where.commit else ""
    if commit and where.dirty:
        commit += say(" with uncommitted changes")
    if static and not run.ops:
        targets = ", ".join(static.targets)
        text = say("Compiled for {targets} by {by}{commit}.", targets=targets, by=static.toolchain, commit=commit)
        before = static.base_toolchain
        return join([text, say("The base was compiled by {tools}.", tools=before)]) if before else text
    seed = say("a seed for each op") if run.seed is None else say("seed {seed}", seed=run.seed)
    return say("On {device}{commit}, {seed}.", device=describe_device(run), commit=commit, seed=seed)


def describe_device(run: Run) -> str:
    """Returns the device, and the timer of its launches if any were timed."""
    device, timer = run.environment.device.name, run.environment.timer
    return say("{device}, timer {timer}", device=device, timer=timer) if timer else device


def sum_up(judgements: Judgements, *, strict: bool = False, shard: str | None = None) -> Paragraph:
    """Returns the closing line: 4 ops, 31 verdicts: 1 REGRESSED, 30 PASS -> fails (exit 2). A shard decides nothing."""
    if shard:
        facts = {"shard": shard, "counted": rows.write_counts(rows.count_all(judgements))}
        return Paragraph(say("Shard {shard}: {counted}; `perfci ci merge` decides, once it has them all.", **facts))
    failed_by_warning = strict and judgements.gate is Gate.WARNS
    text = rows.write_summary(judgements, 2 if failed_by_warning else None)
    text = say("{summary}, as --strict asks", summary=text) if failed_by_warning else text
    return Paragraph(text, style=STYLES[Gate.FAILS if failed_by_warning else judgements.gate])


def print_verdicts(
    run: Run, judgements: Judgements, *, json: bool, strict: bool = False, shard: str | None = None, reading: str = ""
) -> None:
    """Prints the verdicts for programs, or their table with its notes and the closing line. reading: where all is."""
    if json:
        print_json(data.to_json(judgements, run))
        return
    print_parts(list_verdicts(judgements, run, reading))
    for text, lines in make_pastings(judgements):
        print_parts([text])
        # Not through the console, which breaks lines that are to be copied.
        print_lines(*lines)
    for op in run.ops:
        failures = (check.failure for check in op.accuracy)
        for python in dict.fromkeys(why.facts["python"] for why in failures if why and "python" in why.facts):
            print_parts([say("{op} is wrong; these lines show it, run at the project's root:", op=op.op)])
            print_lines(str(python))
    print_parts([*describe_peers(judgements.rows), sum_up(judgements, strict=strict, shard=shard)])


def tell_of(run: Run, *paths: Path) -> None:
    """Have the commands that are printed from here on be about a run in a file or folder, or about several."""
    commands.read_by(commands.get_reader().asked_for(run).told_of(*paths))


def conclude(
    run: Run,
    judgements: Judgements,
    where: Settings,
    *,
    strict: bool,
    json: bool,
    html: bool = False,
    quiet: bool = False,
) -> int:
    """Prints the verdicts, writes the report, and returns the exit code. quiet: what failed and the closing line."""
    from perfci import report

    tell_of(run, where.reports)
    # The verdicts first: they are known even if the report cannot be written.
    if quiet and not json:
        print_parts([*list_failed(judgements, strict=strict), sum_up(judgements, strict=strict)])
    else:
        reading = say("The report has the tests, under Notes.")
        print_verdicts(run, judgements, json=json, strict=strict, reading=reading)
    formats = [*report.list_standard(), *(["html"] if html else [])]
    written = write_report(run, judgements, where, where.reports, formats)
    if not (json or quiet):
        print_lines(*written)
    return exit_code(judgements.gate, strict=strict)


def write_report(
    run: Run,
    judgements: Judgements,
    where: Settings,
    folder: Path,
    formats: Iterable[str],
    launches: Path | None = None,
    against: Path | None = None,
) -> list[str]:
    """Writes the report and returns lines that name its files."""
    from perfci import report

    stored, formats = read_context(run, where, against), tuple(formats)
    path = report.write(
        run, judgements, folder, launches or folder, stored.baselines, extras=stored.extras, formats=formats
    )
    page = say("Page: {path}", path=relative(path.with_suffix(".html")))
    lines = {"md": say("Report: {path}", path=relative(path)), "html": page}
    return [line for name, line in lines.items() if name in formats]


def get_command() -> str:
    """Returns the command that was typed."""
    return shlex.join(["perfci", *sys.argv[1:]])


def relative(path: Path) -> str:
    """Returns a path to be shown, from the current folder if it is there."""
    here = Path.cwd()
    shown = str(path.relative_to(here) if path.is_relative_to(here) else path)
    return "".join(mark for mark in shown if mark.isprintable())
