"""`perfci list`: what a project holds."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import STYLES, Paragraph, print_found
from perfci.cli.progress import Progress
from perfci.core.model import Gate, PlannedOp
from perfci.core.wording import say
from perfci.ops.backends import MARK, name_of
from perfci.ops.discover import select
from perfci.runs import experiment
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
    where, names = language.load(project), options.name_backends(ops, backend)
    with Progress() as progress:
        planned = experiment.describe(where, Request(names, case, device), progress).ops
    backends = {op.op: f"{op.name}@{op.backend}" for op in select(where, names)}
    print_found(planned, show_ops(planned, backends), json=output == "json")
    return Exit.PERFCI_FAILED if any(op.failure and not op.unchecked for op in planned) else Exit.OK


def show_ops(ops: Sequence[PlannedOp], backends: Mapping[str, str] = MappingProxyType({})) -> Iterator[Paragraph]:
    """Every op with its cases. backends: of a key, the name with the backend."""
    several = {name_of(op.op) for op in ops if MARK in op.op}
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
        name = f"{op.op} ({backends[op.op]})" if op.op in several and op.op in backends else op.op
        yield Paragraph(f"{name}: {counts}", style="bold")
        if op.failure:
            yield Paragraph(op.failure, 2, "" if op.unchecked else STYLES[Gate.FAILS])
        else:
            yield from (Paragraph(case, 2) for case in (*op.performance, *op.stored))
    if not ops:
        yield Paragraph(say("There are no ops here."))


COMMANDS = {"list": list_}
