"""What changes of ops cost a model: the share of its time that each op takes, times its change. Pure.

Amdahl (AFIPS 1967), with intervals: those of cases are independent, so their half-widths add up as squares do. Calls
count with the change of the nearest case that was measured. While the device waits for the host, a slower kernel costs
less than this, or nothing.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from perfci.core.model import Comparison, Fact, Interval, Judgement, Judgements, Look, Reason, Suite, Verdict
from perfci.extensions.workloads.cases import is_size
from perfci.extensions.workloads.records import Call, Workload, list_workloads, read_params
from perfci.report.rows import find_change
from perfci.statistics.exact import to_ratio

FAR = 2.0  # powers of two between a call's size and a case's, up to which the case stands for the call
IDLE = 0.1  # share of the time in which the device waits from which a cost is an upper bound
LEAST = 1e-4  # share of a step below which a change is not told
NONE = Interval(0.0, 0.0, 0.0)
MODEL, STEP = "model-", "step"  # before the name of a workload that stands for an op, and its case

Key = tuple[str, str]  # op and id of a case


@dataclass(frozen=True)
class Cost:
    """What a change does to a step, and of which share of its time."""

    change: Interval = NONE  # of a step, ratio - 1
    share: float = 0.0  # of the model's time: calls of ops that changed, with a case near enough
    unknown: float = 0.0  # share of calls of these ops without one


def predict(workload: Workload, changes: Mapping[Key, Interval], only: Key | None = None) -> Cost:
    """Returns what changes of cases cost the model. only: the calls that one of these cases stands for."""
    weights, unknown = dict[Key, float](), 0.0
    ops = {op for op, _ in changes}
    for call in workload.calls:
        if call.op not in ops:
            continue
        key = _find_nearest(call, changes)
        if key is None:
            unknown += workload.share(call.us)
        elif only in {None, key}:
            weights[key] = weights.get(key, 0.0) + workload.share(call.us)
    value = sum(weight * changes[key].value for key, weight in weights.items())
    below, above = (
        math.sqrt(
            sum((weight * (getattr(changes[key], end) - changes[key].value)) ** 2 for key, weight in weights.items())
        )
        for end in ("low", "high")
    )
    return Cost(Interval(value, value - below, value + above), sum(weights.values()), unknown)


def _find_nearest(call: Call, changes: Mapping[Key, Interval]) -> Key | None:
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


def find_changes(rows: Iterable[Judgement]) -> dict[Key, Interval]:
    """Returns the change of each case of an op that changed: of cases that do the same work it is none."""
    timed = [row for row in rows if row.suite is Suite.PERFORMANCE and row.case and not row.op.startswith(MODEL)]
    changed = {row.op for row in timed if find_change(row) and row.verdict is not Verdict.UNCHANGED}
    changes = dict[Key, Interval]()
    for row in (row for row in timed if row.op in changed):
        change = NONE if row.verdict is Verdict.UNCHANGED else find_change(row)
        sustained = row.comparison.duel_sustained if row.comparison else None
        if sustained and change:  # what reaches the power limit alone is held down by it in a busy model too
            change = to_ratio(sustained.shift)
        if change:
            changes[row.op, str(row.case)] = change
    return changes


def weigh_verdicts(judgements: Judgements, kernels: Path, limits: Mapping[str, float]) -> Judgements:
    """Adds what verdicts cost each model to their reasons and to the notes, and a verdict where a limit is stated."""
    changes = find_changes(judgements.rows)
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
    notes = (_describe(workload, cost, changes) for workload, cost in costs if abs(cost.change.value) >= LEAST)
    return replace(judgements, rows=(*rows, *(row for row in judged if row)), notes=(*judgements.notes, *notes))


def _explain(row: Judgement, workloads: Sequence[Workload], changes: Mapping[Key, Interval]) -> Iterator[Reason]:
    """Yields what the change of a case costs each model, if it is said to have changed."""
    key = (row.op, str(row.case))
    if row.verdict in {Verdict.PASS, Verdict.UNCHANGED, Verdict.NEW} or key not in changes:
        return
    for workload in workloads:
        cost = predict(workload, changes, key)
        if abs(cost.change.value) >= LEAST:
            facts = {**_facts(workload, cost), "op": row.op, "of_case": changes[key].value}
            yield Reason("model_at_most" if workload.idle > IDLE else "model_case", facts)


def _describe(workload: Workload, cost: Cost, changes: Mapping[Key, Interval]) -> Reason:
    ops = {call.op for call in workload.calls} & {op for op, _ in changes}
    facts = {**_facts(workload, cost), "ops": ", ".join(sorted(ops)), "idle": workload.idle, "unknown": cost.unknown}
    kind = "model_slower" if cost.change.value > 0 else "model_faster"
    return Reason(f"{kind}_at_most" if workload.idle > IDLE else kind, facts)


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
