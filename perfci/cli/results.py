"""`perfci compare`, `show` and `report`: stored runs judged, shown and written in other forms. None needs a device."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from perfci import report as reports
from perfci.cli import details, language, options
from perfci.cli.exits import Exit, exit_code
from perfci.cli.history import load_stores
from perfci.cli.options import argument, flag, option
from perfci.cli.output import print_json, print_lines, print_parts, print_verdicts, relative, write_report
from perfci.core.errors import GitError, UsageError
from perfci.core.model import OpRun
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.git.history import find_last_release, list_ancestors
from perfci.ops.spec import matches
from perfci.report import data, export
from perfci.report.hud import to_hud
from perfci.report.text import plain
from perfci.runs import results
from perfci.runs.decide import decide
from perfci.store import RUN_FILE, read_run
from perfci.store.files import write_atomically

TABLES = ("csv", "parquet", "hud")


def compare(
    run: options.RunFile = None,
    baseline: options.Baseline = None,
    strict: options.Strict = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Judge a run against stored baselines or another run; needs no device and no torch."""
    where = language.load(project)
    found = read_run(run or where.reports)
    judgements = decide(found, where, _existing(baseline))
    print_verdicts(found, judgements, json=output == "json", strict=strict)
    return exit_code(judgements.gate, strict=strict)


def _existing(baseline: Path | None) -> Path | None:
    """What a run is compared with. Raises UsageError if it holds no run: every case would be NEW, and the gate open."""
    if baseline is None or baseline.is_file() or (baseline / RUN_FILE).is_file():
        return baseline
    if not any(baseline.glob("*/*.json")):  # a folder of baselines has one for each device model
        raise UsageError("nothing_to_compare_with", path=str(baseline))
    return baseline


def show(
    run: options.RunFile = None,
    op: options.Ops = [],  # noqa: B006
    case: options.Case = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Show a run in detail: every case's times, blocks, compiled kernels and errors."""
    where = language.load(project)
    found = read_run(run or where.reports)
    known = [each.op for each in found.ops]
    # Ops that were only compiled have no run of their own.
    alone = {each.op for each in found.static.ops} - set(known) if found.static else set()
    found = dataclasses.replace(found, ops=(*found.ops, *map(OpRun, sorted(alone))))
    for name in op:
        if name not in {*known, *alone}:
            raise UsageError("op_not_in_run", op=name, known=", ".join((*known, *sorted(alone))))
    judgements = decide(found, where)
    chosen = [each for each in found.ops if not op or each.op in op]
    measured = {one.case for each in chosen for kind in (each.performance, each.accuracy, each.stored) for one in kind}
    compiled = {one.case for each in found.static.ops for one in each.cases} if found.static else set()
    if case and not any(matches(each, case) for each in measured | compiled):
        raise UsageError("no_case_fits", ops=", ".join(each.op for each in chosen), pattern=case)
    shown = [_only(each, case) for each in chosen]
    if output == "json":
        kept = {each.op for each in chosen}
        rows = tuple(row for row in judgements.rows if row.op in kept and (row.case is None or matches(row.case, case)))
        judged = dataclasses.replace(judgements, rows=rows)
        print_json({**data.to_json(judged, found), "measured": shown})
    else:
        print_parts(part for each in shown for part in details.show_op(each, judgements.rows, found, case))
    return Exit.OK


def _only(op: OpRun, pattern: str | None) -> OpRun:
    """Returns the op with the cases that fit a pattern."""
    return dataclasses.replace(
        op,
        accuracy=tuple(one for one in op.accuracy if matches(one.case, pattern)),
        performance=tuple(one for one in op.performance if matches(one.case, pattern)),
        stored=tuple(one for one in op.stored if matches(one.case, pattern)),
    )


@options.takes(
    "runs to baseline out",
    {**{f"to={name}": "runs verdicts out" for name in TABLES}, "to=site": "runs store release out"},
)
def report(
    runs: Annotated[
        list[Path], argument("RUN...", "A run; for csv, parquet, hud and site one or more.", "the project's reports/")
    ] = [],  # noqa: B006
    to: Annotated[
        str,
        option(
            "--to", "Some of md, html, junit, metrics, or csv, parquet (needs pyarrow), hud or site.", metavar="LIST"
        ),
    ] = ",".join(reports.STANDARD),
    baseline: options.Baseline = None,
    out: Annotated[
        Path | None,
        option("--out", "Folder, or file of a table.", "beside the run; tables: standard output; site: public", "PATH"),
    ] = None,
    store: Annotated[
        str | None, option("--store", "site: the store with the history, as of perfci history.", "git", "URL")
    ] = None,
    release: Annotated[
        str | None, option("--release", "site: what the heat map compares with.", "the newest tag before HEAD", "REV")
    ] = None,
    verdicts: Annotated[
        bool, flag("--verdicts", "csv, parquet, hud: judge the runs too: verdict, reason and change of each case.")
    ] = False,
    project: Annotated[
        Path | None,
        option("--project", "A folder of the project.", "the current one; tables: the one around each run", "DIR"),
    ] = None,
) -> int:
    """Write runs as Markdown and pictures, a page, JUnit, metrics or a table, or the kept history as a site."""
    if to == "site":
        return _build_site(language.load(project or options.HERE), runs, out or Path("public"), store, release)
    if to in TABLES:
        paths = runs or [language.load(project or options.HERE).reports]
        read = [results.read(path, project) for path in paths]
        judged = [(one.run, one.judgements if verdicts else None) for one in read]
        if to == "hud":
            text = to_hud(judged, os.environ)
        else:
            table = export.tabulate(judged)
            text = export.to_parquet(table) if to == "parquet" else export.to_csv(table)
        if out:
            write_atomically(out, text)
        else:
            sys.stdout.buffer.write(text)
        return Exit.OK
    formats = tuple(name.strip() for name in to.split(","))
    for name in formats:
        if name not in reports.FORMATS:
            raise UsageError("report_format", name=name, known=", ".join((*reports.FORMATS, *TABLES, "site")))
    if len(runs) > 1:
        raise UsageError("report_one_run", path=str(runs[1]))
    where = language.load(project or options.HERE)
    run = runs[0] if runs else where.reports
    found = read_run(run)
    folder = out or (run if run.is_dir() else run.parent)
    judgements = decide(found, where, _existing(baseline))
    print_lines(*write_report(found, judgements, where, folder, formats, run, baseline))
    return Exit.OK


def _build_site(where: Settings, runs: Sequence[Path], out: Path, url: str | None, release: str | None) -> int:
    """Builds the site. Exit code 3 if a history is damaged or there is none."""
    from perfci.report import site
    from perfci.report.alerts import list_alerts
    from perfci.report.heat import Release
    from perfci.runs.fitness import read_fitness

    since = None
    try:
        found = find_last_release(where.root, where.release_tags, release)
        since = Release(found.name, list_ancestors(where.root, found.commit))
    except GitError:
        if release:  # without one the heat map is about all kept runs
            raise
    folders = [run if run.is_dir() else run.parent for run in runs] or [where.reports]
    fitness, judged = read_fitness(where, folders)
    with load_stores()(url) if url else contextlib.nullcontext() as kept:
        seen = list_alerts(judged, kept.read_verdicts() if kept else ())
        built = site.build(where.baselines, where.root, out, kept=kept, release=since, alerts=seen, fitness=fitness)
    print_lines(*(plain(sentence(note)) for note in built.notes))
    path, pages = relative(built.index.resolve()), say("{count:page|pages}", count=len(built.pages))
    print_lines(say("Site: {path} and {pages}.", path=path, pages=pages))
    if built.gone:
        print_lines(say("Taken away, since what it showed is gone: {names}", names=", ".join(built.gone)))
    return Exit.WARNINGS if built.notes else Exit.OK


COMMANDS = {"compare": compare, "show": show, "report": report}
