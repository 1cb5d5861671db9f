"""`perfci try`: one round of optimising an op, judged beside the best round before, and stored in the op's logbook."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from perfci.core.errors import PerfciError, UsageError
from perfci.core.model import Base, DuelWhat, Fact, Reason, Round, RoundVerdict, Run, Suite
from perfci.core.settings import Settings
from perfci.git.base import How, find_commit
from perfci.git.snapshot import keep_files
from perfci.judge.rounds import average_gains, judge_round, measure_gain, read_kinds
from perfci.ops.discover import OpFolder, ops, select
from perfci.runs import base as base_stage
from perfci.runs.bench import Bench, Listener, claim_bench, warm_up
from perfci.runs.describe import Described
from perfci.runs.flow import check_against
from perfci.runs.plan import Against, Request, make_plan
from perfci.runs.record import Recorder, new_run
from perfci.statistics.rounds import find_confidence, weigh_round
from perfci.store.logbook import append_round, read_logbook

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
    with claim_bench(dataclasses.replace(settings, reports=settings.reports / FOLDER), listener) as bench:
        warm_up(bench, request.device)  # it imports while git is asked
        logbook = read_logbook(op.folder)
        origin = find_commit(settings.root, start or (logbook.rounds[-1].start if logbook.rounds else "HEAD"))
        done, limit = len(logbook.list_of(origin)), settings.rounds if most is None else most
        if done >= limit:
            raise UsageError("rounds_spent", op=op.op, count=done, start=origin[:SHOWN])
        best = logbook.find_best(origin)
        blank = Round(
            op=op.op, number=logbook.next_number, why=why, verdict=RoundVerdict.ERROR, expected=expected, advice=advice,
            time=f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", start=origin, place=done + 1,
            best=best.number if best else 0, against=best.commit if best else origin,
        )  # fmt: skip
        known = {each.digest: each.number for each in logbook.list_of(origin) if each.digest}
        found = _Trial(bench, request, command, op, blank).judge(known)
        found = found if found.verdict.counts else dataclasses.replace(found, place=0)
        found = dataclasses.replace(found, seconds=round(time.monotonic() - began, 3))
        append_round(op.folder, found)
    return found


class _Trial:
    """One round."""

    def __init__(self, bench: Bench, request: Request, command: str, op: OpFolder, blank: Round) -> None:
        self._bench, self._command, self._op, self._round = bench, command, op, blank
        self._request = dataclasses.replace(request, duel=DuelWhat.CHANGED, weight=weigh_round(blank.place))

    def judge(self, known: Mapping[str, int]) -> Round:
        """The round with its verdict. known: digest of the files of a round that was judged -> its number."""
        settings, op = self._bench.settings, self._op.op
        name = f"round {self._round.best}" if self._round.best else self._round.start[:SHOWN]
        base = base_stage.write_base(self._bench, Base(str(self._round.against), How.ASKED, name))
        prints = base_stage.fingerprint_both(base, settings, [op])
        if op not in prints:
            lacks = Reason("base_lacks_op", {"op": op, "base": name})
            return dataclasses.replace(self._round, verdict=RoundVerdict.REFUSED, reasons=(lacks,))
        mine, theirs = prints[op]
        changed = mine.changed_files(theirs)
        blank = dataclasses.replace(self._round, files=changed, digest=mine.digest)
        if refusal := self._find_refusal(changed, known.get(mine.digest)):
            return dataclasses.replace(blank, verdict=RoundVerdict.REFUSED, reasons=(refusal,))
        ref = f"refs/perfci/rounds/{op}/{blank.number}"
        text = f"{op}, round {blank.number}: {blank.why}\n"
        commit = keep_files(settings.root, base.base.commit, changed, text, ref)
        tree = base_stage.write_base(self._bench, Base(commit, How.AGAIN, f"round {blank.number}"), "round")
        pairs = ((each, _read(base.settings.root / each), _read(tree.settings.root / each)) for each in changed)
        blank = dataclasses.replace(blank, commit=commit, kinds=read_kinds(pairs))
        # Stored baselines have no say: the base is at hand.
        own = dataclasses.replace(tree.settings, baselines=self._bench.folder / "no-baselines")
        inner = dataclasses.replace(self._bench, settings=own, home=settings.root, sealed={})
        try:
            run, judgements = check_against(
                inner, self._request, self._command, base_stage.take_base(base, self._request, own)
            )
            found = judge_round(blank, run, judgements)
            if found.verdict is not RoundVerdict.KEPT:
                return found
            return self._compare_with_start(inner, run, found) if blank.best else dataclasses.replace(
                found, total=found.gain, cases=tuple(dataclasses.replace(each, start=each.best) for each in found.cases)
            )  # fmt: skip
        except PerfciError as error:  # a device that is taken or lost, a worker that cannot start
            return dataclasses.replace(blank, reasons=(error.reason,))

    def _find_refusal(self, changed: tuple[str, ...], before: int | None) -> Reason | None:
        """Why this is no round. before: number of a round of the same files."""
        facts: dict[str, Fact] = {"op": self._op.op}
        if not changed:
            return Reason("round_unchanged", facts)
        if outside := [name for name in changed if not self._may_change(name)]:
            return Reason("round_outside", {**facts, "files": ", ".join(outside), "start": self._round.start[:SHOWN]})
        return Reason("round_repeated", {**facts, "number": before}) if before else None

    def _may_change(self, name: str) -> bool:
        """Whether a round may change a file: the kernel's, tuned ones, and what ops share in the kernels folder."""
        settings, path = self._bench.settings, self._bench.settings.root / name
        if path.is_relative_to(self._op.folder):
            return path == self._op.files[0] or path.is_relative_to(self._op.folder / "tuned")
        others = (each.folder for each in ops(settings))
        return path.is_relative_to(settings.kernels) and not any(map(path.is_relative_to, others))

    def _compare_with_start(self, bench: Bench, run: Run, found: Round) -> Round:
        """The round with its gain over the start, by one process: it decides nothing."""
        tree = base_stage.write_base(self._bench, Base(found.start, How.ASKED, found.start[:SHOWN]), "start")
        own = dataclasses.replace(bench.settings, reports=bench.settings.reports / "start")
        bench = dataclasses.replace(bench, settings=own, sealed={})
        request = dataclasses.replace(self._request, suites=(Suite.PERFORMANCE,))
        # Suites and signatures are the same in all rounds, so that nothing has to be described again.
        device = run.environment.device
        prints = base_stage.fingerprint_both(tree, own, [found.op])
        planned = base_stage.plan_beside(tree, run.plan.ops, prints, [Described(device, run.plan.ops)])
        plan = make_plan(request, planned, device.kind, Against(tree.base, DuelWhat.CHANGED), devices=run.plan.devices)
        beside = Recorder(bench, request, new_run(own, plan, device, self._command), tree).record()
        confidence = find_confidence(found.place)
        seen = {case.case: measure_gain(case, confidence) for op in beside.ops for case in op.performance}
        cases = tuple(dataclasses.replace(each, start=seen.get(each.case)) for each in found.cases)
        gains = [each.start for each in cases if each.start]
        total = average_gains(gains, confidence) if len(gains) == len(cases) else None
        return dataclasses.replace(found, cases=cases, total=total)


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
