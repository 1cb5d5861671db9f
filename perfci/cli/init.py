"""What `perfci init` shows: the changes as a diff, what they come to, what is left to the user, what comes next."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from perfci.cli import language
from perfci.cli.exits import Exit
from perfci.core.errors import UsageError
from perfci.core.wording import say, sentence
from perfci.scaffold import edits, init
from perfci.scaffold.edits import Edit

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def set_up(project: Path, owners: Sequence[str], install: str | None, *, dry_run: bool) -> int:
    """Show what a set-up takes, and do it unless this is a dry run."""
    with contextlib.suppress(UsageError):  # no project yet; a fault in its settings is told by the plan
        language.load(project)
    found = init.plan(project, owners, install)
    _print(Text(say("Project: {root}", root=str(found.root)), style="bold"), *_changes(found))
    if found.edits and not dry_run:
        edits.write(found.edits)
    _print(Text(), *_outcome(found, dry_run=dry_run), *_notes(found), *_next(found, dry_run=dry_run))
    return Exit.OK


def _changes(found: init.Setup) -> Iterator[Text]:
    for edit in found.edits:
        yield Text()
        yield from (_line(line) for line in edits.diff(edit, found.top))


def _line(line: str) -> Text:
    is_head = line.startswith(("--- ", "+++ "))
    return Text(line, style="bold" if is_head else _STYLES.get(line[:1], ""))


def _outcome(found: init.Setup, *, dry_run: bool) -> Iterator[Text]:
    if not found.edits:
        yield Text(say("Everything is set up: nothing is left to do."))
        return
    for edit in found.edits:
        yield Text(_told(edit, found.top, dry_run=dry_run))
    if dry_run:
        yield Text(say("Nothing was written: perfci init without --dry-run does it."))


def _told(edit: Edit, top: Path, *, dry_run: bool) -> str:
    name = edit.path.relative_to(top).as_posix()
    if edit.before is None:
        return say("would make {file}", file=name) if dry_run else say("made {file}", file=name)
    return say("would change {file}", file=name) if dry_run else say("changed {file}", file=name)


def _notes(found: init.Setup) -> Iterator[Text]:
    for note in found.notes:
        yield Text()
        yield Text(sentence(note.reason), style="yellow")
        yield from (Text(f"    {line}") for line in note.lines.splitlines())


def _next(found: init.Setup, *, dry_run: bool) -> Iterator[Text]:
    if found.edits and not dry_run:
        yield Text()
        yield Text(say("Next: commit these files, and write an op with perfci new OP."))


def _print(*lines: Text) -> None:
    console = Console(highlight=False)
    for line in lines:
        # A diff's line is a line, in a narrow terminal too.
        console.print(line, soft_wrap=True)
