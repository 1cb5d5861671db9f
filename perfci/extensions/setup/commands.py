"""`perfci init`: a repository is set up."""

import contextlib
from typing import Annotated

from rich.console import Console
from rich.text import Text

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import STYLES, Grid, Paragraph, print_json, print_lines, print_parts
from perfci.cli.parsing import flag, option
from perfci.core.errors import UsageError
from perfci.core.model import Gate
from perfci.core.wording import fill, say
from perfci.extensions.setup.plan import Setup, plan
from perfci.extensions.setup.texts import diff
from perfci.report.view import make_table
from perfci.scaffold.edits import write

DIFF_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def init(
    owners: Annotated[
        list[str],
        option("--owners", "Who approves thresholds and baselines; repeat for several.", "a line to fill in", "@TEAM"),
    ] = [],  # noqa: B006
    install: Annotated[
        str | None,
        option("--install", "What pip installs in CI: git+https://HOST/perfci.git@TAG.", "a line to fill in", "SPEC"),
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Show what would be done, and do nothing.")] = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Set a repository up: folders, thresholds, settings, CI jobs, owners; shows what it adds, takes nothing away."""
    with contextlib.suppress(UsageError):  # no project yet; the plan names a fault in its settings
        language.load(project)
    setup = plan(project, owners, install)
    if setup.edits and not dry_run:
        write(setup.edits)
    if output == "json":
        files = [
            {
                "path": str(edit.path),
                "new": edit.before is None,
                "text": edit.after,
                "purpose": _translate(edit.purpose),
            }
            for edit in setup.edits
        ]
        notes = [{"reason": note.reason, "lines": note.lines} for note in setup.notes]
        print_json({"root": str(setup.root), "written": not dry_run, "files": files, "notes": notes})
        return Exit.OK
    print_parts([Paragraph(say("Project: {root}", root=str(setup.root)), style="bold"), ""])
    if dry_run:
        _show_diffs(setup)
    if setup.edits:
        rows = (
            (
                edit.path.relative_to(setup.top).as_posix(),
                say("new") if edit.before is None else say("lines added"),
                _translate(edit.purpose),
            )
            for edit in setup.edits
        )
        print_parts([Grid(make_table("file | state | what for", rows), indent=0)])
    if not setup.edits:
        print_lines(say("Everything is set up: nothing is left to do."))
    elif dry_run:
        print_lines("", say("Nothing was written: `perfci init` without --dry-run does it."))
    for note in setup.notes:
        print_parts(["", Paragraph(note.reason, style=STYLES[Gate.WARNS])])
        print_lines(*(f"    {line}" for line in note.lines.splitlines()))
    if setup.edits and not dry_run:
        print_lines("", say("Next: commit these files, and write an op with `perfci new OP`."))
    return Exit.OK


def _translate(text: str) -> str:
    return fill("{text:say}", {"text": text})


def _show_diffs(setup: Setup) -> None:
    """Shows every change. A diff's line is a line, in a narrow terminal too."""
    console = Console(highlight=False)
    for edit in setup.edits:
        for line in diff(edit, setup.top):
            style = "bold" if line.startswith(("--- ", "+++ ")) else DIFF_STYLES.get(line[:1], "")
            console.print(Text(line, style=style), soft_wrap=True)
        console.print()


COMMANDS = {"init": init}
