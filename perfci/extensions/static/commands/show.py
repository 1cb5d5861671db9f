"""What `perfci show` prints of compiled kernels."""

from collections.abc import Iterator
from dataclasses import replace

from rich.console import RenderableType

from perfci.cli.output import Grid, Paragraph
from perfci.core.model import Static
from perfci.core.wording import say, sentence
from perfci.extensions.static import tables
from perfci.ops.spec import matches


def show(static: Static, op: str, pattern: str | None) -> Iterator[RenderableType]:
    """Prints what the op's cases compile to without a device, target by target."""
    for one in (one for one in static.ops if one.op == op):
        cases = tuple(case for case in one.cases if matches(case.case, pattern))
        yield ""
        head = say("{op} compiled for {target} by {by}", op=op, target=one.target, by=static.toolchain)
        yield Paragraph(head, style="bold")
        yield from (Paragraph(reason, 2) for reason in (one.failure, one.unavailable) if reason)
        for case in cases:
            if why := case.failure or case.identity.unknown:
                yield Paragraph(say("{op}: {told}", op=case.case, told=sentence(why)), 2)
        table = tables.tabulate_kernels(static, replace(one, cases=cases))
        if table.rows:
            yield Grid(table, say("Kernels"))
