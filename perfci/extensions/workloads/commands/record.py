"""`perfci record`: what a program calls of the project's ops, as a workload."""

import os
import subprocess
from pathlib import Path
from typing import Annotated

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import print_json, print_lines, relative
from perfci.cli.parsing import argument, option
from perfci.core import PACKAGE
from perfci.core.errors import UsageError
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.extensions.workloads import traces
from perfci.extensions.workloads.page import brief_model
from perfci.extensions.workloads.records import find_path, read_workload, write_workload

STDERR = 2  # descriptor: what the program prints is no answer of this command
AFTER_S = 5.0  # what the first calls compile is no part of a model's work


@options.takes("words name after also", {"read": "name", "export": "name"})
@options.shows("perfci record -- python serve.py  # what serve.py calls, 5 s after its first call")
def record(
    words: Annotated[
        list[str], argument("COMMAND...", "Behind --: python serve.py, or python -m package.serve.", "none")
    ] = [],  # noqa: B006
    name: Annotated[str | None, option("--as", "Name of the workload.", "that of the program", "NAME")] = None,
    after: Annotated[
        float, option("--after", "Seconds from the first call to the recording, for warming up.", metavar="S", min=0)
    ] = AFTER_S,
    also: Annotated[
        list[str], option("--also", "A function that is no op yet; repeat for several.", "none", "MODULE:FUNCTION")
    ] = [],  # noqa: B006
    read: Annotated[
        Path | None,
        option(
            "--read", "Instead of a program: a trace of torch.profiler, or a flashinfer-trace folder.", "none", "PATH"
        ),
    ] = None,
    export: Annotated[
        Path | None, option("--export", "Write the workload as flashinfer-trace into this folder.", "none", "DIR")
    ] = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Record what a program calls of the project's ops: shapes, counts, share of the device's time."""
    where = language.load(project)
    if read is not None:
        name = name or read.name.partition(".")[0]
        find_path(where.kernels, name)
        reader = traces.read_folder if read.is_dir() else traces.read_trace
        write_workload(where.kernels, reader(read, name, where))
    elif export is not None:
        if name is None:
            raise UsageError("option_needs", option="--export", needed="--as")
        traces.write_folder(read_workload(where.kernels, name), export, where)
        print_lines(say("Definitions and workloads: {path}", path=relative(export)))
        return Exit.OK
    else:
        name = _run(where, name, after, also, words)
    brief, lines = brief_model(where, name)
    if output == "json":
        print_json(brief)
    else:
        print_lines(*lines, "", say("Workload: {path}", path=relative(find_path(where.kernels, name))))
    return Exit.OK


def _run(where: Settings, name: str | None, after_s: float, also: list[str], words: list[str]) -> str:
    """Run a program with recording, in the interpreter that it names. Returns the workload's name."""
    if len(words) < 2 or not Path(words[0]).name.startswith("python"):
        raise UsageError("record_command", command=" ".join(words) or None)
    name = name or Path(words[2 if words[1] == "-m" else 1]).stem
    path = find_path(where.kernels, name)

    def read_time() -> int | None:
        return path.stat().st_mtime_ns if path.exists() else None

    before = read_time()
    given = (str(where.root), name, str(after_s), " ".join(also))
    command = [words[0], "-m", "perfci.extensions.workloads.commands.program", *given, *words[1:]]
    inner = os.pathsep.join(filter(None, (str(PACKAGE.parent), os.environ.get("PYTHONPATH"))))
    code = subprocess.run(command, env={**os.environ, "PYTHONPATH": inner}, stdout=STDERR, check=False).returncode
    if read_time() == before:
        raise UsageError("record_failed", command=" ".join(words), code=code, after=after_s)
    return name


COMMANDS = {"record": record}
