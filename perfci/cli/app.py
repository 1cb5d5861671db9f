"""The commands in their order. The module of each is imported when it is called, so that `--help` is fast."""

import functools
import importlib
from typing import Annotated, Any

import typer
import typer.main

from perfci.cli.parsing import CONTEXT, Command, Group
from perfci.core import VERSION
from perfci.core.extensions import CommandLine, read_extensions

GROUPS = {
    "Start": {
        "list": ("projects", "List ops and their cases."),
        "demo": ("demo", "See a red gate in ten seconds, on a fake device, without torch."),
    },
    "Every day": {
        "check": ("check", "Verify, measure and judge kernels; write reports/."),
        "compare": ("results", "Judge a stored run against baselines or another run."),
        "show": ("results", "Show a stored run in detail: times, blocks, errors, code."),
        "report": ("results", "Write a stored run as a report, page, table or site."),
    },
    "Optimise": {},
    "History": {"accept": ("accept", "Store runs as baselines, record a new environment, propose it.")},
    "CI": {"ci": ("ci", "What pipelines call: plan, merge and note.")},
}
"""Heading -> command of the gate -> its module in perfci.cli, and its line."""


@functools.cache
def read_groups() -> dict[str, dict[str, CommandLine]]:
    """Returns by heading all commands, the gate's and those of extensions, with their modules and lines."""
    groups = {
        heading: {
            name: CommandLine(f"{__package__}.{module}", heading, line) for name, (module, line) in commands.items()
        }
        for heading, commands in GROUPS.items()
    }
    for extension in read_extensions().values():
        for name, command in extension.commands.items():
            groups[command.heading][name] = command
    return {heading: commands for heading, commands in groups.items() if commands}


def read_commands() -> dict[str, CommandLine]:
    """Returns all commands in the order of `--help`."""
    return {name: command for commands in read_groups().values() for name, command in commands.items()}


class Commands(Group):
    """All commands, each imported when it is needed."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of `--help`."""
        return list(read_commands())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command, or None if there is none of this name."""
        if (command := read_commands().get(cmd_name)) is None:
            return None
        return _make_command(importlib.import_module(command.module).COMMANDS[cmd_name], cmd_name)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the groups with a line for each command."""
        width = max(map(len, read_commands()))
        for heading, commands in read_groups().items():
            with formatter.section(heading):
                for name, command in commands.items():
                    formatter.write(f"{'':{formatter.current_indent}}{name:<{width}}  {command.line}\n")


@functools.cache
def _make_command(command: Any, name: str) -> Any:
    if not isinstance(command, typer.Typer):
        alone = typer.Typer(rich_markup_mode=None, add_completion=False, context_settings=CONTEXT)
        alone.command(name, cls=Command)(command)
        command = alone
    return typer.main.get_command(command)


app = typer.Typer(
    name="perfci",
    cls=Commands,
    help="Is each kernel still right, and still fast? A verdict that can be trusted, with its reason.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich takes as long to import as all the rest of `perfci --help`
    context_settings=CONTEXT,
    epilog="Exit codes: 0 ok, 1 perfci itself failed, 2 the gate failed, 3 only warnings, 129, 130 and 143 stopped.",
)


@app.callback(invoke_without_command=True)
def root(version: Annotated[bool, typer.Option("--version", "-V", help="Print the version.")] = False) -> int | None:
    """Hold the options that stand before any command."""
    if version:
        typer.echo(f"perfci {VERSION}")
        raise typer.Exit
    return None
