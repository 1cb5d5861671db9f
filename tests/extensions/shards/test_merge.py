"""Shards of one plan joined into one run: what is refused, and what is missing."""

from dataclasses import replace

import pytest

from perfci.core.errors import UsageError
from perfci.core.model.basics import Gate, Reason, Suite, Verdict
from perfci.core.model.measured import OpRun, PerformanceCase
from perfci.core.model.run import Plan, PlannedBase, PlannedOp, Run, Shard
from perfci.extensions.shards.part import merge
from perfci.extensions.shards.plans import ShardedOp, ShardPlan
from perfci.judge import judge
from perfci.thresholds.limits import Thresholds
from tests.example_runs import environment

PLAN = "a" * 64
OPS = {"relu": 1, "scale": 2, "softmax": 0, "twice": 2}
CASES = ("rows=1", "rows=2")


def planned(op):
    same = PlannedBase(same=True, performance=CASES) if op == "softmax" else None
    return PlannedOp(op, performance=CASES, base=same)


SHARDED = ShardPlan(
    perfci="1",
    created="2026-01-01T00:00:00Z",
    commit=environment().commit,
    rules="r",
    alpha=0.01,
    shards=3,
    timer="auto",
    plan=Plan(tuple(map(planned, OPS)), 7, 1.0, "cuda", (Suite.PERFORMANCE,), skip_unchanged=True),
    ops=tuple(ShardedOp(op, shard) for op, shard in OPS.items()),
    family=8,
)
BLANK = Run("merged", "2026-01-02T00:00:00Z", "1", "perfci ci merge", environment(), SHARDED.plan)


def measured(op):
    failure = Reason("kernel_raised", {"error": "E", "message": "m"})
    return OpRun(op, performance=tuple(PerformanceCase(case, failure=failure, raised=True) for case in CASES))


def shard(index, **changes):
    """A whole run of a shard, with an id that has the number."""
    mine = [op for op, given in OPS.items() if given == index]
    whole = Run(
        id=f"run-{index}",
        created="2026-01-01T00:00:00Z",
        perfci="1",
        command="perfci check",
        environment=environment(),
        plan=replace(SHARDED.plan, ops=tuple(map(planned, mine)), shard_family=8),
        ops=tuple(map(measured, mine)),
        wall_s=10.0 * index,
        shard=Shard(PLAN, index, 3, done=True),
    )
    return replace(whole, **changes)


ALL = tuple(map(shard, (1, 2, 3)))


def joined(*runs):
    return merge(SHARDED, PLAN, runs, BLANK)


def judged(run):
    rows = judge(run, {}, Thresholds())
    return {(row.op, row.case): row for row in rows.rows}, rows.gate


def test_all_shards_make_the_run_that_one_machine_would_have_made():
    run = joined(*reversed(ALL))

    assert [op.op for op in run.ops] == [op.op for op in run.plan.ops] == ["relu", "scale", "softmax", "twice"]
    assert (run.id, run.command, run.missing, run.shard, run.wall_s) == ("merged", "perfci ci merge", (), None, 30.0)
    assert run.plan == SHARDED.plan and run.plan.family == 8
    rows, gate = judged(run)
    assert {row.verdict for (op, _), row in rows.items() if op == "softmax"} == {Verdict.UNCHANGED}
    assert gate is Gate.FAILS


@pytest.mark.parametrize(
    "half",
    [
        {"shard": Shard(PLAN, 2, 3), "stopped": "SIGTERM"},
        {"shard": Shard(PLAN, 2, 3), "ops": (measured("scale"),)},
        {"ops": (measured("scale"),)},
    ],
    ids=["stopped", "killed", "without an op that it was given"],
)
def test_a_shard_that_did_not_end_fails_and_what_it_has_is_kept(half):
    run = joined(shard(1), shard(2, **half), shard(3))
    rows, _ = judged(run)

    assert [reason.kind for reason in run.missing] == ["shard_unfinished"]
    assert rows["shard 2/3", None].verdict is Verdict.ERROR
    assert rows["scale", CASES[0]].reasons[0].kind == "kernel_raised"
    if len(half.get("ops", ())) == 1:
        assert rows["twice", None].reasons[0].kind == "shard_unfinished"


def test_a_shard_given_twice_counts_once_and_two_runs_of_one_are_refused():
    assert joined(*ALL, shard(2)) == joined(*ALL)

    with pytest.raises(UsageError) as refused:
        joined(*ALL, shard(2, id="again"))
    assert (refused.value.reason.kind, "run-2" in str(refused.value), "again" in str(refused.value)) == (
        "merge_two_runs", True, True,
    )  # fmt: skip


def elsewhere(**changes):
    return {"environment": replace(environment(), **changes)}


DEVICE = environment().device


@pytest.mark.parametrize(
    ("changes", "kind", "values"),
    [
        ({"shard": None}, "merge_no_shard", ("run-2",)),
        ({"shard": Shard("b" * 64, 2, 3, True)}, "merge_foreign", ("bbbbbbbbbbbb", "aaaaaaaaaaaa")),
        ({"shard": Shard(PLAN, 2, 4, True)}, "merge_foreign", ("2/4", "1/3")),
        ({"shard": Shard(PLAN, 0, 3, True)}, "merge_foreign", ("0/3", "1/3")),
        ({"shard": Shard(PLAN, 1, 3, True)}, "merge_foreign", ("scale", "relu")),
        ({"format": 2}, "merge_foreign", ("2", "1")),
        ({"perfci": "2"}, "merge_foreign", ("perfci is 2", "1")),
        (elsewhere(commit="f" * 40), "merge_foreign", ("f" * 40, environment().commit)),
        (elsewhere(device=replace(DEVICE, kind="npu")), "merge_foreign", ("npu", "cuda")),
        (elsewhere(device=replace(DEVICE, key="nvidia-b200")), "merge_mixed", ("nvidia-b200", "nvidia-h200")),
        (elsewhere(timer="event"), "merge_mixed", ("event", "activity")),
        (elsewhere(device=replace(DEVICE, driver="590")), "merge_mixed", ("590", "580.65.06")),
        ({"ops": (measured("relu"), measured("scale"))}, "merge_foreign", ("relu", "scale")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_belong_together_is_refused_with_both_values(changes, kind, values):
    with pytest.raises(UsageError) as refused:
        joined(shard(1), shard(2, **changes), shard(3))

    assert refused.value.reason.kind == kind
    assert all(value in str(refused.value) for value in values)


def test_boards_may_differ_and_then_none_is_named():
    other = elsewhere(device=replace(DEVICE, uuid="GPU-1111"), host="runner-2")
    run = joined(shard(1), shard(2, **other), shard(3))

    assert (run.environment.device.uuid, run.environment.host) == (None, "runner-1, runner-2")


# --- time limits and boards -------------------------------------------------------------------------------------------
