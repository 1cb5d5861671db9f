"""`perfci list`: what a project holds."""

from collections.abc import Iterator, Sequence

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import STYLES, Paragraph, print_found
from perfci.cli.progress import Progress
from perfci.core.model import Gate, PlannedOp
from perfci.core.wording import say
from perfci.runs import flow
from perfci.runs.plan import Request


def list_(
    ops: options.Ops = [],  # noqa: B006
    backend: options.Backends = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """List the ops with their cases, those of tensors stored in low precision included."""
    where = language.load(project)
    with Progress() as progress:
        planned = flow.describe(where, Request(options.name_backends(ops, backend), case, device), progress).ops
    print_found(planned, show_ops(planned), json=output == "json")
    return Exit.PERFCI_FAILED if any(op.failure and not op.unchecked for op in planned) else Exit.OK


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
        if op.failure:
            counts = say("unchecked") if op.unchecked else say("cannot run")
        yield Paragraph(f"{op.op}: {counts}", style="bold")
        if op.failure:
            yield Paragraph(op.failure, 2, "" if op.unchecked else STYLES[Gate.FAILS])
        else:
            yield from (Paragraph(case, 2) for case in (*op.performance, *op.stored))
    if not ops:
        yield Paragraph(say("There are no ops here."))


COMMANDS = {"list": list_}
