"""What `perfci profile` shows: what holds each case up, the evidence, and what promises most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from rich.console import RenderableType

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.options import argument
from perfci.cli.output import Paragraph, print_found, relative
from perfci.cli.progress import Progress
from perfci.core import units
from perfci.core.model import Profile
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.runs.plan import Request
from perfci.runs.profile import find_path, profile_op


def profile(
    op: Annotated[str, argument("OP", "The op to look into.")],
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    seed: options.Seed = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Say what holds each case of an op up, by hardware counters if they can be read, and what promises most."""
    where = language.load(project)
    with Progress() as progress:
        found = profile_op(where, Request((op,), case, device, seed=seed), progress)
    print_found(found, show_profile(found, where), json=output == "json")
    return Exit.OK


COMMANDS = {"profile": profile}


def show_profile(found: Profile, where: Settings) -> Iterator[RenderableType]:
    """The answer for a terminal or a log: of each case its bound, what was counted, the evidence and what to try."""
    yield say("{op} on {device}", op=found.op, device=found.device.name)
    yield from [Paragraph(found.note)] if found.note else []
    for case in found.cases:
        yield ""
        if case.failure:
            yield from (Paragraph(case.case, style="bold"), Paragraph(case.failure, 2, "bold red"))
            continue
        facts = {"case": case.case, "bound": str(case.bound), "us": case.us}
        yield Paragraph(say("{case}: {us:us}, bound by {bound}", **facts), style="bold")
        if counted := [f"{name} {_write(name, value)}" for name, value in case.counters.items()]:
            yield Paragraph(", ".join(counted), 2, "dim")
        yield from (Paragraph(reason, 2) for reason in case.evidence)
        for each in case.advice:
            past = say(" So far kept {kept} of {tried}.", kept=each.kept, tried=each.tried) if each.tried else ""
            yield Paragraph(f"{each.id}: {sentence(each.reason)}{past}", 2, "green")
    yield ""
    yield say("Profile: {path}", path=relative(find_path(where, found.op)))


def _write(name: str, value: float) -> str:
    if name.endswith("_bytes"):
        return units.size(value)
    return units.significant(value) if name.startswith("sectors") else units.percent(value)
