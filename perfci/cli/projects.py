"""`perfci init`, `new` and `list`: a project set up, an op added to it, and what it holds."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import STYLES, Paragraph, print_json, print_lines, print_parts, relative
from perfci.cli.progress import Progress
from perfci.core.errors import UsageError
from perfci.core.model import Gate, PlannedOp, Reason
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.lab.chains.records import ListedChain, find_chains
from perfci.ops import discover
from perfci.report.words import count_cases
from perfci.runs import chains as runs_chains
from perfci.runs import flow, sketch
from perfci.runs.plan import Request
from perfci.scaffold import edits, new
from perfci.scaffold import init as scaffold_init
from perfci.scaffold.edits import Edit
from perfci.scaffold.new import Draft, OpPlace

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


def init(
    owners: Annotated[
        list[str],
        options.option(
            "--owners",
            "Who approves changes to thresholds/ and baselines/; repeat for several.",
            "a line to fill in",
            "@TEAM",
        ),
    ] = [],  # noqa: B006
    install: Annotated[
        str | None,
        options.option(
            "--install",
            "What pip installs perfci from in CI, such as git+https://HOST/perfci.git@TAG.",
            "as perfci was installed here",
            "SPEC",
        ),
    ] = None,
    dry_run: Annotated[bool, options.flag("--dry-run", "Show the changes, and write nothing.")] = False,
    project: options.Project = options.HERE,
) -> int:
    """Set a repository up: folders, thresholds, settings, CI jobs, owners; shows what it adds, takes nothing away."""
    with contextlib.suppress(UsageError):  # no project yet; a fault in its settings is told by the plan
        language.load(project)
    found = scaffold_init.plan(project, owners, install)
    _print_texts(Text(say("Project: {root}", root=str(found.root)), style="bold"), *_changes(found))
    if found.edits and not dry_run:
        edits.write(found.edits)
    _print_texts(Text(), *_outcome(found, dry_run=dry_run), *_notes(found), *_next(found, dry_run=dry_run))
    return Exit.OK


@options.takes("op", {"source": "op reference", "sketches": "op version", "fake": "op"})
def new_(
    op: Annotated[str, options.argument("OP", "Name of the op, perhaps in folders: flash, attention/flash.")],
    source: Annotated[
        str | None,
        options.option(
            "--from", "Make an op of a function that launches Triton kernels.", "a kernel to fill in", "FILE:FUNCTION"
        ),
    ] = None,
    reference: Annotated[
        str | None,
        options.option(
            "--reference",
            "What --from is compared with, by its dotted path: torch.nn.functional.softmax.",
            "none",
            "PATH",
        ),
    ] = None,
    sketches: Annotated[
        Path | None, options.option("--from-kernelgen", "Make an op of KernelGen's files in a folder.", "none", "DIR")
    ] = None,
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", min=0, show_default="the newest", help="Which of KernelGen's versions."),
    ] = None,
    fake: Annotated[
        bool, options.flag("--fake", "An op for the fake device, to try perfci out without torch.")
    ] = False,
    project: options.Project = options.HERE,
) -> int:
    """Write a new op's four files: ready to run, around a function that you have, or of KernelGen's sketches."""
    where = language.load(project)
    known = {each.op: each.folder for each in discover.ops(where)} if where.kernels.is_dir() else {}
    place = new.place(op, where.kernels, known)
    if source is not None:
        draft = sketch.draft_from_function(place.op, source, reference, where)
    elif sketches is not None:
        draft = sketch.draft_from_kernelgen(place.op, sketches, version, where)
    else:
        draft = new.draft_from_template(place.op, "fake_op" if fake else "op")
    written = new.write(place, draft)
    _describe_op(place, draft, written, "fake" if fake else None)
    return Exit.OK


@options.takes("op case device", {"chains": "case device"})
def list_(
    op: options.Ops = [],  # noqa: B006
    case: options.Case = None,
    chains: Annotated[
        bool, options.flag("--chains", "The chains of ops with their stages and cases, in the place of the ops.")
    ] = False,
    device: options.DeviceOption = "auto",
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """List the ops with their cases, those of tensors stored in low precision included, and the chains of ops."""
    where, json = language.load(project), output == "json"
    if chains:
        return _list_chains(case, device, where, json=json)
    with Progress() as progress:
        plan = flow.describe(where, Request(tuple(op), case, device), progress)
    if json:
        print_json(plan.ops)
    else:
        print_parts(show_ops(plan.ops))
        if not op and (known := find_chains(where.kernels)):
            names = ", ".join(known)
            print_lines("", say("Chains of ops, with their stages by perfci list --chains: {names}", names=names))
    return Exit.PERFCI_FAILED if any(each.failure for each in plan.ops) else Exit.OK


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
        yield from _list_cases(op.op, counts, op.failure, (*op.performance, *op.stored))
    if not ops:
        yield Paragraph(say("There are no ops here."))


def show_chains(chains: Sequence[ListedChain]) -> Iterator[Paragraph]:
    """Every chain of ops with its stages and its cases."""
    for chain in chains:
        stages = say("{count:stage|stages}", count=len(chain.stages))
        counts = say("{stages}, {cases}", stages=stages, cases=count_cases(len(chain.cases)))
        yield from _list_cases(chain.chain, counts, chain.failure, (" -> ".join(chain.stages), *chain.cases))
    if not chains:
        yield Paragraph(say("There are no chains of ops here."))


def _list_cases(name: str, counts: str, failure: Reason | None, cases: Iterable[str]) -> Iterator[Paragraph]:
    yield Paragraph(f"{name}: {say('cannot run') if failure else counts}", style="bold")
    if failure:
        yield Paragraph(failure, 2, STYLES[Gate.FAILS])
    else:
        yield from (Paragraph(case, 2) for case in cases)


def _list_chains(case: str | None, device: str, where: Settings, *, json: bool) -> int:
    """List the chains of ops with their stages and cases."""
    with Progress() as progress:
        chains = runs_chains.list_chains(where, case, device, progress)
    if not chains and case is not None and (known := find_chains(where.kernels)):
        raise UsageError("chain_no_case", chains=", ".join(known), pattern=case)
    if json:
        print_json(chains)
    else:
        print_parts(show_chains(chains))
    return Exit.PERFCI_FAILED if any(chain.failure for chain in chains) else Exit.OK


COMMANDS = {"init": init, "new": new_, "list": list_}


def _changes(found: scaffold_init.Setup) -> Iterator[Text]:
    for edit in found.edits:
        yield Text()
        yield from (_line(line) for line in edits.diff(edit, found.top))


def _line(line: str) -> Text:
    is_head = line.startswith(("--- ", "+++ "))
    return Text(line, style="bold" if is_head else _STYLES.get(line[:1], ""))


def _outcome(found: scaffold_init.Setup, *, dry_run: bool) -> Iterator[Text]:
    if not found.edits:
        yield Text(say("Everything is set up: nothing is left to do."))
        return
    for edit in found.edits:
        yield Text(_describe_edit(edit, found.top, dry_run=dry_run))
    if dry_run:
        yield Text(say("Nothing was written: perfci init without --dry-run does it."))


def _describe_edit(edit: Edit, top: Path, *, dry_run: bool) -> str:
    name = edit.path.relative_to(top).as_posix()
    if edit.before is None:
        return say("would make {file}", file=name) if dry_run else say("made {file}", file=name)
    return say("would change {file}", file=name) if dry_run else say("changed {file}", file=name)


def _notes(found: scaffold_init.Setup) -> Iterator[Text]:
    for note in found.notes:
        yield Text()
        yield Text(sentence(note.reason), style="yellow")
        yield from (Text(f"    {line}") for line in note.lines.splitlines())


def _next(found: scaffold_init.Setup, *, dry_run: bool) -> Iterator[Text]:
    if found.edits and not dry_run:
        yield Text()
        yield Text(say("Next: commit these files, and write an op with perfci new OP."))


def _print_texts(*lines: Text) -> None:
    console = Console(highlight=False)
    for line in lines:
        # A diff's line is a line, in a narrow terminal too.
        console.print(line, soft_wrap=True)


def _describe_op(place: OpPlace, draft: Draft, written: Sequence[Path], device: str | None) -> None:
    print_lines(say("{op} is ready:", op=place.op), *(f"  {relative(path)}" for path in written))
    _print_reasons(say("Carried over:"), draft.carried)
    _print_reasons(say("Not carried over:"), draft.left)
    _print_reasons(say("To look at:"), (*draft.look, *_broken(place)))
    command = f"perfci check {place.op}" + (f" --device {device}" if device else "")
    print_lines("", say("Next: `{command}`", command=command))


def _broken(place: OpPlace) -> tuple[Reason, ...]:
    """Ways in which what was made breaks the contract all the same: a file that was copied may do anything."""
    triton, baseline, accuracy, performance = (place.file(part) for part in new.PARTS)
    return discover.check_contract(discover.OpFolder(place.op, place.folder, triton, baseline, accuracy, performance))


def _print_reasons(title: str, reasons: Sequence[Reason]) -> None:
    if reasons:
        print_lines("", title, *(f"  - {sentence(reason)}" for reason in reasons))
