"""What commands take: options that several of them share, and which of them go together."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import typer
import typer.core
import typer.main

from perfci.cli.parsing import CHOSEN, COMPARED, MEASURED, OTHERWISE, REQUIRED, argument, flag, name_op, option
from perfci.core.errors import UsageError
from perfci.ops.backends import MARK

_Function = TypeVar("_Function", bound=Callable[..., int])


def takes(alone: str, modes: Mapping[str, str]) -> Callable[[_Function], _Function]:
    """Mark the parameters that go with each mode of a command (`static`, or with a value `to=csv`), and with none."""

    def mark(function: _Function) -> _Function:
        function.modes = {"": alone, **modes}  # type: ignore[attr-defined]
        return function

    return mark


def shows(*examples: str) -> Callable[[_Function], _Function]:
    """Put examples of a command above its options: the words to type, `#`, and what they do."""

    def mark(function: _Function) -> _Function:
        function.examples = examples  # type: ignore[attr-defined]
        return function

    return mark


def take_one(ops: Sequence[str]) -> str:
    """The only op that was named. Raises UsageError for none, and for several."""
    if not ops:
        raise UsageError("op_needed", command=typer.main.get_current_context().command_path)
    if len(set(ops)) > 1:
        raise UsageError("op_one", command=typer.main.get_current_context().command_path, ops=", ".join(ops))
    return ops[0]


def name_backends(ops: Sequence[str], backends: Sequence[str]) -> tuple[str, ...]:
    """Returns the names for `perfci.ops.discover.select` of ops with all of their backends, or with these.

    >>> name_backends(["softmax", "gelu@cuda"], []), name_backends([], ["torch,cuda"])
    (('softmax@*', 'gelu@cuda'), ('*@torch,cuda',))
    """
    wanted = [backend for given in backends for backend in given.split(",") if backend != SIDE_BY_SIDE]
    names = [*ops] or ["*"] * bool(wanted)
    return tuple(op if MARK in op else f"{op.rstrip('/')}{MARK}{','.join(wanted) or '*'}" for op in names)


def compare_with(metavar: str, default: str, words: str = "") -> Any:
    """The option that names the other side of a comparison."""
    return option("--against", f"What to compare with{words and ': '}{words}.", default, metavar, group=COMPARED)


SIDE_BY_SIDE = "all"  # of --backend

DeviceKind = Literal["auto", "cuda", "npu", "cpu", "fake"]
TimerKind = Literal["auto", "activity", "event"]
SuiteKind = Literal["both", "accuracy", "performance"]
DuelKind = Literal["changed", "all", "none"]
Format = Literal["text", "json"]

Ops = Annotated[list[str], argument("OP...", "Ops, or globs such as 'fp8_*'.", "all ops")]
Backends = Annotated[
    list[str],
    option(
        "--backend",
        "Only these, such as cuda,torch; all times them, and peers such as torch.compile, side by side.",
        "each that can run here, by itself",
        "NAME",
        group=CHOSEN,
    ),
]
Op = Annotated[list[str], argument("OP", "The op, or a glob that fits it alone.", REQUIRED)]
OpsOfRun = Annotated[list[str], name_op("all ops")]
Case = Annotated[
    str | None,
    option("--case", "Only cases that fit, such as 'rows=4096,dtype=float*'.", "all cases", "GLOB", group=CHOSEN),
]
DeviceOption = Annotated[
    DeviceKind,
    option(
        "--device",
        "Where kernels run: cuda, npu, cpu, fake; auto takes a GPU if there is one.",
        metavar="KIND",
        group=MEASURED,
    ),
]
Budget = Annotated[
    float, option("--budget", "Seconds to measure: each case.", metavar="S", min=0.01, max=3600, group=MEASURED)
]
Seed = Annotated[
    int | None,
    option(
        "--seed",
        "Repeat a run's inputs; its report names the seed.",
        "drawn afresh",
        "N",
        min=0,
        max=2**31 - 1,
        group=MEASURED,
    ),
]
Devices = Annotated[
    str | None,
    option(
        "--devices",
        "Devices to use side by side: one, all, or indexes: 0,1.",
        "the project's, else one",
        "LIST",
        group=MEASURED,
    ),
]
On = Annotated[
    str | None,
    option("--on", "Ray cluster to do it on; here for none.", "the project's", "ray://HOST:PORT", group=MEASURED),
]
Deadline = Annotated[
    float | None,
    option(
        "--deadline",
        "Second of the job by which measuring ends; 0: none.",
        "CI_JOB_TIMEOUT less a reserve",
        "S",
        min=0,
        max=90 * 24 * 3600,
        group=MEASURED,
    ),
]
Strict = Annotated[bool, flag("--strict", "Warnings fail the gate too.", group=COMPARED)]
Timer = Annotated[
    TimerKind,
    option(
        "--timer",
        "Activity records of the device, or event pairs; auto takes records if it can.",
        metavar="TIMER",
        group=MEASURED,
    ),
]
SuiteOption = Annotated[
    SuiteKind,
    option("--suite", "Which of an op's suites run: accuracy, performance or both.", metavar="SUITE", group=CHOSEN),
]
Against = Annotated[str | None, compare_with("REV", "the merge base, else the baselines' commit")]
Duel = Annotated[
    DuelKind,
    option(
        "--duel",
        "Cases timed beside the base: changed (in their device work), all or none.",
        metavar="CASES",
        group=COMPARED,
    ),
]
BasePython = Annotated[
    str | None,
    option(
        "--base-python",
        "Interpreter of the base, for another version of Triton or CANN.",
        "the same",
        "PATH",
        group=COMPARED,
    ),
]
Toolchain = Annotated[
    list[str],
    option(
        "--toolchain",
        "Compare the installed toolchain with another; repeat for several.",
        "none",
        "triton==X",
        group=OTHERWISE,
    ),
]
LastFailed = Annotated[
    bool, flag("--lf", "Only ops that failed in the last run of reports/; all, if none did.", group=CHOSEN)
]
Watch = Annotated[bool, flag("--watch", "Check one op again whenever one of its files changes.", group=CHOSEN)]
Quiet = Annotated[bool, flag("--quiet", "Print what failed and the verdict alone.", "-q")]
Output = Annotated[Format, option("--format", "text for people, json for programs.", metavar="FORM")]
Html = Annotated[bool, flag("--html", "Write report.html too: one page that needs no network.")]
Threshold = Annotated[
    list[str],
    option(
        "--threshold",
        "Judge by this: tau='2 %'; in CI never looser. Repeat for several.",
        "none",
        "KEY=VALUE",
        group=COMPARED,
    ),
]
DeviceKey = Annotated[
    str | None, option("--device-key", "Device whose stored numbers count, such as nvidia-h200.", "all", "KEY")
]
Store = Annotated[
    str | None, option("--store", "Store of the history: postgresql://... or parquet:FOLDER.", "git", "URL")
]
Project = Annotated[Path, option("--project", "A folder of the project.", metavar="DIR")]
RunFile = Annotated[Path | None, argument("RUN", "A run.json, or the folder that holds one.", "the project's reports/")]
AgainstStored = Annotated[str | None, compare_with("RUN_OR_DIR", "the project's baselines/")]
HERE = Path()
