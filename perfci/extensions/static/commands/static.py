"""`perfci static`: kernels compiled without a device and judged; another toolchain beside the installed one."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import Annotated

from perfci.cli import check, language, options
from perfci.cli.exits import exit_code
from perfci.cli.output import STYLES, Paragraph, conclude, get_command, print_found
from perfci.cli.parsing import flag, option
from perfci.cli.progress import Progress
from perfci.core.errors import require
from perfci.core.model import Coverage, Gate
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.static.flow import compile_and_judge, cover
from perfci.judge.notes import explain_feature, note_uncovered


def show_coverage(ops: Sequence[str], where: Settings, *, json: bool) -> int:
    """Print what performance launches and accuracy never does. Exit code 2 if there is any."""
    with Progress() as progress:
        coverages = cover(where, tuple(ops), progress)
    print_found(coverages, tell(coverages), json=json)
    gap = any(op.unrun or (op.failure and not op.unseen) for op in coverages) or any(note_uncovered(coverages))
    unseen = any(op.failure for op in coverages)
    return exit_code(Gate.FAILS if gap else Gate.WARNS if unseen else Gate.OK, strict=False)


def tell(coverages: Sequence[Coverage]) -> Iterator[Paragraph]:
    """Gaps in each op's accuracy, with the cases to add, then the lines that no case runs."""
    for coverage in coverages:
        count = sum(len(gap.features) for gap in coverage.gaps)
        clean = say("accuracy exercises what performance times on {target}", target=coverage.target)
        gaps = say(
            "{count:thing|things} of performance on {target} never exercised", count=count, target=coverage.target
        )
        unseen = say("not all that performance launches could be looked through")
        broken = unseen if coverage.unseen else say("cannot run")
        title = gaps if count else broken if coverage.failure else clean
        yield Paragraph(f"{coverage.op}: {title}", style="bold")
        if coverage.failure:
            yield Paragraph(coverage.failure, 2, STYLES[Gate.WARNS if coverage.unseen else Gate.FAILS])
        for gap in coverage.gaps:
            yield Paragraph(gap.case, 2)
            yield from (Paragraph(sentence(explain_feature(feature)), 4) for feature in gap.features)
            if gap.add:
                yield Paragraph(say("add: {cases}", cases=gap.add), 4, "green", folds=False)
        if coverage.unrun:
            yield Paragraph(say("no case runs: {lines}", lines=", ".join(coverage.unrun)), 2, STYLES[Gate.WARNS])
        if coverage.unseen:
            yield Paragraph(say("could not be looked through: {cases}", cases="; ".join(coverage.unseen)), 2)


FOLDER = "static"  # in the reports folder, so that the run of a check stays


@options.shows(
    "perfci static --changed  # what the changed kernels compile to, beside the branch's base",
    "perfci static softmax --target sm_90,gfx942  # one op, for two devices",
)
@options.takes(
    "ops case last_failed changed watch target against base_python toolchain threshold strict quiet",
    {"coverage": "ops"},
)
def static(
    ops: options.Ops = [],  # noqa: B006
    case: options.Case = None,
    last_failed: options.LastFailed = False,
    changed: Annotated[bool, flag("--changed", "Only ops with files that differ from the base's.")] = False,
    watch: options.Watch = False,
    target: Annotated[
        str | None,
        option("--target", "What to compile for, such as sm_80,sm_90,gfx942.", "the project's, else sm_90", "LIST"),
    ] = None,
    coverage: Annotated[
        bool, flag("--coverage", "Show what performance launches and accuracy never does; exit code 2 if there is any.")
    ] = False,
    against: options.Against = None,
    base_python: options.BasePython = None,
    toolchain: options.Toolchain = [],  # noqa: B006
    threshold: options.Threshold = [],  # noqa: B006
    strict: options.Strict = False,
    quiet: options.Quiet = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Compile kernels without a device, and judge what changed: registers, spills, shared memory, occupancy."""
    asked = dict(locals())
    where = language.load(project)
    if coverage:
        return show_coverage(ops, where, json=output == "json")
    if watch:
        require("watch", "lab", "--watch")(functools.partial(static, **{**asked, "watch": False}), project, ops)
    where = dataclasses.replace(where, reports=where.reports / FOLDER)
    if last_failed:
        ops = check.list_failed(where, ops, strict=strict)
    if toolchain:
        require("toolchain", "lab", "--toolchain")(toolchain, where)
    request = check.make_request(
        ops, case, "cpu", "performance", against, "changed", threshold, base_python=base_python, changed=changed,
        targets=tuple(name.strip() for name in (target or "").split(",") if name.strip()),
    )  # fmt: skip
    with Progress(quiet=quiet) as progress:
        run, judgements = compile_and_judge(where, request, get_command(), progress)
    return conclude(run, judgements, where, strict=strict, json=output == "json", html=False, quiet=quiet)


COMMANDS = {"static": static}
