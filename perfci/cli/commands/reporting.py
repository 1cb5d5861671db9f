"""Commands that judge, show and publish what was measured; none needs a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfci.cli.options import (
    HERE,
    Baseline,
    Case,
    Format,
    Html,
    Lang,
    Ops,
    Output,
    Project,
    RunFile,
    Strict,
    TableFormat,
    TableKind,
)


def compare(
    run: RunFile,
    baseline: Baseline = None,
    strict: Strict = False,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Judge a run against stored baselines or another run; needs no device and no torch."""
    from perfci.cli import answers

    return answers.compare(run, baseline, project, strict=strict, json=output is Format.JSON)


def report(
    run: RunFile,
    baseline: Baseline = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", show_default="beside the run", help="Where to write it."),
    ] = None,
    html: Html = False,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Render a run as Markdown and pictures, JUnit and metrics; needs no device and no torch."""
    from perfci.cli import answers

    return answers.report(run, baseline, out, project, html=html)


def show(
    run: RunFile,
    op: Ops = [],  # noqa: B006
    case: Case = None,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Show a run in detail: every case's times, blocks, compiled kernels and errors."""
    from perfci.cli import answers

    return answers.show(run, op, case, project, json=output is Format.JSON)


def export(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One or more runs, one behind the other.")],
    output: Annotated[TableFormat, typer.Option("--format", help="parquet needs the package pyarrow.")] = (
        TableFormat.CSV
    ),
    what: Annotated[
        TableKind,
        typer.Option("--what", help="A row a block and arm, or a row a tensor that an op stores in low precision."),
    ] = TableKind.BLOCKS,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="FILE", show_default="standard output", help="File to write, or to replace."),
    ] = None,
    verdicts: Annotated[
        bool,
        typer.Option(
            "--verdicts", show_default="off", help="Judge the runs too: verdict, reason and change of each case."
        ),
    ] = False,
    project: Annotated[
        Path | None,
        typer.Option(
            "--project",
            metavar="DIR",
            show_default="the one around each run",
            help="A folder of the project that judges.",
        ),
    ] = None,
    lang: Lang = None,
) -> int:
    """Write what was measured as a table: for pandas, a spreadsheet, a database."""
    from perfci.cli import exports

    return exports.export(runs, str(output), out, project, verdicts=verdicts, what=str(what))


def note(
    run: RunFile,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="PATH",
            show_default="reports/report.md of the job",
            help="The report's place among the job's artefacts, or its address.",
        ),
    ] = None,
    key: Annotated[
        str, typer.Option("--key", metavar="NAME", help="Tells this note from others of perfci in one merge request.")
    ] = "check",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", show_default="off", help="Print the note, and post nothing.")
    ] = False,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Post a run's note in its GitLab merge request, and on GitHub in the step's summary; never fails a job."""
    from perfci.cli import notes

    return notes.post(run, project, report=report, key=key, dry_run=dry_run)


def site(
    out: Annotated[
        Path, typer.Option("--out", metavar="DIR", help="A new or empty folder, or one that perfci site made.")
    ] = Path("public"),
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Build a static site over the kept history: ops and devices, and a page an op with its trends."""
    from perfci.cli import sites

    return sites.build(project, out, json=output is Format.JSON)
