"""What commands take: options that several of them share, their values, and which of them go together."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
import typer.core
import typer.main

from perfci.cli.language import choose
from perfci.core.errors import UsageError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 120}

_ALWAYS = frozenset({"output", "project", "lang"})  # parameters that go with everything

_Function = TypeVar("_Function", bound=Callable[..., int])


def takes(alone: str, modes: Mapping[str, str]) -> Callable[[_Function], _Function]:
    """Mark the parameters that go with each mode of a command (`static`, or with a value `to=csv`), and with none."""

    def mark(function: _Function) -> _Function:
        function.modes = {"": alone, **modes}  # type: ignore[attr-defined]
        return function

    return mark


def refuse_together(ctx: Any, modes: Mapping[str, str]) -> None:
    """Refuse options that make no sense together. Raises UsageError for the first one."""
    parameters = {each.name: each for each in ctx.command.params}

    def is_typed(name: str) -> bool:
        source = ctx.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"

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


def list_typed(*without: str) -> list[str]:
    """The words that were typed after the command under way, without these parameters."""
    ctx, words = typer.main.get_current_context(), list[str]()
    for each in ctx.command.params:
        source, value = ctx.get_parameter_source(each.name or ""), ctx.params.get(each.name or "")
        if each.name in without or value is None or source is None or source.name != "COMMANDLINE":
            continue
        for one in value if isinstance(value, list | tuple) else [value]:
            if each.param_type_name == "option":
                words.append(each.opts[0])
            if not isinstance(one, bool):
                words.append(str(one))
    return words


def make_group(name: str, text: str) -> typer.Typer:
    """A command that has commands of its own."""
    return typer.Typer(name=name, help=text, no_args_is_help=True, rich_markup_mode=None, context_settings=CONTEXT)


def option(name: str, text: str, default: str | None = None, metavar: str | None = None, **more: Any) -> Any:
    """An option with its help. `default` describes what holds without it. None if its value does."""
    return typer.Option(name, help=text, show_default=default or True, metavar=metavar, **more)


def flag(name: str, text: str) -> Any:
    """An option without a value."""
    return option(name, text, "off")


def argument(metavar: str, text: str, default: str | None = None) -> Any:
    """A positional argument with its help."""
    return typer.Argument(metavar=metavar, help=text, show_default=default or True)


def _speak(
    lang: Annotated[
        Literal["en", "zh"] | None,
        option(
            "--lang",
            "Language of sentences, tables and the report.",
            "the project's, else en",
            callback=choose,
            is_eager=True,
            expose_value=False,
        ),
    ] = None,
) -> None: ...


class Command(typer.core.TyperCommand):
    """A command whose help names arguments as its author does: RUN..., without the <list[Path]> and braces of typer."""

    def __init__(self, *arguments: Any, params: list[Any] | None = None, **more: Any) -> None:
        """Every command takes --lang. It acts by its callback."""
        speaking = typer.Typer(add_completion=False)
        speaking.command()(_speak)
        language = typer.main.get_command(speaking).params
        super().__init__(*arguments, params=[*(params or []), *language], **more)

    def invoke(self, ctx: Any) -> Any:
        """Run it, unless it was given options that exclude each other."""
        if modes := getattr(self.callback, "modes", None):
            refuse_together(ctx, modes)
        return super().invoke(ctx)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """What stands behind the command's name in its usage."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        return ["[OPTIONS]", *(str(each.metavar) if each.required else f"[{each.metavar}]" for each in arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and the options, with defaults in words free of the parentheses that typer adds."""
        found: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for each in self.get_params(ctx):
            if record := each.get_help_record(ctx):
                name = str(each.metavar) if each.param_type_name == "argument" else record[0]
                words = re.sub(r"\[default: \((.*?)\)(?=[];])", r"[default: \1", record[1])
                found[each.param_type_name].append((name, words))
        for heading, records in zip(("Arguments", "Options"), found.values(), strict=True):
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records)


DeviceKind = Literal["auto", "cuda", "npu", "cpu", "fake"]
TimerKind = Literal["auto", "activity", "event"]
SuiteKind = Literal["both", "accuracy", "performance"]
DuelKind = Literal["changed", "all", "none"]
Format = Literal["text", "json"]

Ops = Annotated[list[str], option("--op", "Op to look at; repeat for several.", "all ops", "OP")]
Case = Annotated[
    str | None, option("--case", "Only cases that fit, such as 'rows=4096,dtype=float*'.", "all cases", "GLOB")
]
DeviceOption = Annotated[DeviceKind, option("--device", "Where kernels run; auto takes a GPU if there is one.")]
Budget = Annotated[float, option("--budget", "Device time a case, seconds.", metavar="S", min=0.01, max=3600)]
Seed = Annotated[
    int | None,
    option("--seed", "Repeat a run's inputs; its report names the seed.", "drawn afresh", "N", min=0, max=2**31 - 1),
]
Devices = Annotated[
    str | None,
    option("--devices", "Devices to use side by side: one, all, or indexes: 0,1.", "the project's, else one", "LIST"),
]
On = Annotated[
    str | None, option("--on", "Ray cluster to do it on; here for none.", "the project's", "ray://HOST:PORT")
]
Deadline = Annotated[
    float | None,
    option(
        "--deadline",
        "Seconds after the job's start by which measuring has to end; 0 for no limit.",
        "CI_JOB_TIMEOUT less a reserve, else none",
        "S",
        min=0,
        max=90 * 24 * 3600,
    ),
]
Strict = Annotated[bool, flag("--strict", "Warnings fail the gate too.")]
Timer = Annotated[TimerKind, option("--timer", "Device activity records or event pairs; auto takes records if it can.")]
SuiteOption = Annotated[SuiteKind, option("--suite", "Which of an op's two suites run.")]
Against = Annotated[
    str | None, option("--against", "Revision to compare with.", "the merge base, else the baselines' commit", "REV")
]
Release = Annotated[str | None, option("--release", "Revision to compare with.", "the newest tag before HEAD", "REV")]
Duel = Annotated[DuelKind, option("--duel", "Cases timed beside the base: those whose device work changed, all, none.")]
BasePython = Annotated[
    str | None,
    option("--base-python", "Interpreter of the base, for another version of Triton or CANN.", "the same", "PATH"),
]
Toolchain = Annotated[
    list[str],
    option("--toolchain", "Compare the installed toolchain with another; repeat for several.", "none", "triton==X"),
]
Targets = Annotated[
    str | None,
    option("--target", "What to compile for, such as sm_80,sm_90,gfx942.", "the project's targets, else sm_90", "LIST"),
]
Output = Annotated[Format, option("--format", "text for people, json for programs.")]
Peers = Annotated[
    bool, flag("--peers", "Time peers such as torch.compile too, seconds a case more; no verdict needs it.")
]
Html = Annotated[bool, flag("--html", "Write report.html too: one page that needs no network.")]
Threshold = Annotated[
    list[str],
    option("--threshold", "Judge by this: tau='2 %'; in CI never looser. Repeat for several.", "none", "KEY=VALUE"),
]
DeviceKey = Annotated[str | None, option("--device", "Folder of the device: nvidia-h200.", "all", "KEY")]
Project = Annotated[Path, option("--project", "A folder of the project.", metavar="DIR")]
RunFile = Annotated[Path | None, argument("RUN", "A run.json, or the folder that holds one.", "the project's reports/")]
Baseline = Annotated[
    Path | None, option("--baseline", "Another run, or baselines.", "the project's baselines/", "RUN_OR_DIR")
]
HERE = Path()
