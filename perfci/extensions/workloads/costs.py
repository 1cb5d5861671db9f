"""What changes of ops cost a model: how much longer its calls take, as a share of a step. Pure.

Amdahl (AFIPS 1967), with intervals: those of cases are independent, so their half-widths add up as squares do. Calls
count with the change of the nearest case that was measured. While the device waits for the host, a slower kernel costs
less than this, or nothing.

A call of a model may find its inputs in the cache, and then takes less than alone, where the cache is cold. What a
change adds is counted in microseconds then, and its share of the call's time is the other end of the interval. Where
the power limit holds the model's clock down, a change counts in the microseconds that it adds to the kernel alone at
that limit: a watt's worth of energy takes as long in any company. A launch more costs a gap too, at most the one that
was recorded: recording lengthens gaps, so half of it counts.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfci.core.model import Comparison, Fact, Interval, Judgement, Judgements, Look, Reason, Run, Suite, Verdict
from perfci.core.model.measured import BASE, KERNEL, find_median
from perfci.extensions.workloads.records import Call, Workload, list_workloads
from perfci.report.rows import find_change
from perfci.statistics.exact import to_ratio
from perfci.store.files import decode

FAR = 2.0  # powers of two between a call's size and a case's, up to which the case stands for the call
IDLE = 0.1  # share of the time in which the device waits from which a cost is an upper bound
LEAST = 1e-4  # share of a step below which a change is not told
MUCH = 0.005  # share of a step of calls that no case stands for from which that is told
NONE = Interval(0.0, 0.0, 0.0)
MODEL, STEP = "model-", "step"  # before the name of a workload that stands for an op, and its case

Key = tuple[str, str]  # op and id of a case


@dataclass(frozen=True)
class Changed:
    """What was measured of a case."""

    change: Interval = NONE  # of its device time, ratio - 1
    sustained: Interval | None = None  # the same at the power limit, if it reaches that alone
    us: float | None = None  # of one launch of the base
    sustained_us: float | None = None  # of one of many back to back, at the power limit
    launches: float = 0.0  # kernels, copies and memsets of a call that the base has not
    device: str | None = None  # key of the device. Microseconds of another one say nothing


@dataclass(frozen=True)
class Cost:
    """What a change does to a step, and of which share of its time."""

    change: Interval = NONE  # of a step, ratio - 1
    share: float = 0.0  # of the model's time: calls of ops that changed, with a case near enough
    unknown: float = 0.0  # share of calls of these ops without one


def predict(workload: Workload, changes: Mapping[Key, Changed], only: Key | None = None) -> Cost:
    """Returns what changes of cases cost the model. only: the calls that one of these cases stands for."""
    costs, share, unknown = dict[Key, list[Interval]](), 0.0, 0.0
    ops = {op for op, _ in changes}
    for call in (call for call in workload.calls if call.op in ops):
        key = _find_nearest(call, changes)
        if key is None:
            unknown += workload.share(call.us)
        elif only in {None, key}:
            share += workload.share(call.us)
            costs.setdefault(key, []).append(_cost_call(workload, call, changes[key], exact=key[1] == call.case))
    whole = [Interval(*(sum(getattr(one, end) for one in same) for end in ("value", "low", "high")))
             for same in costs.values()]  # fmt: skip
    value = sum(one.value for one in whole)
    below, above = (math.hypot(*(getattr(one, end) - one.value for one in whole)) for end in ("low", "high"))
    return Cost(Interval(*map(workload.share, (value, value - below, value + above))), share, unknown)


def _cost_call(workload: Workload, call: Call, changed: Changed, *, exact: bool) -> Interval:
    """By how many microseconds all these calls get longer. exact: this very case was measured."""
    us, ways = call.us or 0.0, list[tuple[Interval, float]]()  # a change, and of how much: the last one counts
    is_measured = exact and workload.device and workload.device.key == changed.device
    if not (changed.sustained and workload.held):
        alone = call.count * (changed.us or 0.0) if is_measured else 0.0
        ways += [(changed.change, us), (changed.change, max(us, alone))]
    if changed.sustained and workload.held is not False:
        alone = call.count * (changed.sustained_us or 0.0) if is_measured else 0.0
        ways += [(changed.sustained, us), (changed.sustained, alone or us)]
    ends = [end * of for change, of in ways for end in (change.low, change.high)]
    gaps = sorted((0.0, call.count * changed.launches * workload.gap_us))
    return Interval(ways[-1][0].value * ways[-1][1] + sum(gaps) / 2, min(ends) + gaps[0], max(ends) + gaps[1])


def _find_nearest(call: Call, changes: Mapping[Key, Changed]) -> Key | None:
    """Returns the case of the same dtype and flags with the nearest sizes. None if none is near enough."""
    if (call.op, str(call.case)) in changes:
        return call.op, str(call.case)
    wanted, near = _split(call.case or ""), list[tuple[float, str]]()
    for op, case in changes:
        parts = _split(case)
        if op == call.op and parts.keys() == wanted.keys():
            apart = [_measure_distance(value, parts[name]) for name, value in wanted.items()]
            near += [(sum(apart), case)] if max(apart) <= FAR else []
    return (call.op, min(near)[1]) if near else None


def _split(case: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in case.split(","))


def _measure_distance(left: str, right: str) -> float:
    """Powers of two between two sizes."""
    if left.isdigit() and right.isdigit():
        return abs(math.log2((1 + int(left)) / (1 + int(right))))
    return 0.0 if left == right else math.inf


def find_changes(rows: Iterable[Judgement], run: Run) -> dict[Key, Changed]:
    """Returns how each case of an op that changed did: cases that do the same work did not. run: it has the blocks."""
    timed = [row for row in rows if row.suite is Suite.PERFORMANCE and row.case and not row.op.startswith(MODEL)]
    changed = {row.op for row in timed if find_change(row) and row.verdict is not Verdict.UNCHANGED}
    launches = _count_launches(run)
    changes = dict[Key, Changed]()
    for row in (row for row in timed if row.op in changed):
        key, seen = (row.op, str(row.case)), row.comparison
        if row.verdict is Verdict.UNCHANGED:
            changes[key] = Changed()
        elif seen and (change := find_change(row)):
            us, device = seen.base_us if seen.duel else seen.baseline_us, run.environment.device.key
            changes[key] = Changed(change, us=us, launches=launches.get(key, 0.0), device=device)
            if seen.duel_sustained:
                alone_us = next((figure.us for figure in seen.sustained if figure.arm == BASE), None)
                sustained = to_ratio(seen.duel_sustained.shift)
                changes[key] = replace(changes[key], sustained=sustained, sustained_us=alone_us)
    return changes


def _count_launches(run: Run) -> dict[Key, float]:
    """Case -> launches of a call that the base has not."""
    counts = dict[Key, float]()
    for op in run.ops:
        for case in op.performance:
            arms = [block.arms for block in case.blocks if {KERNEL, BASE} <= block.arms.keys()]
            ours, before = (find_median(arm[name].activities for arm in arms) for name in (KERNEL, BASE))
            counts[op.op, case.case] = (ours or 0.0) - (before or 0.0) if ours and before else 0.0
    return counts


def weigh_verdicts(run: Run, judgements: Judgements, kernels: Path, limits: Mapping[str, float]) -> Judgements:
    """Adds what verdicts cost each model to their reasons and to the notes, and a verdict where a limit is stated."""
    files = {path.stem: path for path in list_workloads(kernels)}
    facts = {"known": ", ".join(files) or None}
    missing = [Reason("workload_missing", {**facts, "name": name}) for name in limits if name not in files]
    judgements = replace(judgements, notes=(*judgements.notes, *missing))
    if not (changes := find_changes(judgements.rows, run)):
        return judgements
    workloads = [decode(path, Workload) for path in files.values()]
    costs = [(workload, predict(workload, changes)) for workload in workloads if workload.clock == "device"]
    rows = [replace(row, reasons=(*row.reasons, *_explain(row, costs, changes))) for row in judgements.rows]
    rows += [row for workload, cost in costs for row in _judge(workload, cost, limits.get(workload.name))]
    notes = [note for workload, cost in costs for note in _describe(workload, cost, changes)]
    untimed = {workload.name for workload in workloads if workload.clock != "device"}
    notes += [Reason("model_untimed", {"model": name}) for name in limits if name in untimed]
    return replace(judgements, rows=tuple(rows), notes=(*judgements.notes, *notes))


def _explain(
    row: Judgement, costs: Sequence[tuple[Workload, Cost]], changes: Mapping[Key, Changed]
) -> Iterator[Reason]:
    """Yields what the change of a case costs each model, if it is said to have changed."""
    key = (row.op, str(row.case))
    changed = key in changes and row.verdict not in {Verdict.PASS, Verdict.UNCHANGED, Verdict.NEW}
    for workload, whole in costs:
        if changed and abs((cost := predict(workload, changes, key)).change.value) >= LEAST:
            facts = {**_facts(workload, cost), "op": row.op, "of_case": changes[key].change.value}
            yield Reason("model_at_most" if workload.idle > IDLE else "model_case", facts)
        if row.op == f"{MODEL}{workload.name}" and row.verdict is Verdict.REGRESSED and whole.change.high < 0:
            yield Reason("model_isolated_win", _facts(workload, whole))


def _describe(workload: Workload, cost: Cost, changes: Mapping[Key, Changed]) -> Iterator[Reason]:
    """Yields what all changes together cost a model, and whether its clock is held down."""
    if abs(cost.change.value) < LEAST:
        return
    ops = {call.op for call in workload.calls} & {op for op, _ in changes}
    facts = {**_facts(workload, cost), "ops": ", ".join(sorted(ops)), "idle": workload.idle}
    kind = "model_slower" if cost.change.value > 0 else "model_faster"
    yield Reason(f"{kind}_at_most" if workload.idle > IDLE else kind, facts)
    if workload.held:
        yield workload.describe_clock()
    if cost.unknown > MUCH:
        yield Reason("model_unmeasured", {"model": workload.name, "unknown": cost.unknown, "ops": facts["ops"]})


def _judge(workload: Workload, cost: Cost, limit: float | None) -> Iterator[Judgement]:
    """The verdict by a limit: REGRESSED if the whole interval is beyond it, in doubt if only its middle is."""
    if limit is None or not cost.share:
        return
    change, us, verdict, kind = cost.change, workload.step_us or 0.0, Verdict.PASS, "model_within"
    if change.low > limit:
        verdict, kind = Verdict.REGRESSED, "model_beyond"
    elif change.value > limit:
        verdict, kind = Verdict.INCONCLUSIVE, "model_undecided"
    shift = Interval(*map(math.log1p, (change.value, change.low, change.high)))
    look = Look(0, 0, shift, 1.0, 1.0, (), (), math.log1p(limit))
    op, reason = f"{MODEL}{workload.name}", Reason(kind, {**_facts(workload, cost), "limit": limit})
    seen = Comparison(op, "", duel=look, base_us=us, kernel_us=us * (1 + change.value))
    yield Judgement(op, Suite.PERFORMANCE, None, verdict, (reason,), seen)


def _facts(workload: Workload, cost: Cost) -> dict[str, Fact]:
    change = cost.change
    ends: dict[str, Fact] = {"step_low": change.low, "step_high": change.high}
    return {"model": workload.name, "change": change.value, "share": cost.share, **ends}
