"""The note's text: the verdicts, why, what changed, and links. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from perfci.core.model import Judgements, Run
from perfci.core.wording import join, say, sentence
from perfci.extensions.common.markup import code, harden, inline, write_some
from perfci.extensions.common.variables import HOST
from perfci.report import against, frame, markdown, rows, summary
from perfci.report.build import tabulate_verdicts
from perfci.report.steps import repeat
from perfci.report.view import Table

LIMIT = 900_000  # most bytes of a note; GitLab takes 1,000,000 characters
KEY = "check"  # which of a merge request's notes by perfci this is

REPORT_URL = "PERFCI_REPORT_URL"
"""Address of the report, set by the job that keeps it if that is another than the note's. On the same server only."""

CHANGES, CHANGED_OPS, NOTES = 3, 12, 20
"""Most differences of an op's device work, ops with changes that are shown, and notes on the run."""

SENTENCE = 400  # Characters of a reason. The report has it in full.

_ROOMS = ((100, 200, 50), (50, 50, 20), (20, 0, 10), (5, 0, 3), (0, 0, 0))
"""Most causes, verdicts and reasons that are shown: the first of these that fit are taken."""

_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_URL = re.compile(rf"{HOST}(?:/[A-Za-z0-9:._~%?=&+/-]*(?:#[a-z]+)?)?")
_PATH = re.compile(r"[A-Za-z0-9._-]+(?:/[A-Za-z0-9._-]+)*")


@dataclass(frozen=True)
class Links:
    """Where to see more. What is unknown is left out."""

    report: str | None = None
    job: str | None = None
    pipeline: str | None = None


Records = Sequence[tuple[str, Table]]
"""What extensions add, each a title and a table."""


def compose(
    run: Run, judgements: Judgements, links: Links, limit: int = LIMIT, key: str = KEY, records: Records = ()
) -> str:
    """Markdown of at most `limit` bytes, no line of which begins with foreign text. Raises ValueError for a bad key."""
    summed = summary.summarise(run, judgements, frame.find_clocks(run), frame.pool_spreads(run))
    head, shown = summary.make_head(run, judgements), rows.make_rows(judgements)
    first, above, last = rows.split_notes(judgements, run)
    below = list(map(inline, last[:NOTES]))
    titles = say("Report of every case"), say("job"), say("pipeline")
    links_given = zip(titles, (links.report, links.job, links.pipeline), strict=True)
    linked = ", ".join(f"[{title}]({url})" for title, url in links_given if url and safe_url(url))
    # The run's command, of the ops that were not all unchanged, so that it stays short.
    ran = {op.op for op in run.ops}
    ops = tuple(op for op in run.plan.ops if op.op in ran) or run.plan.ops
    command = markdown.fence(repeat(replace(run, plan=replace(run.plan, ops=ops))))
    counts = rows.write_counts(rows.count_all(judgements))
    step = (
        say("Next: {advice}", advice=head.step.advice) + "\n\n" + markdown.fence(head.step.command) if head.step else ""
    )
    step += "\n\n" + markdown.fence("\n".join(head.changes)) if head.changes else ""
    for most_causes, most_rows, most_reasons in _ROOMS:
        parts = (
            marker(key),
            say("## perfci: {gate}", gate=rows.name_gate(judgements.gate).upper()),
            linked,
            *(f"> **{inline(note)}**" for note in first),
            join(harden(markdown.write(text)) for text in head.sentences),
            write_some(head.table, most_causes) if most_causes else "",
            step if most_causes else "",
            _list((harden(markdown.write(text)) for text in head.reasons[:most_reasons]), f"### {say('Why')}"),
            _list([*(harden(markdown.write(line)) for line in summed), *map(inline, above)]),
            (_fold(counts, write_some(tabulate_verdicts(shown), most_rows)) if most_rows else counts) if shown else "",
            _list(_describe_changes(run), say("### What changed")),
            *(_fold(inline(title), write_some(table, most_reasons)) for title, table in records if most_reasons),
            _fold(say("Notes on this run: {count}", count=len(below)), _list(below)) if below else "",
            say("The same inputs and order of measuring again:") + "\n\n" + command,
        )
        note = "\n\n".join(part for part in parts if part) + "\n"
        if len(note.encode()) <= limit:
            return note
    return note.encode()[: max(limit - 1, 0)].decode(errors="ignore").rpartition("\n")[0] + "\n"


def marker(key: str) -> str:
    """The note's first line, which no reader sees. Raises ValueError for a key that could end a comment."""
    if not _KEY.fullmatch(key):
        raise ValueError(f"no key of a note: {key!r}")
    return f"<!-- perfci:note:{key} -->"


def _describe_changes(run: Run) -> list[str]:
    """A line for each op with its files and device work that differ from the base's."""
    outcomes = {op.op: op for op in run.ops}
    lines = []
    for op in run.plan.ops:
        cases = outcomes[op.op].performance if op.op in outcomes else ()
        changes = list(dict.fromkeys(sentence(change) for case in cases if case.base for change in case.base.changes))
        told = [harden(markdown.write(against.describe_files(op.base)))]
        told += [inline(change, SENTENCE) for change in changes[:CHANGES]]
        if any(told):
            lines.append(say("{op}: {told}", op=code(op.op), told=join(told)))
    more = len(lines) - CHANGED_OPS
    return lines[:CHANGED_OPS] + ([say("Ops that changed as well: {count}.", count=more)] if more > 0 else [])


def _list(lines: Iterable[str], title: str = "") -> str:
    """A list under its title. Empty if there is no line."""
    items = "\n".join(f"- {line}" for line in lines)
    return f"{title}\n\n{items}" if title and items else items


def _fold(title: str, shown: str) -> str:
    return f"<details>\n<summary>{title}</summary>\n\n{shown}\n\n</details>"


def safe_url(url: str) -> str | None:
    """The address if it can stand in a link without escaping, else None.

    >>> safe_url("https://gitlab.example.com/a/-/jobs/1"), safe_url("javascript:alert(1)")
    ('https://gitlab.example.com/a/-/jobs/1', None)
    """
    return url if _URL.fullmatch(url) and len(url) <= 1000 else None


def find_links(environ: Mapping[str, str], report: str | None = None) -> Links:
    """From the variables of GitLab or GitHub. report: its file among this job's artefacts, relative to the project."""
    if environ.get("GITHUB_ACTIONS"):
        server, repository, run = (environ.get(f"GITHUB_{key}", "") for key in ("SERVER_URL", "REPOSITORY", "RUN_ID"))
        pipeline = safe_url(f"{server}/{repository}/actions/runs/{run}")
        return Links(pipeline and f"{pipeline}#artifacts", pipeline=pipeline)
    job, given = safe_url(environ.get("CI_JOB_URL", "")), safe_url(environ.get(REPORT_URL, ""))
    inside = bool(report) and bool(_PATH.fullmatch(report or "")) and ".." not in (report or "").split("/")
    kept = f"{job}/artifacts/file/{report}" if job and inside else None
    servers = ("CI_API_V4_URL", "CI_SERVER_URL", "CI_PAGES_URL")
    ours = given and urlsplit(given).netloc in {urlsplit(environ.get(name, "")).netloc for name in servers}
    return Links(given if ours else kept, job, safe_url(environ.get("CI_PIPELINE_URL", "")))
