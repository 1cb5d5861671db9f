"""How a command line is parsed and its help written: commands, groups, options of one kind, errors in one sentence."""

import difflib
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import typer
import typer.core
import typer.main

from perfci.core import commands
from perfci.core.errors import UsageError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 120}

_ALWAYS = frozenset({"output", "project", "lang"})  # parameters that go with everything


def refuse_together(ctx: Any, modes: Mapping[str, str]) -> None:
    """Refuse options that make no sense together. Raises UsageError for the first one."""
    parameters = {param.name: param for param in ctx.command.params if param.name != "op"}  # joined into ops
    is_typed = functools.partial(_is_typed, ctx)

    def write(mode: str) -> str:
        name, _, value = mode.partition("=")
        parameter = parameters[name]
        shown = parameter.opts[0] if parameter.param_type_name == "option" else str(parameter.metavar)
        return f"{shown} {value}".strip()

    def is_active(mode: str) -> bool:
        name, _, value = mode.partition("=")
        return bool(name) and is_typed(name) and value in {"", str(ctx.params[name])}

    active = next(filter(is_active, modes), "")
    for name in filter(is_typed, parameters):
        if name in {*_ALWAYS, *modes[active].split(), active.partition("=")[0]}:
            continue
        if active:
            raise UsageError("options_exclude", first=write(active), second=write(name))
        if name in modes:
            continue
        needed = " or ".join(write(mode) for mode, names in modes.items() if name in names.split())
        raise UsageError("option_needs", option=write(name), needed=needed)


def _is_typed(ctx: Any, name: str) -> bool:
    source = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def list_typed(*without: str) -> list[str]:
    """The words that were typed after the command under way, without these parameters."""
    ctx, words = typer.main.get_current_context(), list[str]()
    for param in ctx.command.params:
        value = ctx.params.get(param.name or "")
        if param.name in without or value is None or not _is_typed(ctx, param.name or ""):
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            if param.param_type_name == "option":
                words.append(param.opts[0])
            if not isinstance(one, bool):
                words.append(str(one))
    return words


def make_group(name: str, text: str) -> typer.Typer:
    """A command with commands below it."""
    group = typer.Typer(
        name=name, cls=Group, help=text, no_args_is_help=True, rich_markup_mode=None, context_settings=CONTEXT
    )
    group.callback()(lambda: None)  # else typer takes the only command for the group, and fails if there is none
    return group


CHOSEN, COMPARED, MEASURED, SHOWN, OTHERWISE = (
    "What is checked", "What it is compared with", "How it is measured", "What is shown and written",
    "Other experiments, and their options",
)  # fmt: skip
"""Headings of options in the help of a command with many"""

GROUPED = 20  # most options of a command with a help that has them in one list


def option(
    name: str, text: str, default: str | None = None, metavar: str | None = None, group: str = SHOWN, **more: Any
) -> Any:
    """An option with its help. `default` describes what holds without it. None if its value does."""
    return typer.Option(name, help=text, show_default=default or True, metavar=metavar, rich_help_panel=group, **more)


def flag(name: str, text: str, *short: str, group: str = SHOWN) -> Any:
    """An option without a value, perhaps with a letter for it."""
    return typer.Option(name, *short, help=text, show_default="off", rich_help_panel=group)


def argument(metavar: str, text: str, default: str | None = None) -> Any:
    """A positional argument with its help."""
    return typer.Argument(metavar=metavar, help=text, show_default=default or True)


REQUIRED = "required"
"""Shown in the place of a default, where the command itself asks for a value."""


def name_op(default: str) -> Any:
    """The option that names ops."""
    return option("--op", "Op, or a glob such as 'fp8_*'; repeat for several.", default, "OP", group=CHOSEN)


def _speak(
    lang: Annotated[
        Literal["en", "zh"] | None,
        option("--lang", "Language of sentences, tables and the report.", "the project's, else en", expose_value=False),
    ] = None,
) -> None: ...


def _name_ops(op: Annotated[list[str], name_op("as OP")] = []) -> None: ...  # noqa: B006


def _make_parameters(function: Callable[..., None]) -> list[Any]:
    """The parameters of a function, for commands of others."""
    made = typer.Typer(add_completion=False)
    made.command()(function)
    return typer.main.get_command(made).params


def _explain_unknown(ctx: Any, option: str) -> UsageError:
    """Returns the error about an option that the command does not have."""
    options = [
        name for param in ctx.command.get_params(ctx) if param.param_type_name == "option" for name in param.opts
    ]
    if name := _find_elsewhere(ctx, option):
        return UsageError("option_elsewhere", option=option, where=ctx.command_path, command=f"perfci {name}")
    if close := difflib.get_close_matches(option, options, n=1):
        return UsageError("option_misspelt", option=option, guess=close[0])
    return UsageError("option_unknown", option=option, command=ctx.command_path)


def _find_elsewhere(ctx: Any, option: str) -> str | None:
    """The command that has an option's name, or the only one that has such an option."""
    top = ctx.find_root()
    names = top.command.list_commands(top)
    if (name := option.lstrip("-")) in names:
        return str(name)
    commands = {name: top.command.get_command(top, name) for name in names}
    having = [name for name, command in commands.items() if any(option in param.opts for param in command.params)]
    return str(having[0]) if len(having) == 1 else None


class _Parses:
    """Refuses options and commands that there are not with one sentence, which names the nearest one."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words after the command's name. Raises UsageError for an option that it does not have."""
        try:
            rest: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
        except Exception as error:
            # typer brings a click with it, or uses the installed one: its error is known by what it has.
            if hasattr(error, "option_name") and hasattr(error, "possibilities"):
                raise _explain_unknown(ctx, str(error.option_name)) from error
            raise
        return rest


class Group(_Parses, typer.core.TyperGroup):
    """A command that has commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command of a word. Raises UsageError for a word that is none."""
        if not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            if close := difflib.get_close_matches(args[0], self.list_commands(ctx), n=1):
                raise UsageError("command_misspelt", command=args[0], guess=close[0])
            raise UsageError("command_unknown", command=args[0], known=", ".join(self.list_commands(ctx)))
        return super().resolve_command(ctx, args)


class Command(_Parses, typer.core.TyperCommand):
    """A command with help that names arguments as the code does: RUN..., without the <list[Path]> and braces of typer.

    Every command takes --lang, which `choose_by_words` reads. If ops are its arguments, `ops`, it takes --op too, and
    gets all that were named in either way.
    """

    def __init__(self, *arguments: Any, params: list[Any] | None = None, **more: Any) -> None:
        """Add the options that are the same everywhere."""
        parameters = params or []
        named = any(parameter.name == "ops" and parameter.param_type_name == "argument" for parameter in parameters)
        named_ops = _make_parameters(_name_ops) if named else []
        at = next(
            (at for at, parameter in enumerate(parameters) if parameter.param_type_name == "option"), len(parameters)
        )
        parameters = [*parameters[:at], *named_ops, *parameters[at:], *_make_parameters(_speak)]
        super().__init__(*arguments, params=parameters, **more)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Join the ops that were named by --op and as arguments."""
        rest = super().parse_args(ctx, args)
        if "op" in ctx.params and (named := ctx.params.pop("op")):
            ctx.params["ops"] = [*(ctx.params["ops"] or ()), *named]
            ctx.set_parameter_source("ops", ctx.get_parameter_source("op"))
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run it, unless it was given options that exclude each other.

        Commands that it prints are given what was typed, where they take it too.
        """
        if modes := getattr(self.callback, "modes", None):
            refuse_together(ctx, modes)
        device, suite, timer = (
            str(ctx.params[name]) if _is_typed(ctx, name) else None for name in ("device", "suite", "timer")
        )
        commands.read_by(replace(commands.get_reader(), device=device, suite=suite, timer=timer))
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind the command's name in its usage."""
        arguments: list[Any] = [param for param in self.get_params(ctx) if param.param_type_name == "argument"]
        needed = [argument for argument in arguments if argument.required or argument.show_default == REQUIRED]
        return [
            "[OPTIONS]",
            *(str(argument.metavar) if argument in needed else f"[{argument.metavar}]" for argument in arguments),
        ]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write examples, arguments and options, with defaults in words free of the parentheses that typer adds."""
        parameters: list[Any] = [param for param in self.get_params(ctx) if param.get_help_record(ctx)]
        arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
        listed = [parameter for parameter in parameters if parameter.param_type_name == "option"]
        headings = [CHOSEN, COMPARED, MEASURED, OTHERWISE, SHOWN] if len(listed) > GROUPED else ["Options"]
        groups: dict[str, list[Any]] = {"Arguments": [], **{heading: [] for heading in headings}}
        groups["Arguments" if len(headings) == 1 else CHOSEN] += arguments
        for each in listed:
            groups.get(each.rich_help_panel or SHOWN, groups[headings[-1]]).append(each)
        if examples := getattr(self.callback, "examples", ()):
            with formatter.section("Examples"):
                formatter.write_dl([tuple(example.split("  # ")) for example in examples], col_max=40)
        for heading, members in groups.items():
            if members:
                with formatter.section(heading):
                    formatter.write_dl([_describe(member, ctx, short=len(headings) > 1) for member in members])


def _describe(parameter: Any, ctx: Any, *, short: bool) -> tuple[str, str]:
    """The help of an option or an argument. short: without what is obvious."""
    name, words = parameter.get_help_record(ctx)
    words = re.sub(r"\[default: \((.*?)\)(?=[];])", r"[default: \1", words)
    words = words.replace(f"[default: {REQUIRED}]", f"[{REQUIRED}]")
    if short:
        words = re.sub(r"; [\d.]+<=x<=[\d.]+(?=\])|  \[default: (off|none|as OP)\]$", "", words)
    return str(parameter.metavar) if parameter.param_type_name == "argument" else name, words
