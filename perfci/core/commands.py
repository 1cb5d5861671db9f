"""Commands that people are to type: written here alone, so that each works as it stands where it is read.

A command names what it is about. What its reader's place and run ask for beside that is added to every command, also to
those in sentences: the run's file, its device and its suite, the project's folder, and the language that was asked for.
"""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path

from perfci.core.extensions import read_extensions
from perfci.core.model import Run

_TAKES = {
    "accept": "runs project", "check": "device suite timer project", "ci merge": "project", "ci note": "run project",
    "ci plan": "device suite timer project", "compare": "run project",
    "doctor --selftest": "device timer project", "list": "project", "report": "runs project",
    "show": "run project",
}  # fmt: skip
"""Words that are added to each command of the gate."""

_REFUSE = {"suite": {"--retry", "--against-release", "--plan"}, "timer": {"--plan"}}
"""Options beside which an option is not taken."""


@functools.cache
def _read_takes() -> Mapping[str, str]:
    """Words that are added to each command, those of extensions too."""
    added = (extension.commands.items() for extension in read_extensions().values())
    return {**_TAKES, **{name: command.takes for commands in added for name, command in commands}}


ELSEWHERE = " --device auto"
"""The end of a command that is for another machine. It is left out, and the device of this one is not added."""

_ASKED = re.compile(r" --(device|timer)[= ](\w+)")


@dataclass(frozen=True)
class Reader:
    """Words that the reader of a command has to add to it. None: nothing."""

    project: str | None = None  # folder of the project. None if the reader stands in it
    runs: tuple[str, ...] = ()  # files of the runs. None if it is that of the project's reports
    device: str | None = None  # kind of device that the run was asked to take
    suite: str | None = None  # the only suite that it ran
    timer: str | None = None  # that it was asked to take
    lang: str | None = None  # what the reader asked for by --lang
    reports: Path | None = None  # the project's reports

    def asked_for(self, run: Run) -> Reader:
        """Returns the reader of commands about a run, with what it was asked for."""
        asked = dict(_ASKED.findall(run.command)) | ({"device": "fake"} if run.plan.device == "fake" else {})
        only = run.plan.suites if run.ops or not run.static else ()
        suite = str(only[0]) if len(only) == 1 else None
        return replace(self, device=asked.get("device"), timer=asked.get("timer"), suite=suite)

    def told_of(self, *paths: Path) -> Reader:
        """Returns the reader of commands about the runs in these files or folders."""
        usual = [self.reports / "run.json", self.reports] if self.reports else []
        named = [path for path in paths if path.resolve() not in usual or len(paths) > 1]
        here = Path.cwd()
        shown = (path.relative_to(here) if path.is_relative_to(here) else path for path in named)
        return replace(self, runs=tuple(map(str, shown)))


_HERE = Reader()

_READER: ContextVar[Reader] = ContextVar("reader", default=_HERE)


def read_by(reader: Reader) -> None:
    """Sets who reads all commands from here on."""
    _READER.set(reader)


def get_reader() -> Reader:
    """Returns who reads."""
    return _READER.get()


@contextmanager
def reading(reader: Reader) -> Iterator[None]:
    """Sets who reads the commands within."""
    before = _READER.set(reader)
    try:
        yield
    finally:
        _READER.reset(before)


def write(*words: str) -> str:
    """Returns the command of these words, quoted for a shell and completed.

    >>> write("check", "soft max", "--seed", "7")
    "perfci check 'soft max' --seed 7"
    """
    return complete(shlex.join(["perfci", *words]))


def complete(command: str) -> str:
    """Returns a command with what its reader would have to add. Anything else as it is.

    >>> with reading(Reader(runs=("old/run.json",), project="../ops", device="fake")):
    ...     complete("perfci show --op gelu"), complete("perfci check gelu")
    ('perfci show old/run.json --op gelu --project ../ops', 'perfci check gelu --device fake --project ../ops')
    """
    words = command.split(" ")
    takes = _read_takes()
    name = next((word for word in (" ".join(words[1:3]), *words[1:2]) if word in takes), None)  # the longest
    if words[0] != "perfci" or name is None:
        return command
    reader, added = _READER.get(), takes[name].split()
    if command.endswith(ELSEWHERE):
        words, reader = words[:-2], replace(reader, device=None)
    at = 1 + len(name.split())
    takes_runs = "runs" in added or ("run" in added and len(reader.runs) == 1)
    if takes_runs and all(word.startswith("-") for word in words[at : at + 1]):
        words[at:at] = map(shlex.quote, reader.runs)
    for option in ("device", "suite", "timer", "project", "lang"):
        value = getattr(reader, option)
        if (
            option in {*added, "lang"}
            and value
            and f"--{option}" not in words
            and _REFUSE.get(option, set()).isdisjoint(words)
        ):
            words += [f"--{option}", shlex.quote(value)]
    return " ".join(words)
