"""The app: which commands there are, in the order of `perfci --help`; their options stand in `commands`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import perfci
from perfci.cli.commands import baselines, checking, duelling, machine, past, projects, reporting, sharding, tuning
from perfci.cli.commands.thresholds import thresholds
from perfci.cli.options import Command

COMMANDS: dict[str, Callable[..., int]] = {
    "check": checking.check,
    "plan": sharding.plan,
    "merge": sharding.merge,
    "again": duelling.again,
    "creep": duelling.creep,
    "run": checking.run,
    "static": checking.static,
    "selftest": machine.selftest,
    "compare": reporting.compare,
    "report": reporting.report,
    "site": reporting.site,
    "note": reporting.note,
    "accept": baselines.accept,
    "history": past.history,
    "drift": past.drift,
    "boards": past.boards,
    "propose": baselines.propose,
    "rebaseline": baselines.rebaseline,
    "bisect": duelling.bisect,
    "tune": tuning.tune,
    "chain": checking.chain,
    "soak": checking.soak,
    "list": projects.list_,
    "show": reporting.show,
    "export": reporting.export,
    "doctor": machine.doctor,
    "init": projects.init,
    "new": projects.new_,
    "demo": projects.demo,
}

app = typer.Typer(
    name="perfci",
    help="Is each Triton kernel still right, and still fast? A verdict that can be trusted, with its reason.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich takes as long to import as all the rest of `perfci --help`
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Exit codes: 0 ok, 1 perfci itself failed, 2 the gate failed, 3 only warnings, 129, 130 and 143 stopped.",
)


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> int | None:
    """Hold the options that stand before any command."""
    if version:
        typer.echo(f"perfci {perfci.__version__}")
        raise typer.Exit
    return None


for _name, _command in COMMANDS.items():
    app.command(_name, cls=Command)(_command)
app.add_typer(thresholds)
