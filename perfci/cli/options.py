"""What commands take: options that several of them share, their values, and which of them go together."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import typer.core

from perfci.cli.language import Language, choose
from perfci.core.errors import UsageError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 120}

_ALWAYS = frozenset({"output", "project", "lang"})
"""Parameters that go with everything."""

_Function = TypeVar("_Function", bound=Callable[..., int])


def takes(alone: str, modes: Mapping[str, str]) -> Callable[[_Function], _Function]:
    """Say which parameters of a command go together.

    `modes` maps an option that changes what the command does (`static`, or with a value `to=csv`) to the names of the
    parameters that go with it; `alone` names those that go without any of these options.
    """

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


class Command(typer.core.TyperCommand):
    """A command whose help names arguments as its author does: RUN..., where typer adds <list[Path]> and braces."""

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


class DeviceKind(StrEnum):
    """Where kernels run."""

    AUTO = "auto"
    CUDA = "cuda"
    NPU = "npu"
    CPU = "cpu"
    FAKE = "fake"


class TimerKind(StrEnum):
    """How launches are timed."""

    AUTO = "auto"
    ACTIVITY = "activity"
    EVENT = "event"


class SuiteKind(StrEnum):
    """Which suites run."""

    BOTH = "both"
    ACCURACY = "accuracy"
    PERFORMANCE = "performance"


class DuelKind(StrEnum):
    """Which cases are timed beside the base revision."""

    CHANGED = "changed"
    ALL = "all"
    NONE = "none"


class TableKind(StrEnum):
    """What a row of a table is."""

    BLOCKS = "blocks"
    STORED = "stored"


class Format(StrEnum):
    """Who reads the answer."""

    TEXT = "text"
    JSON = "json"


Ops = Annotated[
    list[str],
    typer.Option("--op", metavar="OP", show_default="all ops", help="Op to look at; repeat for several."),
]
Case = Annotated[
    str | None,
    typer.Option(
        "--case",
        metavar="GLOB",
        show_default="all cases",
        help="Only cases whose id fits, such as 'rows=4096,dtype=float*'.",
    ),
]
DeviceOption = Annotated[
    DeviceKind, typer.Option("--device", help="Where kernels run; auto takes a GPU if there is one.")
]
Budget = Annotated[
    float,
    typer.Option("--budget", metavar="S", min=0.01, max=3600, help="Device time a case for the first looks, seconds."),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        min=0,
        max=2**31 - 1,
        show_default="drawn afresh",
        help="Repeat a run's inputs; its report names the seed.",
    ),
]
Devices = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="LIST",
        show_default="the project's, else one",
        help="Devices of the host to use side by side: one, all, or indexes such as 0,1.",
    ),
]
Deadline = Annotated[
    float | None,
    typer.Option(
        "--deadline",
        metavar="S",
        min=0,
        max=90 * 24 * 3600,
        show_default="CI_JOB_TIMEOUT less a reserve, else none",
        help="Seconds after the job's start by which measuring has to end; 0 for no limit.",
    ),
]
Strict = Annotated[bool, typer.Option("--strict", show_default="off", help="Warnings fail the gate too.")]
Timer = Annotated[
    TimerKind, typer.Option("--timer", help="Device activity records or event pairs; auto takes records if it can.")
]
SuiteOption = Annotated[SuiteKind, typer.Option("--suite", help="Which of an op's two suites run.")]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="REV",
        show_default="the merge base; on the default branch the baselines' commit",
        help="Git revision to compare with, case by case and side by side.",
    ),
]
Release = Annotated[
    str | None,
    typer.Option(
        "--release",
        metavar="REV",
        show_default="the newest tag before HEAD",
        help="The release to compare with: a tag, branch or commit of HEAD's history.",
    ),
]
Duel = Annotated[
    DuelKind,
    typer.Option("--duel", help="Which cases are timed beside the base: those whose device work changed, all, none."),
]
BasePython = Annotated[
    str | None,
    typer.Option(
        "--base-python",
        metavar="PATH",
        show_default="the same",
        help="Interpreter that runs the base: to compare across versions of Triton or CANN.",
    ),
]
Targets = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="LIST",
        show_default="the project's targets, sm_90 unless set",
        help="What to compile for without a device, such as sm_80,sm_90,sm_100,gfx942.",
    ),
]
Lang = Annotated[
    Language | None,
    typer.Option(
        "--lang",
        callback=choose,
        is_eager=True,
        expose_value=False,
        show_default="the project's, else en",
        help="Language of sentences, tables and the report.",
    ),
]
Output = Annotated[Format, typer.Option("--format", help="text for people, json for programs.")]
Peers = Annotated[
    bool,
    typer.Option(
        "--peers",
        show_default="off",
        help="Time what suites name as peers too, such as torch.compile, which compiles afresh for every case: seconds "
        "a case more. No verdict depends on it.",
    ),
]
Html = Annotated[
    bool,
    typer.Option("--html", show_default="off", help="Write report.html too: one page that needs no network."),
]
Threshold = Annotated[
    list[str],
    typer.Option(
        "--threshold",
        metavar="KEY=VALUE",
        show_default="what the files say",
        help="Judge by this value, such as tau='2 %'; recorded in the run. In CI it can't loosen. Repeat for several.",
    ),
]
DeviceKey = Annotated[
    str | None,
    typer.Option("--device", metavar="KEY", show_default="all", help="Folder of the device: nvidia-h200."),
]
Project = Annotated[Path, typer.Option("--project", metavar="DIR", help="A folder of the project.")]
RunFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="RUN", show_default="the project's reports/", help="A run.json, or the folder that holds one."
    ),
]
Baseline = Annotated[
    Path | None,
    typer.Option(
        "--baseline",
        metavar="RUN_OR_DIR",
        show_default="the project's baselines/",
        help="Another run, or a folder of baselines.",
    ),
]
HERE = Path()
