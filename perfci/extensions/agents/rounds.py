"""`perfci try`: one round of optimising an op, judged beside the best round before, and stored in the op's logbook."""

import time
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from perfci.core.errors import PerfciError, StoredFileError, UsageError
from perfci.core.model import Base, DuelWhat, Reason, Run, Suite
from perfci.core.settings import Settings
from perfci.extensions.agents.logbook import Round, RoundVerdict, append_round, keep_files, read_logbook
from perfci.extensions.agents.profiles import read_profile
from perfci.extensions.agents.round_verdict import (
    average_gains,
    find_confidence,
    judge_round,
    may_be_kept,
    measure_gains,
    read_kind,
    weigh_round,
)
from perfci.git.base import How, find_commit
from perfci.ops.discover import OpFolder, ops, select_one
from perfci.runs import base as base_stage
from perfci.runs.bench import Bench, Listener, claim_bench, warm_up
from perfci.runs.beside import fingerprint_both, plan_beside
from perfci.runs.describe import Described
from perfci.runs.experiment import Experiment
from perfci.runs.plan import Request

FOLDER = "rounds"  # in the reports folder: the last round's run and logs
SHOWN = 10  # digits of a commit


def try_round(
    settings: Settings, request: Request, why: str, listener: Listener, command: str = "", *,
    expected: float | None = None, start: str | None = None, advice: str | None = None,
) -> Round:  # fmt: skip
    """Judges the op's kernel in the work tree, and appends the round to the op's logbook, whatever came of it.

    expected: the gain that is hoped for, ratio - 1. start: revision from which a new series begins. None goes on from
    that of the last round, or begins at HEAD. Raises UsageError if rounds are spent, StoredFileError if another round
    is under way, GitError without a repository.
    """
    op, began = select_one(settings, *request.ops), time.monotonic()
    with claim_bench(replace(settings, reports=settings.reports / FOLDER), listener) as bench:
        warm_up(bench, request.device)  # it imports while git is asked
        logbook = read_logbook(op.folder)
        origin = find_commit(settings.root, start or (logbook.rounds[-1].start if logbook.rounds else "HEAD"))
        done = logbook.list_of(origin)
        if len(done) >= settings.rounds:
            raise UsageError("rounds_spent", op=op.op, count=len(done), start=origin[:SHOWN])
        best = next((round_ for round_ in reversed(done) if round_.verdict is RoundVerdict.KEPT), None)
        tried = Round(
            op=op.op, number=logbook.next_number, why=why, verdict=RoundVerdict.REFUSED, expected=expected,
            time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", start=origin, advice=advice,
            best=best.number if best else 0, against=best.commit if best else origin,
        )  # fmt: skip
        name = f"round {tried.best}" if best else origin[:SHOWN]
        base = base_stage.write_base(bench, Base(str(tried.against), How.ASKED, name))
        if pair := fingerprint_both(base, settings, [op.op]).get(op.op):
            tried = replace(tried, digest=pair[0].digest, files=pair[0].changed_files(pair[1]))
        same = next((round_.number for round_ in done if round_.digest == tried.digest), None)
        outside = [file for file in tried.files if not may_change(settings, op, settings.root / file)]
        reason = None
        if pair is None:
            reason = Reason("base_lacks_op", {"op": op.op, "base": name})
        elif not tried.files:
            reason = Reason("round_unchanged", {"op": op.op, "number": tried.best})
        elif outside:
            reason = Reason("round_outside", {"files": ", ".join(outside), "start": origin[:SHOWN]})
        elif same:
            reason = Reason("round_repeated", {"op": op.op, "number": same})
        if reason:
            tried = replace(tried, reasons=(reason,))
        else:
            place = 1 + sum(round_.start == origin and round_.commit is not None for round_ in logbook.rounds)
            tried = replace(tried, place=place, verdict=RoundVerdict.ERROR)
            tried = _measure(bench, request, command, base, tried)
        # Cases that do the same work as in the best round were not timed, and have its times.
        before = {case.case: case for case in best.cases} if best else {}
        cases = tuple(
            replace(before[case.case], best_us=case.best_us, best=case.best, start=case.start)
            if case.case in before and case.best and case.us is None else case
            for case in tried.cases
        )  # fmt: skip
        with suppress(StoredFileError):  # `perfci profile` reports it, and the round is worth more
            profile = read_profile(settings, op.op)
            if profile and profile.device.key == tried.device:
                tried = replace(tried, counters={case.case: case.counters for case in profile.cases if case.counters})
        tried = replace(tried, cases=cases, seconds=round(time.monotonic() - began, 3))
        append_round(op.folder, tried)
    return tried


def may_change(settings: Settings, op: OpFolder, path: Path) -> bool:
    """Whether a round may change a file: the kernel's, tuned ones, and what ops share in the kernels folder."""
    if path.is_relative_to(op.folder):
        kernel = path == op.files[0] or path.name.endswith("_triton.py")  # or a sketch that it calls
        return kernel or path.is_relative_to(op.folder / "tuned")
    return path.is_relative_to(settings.kernels) and not any(
        path.is_relative_to(other.folder) for other in ops(settings)
    )


def _measure(bench: Bench, request: Request, command: str, base: base_stage.BaseTree, round_: Round) -> Round:
    """The round with its commit, and with its verdict from a run of these files beside the base."""
    settings, title = bench.settings, f"round {round_.number}"
    ref, text = f"refs/perfci/rounds/{round_.op}/{round_.number}", f"{round_.op}, {title}: {round_.why}\n"
    commit = keep_files(settings.root, base.base.commit, round_.files, text, ref)
    tree = base_stage.write_base(bench, Base(commit, How.AGAIN, title), "round")
    shown = {read_kind(base.settings.root / file, tree.settings.root / file) for file in round_.files}
    round_ = replace(round_, commit=commit, kinds=tuple(kind for kind in shown if kind))
    # Stored baselines do not count: the base is at hand.
    moved = replace(tree.settings, baselines=bench.folder / "no-baselines")
    inner = replace(bench, settings=moved, home=settings.root, sealed={})
    request = replace(request, duel=DuelWhat.CHANGED, weight=weigh_round(round_.place))
    try:
        experiment = Experiment.beside(inner, request, command, base)
        run, judgements = experiment.settle(experiment.measure(), may_be_kept)
        judged = judge_round(round_, run, judgements)
        if judged.verdict is RoundVerdict.KEPT and round_.best:
            origin = base_stage.write_base(bench, Base(round_.start, How.ASKED, round_.start[:SHOWN]), "start")
            judged = _compare_with_start(inner, request, run, origin, judged)
    except PerfciError as error:  # a device that is taken or lost, a worker that cannot start
        return replace(round_, reasons=(error.reason,))
    return judged


def _compare_with_start(bench: Bench, request: Request, run: Run, start: base_stage.BaseTree, round_: Round) -> Round:
    """The round with its gain over the start, by one process: it decides nothing."""
    moved = replace(bench.settings, reports=bench.settings.reports / "start")
    bench, request = replace(bench, settings=moved, sealed={}), replace(request, suites=(Suite.PERFORMANCE,))
    experiment = Experiment.beside(bench, request, run.command, start)
    # Suites and signatures are the same in all rounds, so that nothing has to be described again.
    device, described = run.environment.device, [Described(run.environment.device, run.plan.ops)]
    prints = fingerprint_both(start, moved, [round_.op])
    planned = plan_beside(start, run.plan.ops, prints, described, moved)
    plan = experiment.plan(Described(device, planned, run.plan.devices))
    beside = experiment.record(experiment.begin(plan, device))
    confidence = find_confidence(round_.place)
    seen = measure_gains([case for op in beside.ops for case in op.performance], confidence)
    cases = tuple(replace(case, start=seen.get(case.case)) for case in round_.cases)
    return replace(round_, cases=cases, total=average_gains([case.start for case in cases], confidence))
