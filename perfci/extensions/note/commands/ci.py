"""`perfci ci note`: a run's note in its merge or pull request."""

import os
import sys
from typing import Annotated, Any

from perfci import store
from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import tell_of
from perfci.cli.parsing import Command, flag, option
from perfci.core import extensions
from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.core.wording import say, sentence
from perfci.extensions.note import posting
from perfci.extensions.note.posting import find_target
from perfci.extensions.note.text import compose, find_links, marker
from perfci.git.command import parse_commit
from perfci.report.text import BLOCK_LIMIT, plain
from perfci.runs.decide import decide
from perfci.store import signature


def add_commands(ci: Any) -> None:
    """Add it to the commands of `perfci ci`."""
    ci.command("note", cls=Command)(note)


def note(
    run: options.RunFile = None,
    report: Annotated[
        str | None,
        option("--report", "The report among the job's artefacts, or its address.", "reports/report.md", "PATH"),
    ] = None,
    name: Annotated[
        str, option("--name", "Tells this note from others of perfci in one merge request.", metavar="NAME")
    ] = "check",
    dry_run: Annotated[bool, flag("--dry-run", "Show what would be done, and do nothing.")] = False,
    project: options.Project = options.HERE,
) -> int:
    """Post a run's note in its merge or pull request, and on GitHub in the step's summary; never fails a job."""
    where = language.load(project)
    try:
        marker(name)
    except ValueError as error:
        raise UsageError("note_name_malformed", name=name) from error
    record = store.read_run(run or where.reports)
    here = os.environ.get("CI_COMMIT_SHA") or parse_commit(where.root, "HEAD")
    if not dry_run:
        signature.check(run or where.reports)
        if here is not None and record.environment.commit != here:
            # Of another pipeline, or one that came with the change.
            raise UsageError("note_other_commit", run=record.id, found=record.environment.commit, commit=here)
    tell_of(record, run or where.reports)
    judgements, ops = decide(record, where), [op.op for op in record.plan.ops]
    records = [record for list_records in extensions.provided("note") for record in list_records(where, ops)]
    if dry_run:
        sys.stdout.write(compose(record, judgements, find_links(os.environ, report), key=name, records=records))
        return Exit.OK
    summary = posting.append_summary(record, judgements, find_links(os.environ), os.environ, records)
    problems = [summary] if summary else []
    target = find_target(os.environ)
    if not isinstance(target, Reason):
        done = posting.post(record, judgements, target, find_links(os.environ, report), key=name, records=records)
        if done.note is not None:
            old = say("The note stands: {number}.", number=done.note)
            print(say("The note is new: {number}.", number=done.note) if done.created else old)
        problems = [*done.problems, *problems]
    elif not (target.kind.endswith("_no_token") and os.environ.get("GITHUB_STEP_SUMMARY")):  # where the summary will do
        problems = [target, *problems]
    for problem in problems:
        print(f"perfci: {plain(sentence(problem), BLOCK_LIMIT)}", file=sys.stderr)
    return Exit.OK
