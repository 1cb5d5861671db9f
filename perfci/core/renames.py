"""Cases and ops under the names of now, if the performance suite declares earlier ones (`renamed`, `renamed_from`)."""

from collections.abc import Mapping
from dataclasses import replace

from perfci.core.model import Baseline, Plan, PlannedOp


def with_aliases(baselines: Mapping[str, Baseline], plan: Plan) -> dict[str, Baseline]:
    """The baselines by op as the plan's ops call themselves and their cases. Those of other ops as they are."""
    baselines_of = {op.op: baseline_of(op, baselines) for op in plan.ops}
    return {**baselines, **{op: stored for op, stored in baselines_of.items() if stored is not None}}


def baseline_of(op: PlannedOp, baselines: Mapping[str, Baseline]) -> Baseline | None:
    """What is stored for an op, or for what it was called before, under the names of now. The newer name counts."""
    stored = baselines.get(op.op) or baselines.get(op.renamed_from or "")
    if stored is None or (stored.op == op.op and not op.renamed):
        return stored
    now, held = {old: new for new, old in op.renamed.items()}, {case.case for case in stored.cases}
    cases = tuple(
        replace(case, case=now.get(case.case, case.case)) for case in stored.cases if now.get(case.case) not in held
    )
    return replace(stored, op=op.op, cases=cases)
