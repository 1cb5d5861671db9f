"""What changes of ops cost a model: how much longer its calls take, as a share of a step. Pure.

Amdahl (AFIPS 1967), with intervals: those of cases are independent, so their half-widths add up as squares do. Calls
count with the change of the nearest case that was measured. While the device waits for the host, a slower kernel costs
less than this, or nothing.

A call of a model may find its inputs in the cache, and then takes less than alone, where the cache is cold. What a
change adds is counted in microseconds then, and its share of the call's time is the other end of the interval. A launch
more costs the gap between two launches too. Where the power limit holds the model's clock down, a change counts as it
was measured there.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfci.core.model import Comparison, Fact, Interval, Judgement, Judgements, Look, Reason, Run, Suite, Verdict
from perfci.extensions.workloads.cases import is_size
from perfci.extensions.workloads.records import Call, Workload, list_workloads, read_params
from perfci.report.rows import find_change
from perfci.statistics.exact import to_ratio
from perfci.store.lines import BASE, KERNEL, find_median

FAR = 2.0  # powers of two between a call's size and a case's, up to which the case stands for the call
IDLE = 0.1  # share of the time in which the device waits from which a cost is an upper bound
LEAST = 1e-4  # share of a step below which a change is not told
NONE = Interval(0.0, 0.0, 0.0)
MODEL, STEP = "model-", "step"  # before the name of a workload that stands for an op, and its case

Key = tuple[str, str]  # op and id of a case


@dataclass(frozen=True)
class Changed:
    """What was measured of a case."""

    change: Interval = NONE  # of its device time, ratio - 1
    sustained: Interval | None = None  # the same at the power limit, if it reaches that alone
    us: float | None = None  # of one launch of the base
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
    held, us = workload.held, call.us or 0.0
    sustained = changed.sustained if held is not False else None
    changes = [sustained] * (sustained is not None) + [changed.change] * (not (sustained and held))
    known = exact and workload.device and workload.device.key == changed.device
    alone = max(us, call.count * (changed.us or 0.0)) if known and not sustained else us
    gaps = call.count * changed.launches * workload.gap_us
    ends = [end * us for us in (us, alone) for one in changes if one for end in (one.low, one.high)]
    return Interval((sustained or changed.change).value * alone + gaps, min(ends) + gaps, max(ends) + gaps)


def _find_nearest(call: Call, changes: Mapping[Key, Changed]) -> Key | None:
    """Returns the case of the same dtype and flags with the nearest sizes. None if none is near enough."""
    if (call.op, str(call.case)) in changes:
        return call.op, str(call.case)
    if call.params is None:
        return None
    wanted, near = read_params(call.params), list[tuple[float, str]]()
    sizes = {name: value for name, value in wanted.items() if is_size(value)}
    flags = (call.case or "").split(",")
    for op, case in changes:
        parts = dict(part.partition("=")[::2] for part in case.split(","))
        rest = [part for part in flags if part.partition("=")[0] not in sizes]
        if (
            op == call.op
            and len(parts) == len(wanted)
            and all(f"{name}={parts.get(name)}" in rest or name in sizes for name in parts)
        ):
            apart = [
                abs(math.log2((1 + value) / (1 + int(parts[name]))))
                for name, value in sizes.items()
                if parts.get(name, "").isdigit()
            ]
            if len(apart) == len(sizes) and max(apart, default=0.0) <= FAR:
                near.append((sum(apart), case))
    return (call.op, min(near)[1]) if near else None


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
            sustained = to_ratio(seen.duel_sustained.shift) if seen.duel_sustained else None
            us, device = seen.base_us if seen.duel else seen.baseline_us, run.environment.device.key
            changes[key] = Changed(change, sustained, us, launches.get(key, 0.0), device)
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
    changes = find_changes(judgements.rows, run)
    if not changes:
        return judgements
    workloads = [workload for workload in list_workloads(kernels) if workload.total_us]
    costs = [(workload, predict(workload, changes)) for workload in workloads]
    wins = {f"{MODEL}{workload.name}": _facts(workload, cost) for workload, cost in costs if cost.change.high < 0}
    rows = [
        replace(row, reasons=(*row.reasons, Reason("model_isolated_win", wins[row.op])))
        if row.verdict is Verdict.REGRESSED and row.op in wins
        else replace(row, reasons=(*row.reasons, *_explain(row, workloads, changes)))
        for row in judgements.rows
    ]
    judged = (_judge(workload, cost, limits.get(workload.name)) for workload, cost in costs)
    notes = [note for workload, cost in costs for note in _describe(workload, cost, changes)]
    return replace(judgements, rows=(*rows, *(row for row in judged if row)), notes=(*judgements.notes, *notes))


def _explain(row: Judgement, workloads: Sequence[Workload], changes: Mapping[Key, Changed]) -> Iterator[Reason]:
    """Yields what the change of a case costs each model, if it is said to have changed."""
    key = (row.op, str(row.case))
    if row.verdict in {Verdict.PASS, Verdict.UNCHANGED, Verdict.NEW} or key not in changes:
        return
    for workload in workloads:
        cost = predict(workload, changes, key)
        if abs(cost.change.value) >= LEAST:
            facts = {**_facts(workload, cost), "op": row.op, "of_case": changes[key].change.value}
            yield Reason("model_at_most" if workload.idle > IDLE else "model_case", facts)


def _describe(workload: Workload, cost: Cost, changes: Mapping[Key, Changed]) -> Iterator[Reason]:
    """Yields what all changes together cost a model, and whether its clock is held down."""
    if abs(cost.change.value) < LEAST:
        return
    ops = {call.op for call in workload.calls} & {op for op, _ in changes}
    facts = {**_facts(workload, cost), "ops": ", ".join(sorted(ops)), "idle": workload.idle, "unknown": cost.unknown}
    kind = "model_slower" if cost.change.value > 0 else "model_faster"
    yield Reason(f"{kind}_at_most" if workload.idle > IDLE else kind, facts)
    if workload.held:
        yield workload.describe_clock()


def _judge(workload: Workload, cost: Cost, limit: float | None) -> Judgement | None:
    """The verdict by a limit: REGRESSED if the whole interval is beyond it, in doubt if only its middle is."""
    if limit is None or not cost.share:
        return None
    facts = {**_facts(workload, cost), "limit": limit}
    if cost.change.value <= limit:
        verdict, kind = Verdict.PASS, "model_within"
    elif cost.change.low > limit:
        verdict, kind = Verdict.REGRESSED, "model_beyond"
    else:
        verdict, kind = Verdict.INCONCLUSIVE, "model_undecided"
    shift = Interval(*(math.log1p(end) for end in (cost.change.value, cost.change.low, cost.change.high)))
    look = Look(0, 0, shift, 1.0, 1.0, (), (), math.log1p(limit))
    op, us = f"{MODEL}{workload.name}", workload.step_us or 0.0
    seen = Comparison(op, "", duel=look, base_us=us, kernel_us=us * (1 + cost.change.value))
    return Judgement(op, Suite.PERFORMANCE, None, verdict, (Reason(kind, facts),), seen)


def _facts(workload: Workload, cost: Cost) -> dict[str, Fact]:
    change = cost.change
    ends: dict[str, Fact] = {"step_low": change.low, "step_high": change.high}
    return {"model": workload.name, "change": change.value, "share": cost.share, **ends}
