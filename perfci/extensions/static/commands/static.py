"""`perfci static`: kernels compiled without a device and judged; another toolchain beside the installed one."""

import dataclasses
import functools
from typing import Annotated

from perfci.cli import check, language, options
from perfci.cli.output import conclude, get_command
from perfci.cli.parsing import flag, option
from perfci.cli.progress import Progress
from perfci.core.errors import require
from perfci.extensions.static.commands.coverage import show_coverage
from perfci.extensions.static.flow import compile_and_judge

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
