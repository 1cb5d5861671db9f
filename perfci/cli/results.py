"""`perfci compare`, `show` and `report`: stored runs judged, shown and written in other forms. None needs a device."""

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Protocol

from perfci import report as reports
from perfci.cli import details, language, options
from perfci.cli.exits import Exit, exit_code
from perfci.cli.output import print_json, print_lines, print_parts, print_verdicts, tell_of, write_report
from perfci.cli.parsing import argument, flag, list_typed, option
from perfci.core import extensions
from perfci.core.errors import UsageError
from perfci.core.model import OpRun
from perfci.core.wording import say
from perfci.report import data
from perfci.runs.decide import decide, narrow
from perfci.store import RUN_FILE, read_run


@dataclasses.dataclass(frozen=True)
class ReportAsked:
    """What the options of `perfci report` ask of a format of an extension."""

    runs: Sequence[Path]
    out: Path | None
    store: str | None  # URL of the history's
    ops: Sequence[str]
    case: str | None
    verdicts: bool
    project: Path | None


class ReportFormat(Protocol):
    """What an extension makes of runs and histories by `perfci report --to NAME`."""

    name: str

    def build(self, asked: ReportAsked) -> int:
        """Build it, print where it is, and return the exit code."""


def compare(
    run: options.RunFile = None,
    against: options.AgainstStored = None,
    ops: options.OpsOfRun = [],  # noqa: B006
    case: options.Case = None,
    strict: options.Strict = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Judge a run against stored baselines or another run; needs no device and no torch."""
    where = language.load(project)
    record = read_run(run or where.reports)
    tell_of(record, run or where.reports)
    record, judgements = narrow(record, decide(record, where, _existing(against)), ops, case)
    command = shlex.join(["perfci", "report", *list_typed("strict", "output")])
    reading = say("`{command}` writes down how it was tested.", command=command)
    print_verdicts(record, judgements, json=output == "json", strict=strict, reading=reading)
    return exit_code(judgements.gate, strict=strict)


def _existing(name: str | None) -> Path | None:
    """What a run is compared with. Raises UsageError if it holds no run: every case would be NEW, and the gate open."""
    against = Path(name) if name else None
    if against is None or against.is_file() or (against / RUN_FILE).is_file():
        return against
    if not any(against.glob("*/*.json")):  # a folder of baselines has one for each device model
        raise UsageError("nothing_to_compare_with", path=str(against))
    return against


def show(
    run: options.RunFile = None,
    ops: options.OpsOfRun = [],  # noqa: B006
    case: options.Case = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Show a run in detail: every case's times, blocks, compiled kernels and errors."""
    where = language.load(project)
    record = read_run(run or where.reports)
    tell_of(record, run or where.reports)
    # Ops that were only compiled have no run.
    alone = {op.op for op in record.static.ops} - {op.op for op in record.ops} if record.static else set()
    record = dataclasses.replace(record, ops=(*record.ops, *map(OpRun, sorted(alone))))
    record, judgements = narrow(record, decide(record, where), ops, case)
    if output == "json":
        print_json({**data.to_json(judgements, record), "measured": record.ops})
    else:
        print_parts(part for op in record.ops for part in details.show_op(op, judgements.rows, record, case))
    return Exit.OK


@options.takes(
    "runs to against ops case out",
    {**{f"to={name}": "runs verdicts ops case out" for name in ("csv", "parquet")}, "to=site": "store out"},
)
def report(
    runs: Annotated[
        list[Path], argument("RUN...", "A run; for csv and parquet one or more.", "the project's reports/")
    ] = [],  # noqa: B006
    to: Annotated[
        str,
        option("--to", "Some of md, html, junit, metrics, or csv, parquet (needs pyarrow) or site.", metavar="LIST"),
    ] = ",".join(reports.list_standard()),
    against: options.AgainstStored = None,
    ops: options.OpsOfRun = [],  # noqa: B006
    case: options.Case = None,
    out: Annotated[
        Path | None,
        option(
            "--out",
            "Where to write: a folder, or the file of a table.",
            "beside the run; tables: standard output; site: public",
            "PATH",
        ),
    ] = None,
    store: options.Store = None,
    verdicts: Annotated[
        bool, flag("--verdicts", "csv, parquet: judge the runs too: verdict, reason and change of each case.")
    ] = False,
    project: Annotated[
        Path | None,
        option("--project", "A folder of the project.", "the current one; tables: the one around each run", "DIR"),
    ] = None,
) -> int:
    """Write runs as Markdown and pictures, a page, JUnit, metrics or a table, or the kept history as a site."""
    builders: dict[str, ReportFormat] = {builder.name: builder for builder in extensions.provided("report")}
    if to in builders:
        return builders[to].build(ReportAsked(runs, out, store, ops, case, verdicts, project))
    formats = tuple(name.strip() for name in to.split(","))
    for name in formats:
        if name not in reports.list_formats():
            raise UsageError("report_format", name=name, known=", ".join((*reports.list_formats(), *builders)))
    if len(runs) > 1:
        raise UsageError("report_one_run", path=str(runs[1]))
    where = language.load(project or options.HERE)
    run = runs[0] if runs else where.reports
    record = read_run(run)
    folder = out or (run if run.is_dir() else run.parent)
    other = _existing(against)
    record, judgements = narrow(record, decide(record, where, other), ops, case)
    print_lines(*write_report(record, judgements, where, folder, formats, run, other))
    return Exit.OK


COMMANDS = {"compare": compare, "show": show, "report": report}
