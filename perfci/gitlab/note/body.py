"""The note's text: how the change alters its own judging, the verdicts, what changed, pictures, links. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from perfci.core import wording
from perfci.core.model import Fact, Gate, Judgements, OpRun, PlannedOp, Reason, Run
from perfci.core.wording import say
from perfci.gitlab.note.markup import code, harden, inline
from perfci.report import frame, rows, summary
from perfci.report.steps import repeat
from perfci.report.text import block

LIMIT = 900_000
"""Most bytes of a note; GitLab takes 1,000,000 characters."""

KEY = "check"
"""Which of a merge request's notes by perfci this is."""

CHANGES = 3
"""Most differences told of an op's device work."""

CHANGED_OPS = 12
"""Most ops whose changes are told."""

FILES = 4

NOTES = 20
"""Most notes on the run as a whole."""

SENTENCE = 400
"""Characters of a reason; the report has it in full."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(?:/[A-Za-z0-9:._~%?=&+/-]*)?")
_UPLOAD = re.compile(r"(?:/-/project/[0-9]+)?/uploads/[0-9a-f]{32}/[A-Za-z0-9_.-]+")


@dataclass(frozen=True)
class Shown:
    """A picture that has an address."""

    url: str
    op: str


@dataclass(frozen=True)
class Links:
    """Where more is to be seen; what is unknown is left out."""

    report: str | None = None
    job: str | None = None
    pipeline: str | None = None
    pictures: tuple[Shown, ...] = ()


@dataclass(frozen=True)
class _Room:
    """How many rows of a kind are written, the most first."""

    grave: int
    fine: int
    reasons: int


_ROOMS = (_Room(100, 200, 50), _Room(50, 50, 20), _Room(20, 0, 10), _Room(5, 0, 3), _Room(0, 0, 0))


def compose(run: Run, judgements: Judgements, links: Links, limit: int = LIMIT, key: str = KEY) -> str:
    """The note in Markdown for GitLab and GitHub, in the language that is spoken, of at most `limit` bytes.

    key: letters, digits, dots, dashes; by it the note is found again. Raises ValueError for another one.
    """
    told = summary.summary(run, judgements, frame.clocks(frame.blocks(run)))
    page = _Page(run, judgements, links, marker(key), tuple(map(harden, told)))
    text = ""
    for room in _ROOMS:
        text = page.text(room)
        if len(text.encode()) <= limit:
            return text
    return text.encode()[: max(limit - 1, 0)].decode(errors="ignore").rpartition("\n")[0] + "\n"


def marker(key: str) -> str:
    """The note's first line, which no reader sees. Raises ValueError for a key that could end a comment."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"no key of a note: {key!r}")
    return f"<!-- perfci:note:{key} -->"


def safe_url(url: str) -> str | None:
    """The address if it is one that can stand in a link without escaping, else None.

    >>> safe_url("https://gitlab.example.com/a/-/jobs/1"), safe_url("javascript:alert(1)")
    ('https://gitlab.example.com/a/-/jobs/1', None)
    """
    try:
        fits = bool(_URL.fullmatch(url)) and bool(urlsplit(url).hostname)
    except ValueError:
        fits = False
    return url if fits and len(url) <= 1000 else None


def safe_upload(url: str) -> str | None:
    """The address of a file uploaded to GitLab, as GitLab gives it, else None."""
    return url if _UPLOAD.fullmatch(url) and len(url) <= 300 else None


@dataclass(frozen=True)
class _Page:
    run: Run
    judgements: Judgements
    links: Links
    marker: str
    summary: tuple[str, ...]
    """the whole in a handful of lines, as the report has them"""

    def text(self, room: _Room) -> str:
        """Paragraphs, none of whose lines begins with foreign text: there a slash would be a command."""
        shown, notes = rows.rows(self.judgements), rows.notes(self.judgements, self.run)
        grave = [row for row in shown if row.aloud]
        fine = [row for row in shown if not row.aloud]
        parts = (
            self.marker,
            say("## perfci: {gate}", gate=rows.gate_word(self.judgements.gate).upper()),
            *(f"> **{inline(note)}**" for note in notes.first),
            _headline(self.judgements),
            _bullets([*self.summary, *map(inline, notes.above)]),
            _table(grave, room.grave),
            _reasons(grave, room.reasons),
            _folded(fine, room.fine),
            _changed(self.run),
            _notes(notes.below[:NOTES]),
            _pictures(self.links.pictures),
            _links(self.links),
            _repeat(self.run),
        )
        return "\n\n".join(part for part in parts if part) + "\n"


# --- verdicts ---------------------------------------------------------------------------------------------------------


def _headline(judgements: Judgements) -> str:
    """What became of it all, in a line."""
    found = rows.counts(judgements)
    facts: dict[str, Fact] = {"counted": rows.counted(found), "worst": rows.worst(judgements)}
    if not found.verdicts:
        return say("**Nothing was judged.**")
    if found.gate is Gate.OK:
        return say("**Nothing failed and nothing warns.** {counted}.", **facts)
    if found.gate is Gate.WARNS:
        return say("**It may be merged, with warnings: {worst}.** {counted}.", **facts)
    return say("**It fails: {worst}.** {counted}.", **facts)


def _table(shown: Sequence[rows.Row], most: int) -> str:
    """Four narrow columns: more do not fit on a phone."""
    if not shown or not most:
        return ""
    heads = (say("verdict"), say("case"), say("change"), say("speedup"))
    lines = [heads, ("---", "---", "--:", "--:"), *map(_cells, shown[:most])]
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    left = len(shown) - most
    return table + ("\n\n" + say("Rows left out here: {count}; the report has them.", count=left) if left > 0 else "")


def _cells(row: rows.Row) -> tuple[str, ...]:
    return rows.verdict_word(row.verdict, row.gate), _where(row), row.change, row.speedup


def _where(row: rows.Row) -> str:
    case = code(row.case) if row.case is not None else ""
    return " ".join(part for part in (code(row.op), inline(row.about), case) if part)


def _reasons(shown: Sequence[rows.Row], most: int) -> str:
    """Why, for all that is not simply fine."""
    told = [
        say(
            "{verdict} {where}: {why}",
            verdict=rows.verdict_word(row.verdict, row.gate),
            where=_where(row),
            why=inline(row.sentence, SENTENCE),
        )
        for row in shown[:most]
    ]
    return "\n\n".join((say("### Why"), _bullets(told))) if told else ""


def _folded(fine: Sequence[rows.Row], most: int) -> str:
    if not fine:
        return ""
    counts = rows.verdicts(fine)
    title = say("Fine: {count:verdict|verdicts}, {tally}", count=counts.total(), tally=rows.tally(counts.items()))
    table = _table(fine, most)
    return f"<details>\n<summary>{title}</summary>\n\n{table}\n\n</details>" if table else title


# --- what changed -----------------------------------------------------------------------------------------------------


def _changed(run: Run) -> str:
    """Each op's files and device work that are not the base's."""
    found = {op.op: op for op in run.ops}
    ops = [op for op in run.plan.ops if _differs(op, found.get(op.op))]
    told = [_op(op, found.get(op.op)) for op in ops[:CHANGED_OPS]]
    if len(ops) > CHANGED_OPS:
        told.append(say("Ops that changed as well: {count}.", count=len(ops) - CHANGED_OPS))
    return "\n\n".join((say("### What changed"), _bullets(told))) if told else ""


def _differs(op: PlannedOp, found: OpRun | None) -> bool:
    return bool((op.base and op.base.changed) or _differences(found))


def _differences(found: OpRun | None) -> list[Reason]:
    """Each difference of an op's device work once."""
    seen: list[Reason] = []
    for case in found.performance if found else ():
        seen += [each for each in (case.base.changes if case.base else ()) if each not in seen]
    return seen


def _op(op: PlannedOp, found: OpRun | None) -> str:
    files, differences = op.base.changed if op.base else (), _differences(found)
    named = ", ".join(map(code, files[:FILES]))
    if len(files) > FILES:
        named = say("{files} and {count} more", files=named, count=len(files) - FILES)
    sentences = [inline(wording.sentence(each), SENTENCE) for each in differences[:CHANGES]]
    told = " ".join([*([named + "."] if named else []), *sentences])
    return say("{op}: {told}", op=code(op.op), told=told)


def _notes(told: Sequence[str]) -> str:
    """What is to be known of the run as a whole, folded away."""
    if not told:
        return ""
    title = say("Notes on this run: {count}", count=len(told))
    return f"<details>\n<summary>{title}</summary>\n\n{_bullets(map(inline, told))}\n\n</details>"


# --- pictures and links -----------------------------------------------------------------------------------------------


def _pictures(shown: Iterable[Shown]) -> str:
    drawn = [_picture(one) for one in shown if safe_upload(one.url) or safe_url(one.url)]
    return "\n\n".join((say("### Plots"), *drawn)) if drawn else ""


def _picture(one: Shown) -> str:
    """Its text alternative has no markup: brackets and backticks would end it."""
    return f"![{say('Plot of {op}', op=re.sub('[^A-Za-z0-9_]+', ' ', one.op)[:80].strip())}]({one.url})"


def _links(links: Links) -> str:
    known = (
        (say("the report with every case"), links.report),
        (say("the job"), links.job),
        (say("the pipeline"), links.pipeline),
    )
    shown = [f"[{title}]({url})" for title, url in known if url and safe_url(url)]
    return say("More: {links}.", links=", ".join(shown)) if shown else ""


def _repeat(run: Run) -> str:
    """The run's own command, of the ops that were not all unchanged, so that it stays short."""
    ran = {op.op for op in run.ops}
    ops = tuple(op for op in run.plan.ops if op.op in ran) or run.plan.ops
    own = replace(run, plan=replace(run.plan, ops=ops))
    return "\n\n".join((say("The same inputs and order of measuring again:"), block(repeat(own))))


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)
