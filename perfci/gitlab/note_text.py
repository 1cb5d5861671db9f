"""The note's text: the verdicts, why, what changed, and links. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from perfci.core import wording
from perfci.core.model import Gate, Judgements, OpRun, Reason, Run
from perfci.core.wording import say
from perfci.gitlab.markup import code, harden, inline
from perfci.report import frame, markdown, rows, summary
from perfci.report.steps import repeat

LIMIT = 900_000
"""Most bytes of a note; GitLab takes 1,000,000 characters."""

KEY = "check"
"""Which of a merge request's notes by perfci this is."""

REPORT_URL = "PERFCI_REPORT_URL"
"""Address of the report, set by the job that keeps it if that is another job than the note's."""

CHANGES, CHANGED_OPS, FILES, NOTES = 3, 12, 4, 20
"""Most differences of an op's device work, ops whose changes are shown, files of an op, and notes on the run."""

SENTENCE = 400
"""Characters of a reason. The report has it in full."""

_ROOMS = ((100, 200, 50), (50, 50, 20), (20, 0, 10), (5, 0, 3), (0, 0, 0))
"""Most rows that need attention, rows that are fine, and reasons: the first that fits is taken."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(?:/[A-Za-z0-9:._~%?=&+/-]*)?")
_PATH = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")


@dataclass(frozen=True)
class Links:
    """Where to see more. What is unknown is left out."""

    report: str | None = None
    job: str | None = None
    pipeline: str | None = None


def compose(run: Run, judgements: Judgements, links: Links, limit: int = LIMIT, key: str = KEY) -> str:
    """The note in Markdown for GitLab and GitHub, in the language in use, of at most `limit` bytes.

    key: letters, digits, dots, dashes, by which the note is found again. Raises ValueError for another one. No line
    begins with foreign text: there a slash would be a command.
    """
    summed = [
        harden(markdown.write(line))
        for line in summary.summarise(run, judgements, frame.find_clocks(frame.tabulate_blocks(run)))
    ]
    shown, notes = rows.make_rows(judgements), rows.split_notes(judgements, run)
    grave, fine = [row for row in shown if row.aloud], [row for row in shown if not row.aloud]
    # The run's own command, of the ops that were not all unchanged, so that it stays short.
    ran = {op.op for op in run.ops}
    ops = tuple(op for op in run.plan.ops if op.op in ran) or run.plan.ops
    command = markdown.fence(repeat(replace(run, plan=replace(run.plan, ops=ops))))
    text = ""
    for most_grave, most_fine, most_reasons in _ROOMS:
        parts = (
            marker(key),
            say("## perfci: {gate}", gate=rows.name_gate(judgements.gate).upper()),
            *(f"> **{inline(note)}**" for note in notes.first),
            _headline(judgements),
            _bullets([*summed, *map(inline, notes.above)]),
            _table(grave, most_grave),
            _reasons(grave, most_reasons),
            _fold_fine(fine, most_fine),
            _list_changes(run),
            _fold(say("Notes on this run: {count}", count=len(notes.below[:NOTES])), notes.below[:NOTES]),
            _list_links(links),
            say("The same inputs and order of measuring again:") + "\n\n" + command,
        )
        text = "\n\n".join(part for part in parts if part) + "\n"
        if len(text.encode()) <= limit:
            return text
    return text.encode()[: max(limit - 1, 0)].decode(errors="ignore").rpartition("\n")[0] + "\n"


def marker(key: str) -> str:
    """The note's first line, which no reader sees. Raises ValueError for a key that could end a comment."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"no key of a note: {key!r}")
    return f"<!-- perfci:note:{key} -->"


# --- verdicts ---------------------------------------------------------------------------------------------------------


def _headline(judgements: Judgements) -> str:
    found = rows.count_all(judgements)
    worst, counted = rows.write_worst(judgements), rows.write_counts(found)
    if not found.verdicts:
        return say("**Nothing was judged.**")
    if found.gate is Gate.OK:
        return say("**Nothing failed and nothing warns.** {counted}.", counted=counted)
    if found.gate is Gate.WARNS:
        return say("**It may be merged, with warnings: {worst}.** {counted}.", worst=worst, counted=counted)
    return say("**It fails: {worst}.** {counted}.", worst=worst, counted=counted)


def _table(shown: Sequence[rows.VerdictRow], most: int) -> str:
    """Four narrow columns: more do not fit on a phone."""
    if not shown or not most:
        return ""
    heads = (say("verdict"), say("case"), say("change"), say("speedup"))
    cells = [(markdown.write(row.marked), _place(row), row.change, row.speedup) for row in shown[:most]]
    table = "\n".join(f"| {' | '.join(line)} |" for line in (heads, ("---", "---", "--:", "--:"), *cells))
    left = len(shown) - most
    return table + ("\n\n" + say("Rows left out here: {count}; the report has them.", count=left) if left > 0 else "")


def _place(row: rows.VerdictRow) -> str:
    case = code(row.case) if row.case is not None else ""
    return " ".join(part for part in (code(row.op), inline(row.about), case) if part)


def _reasons(shown: Sequence[rows.VerdictRow], most: int) -> str:
    lines = [
        say(
            "{verdict} {where}: {why}",
            verdict=markdown.write(row.marked),
            where=_place(row),
            why=inline(row.sentence, SENTENCE),
        )
        for row in shown[:most]
    ]
    return "\n\n".join((say("### Why"), _bullets(lines))) if lines else ""


def _fold_fine(fine: Sequence[rows.VerdictRow], most: int) -> str:
    if not fine:
        return ""
    counts = rows.count_verdicts(fine)
    title = say("Fine: {count:verdict|verdicts}, {tally}", count=counts.total(), tally=rows.write_tally(counts.items()))
    table = _table(fine, most)
    return f"<details>\n<summary>{title}</summary>\n\n{table}\n\n</details>" if table else title


def _fold(title: str, lines: Sequence[str]) -> str:
    return f"<details>\n<summary>{title}</summary>\n\n{_bullets(map(inline, lines))}\n\n</details>" if lines else ""


# --- what changed -----------------------------------------------------------------------------------------------------


def _list_changes(run: Run) -> str:
    """Each op's files and device work that differ from the base's."""
    found = {op.op: op for op in run.ops}
    lines: list[str] = []
    more = 0
    for op in run.plan.ops:
        files, differences = op.base.changed if op.base else (), _differences(found.get(op.op))
        if not files and not differences:
            continue
        if len(lines) == CHANGED_OPS:
            more += 1
            continue
        named = ", ".join(map(code, files[:FILES]))
        if len(files) > FILES:
            named = say("{files} and {count} more", files=named, count=len(files) - FILES)
        sentences = [inline(wording.sentence(each), SENTENCE) for each in differences[:CHANGES]]
        told = " ".join([*([f"{named}."] if named else []), *sentences])
        lines.append(say("{op}: {told}", op=code(op.op), told=told))
    if more:
        lines.append(say("Ops that changed as well: {count}.", count=more))
    return "\n\n".join((say("### What changed"), _bullets(lines))) if lines else ""


def _differences(found: OpRun | None) -> list[Reason]:
    """Each difference of an op's device work once."""
    cases = found.performance if found else ()
    seen: list[Reason] = []
    for case in cases:
        seen += [each for each in (case.base.changes if case.base else ()) if each not in seen]
    return seen


def _bullets(lines: Iterable[str]) -> str:
    return "\n".join(f"- {line}" for line in lines)


# --- links ------------------------------------------------------------------------------------------------------------


def safe_url(url: str) -> str | None:
    """The address if it can stand in a link without escaping, else None.

    >>> safe_url("https://gitlab.example.com/a/-/jobs/1"), safe_url("javascript:alert(1)")
    ('https://gitlab.example.com/a/-/jobs/1', None)
    """
    try:
        fits = bool(_URL.fullmatch(url)) and bool(urlsplit(url).hostname)
    except ValueError:
        fits = False
    return url if fits and len(url) <= 1000 else None


def find_links(environ: Mapping[str, str], report: str | None = None) -> Links:
    """Addresses of the report, of this job and of the pipeline, from the variables of GitLab or GitHub.

    report: the report's file among this job's artefacts, relative to the project. Another job's address comes as
    PERFCI_REPORT_URL, and must be on the same server.
    """
    if environ.get("GITHUB_ACTIONS"):
        server, repository, run = (environ.get(f"GITHUB_{key}", "") for key in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
        return Links(pipeline=safe_url(f"{server}/{repository}/actions/runs/{run}"))
    job, given = safe_url(environ.get("CI_JOB_URL", "")), safe_url(environ.get(REPORT_URL, ""))
    inside = bool(report) and bool(_PATH.fullmatch(report or "")) and ".." not in (report or "").split("/")
    kept = f"{job}/artifacts/file/{report}" if job and inside else None
    servers = ("CI_API_V4_URL", "CI_SERVER_URL", "CI_PAGES_URL")
    ours = given and urlsplit(given).netloc in {urlsplit(environ.get(name, "")).netloc for name in servers}
    return Links(given if ours else kept, job, safe_url(environ.get("CI_PIPELINE_URL", "")))


def _list_links(links: Links) -> str:
    known = (
        (say("the report with every case"), links.report),
        (say("the job"), links.job),
        (say("the pipeline"), links.pipeline),
    )
    shown = [f"[{title}]({url})" for title, url in known if url and safe_url(url)]
    return say("More: {links}.", links=", ".join(shown)) if shown else ""
