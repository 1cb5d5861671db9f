from dataclasses import replace

import pytest

from perfci.core.errors import UsageError
from perfci.core.model import Base, DuelWhat, OpRun, PerformanceCase, Plan, PlannedBase, PlannedOp, Reason
from perfci.core.wording import sentence
from perfci.extensions.shards.plans import share_out
from perfci.runs.plan import AUDIT_SHARE, Against, Request, cases_to_run, list_duellable, make_plan
from tests import example_runs

BROKEN = PlannedOp("broken", failure=Reason("no_cases", {"file": "broken_accuracy.py"}))


def test_a_pattern_that_fits_no_case_of_any_sound_op_is_a_usage_error():
    empty = [PlannedOp("relu"), PlannedOp("scale"), BROKEN]

    with pytest.raises(UsageError) as caught:
        make_plan(Request(pattern="rows=9"), empty, "fake")

    assert caught.value.reason == Reason("no_case_fits", {"pattern": "rows=9", "ops": "relu, scale"})


# --- against a base ---------------------------------------------------------------------------------------------------

BASE = Base("0123456789abcdef", "merge_base", "origin/main")
CHANGED = Against(BASE, DuelWhat.CHANGED)


def _op(name, *cases, same=False, base=None, **options):
    planned = PlannedBase(same=same, performance=cases if base is None else base)
    return PlannedOp(name, performance=cases, base=planned, **options)


def _many(count, same=True):
    return _op("many", *(f"n={n}" for n in range(count)), same=same)


EDITED = _op("edited", "rows=1", "rows=2")


@pytest.mark.parametrize(
    ("op", "duel", "cases"),
    [
        (EDITED, DuelWhat.CHANGED, ("rows=1", "rows=2")),
        (EDITED, DuelWhat.ALL, ("rows=1", "rows=2")),
        (EDITED, DuelWhat.NONE, ()),
        (_op("same", "rows=1", same=True), DuelWhat.CHANGED, ()),
        (_op("same", "rows=1", same=True), DuelWhat.ALL, ("rows=1",)),
        (_op("same", "rows=1", same=True), DuelWhat.NONE, ()),
        (_op("same", "rows=1", "rows=2", same=True, audit=("rows=2",)), DuelWhat.CHANGED, ("rows=2",)),
        (_op("grown", "rows=1", "rows=2", base=("rows=2", "rows=9")), DuelWhat.CHANGED, ("rows=2",)),
        (PlannedOp("new", performance=("rows=1",)), DuelWhat.ALL, ()),
        (replace(EDITED, base=PlannedBase(failure=Reason("base_lacks_op"))), DuelWhat.ALL, ()),
        (replace(EDITED, failure=Reason("no_cases")), DuelWhat.ALL, ()),
    ],
    ids=[
        "changed", "changed and all", "changed and none", "same files", "same files and all", "same files and none",
        "a control", "what both have", "no base", "a base that fails", "an op that fails",
    ],
)  # fmt: skip
def test_what_may_be_duelled(op, duel, cases):
    assert list_duellable(op, duel) == cases


@pytest.mark.parametrize(
    ("base", "duel", "skips"),
    [
        (BASE, DuelWhat.CHANGED, True),
        (BASE, DuelWhat.ALL, False),
        (BASE, DuelWhat.NONE, False),
        (None, DuelWhat.CHANGED, False),
        (replace(BASE, how="baseline"), DuelWhat.CHANGED, False),
        (replace(BASE, how="asked"), DuelWhat.CHANGED, True),
        (replace(BASE, python="/opt/python"), DuelWhat.CHANGED, False),
        (replace(BASE, changed_pins=("uv.lock: triton 3.7 -> 3.8",)), DuelWhat.CHANGED, False),
    ],
    ids=[
        "changed",
        "all",
        "none",
        "no base",
        "the baseline's commit",
        "asked for",
        "another python",
        "another toolchain",
    ],
)
def test_what_is_proven_unchanged_is_skipped_only_where_that_proof_is_one(base, duel, skips):
    assert make_plan(Request(), [EDITED], "fake", Against(base, duel)).skip_unchanged is skips


# --- controls ---------------------------------------------------------------------------------------------------------


def _audited(*ops, against=CHANGED, device="fake", **request):
    plan = make_plan(Request(seed=3, **request), ops, device, against)
    return [(op.op, case) for op in plan.ops for case in op.audit]


@pytest.mark.parametrize(("unchanged", "controls"), [(10, 0), (25, 1), (50, 1), (74, 1), (75, 2), (1000, 20)])
def test_one_in_fifty_unchanged_cases_is_duelled_as_a_control(unchanged, controls):
    audited = _audited(EDITED, _many(unchanged))

    assert AUDIT_SHARE == 50
    assert len(audited) == len(set(audited)) == controls
    assert {op for op, _ in audited} <= {"many"}


# --- designs that come to nothing -------------------------------------------------------------------------------------


def _refusal(request, *ops, **options):
    with pytest.raises(UsageError) as caught:
        make_plan(request, ops, "fake", CHANGED, **options)
    return caught.value.reason.kind, sentence(caught.value.reason)


def test_a_duel_that_could_never_fail_is_refused_with_what_to_change():
    kind, words = _refusal(Request(), EDITED, alpha=1e-15)

    assert kind == "duel_cannot_fail"
    assert "2 cases" in words
    assert "raise alpha in thresholds/default.yaml" in words


# --- shards -----------------------------------------------------------------------------------------------------------


def _shared(counts, shards, last=None, **plan):
    ops = tuple(PlannedOp(op, performance=tuple(f"n={i}" for i in range(count))) for op, count in counts.items())
    return {share.op: share for share in share_out(Plan(ops, 1, 2.0, "cuda", **plan), shards, last)}


def _loads(shared):
    loads = {}
    for share in shared.values():
        loads[share.shard] = loads.get(share.shard, 0.0) + share.seconds
    return loads


def test_without_a_last_run_cases_take_the_budget_and_the_longest_op_comes_first():
    shared = _shared({"a": 5, "b": 3, "c": 3, "d": 2, "e": 1}, 2)

    assert {op: share.seconds for op, share in shared.items()} == {"a": 10.0, "b": 6.0, "c": 6.0, "d": 4.0, "e": 2.0}
    assert _loads(shared) == {1: 14.0, 2: 14.0}
    assert list(shared) == ["a", "b", "c", "d", "e"]


def test_the_last_run_gives_the_seconds_and_an_op_that_it_lacks_takes_as_long_a_case_as_the_others():
    case = PerformanceCase("n=0")
    ran = (
        OpRun("a", performance=(case,), verify_s=1.0, measure_s=9.0),
        OpRun("b", performance=(case, case), measure_s=4.0),
        OpRun("gone", performance=(case,)),
    )
    last = replace(example_runs.small()[0], ops=ran)

    shared = _shared({"a": 2, "b": 2, "new": 1}, 2, last)

    assert {op: share.seconds for op, share in shared.items()} == {"a": 20.0, "b": 4.0, "new": 6.0}
    assert {op: share.shard for op, share in shared.items()} == {"a": 1, "b": 2, "new": 2}


def test_what_needs_no_worker_is_given_to_no_shard():
    same = PlannedBase(same=True)
    ops = (
        PlannedOp("broken", performance=("n=1",), failure=Reason("x")),
        PlannedOp("same", performance=("n=1", "n=2"), base=same),
        PlannedOp("control", performance=("n=1", "n=2"), base=same, audit=("n=2",)),
        PlannedOp("changed", ("n=0",), ("n=1",)),
    )
    plan = Plan(ops, 1, 1.0, "cuda", skip_unchanged=True)

    assert [share.shard for share in share_out(plan, 2)] == [0, 0, 2, 1]
    assert [cases_to_run(plan, op) for op in ops] == [0, 0, 1, 2]
    assert [cases_to_run(replace(plan, skip_unchanged=False), op) for op in ops] == [0, 2, 2, 2]
