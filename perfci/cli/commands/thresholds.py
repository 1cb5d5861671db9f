"""The commands below `perfci thresholds`."""

from __future__ import annotations

from typing import Annotated

import typer

from perfci.cli.options import HERE, Case, Command, DeviceKey, Format, Lang, Ops, Output, Project

thresholds = typer.Typer(
    name="thresholds",
    help="What every case is judged by: show where it comes from, tighten what was earned, relax for a time.",
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)


@thresholds.command("show", cls=Command)
def show(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    device: DeviceKey = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", show_default="all", help="Only this threshold, such as tau.")
    ] = None,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Explain every value in force: built in, a file's line, earned by accepted runs, or relaxed; measures nothing."""
    from perfci.cli import thresholds_show as showing
    from perfci.runs.origins import ExplainOptions

    return showing.show(ExplainOptions(tuple(op), case, device, key), project, json=output is Format.JSON)


@thresholds.command("tighten", cls=Command)
def tighten(
    op: Ops = [],  # noqa: B006
    device: DeviceKey = None,
    write: Annotated[
        bool, typer.Option("--write", show_default="off", help="Write thresholds/KEY/OP.yaml; without, only show.")
    ] = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Show, and write, what the history of accepted runs has earned: tighter by a quarter of the gap, never looser."""
    from perfci.cli import thresholds_tighten as tightening
    from perfci.runs.tightening import TightenOptions

    return tightening.tighten(TightenOptions(tuple(op), device, write), project, json=output is Format.JSON)


@thresholds.command("relax", cls=Command)
def relax(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The threshold, such as tau.")],
    op: Annotated[str, typer.Option("--op", metavar="OP", help="The op whose file gets the entry.")],
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="Why, for whoever reads it later.")],
    until: Annotated[
        str, typer.Option("--until", metavar="DATE", help="Last day on which it holds: 2027-01-31; a year at most.")
    ],
    case: Case = None,
    device: DeviceKey = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", metavar="VALUE", show_default="what people wrote, nothing earned", help="Allowed meanwhile: '3 %'."
        ),
    ] = None,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Loosen a threshold for a time, by an entry with a reason and a last day in the op's file."""
    from perfci.cli import thresholds_relax as relaxing
    from perfci.runs.relaxing import RelaxOptions

    wishes = RelaxOptions(key, op, why, until, case, device, to)
    return relaxing.relax(wishes, project, json=output is Format.JSON)
