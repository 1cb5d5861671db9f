"""`perfci accept`: runs stored as baselines, a new environment as a step, and both proposed from a pipeline."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from perfci import store
from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import STYLES, Paragraph, print_found, tell_of
from perfci.cli.parsing import argument, flag, option
from perfci.core.errors import require
from perfci.core.model import Gate
from perfci.core.wording import say
from perfci.report.data import pick
from perfci.report.words import count_cases
from perfci.runs.accept import Acceptance
from perfci.runs.accept_runs import AcceptOptions, accept_runs


@options.takes(
    "runs ops case dirty",
    {
        "slower": "runs ops case dirty why",
        "environment": "runs ops write why include dirty",
        "propose": "artifacts branch against dry_run",
    },
)
def accept(
    runs: Annotated[
        list[Path], argument("RUN...", "One or more runs of one device and timer.", "the project's reports/")
    ] = [],  # noqa: B006
    ops: options.OpsOfRun = [],  # noqa: B006
    case: options.Case = None,
    dirty: Annotated[bool, flag("--dirty", "Accept runs of a work tree with uncommitted changes too.")] = False,
    slower: Annotated[bool, flag("--slower", "Accept the cases that are slower, and no others; needs --why.")] = False,
    why: Annotated[
        str | None,
        option("--why", "The reason, stored with it: why cases may be slower, or what changed.", "none", "TEXT"),
    ] = None,
    environment: Annotated[
        bool, flag("--environment", "Show what a new driver, torch or board moved; see --write.")
    ] = False,
    write: Annotated[
        bool, flag("--write", "Write what is shown: with --environment the numbers anew, with a step.")
    ] = False,
    include: Annotated[
        list[str], option("--include", "With --environment: take this op whatever changed.", "none", "OP")
    ] = [],  # noqa: B006
    propose: Annotated[
        bool, flag("--propose", "Propose baselines and thresholds in a merge request; runs no kernels.")
    ] = False,
    artifacts: Annotated[
        Path, option("--artifacts", "With --propose: the project's folder as another job left it.", metavar="DIR")
    ] = options.HERE,
    branch: Annotated[str, option("--branch", "Branch of the merge request.", metavar="NAME")] = "perfci/nightly",
    against: Annotated[
        str | None,
        options.compare_with("COMMIT", "$CI_COMMIT_SHA", "the commit that the other job began with, its full id"),
    ] = None,
    dry_run: Annotated[bool, flag("--dry-run", "Show what would be done, and do nothing: with --propose.")] = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Store runs as the baselines of later runs, with a line of history each; exit 2 if anything was refused."""
    json = output == "json"
    if propose:
        propose_files = require("propose", "history", "--propose")
        return Exit(propose_files(artifacts, branch, against, project, dry_run=dry_run, json=json))
    where = language.load(project)
    loaded = [store.read_run(path) for path in runs or [where.reports]]
    tell_of(loaded[0], *(runs or [where.reports]))
    if environment:
        rebaseline = require("environment", "history", "--environment")
        return Exit(rebaseline(loaded, where, ops, why or "", tuple(include), write=write, dirty=dirty, json=json))
    accepted = accept_runs(loaded, where, ops, AcceptOptions(dirty, (why or "") if slower else None, case))
    print_found([pick(one, "op accepted refused said") for one in accepted], describe_acceptances(accepted), json=json)
    return Exit.GATE_FAILED if any(one.refused for one in accepted) else Exit.OK


COMMANDS = {"accept": accept}


def describe_acceptances(accepted: Sequence[Acceptance]) -> Iterator[Paragraph]:
    """What went into the baselines, and what did not and why."""
    for one in accepted:
        text = say("{op}: {cases} accepted", op=one.op, cases=count_cases(len(one.accepted)))
        text += say(", {count} refused", count=len(one.refused)) if one.refused else ""
        yield Paragraph(text, style=STYLES[Gate.FAILS if one.refused else Gate.OK])
        yield from (Paragraph(reason, 2) for reason in (*one.refused, *one.said))
