"""What the commands do: ask the pipeline, print the answer, give the exit code."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from perfci import store
from perfci.cli import details, language, rebaselines, selftests, tables
from perfci.cli.exits import Exit, exit_code
from perfci.cli.progress import Progress
from perfci.core import deadline
from perfci.core.codec import encode
from perfci.core.errors import UsageError
from perfci.core.model import DuelWhat, Judgements, OpRun, Run, Suite
from perfci.core.settings import Settings, are_devices
from perfci.core.wording import say, sentence
from perfci.judge.notes import note_missing_peers
from perfci.lab.chains.records import find_chains
from perfci.ops.spec import matches
from perfci.report import data
from perfci.runs import chains as runs_chains
from perfci.runs import flow
from perfci.runs.accepting import accept_runs
from perfci.runs.decide import decide, stored_for
from perfci.runs.doctor import Facts
from perfci.runs.plan import Request
from perfci.runs.rebaseline import RebaselineOptions, rebaseline_runs

_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|(?<=##)\\[|(?<=##vso)\\[")
"""What a terminal or a job's log obeys, or what turns text round, where JSON is read by people; its encoder escapes the
others. The brackets stand in strings alone."""

_SUITES = {
    "both": (Suite.ACCURACY, Suite.PERFORMANCE),
    "accuracy": (Suite.ACCURACY,),
    "performance": (Suite.PERFORMANCE,),
}


def request(
    ops: Sequence[str], case: str | None, device: str, budget: float, seed: int | None, suite: str, timer: str
) -> Request:
    """The options as one record."""
    return Request(tuple(ops), case, str(device), budget, seed, str(timer), _SUITES[str(suite)])


def against(wanted: Request, revision: str | None, duel: str, python: str | None, targets: str | None) -> Request:
    """The options that compare with another revision, added to a request."""
    names = tuple(name.strip() for name in targets.split(",") if name.strip()) if targets else ()
    return dataclasses.replace(wanted, against=revision, duel=DuelWhat(str(duel)), base_python=python, targets=names)


def within(wanted: Request, devices: str | None, limit: deadline.Found = deadline.NO_LIMIT) -> Request:
    """The options of where and until when, added to a request. Raises UsageError."""
    return dataclasses.replace(wanted, devices=used(devices), deadline=limit.deadline, deadline_note=limit.note)


def judged_by(wanted: Request, thresholds: Sequence[str]) -> Request:
    """What --threshold says, added to a request. Raises UsageError for a key or value that no file could have."""
    from perfci.runs.effective_thresholds import parsed

    return dataclasses.replace(wanted, thresholds=parsed(thresholds)) if thresholds else wanted


def beside(wanted: Request, *, peers: bool) -> Request:
    """Whether peers are timed too, added to a request."""
    return dataclasses.replace(wanted, peers=peers)


def used(devices: str | None) -> str | None:
    """What --devices was given. Raises UsageError for what names none."""
    if devices is not None and not are_devices(devices):
        raise UsageError("devices_malformed", devices=devices)
    return devices


def time_limit(seconds: float | None) -> deadline.Found:
    """The job's, by --deadline or by GitLab's variables."""
    return deadline.find(seconds, os.environ, time.time())


def check(wanted: Request, project: Path, *, strict: bool, json: bool, html: bool = False) -> int:
    """The whole flow, with the report."""
    where = language.load(project)
    with Progress() as progress:
        found, judgements = flow.check(where, wanted, command(), progress)
    return told(found, judgements, where, strict=strict, json=json, html=html)


def run(wanted: Request, project: Path, *, json: bool) -> int:
    """Measure without judging."""
    where = language.load(project)
    with Progress() as progress:
        found = flow.measure(where, dataclasses.replace(wanted, duel=DuelWhat.NONE), command(), progress)
    path = where.reports / "run.json"
    if json:
        write_json(path.read_text(encoding="utf-8"))
    else:
        missing = note_missing_peers(found.plan)
        plain(
            *([sentence(missing)] if missing else []),
            say("Run: {path}", path=relative(path)),
            say("Next: `perfci compare` judges it, `perfci report` renders it."),
        )
    return Exit.OK


def static(wanted: Request, project: Path, *, strict: bool, json: bool) -> int:
    """Compile without a device, with the report in a folder of its own."""
    where = language.load(project)
    where = dataclasses.replace(where, reports=where.reports / "static")
    with Progress() as progress:
        found, judgements = flow.static(where, wanted, command(), progress)
    return told(found, judgements, where, strict=strict, json=json)


def selftest(wanted: Request, project: Path, *, json: bool) -> int:
    """Try perfci on the project's own ops; exit 2 if anything did not come out as it should."""
    where = language.load(project)
    with Progress() as progress:
        found = flow.selftest(where, wanted, command(), progress)
    if json:
        _print_json(found)
    else:
        _print(*selftests.trials(found))
    return Exit.OK if found.passed else Exit.GATE_FAILED


def told(found: Run, judgements: Judgements, where: Settings, *, strict: bool, json: bool, html: bool = False) -> int:
    """Print the verdicts, write the report, and give the exit code."""
    # The verdicts first: they are known even where the report cannot be written.
    if json:
        _print_json(data.to_json(judgements, found))
    else:
        print_verdicts(found, judgements, strict=strict)
    path = _write_report(found, judgements, where, where.reports, html=html)
    if not json:
        _print_written(path, html=html)
    return exit_code(judgements.gate, strict=strict)


def compare(path: Path, baseline: Path | None, project: Path, *, strict: bool, json: bool) -> int:
    """Judge a stored run."""
    where, found = language.load(project), store.read_run(path)
    judgements = decide(found, where, _existing(baseline))
    if json:
        _print_json(data.to_json(judgements, found))
    else:
        print_verdicts(found, judgements, strict=strict)
    return exit_code(judgements.gate, strict=strict)


def _existing(baseline: Path | None) -> Path | None:
    """What a run is held against. Raises UsageError for what holds no run: every case would be NEW, the gate open."""
    if baseline is None or baseline.is_file() or (baseline / store.RUN_FILE).is_file():
        return baseline
    if not any(baseline.glob("*/*.json")):  # a folder of baselines has one for each device model
        raise UsageError("nothing_to_compare_with", path=str(baseline))
    return baseline


def report(path: Path, baseline: Path | None, out: Path | None, project: Path, *, html: bool = False) -> int:
    """Render a stored run."""
    where, found = language.load(project), store.read_run(path)
    folder = out or (path if path.is_dir() else path.parent)
    judgements = decide(found, where, _existing(baseline))
    written = _write_report(found, judgements, where, folder, path, baseline, html=html)
    _print_written(written, html=html)
    return Exit.OK


def _print_written(report: Path, *, html: bool) -> None:
    plain(say("Report: {path}", path=relative(report)))
    if html:
        plain(say("Page: {path}", path=relative(report.with_suffix(".html"))))


def accept(
    paths: Sequence[Path],
    ops: Sequence[str],
    project: Path,
    *,
    add: bool,
    dirty: bool,
    json: bool,
    slower: bool = False,
    why: str | None = None,
    case: str | None = None,
) -> int:
    """Make baselines of stored runs; exit 2 if anything was refused."""
    if why is not None and not slower:
        raise UsageError("accept_why_alone")
    where = language.load(project)
    runs = [store.read_run(path) for path in paths]
    reason = (why or "") if slower else None
    accepted = accept_runs(runs, where, ops, add=add, dirty=dirty, slower=reason, pattern=case)
    if json:
        _print_json(
            [{"op": one.op, "accepted": one.accepted, "refused": one.refused, "said": one.said} for one in accepted]
        )
    else:
        _print(*tables.acceptances(accepted))
    return Exit.GATE_FAILED if any(one.refused for one in accepted) else Exit.OK


def rebaseline(
    paths: Sequence[Path], ops: Sequence[str], project: Path, options: RebaselineOptions, *, cases: bool, json: bool
) -> int:
    """What the environment moved since the baselines; with a wish to write, a step in them."""
    where = language.load(project)
    found = rebaseline_runs([store.read_run(path) for path in paths], where, ops, options)
    if json:
        _print_json(rebaselines.to_json(found))
    else:
        _print(*rebaselines.shown(found, by_case=cases, wrote=options.write))
    return rebaselines.exit_code(found)


def list_ops(ops: Sequence[str], case: str | None, device: str, project: Path, *, json: bool) -> int:
    """List ops and cases; needs torch, since ops import it."""
    where = language.load(project)
    with Progress() as progress:
        plan, _ = flow.describe(where, Request(tuple(ops), case, str(device)), progress)
    if json:
        _print_json(plan.ops)
    else:
        _print(tables.ops(plan))
        if not ops and (chains := find_chains(where.kernels)):
            names = ", ".join(chain.name for chain in chains)
            _print("", say("Chains of ops, with their stages by perfci list --chains: {names}", names=names))
    return Exit.PERFCI_FAILED if any(op.failure for op in plan.ops) else Exit.OK


def list_chains(ops: Sequence[str], case: str | None, device: str, project: Path, *, json: bool) -> int:
    """List the chains of ops with their stages and cases. Raises UsageError for ops, none of which a chain is of."""
    if ops:
        raise UsageError("list_chains_of_op", op=ops[0])
    where = language.load(project)
    with Progress() as progress:
        chains = runs_chains.list_chains(where, case, str(device), progress)
    if not chains and case is not None and (known := find_chains(where.kernels)):
        raise UsageError("chain_no_case", chains=", ".join(each.name for each in known), pattern=case)
    if json:
        _print_json(chains)
    else:
        _print(tables.chains(chains))
    return Exit.PERFCI_FAILED if any(chain.failure for chain in chains) else Exit.OK


def show(path: Path, ops: Sequence[str], case: str | None, project: Path, *, json: bool) -> int:
    """Details of a stored run's cases."""
    where = language.load(project)
    found = _with_compiled(store.read_run(path))
    _known_ops(found, ops)
    judgements = decide(found, where)
    chosen = [op for op in found.ops if not ops or op.op in ops]
    ids = {case for op in chosen for case in _cases(op)} | _compiled_cases(found)
    if not any(matches(each, case) for each in ids) and case:
        raise UsageError("no_case_fits", ops=", ".join(op.op for op in chosen), pattern=case)
    if json:
        _print_json([_only(op, case) for op in chosen])
        return Exit.OK
    rows = {(row.op, row.case): row for row in judgements.rows if row.suite is Suite.PERFORMANCE}
    for op in chosen:
        cases = [one for one in op.performance if matches(one.case, case)]
        _print(*details.show(op, cases, rows, found), *details.stored(op, case, judgements.rows))
    return Exit.OK


def _with_compiled(run: Run) -> Run:
    """The run with the ops that were only compiled."""
    known = {op.op for op in run.ops}
    compiled = dict.fromkeys(op.op for op in run.static.ops) if run.static else {}
    return dataclasses.replace(run, ops=(*run.ops, *(OpRun(name) for name in compiled if name not in known)))


def _cases(op: OpRun) -> list[str]:
    return [one.case for each in (op.performance, op.accuracy, op.stored) for one in each]


def _compiled_cases(run: Run) -> set[str]:
    return {case.case for op in run.static.ops for case in op.cases} if run.static else set()


def _only(op: OpRun, pattern: str | None) -> OpRun:
    """The op with the cases that fit a pattern."""
    accuracy = tuple(one for one in op.accuracy if matches(one.case, pattern))
    performance = tuple(one for one in op.performance if matches(one.case, pattern))
    stored = tuple(one for one in op.stored if matches(one.case, pattern))
    return dataclasses.replace(op, accuracy=accuracy, performance=performance, stored=stored)


def doctor(project: Path, *, json: bool) -> int:
    """Findings about this machine; exit 3 if any is a problem."""
    from perfci.runs import doctor as examination

    where = language.load(project)
    findings = examination.examine(_facts(where))
    if json:
        _print_json([{"level": one.level, "reason": one.reason, "sentence": sentence(one.reason)} for one in findings])
    else:
        _print(*tables.findings(findings))
    return Exit.WARNINGS if any(f.level is examination.Level.PROBLEM for f in findings) else Exit.OK


def _facts(where: Settings) -> Facts:
    with Progress() as progress:
        return flow.examine(where, "auto", progress)


def _known_ops(run: Run, ops: Sequence[str]) -> None:
    known = [op.op for op in run.ops]
    for op in ops:
        if op not in known:
            raise UsageError("op_not_in_run", op=op, known=", ".join(known))


def _write_report(
    run: Run,
    judgements: Judgements,
    where: Settings,
    folder: Path,
    launches: Path | None = None,
    against: Path | None = None,
    *,
    html: bool = False,
) -> Path:
    from perfci import report

    stored = stored_for(run, where, against)
    return report.write(
        run, judgements, folder, launches or folder, stored.baselines, pasts=stored.pasts, sources=stored.sources,
        html=html,
    )  # fmt: skip


def print_verdicts(run: Run, judgements: Judgements, *, strict: bool = False, shard: str | None = None) -> None:
    """The verdict table with its notes, and what they sum up to; a shard's decide nothing by themselves."""
    _print(tables.verdicts(judgements, run))
    for said, lines in tables.pasted(judgements):
        _print(said)
        # Not through the console, which breaks lines that are to be copied.
        plain(*lines)
    _print(tables.peers(judgements))
    _print(tables.summary(judgements, strict=strict, shard=shard))


def _print(*parts: RenderableType) -> None:
    console = Console(highlight=False)
    for part in parts:
        # In a log a line is a line: nothing is cut to a width that nobody has.
        console.print(part, soft_wrap=not console.is_terminal)


def print_answer(run: Run, judgements: Judgements) -> None:
    """The verdicts for programs."""
    _print_json(data.to_json(judgements, run))


def print_record(answer: Any) -> None:
    """Anything else for programs."""
    _print_json(answer)


def plain(*lines: str) -> None:
    """Lines as they are, for eyes and for the clipboard."""
    for line in lines:
        print(line)


def _print_json(answer: Any) -> None:
    write_json(encode(answer).decode())


def write_json(json: str) -> None:
    """JSON without what a terminal obeys; written in bytes, in which no line ends are changed."""
    text = _UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", json.rstrip("\n"))
    sys.stdout.buffer.write(text.encode() + b"\n")


def command() -> str:
    """What was typed."""
    return shlex.join(["perfci", *sys.argv[1:]])


def relative(path: Path) -> str:
    """A path as it is shown: from the current folder, if it lies there."""
    here = Path.cwd()
    shown = str(path.relative_to(here) if path.is_relative_to(here) else path)
    return "".join(mark for mark in shown if mark.isprintable())
