"""`perfci init` and `perfci list`: a project set up, and what it holds."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Annotated

from rich.console import Console
from rich.text import Text

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.options import flag, option
from perfci.cli.output import STYLES, Grid, Paragraph, print_found, print_json, print_lines, print_parts
from perfci.cli.progress import Progress
from perfci.core import extensions
from perfci.core.errors import UsageError
from perfci.core.model import Gate, PlannedOp
from perfci.core.wording import fill, say
from perfci.report.view import make_table
from perfci.runs import flow
from perfci.runs.plan import Request
from perfci.scaffold import edits
from perfci.scaffold import init as scaffold_init

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
    setup = scaffold_init.plan(project, owners, install)
    if setup.edits and not dry_run:
        edits.write(setup.edits)
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


def _show_diffs(setup: scaffold_init.Setup) -> None:
    """Shows every change. A diff's line is a line, in a narrow terminal too."""
    console = Console(highlight=False)
    for edit in setup.edits:
        for line in edits.diff(edit, setup.top):
            style = "bold" if line.startswith(("--- ", "+++ ")) else DIFF_STYLES.get(line[:1], "")
            console.print(Text(line, style=style), soft_wrap=True)
        console.print()


def list_(
    ops: options.Ops = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """List the ops with their cases, those of tensors stored in low precision included."""
    where = language.load(project)
    with Progress() as progress:
        planned = flow.describe(where, Request(tuple(ops), case, device), progress).ops
    parts = () if ops else extensions.provided("answer")
    named = ((kind.title(), ", ".join(kind.list_parts(where))) for kind in parts if kind.list_parts)
    more = [f"{title}: {names}" for title, names in named if names]
    print_found(planned, [*show_ops(planned), *(["", *more] if more else [])], json=output == "json")
    return Exit.PERFCI_FAILED if any(op.failure for op in planned) else Exit.OK


def show_ops(ops: Sequence[PlannedOp]) -> Iterator[Paragraph]:
    """Every op with its cases."""
    for op in ops:
        counts = say(
            "{performance}, {accuracy}",
            performance=say("{count:performance case|performance cases}", count=len(op.performance)),
            accuracy=say("{count:accuracy case|accuracy cases}", count=len(op.accuracy)),
        )
        if op.stored:
            stored = say("{count:stored case|stored cases}", count=len(op.stored))
            counts = say("{cases}, {stored}", cases=counts, stored=stored)
        yield Paragraph(f"{op.op}: {say('cannot run') if op.failure else counts}", style="bold")
        if op.failure:
            yield Paragraph(op.failure, 2, STYLES[Gate.FAILS])
        else:
            yield from (Paragraph(case, 2) for case in (*op.performance, *op.stored))
    if not ops:
        yield Paragraph(say("There are no ops here."))


COMMANDS = {"init": init, "list": list_}
