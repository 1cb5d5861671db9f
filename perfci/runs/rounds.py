"""`perfci try`: one round of optimising an op, judged beside the best round before, and stored in the op's logbook."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import Base, DuelWhat, Fact, Reason, Round, RoundVerdict, Run, Suite
from perfci.core.settings import Settings
from perfci.git.base import How, find_commit
from perfci.judge.rounds import average_gains, judge_round, measure_gains, read_kind
from perfci.ops.discover import OpFolder, ops, select
from perfci.runs import base as base_stage
from perfci.runs.bench import Bench, Listener, claim_bench, warm_up
from perfci.runs.describe import Described
from perfci.runs.flow import check_against
from perfci.runs.plan import Against, Request, make_plan
from perfci.runs.profile import note_profile
from perfci.runs.record import Recorder, new_run
from perfci.statistics.rounds import find_confidence, weigh_round
from perfci.store.logbook import append_round, keep_files, read_logbook

FOLDER = "rounds"  # in the reports folder: the last round's run and logs
SHOWN = 10  # digits of a commit


def try_round(
    settings: Settings, request: Request, why: str, listener: Listener, command: str = "", *,
    expected: float | None = None, start: str | None = None, most: int | None = None, advice: str | None = None,
) -> Round:  # fmt: skip
    """Judges the op's kernel in the work tree, and appends the round to the op's logbook, whatever came of it.

    expected: the gain that is hoped for, ratio - 1. start: revision from which a new series begins. None goes on from
    that of the last round, or begins at HEAD. most: rounds of a start, None for the project's. Raises UsageError if
    they are spent, StoredFileError if another round is under way, GitError without a repository.
    """
    chosen = select(settings, request.ops)
    if len(chosen) != 1:
        raise UsageError("round_one_op", name=", ".join(request.ops), ops=", ".join(op.op for op in chosen))
    (op,), began = chosen, time.monotonic()
    with claim_bench(replace(settings, reports=settings.reports / FOLDER), listener) as bench:
        warm_up(bench, request.device)  # it imports while git is asked
        logbook = read_logbook(op.folder)
        origin = find_commit(settings.root, start or (logbook.rounds[-1].start if logbook.rounds else "HEAD"))
        done, limit = len(logbook.list_of(origin)), settings.rounds if most is None else most
        if done >= limit:
            raise UsageError("rounds_spent", op=op.op, count=done, start=origin[:SHOWN])
        best = logbook.find_best(origin)
        place = 1 + sum(each.start == origin and each.commit is not None for each in logbook.rounds)
        blank = Round(
            op=op.op, number=logbook.next_number, why=why, verdict=RoundVerdict.ERROR, expected=expected, advice=advice,
            time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", start=origin, place=place,
            best=best.number if best else 0, against=best.commit if best else origin,
        )  # fmt: skip
        known = {each.digest: each.number for each in logbook.list_of(origin)}
        found = _Trial(bench, request, command, op).judge(blank, known)
        seconds = round(time.monotonic() - began, 3)
        # Cases that do the same work as in the best round were not timed, and have its times.
        before = {each.case: each for each in best.cases} if best else {}
        cases = (
            replace(each, us=same.us, reference_us=same.reference_us, kernels=same.kernels)
            if (same := before.get(each.case)) and each.best and each.us is None else each
            for each in found.cases
        )  # fmt: skip
        place = place if found.commit else 0
        found = note_profile(settings, replace(found, place=place, seconds=seconds, cases=tuple(cases)))
        append_round(op.folder, found)
    return found


class _Trial:
    """One round."""

    def __init__(self, bench: Bench, request: Request, command: str, op: OpFolder) -> None:
        self._bench, self._request, self._command, self._op = bench, request, command, op

    def judge(self, blank: Round, known: Mapping[str | None, int]) -> Round:
        """The round with its verdict. known: digest of the files of a round that was judged -> its number."""
        settings, op = self._bench.settings, self._op.op
        name = f"round {blank.best}" if blank.best else blank.start[:SHOWN]
        base = base_stage.write_base(self._bench, Base(str(blank.against), How.ASKED, name))
        prints = base_stage.fingerprint_both(base, settings, [op])
        if op in prints:
            blank = replace(blank, digest=prints[op][0].digest, files=prints[op][0].changed_files(prints[op][1]))
        outside = [each for each in blank.files if not self._may_change(settings.root / each)]
        facts: dict[str, Fact] = {"op": op, "base": name, "files": ", ".join(outside), "start": blank.start[:SHOWN]}
        for kind, refused in (
            ("base_lacks_op", op not in prints),
            ("round_unchanged", not blank.files),
            ("round_outside", outside),
            ("round_repeated", blank.digest in known),
        ):
            if refused:
                reason = Reason(kind, {**facts, "number": known.get(blank.digest)})
                return replace(blank, verdict=RoundVerdict.REFUSED, reasons=(reason,))
        ref, text = f"refs/perfci/rounds/{op}/{blank.number}", f"{op}, round {blank.number}: {blank.why}\n"
        commit = keep_files(settings.root, base.base.commit, blank.files, text, ref)
        tree = base_stage.write_base(self._bench, Base(commit, How.AGAIN, f"round {blank.number}"), "round")
        shown = {read_kind(base.settings.root / each, tree.settings.root / each) for each in blank.files}
        blank = replace(blank, commit=commit, kinds=tuple(kind for kind in shown if kind))
        # Stored baselines have no say: the base is at hand.
        own = replace(tree.settings, baselines=self._bench.folder / "no-baselines")
        inner, request = replace(self._bench, settings=own, home=settings.root, sealed={}), self._request
        request = replace(request, duel=DuelWhat.CHANGED, weight=weigh_round(blank.place))
        try:
            run, judgements = check_against(inner, request, self._command, base_stage.take_base(base, request, own))
            found = judge_round(blank, run, judgements)
            beside = found.verdict is RoundVerdict.KEPT and found.best
            return self._compare_with_start(inner, request, run, found) if beside else found
        except PerfciError as error:  # a device that is taken or lost, a worker that cannot start
            return replace(blank, reasons=(error.reason,))

    def _may_change(self, path: Path) -> bool:
        """Whether a round may change a file: the kernel's, tuned ones, and what ops share in the kernels folder."""
        if path.is_relative_to(self._op.folder):
            kernel = path.parent == self._op.folder and path.name.endswith("_triton.py")  # or a sketch that it calls
            return kernel or path.is_relative_to(self._op.folder / "tuned")
        settings = self._bench.settings
        others = (each.folder for each in ops(settings))
        return path.is_relative_to(settings.kernels) and not any(map(path.is_relative_to, others))

    def _compare_with_start(self, bench: Bench, request: Request, run: Run, found: Round) -> Round:
        """The round with its gain over the start, by one process: it decides nothing."""
        tree = base_stage.write_base(self._bench, Base(found.start, How.ASKED, found.start[:SHOWN]), "start")
        own = replace(bench.settings, reports=bench.settings.reports / "start")
        bench, request = replace(bench, settings=own, sealed={}), replace(request, suites=(Suite.PERFORMANCE,))
        # Suites and signatures are the same in all rounds, so that nothing has to be described again.
        device, described = run.environment.device, [Described(run.environment.device, run.plan.ops)]
        prints = base_stage.fingerprint_both(tree, own, [found.op])
        planned = base_stage.plan_beside(tree, run.plan.ops, prints, described)
        plan = make_plan(request, planned, device.kind, Against(tree.base, DuelWhat.CHANGED), devices=run.plan.devices)
        beside = Recorder(bench, request, new_run(own, plan, device, self._command), tree).record()
        confidence = find_confidence(found.place)
        seen = measure_gains([case for op in beside.ops for case in op.performance], confidence)
        cases = tuple(replace(each, start=seen.get(each.case)) for each in found.cases)
        return replace(found, cases=cases, total=average_gains([each.start for each in cases], confidence))
