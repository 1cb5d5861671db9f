"""Extensions: products that hang on the gate, each a folder in perfci/extensions/ and a line in NAMES.

The gate imports none of them. It asks here for what they register, and a module of theirs is imported when it is used.
An extension is removed by deleting its folder, its tests and its line.

The package of an extension holds an `EXTENSION` and imports nothing heavy. Its sentences are in its folder `wording`.
"""

import functools
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

NAMES = (
    "setup",
    "adopt",
    "agents",
    "backends",
    "beyond",
    "doctor",
    "driver",
    "formats",
    "history",
    "interpreter",
    "lab",
    "lowprec",
    "npu",
    "offline",
    "pictures",
    "ranks",
    "ray",
    "shards",
    "note",
    "static",
    "workloads",
)  # fmt: skip
"""In the order in which `perfci --help` and `perfci ci --help` list what they add."""

POINTS = {
    "device": "a `DeviceKind` of perfci.device: hardware beside GPUs and the CPU",
    "driver": "a class that hears and repeats launches of any compiler: `DriverSteps` of the extension driver",
    "spoil": "a function of a filler that fills memory of a GPU's processors before a call that is checked",
    "interpreter": "a function that has Triton's interpreter compute what a GPU computes",
    "bound": "a function of seconds that returns a context which interpreted calls may take as long",
    "races": "a function that returns a context in which races of interpreted launches are collected",
    "target": "several `Target`s of perfci.extensions.common.targets: what `perfci static` compiles for",
    "report": "a `ReportFormat` of perfci.cli.results: what else `perfci report --to` writes",
    "load": "the function behind `perfci.load`",
    "backends": "the function behind `perfci.backends`",
    "get_kernel": "the function behind `perfci.get_kernel`",
    "record": "the class behind `perfci.record`",
    "workload": "the function behind `perfci.workload`",
    "calls": "a function of the file of a workload that returns its calls as Python",
    "weigh": "a function of a run, its verdicts, the kernels folder and limits that says what they cost models",
    "end_to_end": "a function of an experiment, its run and verdicts that adds scripts of models",
    "groups": "a class of functions for groups of boards: `Groups` of the extension ranks",
    "model_brief": "the function behind `perfci brief --model`",
    "format": "a `FileFormat` of perfci.report: a file of a run's verdicts that other programs read",
    "ci": "a function that adds commands to `perfci ci`",
    "pictures": "a class that draws the pictures of a report: `Painter` of the extension pictures",
    "page": "the function behind `--html`",
    "frame": "a function that makes a page of a template, with the looks of report.html",
    "sections": "a function of a run, its settings and its rules' that returns an `OpExtra` of perfci.report.sections",
    "tables": "a function of an op and its judgements that yields Sections: its tables, for `perfci show` too",
    "stored": "a `StoredChecks` of perfci.measure.stored: how tensors stored in low precision are checked and judged",
    "ways": "a function of a loaded op that yields ways to call it beside the usual one, for what is compiled",
    "boards": "a function of the folder of baselines that yields UUIDs of boards that are sick",
    "note": "a function of settings and names of ops that yields a title and a table of the note in a merge request",
    "suite": "a class that files of a project use as `perfci.NAME`. Its `command` runs a file by its path",
    "stages": "a function that returns stages of workers, and what a line of progress says of them",
    "task": "a class of perfci.worker.tasks: what a worker can be asked to do",
    "compile": "a function of an experiment and its run on a CPU that returns the run with what kernels compile to",
    "compiled": "a class of functions that judge, report and show what kernels compile to: `Compiled` of static",
    "beyond": "a function of an experiment, its run and verdicts that returns both with what suites do not check",
    "properties": "a function of a suite, a device and a case that returns lines of the suite: properties that hold",
    "precompile": "a `Precompiler` of perfci.runs.schedule: it compiles what ops launch before they are looked at",
    "preload": "anything of a module that workers on a GPU import before they are forked",
    "preload_later": "anything of a module that some of these need, which is imported while the first one works",
    "static": "the function that compiles kernels without a device, and judges them",
    "shards": "a class of functions for what several runners or devices share: see `Shards` of the extension shards",
    "accepting": "the function that stores accepted runs and keeps their history: see perfci.runs.accept_runs",
    "retry": "the function behind `perfci check --retry`",
    "watch": "the function behind `--watch`",
    "toolchain": "the function behind `perfci check --toolchain`",
    "creep": "the function behind `perfci check --against-release`",
    "report_back": "the function behind `perfci check --report-back`",
    "environment": "the function behind `perfci accept --environment`",
    "selftest": "the function behind `perfci doctor --selftest`",
    "propose": "the function behind `perfci accept --propose`",
    "cluster": "the function behind `perfci check --on`",
    "doctor": "a function of environment variables that returns a `HostLook` of the extension doctor",
}
"""What an extension may provide, by the name under which the gate asks for it."""


@dataclass(frozen=True)
class CommandLine:
    """A command of an extension: its module, in which COMMANDS has it, and its line in `perfci --help`."""

    module: str
    heading: str
    line: str
    takes: str = "project"  # what is added to it where it is printed, see perfci.core.commands


@dataclass(frozen=True)
class Extension:
    """All that an extension registers."""

    commands: Mapping[str, CommandLine] = field(default_factory=dict)
    provides: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # point -> "module:name" of each thing

    def __post_init__(self) -> None:
        if unknown := self.provides.keys() - POINTS.keys():
            raise ValueError(f"no such point: {', '.join(sorted(unknown))}")


@functools.cache
def read_extensions() -> Mapping[str, Extension]:
    """Returns what every extension registers, by name, in the order of NAMES."""
    return {name: importlib.import_module(f"perfci.extensions.{name}").EXTENSION for name in NAMES}


def list_places(point: str) -> Iterator[str]:
    """Yields the places of what extensions provide at one of POINTS: `module:name`."""
    assert point in POINTS, point
    for extension in read_extensions().values():
        yield from extension.provides.get(point, ())


def load(place: str) -> Any:
    """Returns what stands at a place. Its module is imported now."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def provided(point: str) -> Iterator[Any]:
    """Yields what extensions provide at one of POINTS. The modules are imported now."""
    return map(load, list_places(point))
