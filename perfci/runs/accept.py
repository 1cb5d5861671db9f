"""From runs that people looked at to the baseline that later runs are held against: pure, and picky."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfci.core.environment import differences, mixed, told
from perfci.core.errors import UsageError
from perfci.core.model import (
    Baseline,
    BaselineBlock,
    BaselineCase,
    BaselineRun,
    Bearing,
    Block,
    Judgement,
    Judgements,
    OpRun,
    PerformanceCase,
    Reason,
    Run,
    Suite,
    Verdict,
)

REFUSED = frozenset({Verdict.WRONG, Verdict.ERROR, Verdict.SUSPECT, Verdict.INCONCLUSIVE})
"""Verdicts whose numbers are not to be trusted, and so never become a baseline."""

SLOWER = frozenset({Verdict.REGRESSED, Verdict.TOO_SLOW})
"""Verdicts of numbers that are right and a loss: only a person who says why makes them a baseline."""

NO_BASELINES = frozenset({"cpu"})
"""Kinds of device whose times say nothing about kernels."""

KERNEL, REFERENCE = "kernel", "reference"
PAIR = f"{KERNEL}/{REFERENCE}"


@dataclass(frozen=True)
class Acceptance:
    """What became of the runs' cases of one op."""

    op: str
    baseline: Baseline | None
    """to be stored; None where nothing could be accepted"""
    accepted: tuple[str, ...] = ()
    """case ids whose blocks are new in it"""
    refused: tuple[Reason, ...] = ()
    """a reason for each case that was not accepted"""
    said: tuple[Reason, ...] = ()
    """what else is to be known"""


Evidence = tuple[Run, Judgements]
"""A run with the verdicts about it."""


def accept(
    op: str,
    evidence: Sequence[Evidence],
    existing: Baseline | None = None,
    *,
    add: bool = False,
    dirty: bool = False,
    only: Collection[str] | None = None,
    withheld: Mapping[str, Reason] | None = None,
) -> Acceptance:
    """The baseline of an op from the first looks (process 0) of one or more runs of it.

    A case is refused where any of the runs judged it WRONG, ERROR, SUSPECT or INCONCLUSIVE, or the op's accuracy WRONG.
    `add` puts the new blocks beside those of the `existing` baseline instead of in their place; cases that these runs
    did not plan to measure, or that are refused now, stay as they were. `dirty` allows runs with uncommitted changes.
    Of the cases not in `only` nothing is said, and they stay as they were; those in `withheld` are refused besides.

    Raises UsageError for runs of different device models, timers or environments (several boards may be mixed), of a
    device that keeps no baselines, of a dirty working tree, and for a run that is in the baseline already.
    """
    runs = [run for run, _ in evidence]
    _check(op, runs, dirty=dirty)
    if existing and add:
        _check_addable(op, runs[0], runs, existing)
    asked = [case for case in _measured(op, runs) if only is None or case in only]
    found = {**(withheld or {}), **refusals(op, evidence)}
    blocks = _blocks(op, runs)
    fresh = {case: blocks[case] for case in asked if case not in found and blocks[case]}
    refused = {case: found.get(case) or _unmeasured(op, case) for case in asked if case not in fresh}
    kept = _kept(op, runs, existing, fresh, add=add, partly=only is not None)
    baseline = _baseline(op, runs, existing, {**kept, **_joined(kept if add else {}, fresh)})
    return Acceptance(op, baseline if fresh else None, tuple(fresh), tuple(refused.values()))


def _check(op: str, runs: Sequence[Run], *, dirty: bool) -> None:
    first = runs[0]
    for run in runs:
        device = run.environment.device
        if device.kind in NO_BASELINES:
            raise UsageError("accept_no_baselines", run=run.id, device=device.name)
        if run.environment.dirty and not dirty:
            raise UsageError("accept_dirty", run=run.id, commit=run.environment.commit)
        if not any(each.op == op for each in run.ops):
            raise UsageError("accept_op_not_run", run=run.id, op=op, ops=", ".join(each.op for each in run.ops))
        if _place(run) != _place(first):
            raise UsageError("accept_mixed", run=run.id, first=first.id, **_two_places(_place(run), _place(first)))
        if apart := mixed(first.environment, run.environment):
            raise UsageError("accept_mixed_environment", run=run.id, first=first.id, fields=told(apart))
    _check_caches(op, runs)
    twice = next((run.id for at, run in enumerate(runs) if run.id in {other.id for other in runs[:at]}), None)
    if twice:
        raise UsageError("accept_twice", run=twice, op=op)


def _check_caches(op: str, runs: Sequence[Run]) -> None:
    timed = [(run, cache) for run in runs if (cache := _cache(op, run))]
    for run, cache in timed:
        first, other = timed[0]
        if cache != other:
            raise UsageError("accept_mixed_cache", op=op, run=run.id, cache=cache, first=first.id, other=other)


def _check_addable(op: str, first: Run, runs: Sequence[Run], existing: Baseline) -> None:
    there = (existing.device, existing.timer)
    if _place(first) != there:
        raise UsageError("accept_other_baseline", op=op, run=first.id, **_two_places(_place(first), there))
    stored = {case.case: case.cache for case in existing.cases}
    for run in runs:
        _check_environment(op, run, existing)
        for case in _op(run, op).performance:
            if case.cache != (other := stored.get(case.case, case.cache)):
                raise UsageError("accept_other_cache", op=op, run=run.id, cache=case.cache, other=other)
    known = {run.id for run in existing.runs}
    twice = next((run.id for run in runs if run.id in known), None)
    if twice:
        raise UsageError("accept_twice", run=twice, op=op)


def _check_environment(op: str, run: Run, existing: Baseline) -> None:
    """What is added to a case must come from where its other blocks do; another board may join."""
    sources = {source.id: source.environment for source in existing.runs}
    timed = {case.case for case in _op(run, op).performance}
    for ids in {frozenset(block.run for block in case.blocks) for case in existing.cases if case.case in timed}:
        before = [sources[each] for each in sorted(ids) if each in sources]
        apart = [each for each in differences(before, run.environment) if each.bearing is Bearing.MOVES]
        if apart:
            raise UsageError("accept_other_environment", op=op, run=run.id, fields=told(apart))


def _place(run: Run) -> tuple[str, str]:
    """What a baseline is keyed by: numbers of different device models or timers are never mixed."""
    return run.environment.device.key, run.environment.timer or "no timer"


def _cache(op: str, run: Run) -> str | None:
    """What L2 held when the op was timed: its suite says so, for all cases. None where none was."""
    return next((case.cache for case in _op(run, op).performance), None)


def _two_places(ours: tuple[str, str], theirs: tuple[str, str]) -> dict[str, str]:
    return {"device": ours[0], "timer": ours[1], "other_device": theirs[0], "other_timer": theirs[1]}


def refusals(op: str, evidence: Sequence[Evidence], verdicts: Collection[Verdict] = REFUSED) -> dict[str, Reason]:
    """Case id -> why it is refused for any of these verdicts, the first run's reason first."""
    found: dict[str, Reason] = {}
    for run, judgements in evidence:
        rows = [row for row in judgements.rows if row.op == op and row.verdict in verdicts]
        for row in rows:
            for case in _touched(op, run, row):
                found.setdefault(case, _refusal(row, case, run))
        for row in judgements.rows if Verdict.INCONCLUSIVE in verdicts else ():
            for reason in row.reasons:
                if row.op == op and row.case and reason.kind == "board_advises":
                    found.setdefault(row.case, Reason("accept_quarantined", {**reason.facts, "run": run.id}))
    return found


def _touched(op: str, run: Run, row: Judgement) -> Iterable[str]:
    """The performance cases that a verdict speaks about: a wrong kernel's speed means nothing in any case."""
    if row.suite is Suite.PERFORMANCE and row.case is not None:
        return [row.case]
    if row.verdict in SLOWER:  # what a compiler makes is no time
        return []
    return _measured(op, [run]) if row.verdict is not Verdict.INCONCLUSIVE else []


def _refusal(row: Judgement, case: str, run: Run) -> Reason:
    facts = {"op": row.op, "case": case, "verdict": row.verdict.value, "run": run.id, "judged": row.case or row.op}
    return Reason("accept_slower" if row.verdict in SLOWER else "accept_refused", facts)


def _unmeasured(op: str, case: str) -> Reason:
    return Reason("accept_unmeasured", {"op": op, "case": case})


def _measured(op: str, runs: Sequence[Run]) -> list[str]:
    """Ids of the runs' performance cases, each once, in order."""
    return list(dict.fromkeys(case.case for run in runs for case in _op(run, op).performance))


def _op(run: Run, op: str) -> OpRun:
    return next(each for each in run.ops if each.op == op)


def _blocks(op: str, runs: Sequence[Run]) -> dict[str, tuple[BaselineBlock, ...]]:
    """Case id -> the first looks of all runs, in the order of the runs."""
    found: dict[str, tuple[BaselineBlock, ...]] = {}
    for run in runs:
        for case in _op(run, op).performance:
            found[case.case] = found.get(case.case, ()) + tuple(_first_look(run, case))
    return found


def _first_look(run: Run, case: PerformanceCase) -> Iterator[BaselineBlock]:
    """Re-measured blocks are left out: only suspects get them, so that they would bias the baseline."""
    return (_baseline_block(run, block) for block in case.blocks if block.process == 0 and _is_paired(block))


def _is_paired(block: Block) -> bool:
    return KERNEL in block.arms and REFERENCE in block.arms and PAIR in block.shifts


def _baseline_block(run: Run, block: Block) -> BaselineBlock:
    kernel, reference = block.arms[KERNEL], block.arms[REFERENCE]
    return BaselineBlock(
        run=run.id,
        kernel_us=kernel.time.median_us,
        reference_us=reference.time.median_us,
        shift=block.shifts[PAIR],
        span_us=kernel.span_us,
        activities=kernel.activities,
    )


Blocks = Mapping[str, tuple[BaselineBlock, ...]]
"""Case id -> its blocks."""


def _kept(op: str, runs: Sequence[Run], existing: Baseline | None, fresh: Blocks, *, add: bool, partly: bool) -> Blocks:
    """Blocks of the existing baseline that stay. Those of another timer never do."""
    if existing is None or (existing.device, existing.timer) != _place(runs[0]):
        return {}
    filtered = partly or any(run.plan.filter is not None for run in runs)
    planned = {case for run in runs for each in run.plan.ops if each.op == op for case in each.performance}
    stays = {case.case for case in existing.cases if add or filtered or case.case in planned}
    return {case.case: case.blocks for case in existing.cases if case.case in stays and (add or case.case not in fresh)}


def _joined(kept: Blocks, fresh: Blocks) -> Blocks:
    return {case: kept.get(case, ()) + blocks for case, blocks in fresh.items()}


def _baseline(op: str, runs: Sequence[Run], existing: Baseline | None, cases: Blocks) -> Baseline:
    device, timer = _place(runs[0])
    used = {block.run for blocks in cases.values() for block in blocks}
    sources = {source.id: source for source in existing.runs} if existing else {}
    sources |= {run.id: BaselineRun(run.id, run.created, run.environment) for run in runs}
    caches = {case.case: case.cache for case in existing.cases} if existing else {}
    new = {run.id for run in runs}
    timed = {case.case: case.cache for run in runs for case in _op(run, op).performance}
    caches |= {case: timed[case] for case, blocks in cases.items() if any(block.run in new for block in blocks)}
    return Baseline(
        op=op,
        device=device,
        timer=timer,
        runs=tuple(source for source in sources.values() if source.id in used),
        cases=tuple(BaselineCase(case, blocks, caches[case]) for case, blocks in cases.items()),
        steps=existing.steps if existing else (),
    )
