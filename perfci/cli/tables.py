"""What the commands show of a result: renderables for a terminal, plain lines elsewhere.

Plain lines are broken at PLAIN columns, between words only: whoever searches a log finds every case id in one piece.
Nothing here prints. All text is cleaned of terminal escapes, and no verdict is told by its colour alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from perfci.cli.details import show
from perfci.core.model import Gate, Judgements, Plan, PlannedOp, Reason, Run, Suite, Verdict
from perfci.core.wording import say, sentence
from perfci.lab.chains.records import ListedChain
from perfci.report import peers as beside
from perfci.report import rows, words
from perfci.report.rows import VerdictRow
from perfci.report.steps import make_pastings
from perfci.report.text import BLOCK_LIMIT, NAME_LIMIT, plain

if TYPE_CHECKING:
    from perfci.runs.accept import Acceptance
    from perfci.runs.doctor import Finding

__all__ = ["Shown", "acceptances", "chains", "findings", "ops", "pasted", "peers", "show", "summary", "verdicts"]

PLAIN = 160
"""Columns where there is no terminal, as in a pipeline's log."""

WIDE = 140
"""Columns from which a terminal gets the intervals too."""

FINE_ROWS = 40
"""Most rows shown of what is fine; the report has all."""

INDENT = 14
"""Where sentences stand under their row."""

STYLES = {Gate.FAILS: "bold red", Gate.WARNS: "bold yellow", Gate.OK: "green"}

_GAP = 2
_VERDICT, _TIME = 12, 9
_CHANGE, _CHANGE_RANGED = 9, 27
_SPEEDUP, _SPEEDUP_RANGED = 8, 24
_LONGEST_NAME = 64

_WIDE, _OPENING = "\u2e80-\u9fff\uf900-\uffe6", "\uff08\u300a"
_CLOSING = "\uff09\u300b\uff0c\uff1a\uff1b\uff01\uff1f\u3001\u3002"
_PIECE = re.compile(rf"[{_OPENING}]*(?:[^\s{_WIDE}]+|(?![{_OPENING}{_CLOSING}])[{_WIDE}])?[{_CLOSING}]*\s*")
"""What stays on one line: a word, or a Chinese character, each with its brackets and marks."""


@dataclass(frozen=True)
class Shown:
    """One thing in two forms; which of them is seen depends on where it is printed."""

    terminal: Callable[[int], Iterable[RenderableType]]
    """of the width in columns"""
    lines: Callable[[], Iterable[str]]
    """where there is no terminal"""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if console.is_terminal:
            yield from self.terminal(options.max_width)
        else:
            yield from (Text(line, no_wrap=True, overflow="ignore") for line in self.lines())


def verdicts(judgements: Judgements, run: Run | None = None) -> RenderableType:
    """The verdict table, what failed first; each reason stands under its row.

    Above it: how a change alters its own judging, and what it is compared with. Below: the other notes.
    """
    shown, hidden = _few(rows.make_rows(judgements))
    notes = rows.split_notes(judgements, run)
    first, above = [plain(note) for note in notes.first], [plain(note) for note in notes.above]
    below = [*hidden, *([_about(run)] if run else []), *_mixed(judgements), *(plain(note) for note in notes.below)]
    timed = any(row.suite is not Suite.COMPILED for row, _ in shown)

    def terminal(width: int) -> Iterator[RenderableType]:
        layout = _Layout.of(width, timed=timed)
        yield from (Text(line, style=STYLES[Gate.WARNS]) for line in first)
        yield from (Text(line) for line in above)
        yield Text(layout.line(*_header()), style="dim")
        for row, told in shown:
            yield from _terminal_row(row, told, layout)
        yield from (Text(line, style="dim") for line in below)

    def lines() -> Iterator[str]:
        layout = _Layout.plain([row for row, _ in shown], timed=timed)
        for line in (*first, *above):
            yield from wrapped(line, "")
        yield layout.line(*_header())
        for row, told in shown:
            yield layout.row(row, plain(f"{row.op} {row.where}", BLOCK_LIMIT))
            yield from wrapped(told, "    ")
        for line in below:
            yield from wrapped(line, "")

    return Shown(terminal, lines)


def summary(judgements: Judgements, *, strict: bool = False, shard: str | None = None) -> Text:
    """The closing line: 4 ops, 31 verdicts: 1 REGRESSED, 30 PASS -> fails (exit 2); a shard's decides nothing."""
    if shard:
        counted = rows.write_counts(rows.count_all(judgements))
        told = say(
            "Shard {shard}: {counted}; `perfci ci merge` decides, once it has them all.", shard=shard, counted=counted
        )
        return Text(told)
    failed_by_warning = strict and judgements.gate is Gate.WARNS
    text = rows.write_summary(judgements, 2 if failed_by_warning else None)
    text = say("{summary}, as --strict asks", summary=text) if failed_by_warning else text
    return Text(text, style=STYLES[Gate.FAILS if failed_by_warning else judgements.gate])


def peers(judgements: Judgements) -> RenderableType:
    """How each op's kernel stands beside its peers, in a line each; nothing where none were asked for."""
    told = [plain(line, BLOCK_LIMIT) for line in beside.describe_peers(judgements.rows)]
    return Shown(lambda _: map(Text, told), lambda: (line for one in told for line in wrapped(one, "")))


def pasted(judgements: Judgements) -> Iterator[tuple[RenderableType, tuple[str, ...]]]:
    """Where the entries go that would accept the slow-downs, and their lines: these are to be printed as they are."""
    for one in make_pastings(judgements):
        yield _paragraph(one.text), one.lines


def _paragraph(text: str) -> RenderableType:
    return Shown(lambda _: [Text(text)], lambda: wrapped(text, ""))


def ops(plan: Plan) -> RenderableType:
    """Every op with its cases."""
    text = Text("\n").join(_op_lines(op) for op in plan.ops)
    return text if plan.ops else Text(say("There are no ops here."))


def chains(listed: Sequence[ListedChain]) -> RenderableType:
    """Every chain of ops with its stages and its cases."""
    text = Text("\n").join(_chain_lines(chain) for chain in listed)
    return text if listed else Text(say("There are no chains of ops here."))


def acceptances(accepted: Sequence[Acceptance]) -> Iterator[RenderableType]:
    """What went into the baselines, and what did not and why."""
    for one in accepted:
        name, cases = plain(one.op, NAME_LIMIT), words.count_cases(len(one.accepted))
        head = say("{op}: {cases} accepted", op=name, cases=cases)
        refused = say(", {count} refused", count=len(one.refused)) if one.refused else ""
        yield Text(f"{head}{refused}", style=STYLES[Gate.FAILS if one.refused else Gate.OK])
        yield from (_sentence(reason) for reason in (*one.refused, *one.said))


def findings(found: Sequence[Finding]) -> Iterator[RenderableType]:
    """What stands in the way of a trustworthy run, problems first."""
    styles = {"problem": STYLES[Gate.FAILS], "note": STYLES[Gate.WARNS], "ok": STYLES[Gate.OK]}
    words = {"problem": say("problem"), "note": say("note"), "ok": say("ok")}
    for finding in sorted(found, key=lambda one: list(styles).index(one.level.value)):
        level = finding.level.value
        yield Text.assemble((set_cell_size(words[level], 8), styles[level]), "  ", plain(sentence(finding.reason)))


@dataclass(frozen=True)
class _Layout:
    """Widths of the columns, and whether intervals are shown."""

    name: int
    ranged: bool
    reference: bool = True
    timed: bool = True
    """whether any row has a time; without one the columns of numbers are left out"""

    @classmethod
    def of(cls, width: int, *, timed: bool = True) -> _Layout:
        """What fits a terminal: below WIDE no intervals, below 100 no reference time either."""
        ranged, reference = width >= WIDE, width >= 100
        fixed = _VERDICT + (_CHANGE_RANGED + _SPEEDUP_RANGED if ranged else _CHANGE + _SPEEDUP)
        fixed += (_TIME + _GAP) * (1 + reference) + 3 * _GAP
        return cls(max(20, width - (fixed if timed else _VERDICT + _GAP) - 1), ranged, reference, timed)

    @classmethod
    def plain(cls, shown: Sequence[VerdictRow], *, timed: bool = True) -> _Layout:
        """As wide as the longest name needs, up to where names stand in the way of the numbers."""
        needed = max((cell_len(_name(row)) for row in shown), default=0)
        return cls(min(_LONGEST_NAME, needed) if timed else needed, True, timed=timed)

    def cells(self, row: VerdictRow) -> Iterator[str]:
        """The row's lines: a long name goes on below."""
        first, *rest = _folded(_name(row), self.name)
        yield self.row(row, first)
        yield from (" " * INDENT + line for line in rest)

    def row(self, row: VerdictRow, name: str) -> str:
        """The row in one line; a name that is longer than its column moves what stands behind it."""
        change, speedup = row.change, row.speedup
        if self.ranged:
            change, speedup = _ranged(change, row.change_range), _ranged(speedup, row.speedup_range)
        return self.line(str(row.verdict), name, change, speedup, row.kernel, row.reference)

    def line(self, verdict: str, name: str, change: str, speedup: str, kernel: str, reference: str) -> str:
        """One line with its columns aligned."""
        widths = (_CHANGE_RANGED, _SPEEDUP_RANGED) if self.ranged else (_CHANGE, _SPEEDUP)
        named = [_padded(verdict, _VERDICT), _padded(name, self.name)]
        if not self.timed:
            return (" " * _GAP).join(named).rstrip()
        texts = [
            *named,
            _padded(change, widths[0]),
            _padded(speedup, widths[1]),
            _right(kernel, _TIME),
            *([_right(reference, _TIME)] if self.reference else []),
        ]
        return (" " * _GAP).join(texts).rstrip()


def _header() -> tuple[str, ...]:
    return (say("verdict"), say("op and case"), say("change"), say("speedup"), say("kernel"), say("reference"))


def _padded(text: str, width: int) -> str:
    """At least `width` cells: a Chinese character takes two."""
    return text + " " * (width - cell_len(text))


def _right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text


def _terminal_row(row: VerdictRow, told: str, layout: _Layout) -> Iterator[RenderableType]:
    first, *rest = layout.cells(row)
    text = Text(first)
    text.stylize(STYLES[row.gate], 0, len(row.verdict))
    yield text
    yield from (Text(line) for line in rest)
    if told:
        yield Padding(Text(told, style="" if row.aloud else "dim"), (0, 0, 0, INDENT))


def _about(run: Run) -> str:
    """Where the numbers come from."""
    where, static = run.environment, run.static
    commit = say(", commit {commit}", commit=where.commit[:12]) if where.commit else ""
    if commit and where.dirty:
        commit += say(" with uncommitted changes")
    if static and not run.ops:
        targets = ", ".join(static.targets)
        text = say("Compiled for {targets} by {by}{commit}.", targets=targets, by=static.toolchain, commit=commit)
        return plain(text)
    how, name = words.describe_timer(where.timer), where.device.name
    return plain(say("On {device}{how}{commit}, seed {seed}.", device=name, how=how, commit=commit, seed=run.plan.seed))


def _mixed(judgements: Judgements) -> list[str]:
    """What the changes are against, where not all are against the same."""
    compared = [row.comparison for row in judgements.rows if row.comparison]
    if not any(one.duel for one in compared) or not any(one.screens and not one.duel for one in compared):
        return []
    return [say("Changes are against the base where a case was timed beside it, else against the baseline.")]


def _few(found: Sequence[VerdictRow]) -> tuple[list[tuple[VerdictRow, str]], list[str]]:
    """The rows to show, each with the sentence to tell under it, and a line about those left out.

    Nothing is told about rows that are as they should be, nor the same sentence twice in a row of what is fine.
    """
    grave = [row for row in found if row.aloud]
    fine = [row for row in found if not row.aloud]
    kept = [*grave, *fine[:FINE_ROWS]]
    told = ["" if row.quiet else plain(row.sentence) for row in kept]
    once = ["" if i > len(grave) and text == told[i - 1] else text for i, text in enumerate(told)]
    left = Counter[Verdict]()
    for row in fine[FINE_ROWS:]:
        left[row.verdict] += row.gathered
    more = say("... and {tally} more; the report lists them all.", tally=rows.write_tally(left.items()))
    hidden = [more] if left else []
    return list(zip(kept, once, strict=True)), hidden


def _name(row: VerdictRow) -> str:
    return plain(f"{row.op} {row.where}", NAME_LIMIT)


def _ranged(value: str, interval: str) -> str:
    return f"{value} ({interval})" if interval else value


def _folded(name: str, width: int) -> list[str]:
    """Lines of at most `width` cells, broken after spaces and commas, in a word only where it alone is longer."""
    lines = [""]
    for word in re.findall(r"[^ ,]*[ ,]?", name):
        if lines[-1] and cell_len(lines[-1] + word.rstrip()) > width:
            lines.append("")
        lines[-1] += word
        if cell_len(lines[-1].rstrip()) > width:
            lines[-1:] = chop_cells(lines[-1], width)
    return [line.rstrip() for line in lines]


def wrapped(text: str, indent: str = "", width: int = PLAIN) -> list[str]:
    """Lines of at most `width` cells, broken at blanks and between Chinese characters; a longer word stays whole."""
    lines = [indent]
    for piece in _PIECE.findall(text):
        if lines[-1] != indent and cell_len(lines[-1] + piece.rstrip()) > width:
            lines.append(indent)
        lines[-1] += piece
    return [line.rstrip() for line in lines if line.strip()]


def _op_lines(op: PlannedOp) -> Text:
    counts = say(
        "{performance}, {accuracy}",
        performance=say("{count:performance case|performance cases}", count=len(op.performance)),
        accuracy=say("{count:accuracy case|accuracy cases}", count=len(op.accuracy)),
    )
    if op.stored:
        counts = say("{cases}, {stored}", cases=counts, stored=_stored_cases(len(op.stored)))
    head = Text.assemble((plain(op.op, NAME_LIMIT), "bold"), "  ", say("cannot run") if op.failure else counts)
    return _listed(head, op.failure, (plain(case, NAME_LIMIT) for case in (*op.performance, *op.stored)))


def _stored_cases(count: int) -> str:
    return say("{count:stored case|stored cases}", count=count)


def _chain_lines(chain: ListedChain) -> Text:
    stages = say("{count:stage|stages}", count=len(chain.stages))
    counts = say("{stages}, {cases}", stages=stages, cases=words.count_cases(len(chain.cases)))
    told = say("cannot run") if chain.failure else counts
    head = Text.assemble((plain(chain.chain, NAME_LIMIT), "bold"), "  ", told)
    cases = (plain(case, NAME_LIMIT) for case in chain.cases)
    return _listed(head, chain.failure, (plain(" -> ".join(chain.stages)), *cases))


def _listed(head: Text, failure: Reason | None, lines: Iterable[str]) -> Text:
    """What stands below a head: lines, or why there are none."""
    if failure:
        return Text("\n").join([head, Text(f"  {plain(sentence(failure))}", style=STYLES[Gate.FAILS])])
    return Text("\n").join([head, *(Text(f"  {line}") for line in lines)])


def _sentence(reason: Reason) -> RenderableType:
    text = plain(sentence(reason))
    return Shown(lambda _: [Padding(Text(text), (0, 0, 0, 2))], lambda: wrapped(text, "  "))
