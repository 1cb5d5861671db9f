from dataclasses import replace

import pytest

from perfci.core.errors import UsageError
from perfci.core.model import Base, DuelWhat, OpRun, PerformanceCase, Plan, PlannedBase, PlannedOp, Reason, Suite
from perfci.core.wording import sentence
from perfci.runs.plan import (
    AUDIT_SHARE,
    NOT_AGAINST,
    SEED_BITS,
    Against,
    Request,
    cases_to_run,
    draw_seed,
    duellable,
    make_plan,
    shared_out,
)
from perfci.statistics.duel_rule import TESTS
from tests import example_runs

RELU = PlannedOp("relu", ("rows=1",), ("rows=2", "rows=3"))
SCALE = PlannedOp("scale", (), ("rows=2",))
BROKEN = PlannedOp("broken", failure=Reason("no_cases", {"file": "broken_accuracy.py"}))


def test_a_plan_keeps_what_was_asked_for():
    request = Request(("relu",), "rows=*", "fake", 0.5, 7, "event", (Suite.ACCURACY,))

    plan = make_plan(request, [RELU, SCALE], "fake")

    assert (plan.ops, plan.seed, plan.budget_s, plan.device) == ((RELU, SCALE), 7, 0.5, "fake")
    assert (plan.suites, plan.filter) == ((Suite.ACCURACY,), "rows=*")


def test_the_family_is_every_performance_case_of_every_op():
    assert make_plan(Request(), [RELU, SCALE, BROKEN], "fake").family == 3


def test_seed_0_is_a_seed():
    assert make_plan(Request(seed=0), [RELU], "fake").seed == 0


def test_a_seed_that_nobody_asked_for_is_drawn_afresh():
    drawn = {make_plan(Request(), [RELU], "fake").seed for _ in range(20)}

    assert len(drawn) > 15
    assert all(0 <= seed < 1 << SEED_BITS for seed in drawn | {draw_seed()})


def test_a_pattern_that_fits_no_case_of_any_sound_op_is_a_usage_error():
    empty = [PlannedOp("relu"), PlannedOp("scale"), BROKEN]

    with pytest.raises(UsageError) as caught:
        make_plan(Request(pattern="rows=9"), empty, "fake")

    assert caught.value.reason == Reason("no_case_fits", {"pattern": "rows=9", "ops": "relu, scale"})


@pytest.mark.parametrize("described", [[RELU, PlannedOp("scale")], [SCALE], [BROKEN], []])
def test_a_pattern_that_fits_one_op_or_finds_only_broken_ones_is_none(described):
    assert make_plan(Request(pattern="rows=2"), described, "fake").filter == "rows=2"


def test_ops_without_cases_need_no_pattern():
    assert make_plan(Request(), [PlannedOp("relu")], "fake").family == 0


# --- against a base ---------------------------------------------------------------------------------------------------

BASE = Base("0123456789abcdef", "merge_base", "origin/main")
CHANGED = Against(BASE, DuelWhat.CHANGED)


def _op(name, *cases, same=False, base=None, **options):
    planned = PlannedBase(same=same, performance=cases if base is None else base)
    return PlannedOp(name, performance=cases, base=planned, **options)


def _many(count, same=True):
    return _op("many", *(f"n={n}" for n in range(count)), same=same)


EDITED = _op("edited", "rows=1", "rows=2")


def test_a_plan_keeps_what_is_known_of_the_base():
    note = Reason("no_base")
    against = Against(BASE, DuelWhat.ALL, ("gelu",), note)

    plan = make_plan(Request(duel=DuelWhat.ALL), [EDITED], "fake", against, devices=4)

    assert (plan.base, plan.duel, plan.removed, plan.base_note, plan.devices) == (
        BASE,
        DuelWhat.ALL,
        ("gelu",),
        note,
        4,
    )


def test_an_op_that_was_renamed_is_not_removed():
    renamed = PlannedOp("gelu_tanh", performance=("rows=1",), renamed_from="gelu")

    plan = make_plan(Request(), [renamed], "fake", Against(BASE, DuelWhat.CHANGED, ("gelu", "gone")))

    assert plan.removed == ("gone",)


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
    assert duellable(op, duel) == cases


def test_the_family_of_duels_is_every_case_that_may_be_duelled():
    ops = [EDITED, _op("same", "rows=1", same=True), _op("other", "rows=1")]

    assert make_plan(Request(), ops, "fake", CHANGED).duel_family == 3
    assert make_plan(Request(), ops, "fake", Against(BASE, DuelWhat.ALL)).duel_family == 4
    assert make_plan(Request(), ops, "fake").duel_family == 0


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
    found = _audited(EDITED, _many(unchanged))

    assert AUDIT_SHARE == 50
    assert len(found) == len(set(found)) == controls
    assert {op for op, _ in found} <= {"many"}


def test_controls_count_in_the_family():
    assert make_plan(Request(), [EDITED, _many(100)], "fake", CHANGED).duel_family == 2 + 2


def test_controls_follow_from_the_seed():
    first, second, other = (
        [op.audit for op in make_plan(Request(seed=seed), [EDITED, _many(1000)], "fake", CHANGED).ops]
        for seed in (1, 1, 2)
    )

    assert first == second != other


@pytest.mark.parametrize(
    "plan",
    [
        lambda: _audited(_many(1000)),
        lambda: _audited(EDITED, _many(1000), against=Against(BASE, DuelWhat.ALL)),
        lambda: _audited(EDITED, _many(1000), against=Against(BASE, DuelWhat.NONE)),
        lambda: _audited(EDITED, _many(1000), against=NOT_AGAINST),
        lambda: _audited(EDITED, _many(1000), device="cpu"),
        lambda: _audited(EDITED, _many(1000), device="offline"),
        lambda: _audited(EDITED, _many(1000), suites=(Suite.ACCURACY,)),
    ],
    ids=["nothing is duelled", "all is", "none is", "no base", "no accelerator", "compiling only", "accuracy only"],
)
def test_without_duels_there_are_no_controls(plan):
    assert plan() == []


@pytest.mark.parametrize(("device", "suites"), [("cpu", Request().suites), ("fake", (Suite.ACCURACY,))])
def test_what_is_not_timed_makes_no_family_of_duels(device, suites):
    assert make_plan(Request(suites=suites), [EDITED], device, CHANGED, alpha=1e-30).duel_family == 0


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


def test_the_smallest_alpha_that_can_still_fail_is_accepted():
    assert make_plan(Request(), [EDITED], "fake", CHANGED, alpha=2 * TESTS * 0.5**48).duel_family == 2
    assert _refusal(Request(), EDITED, alpha=1.99 * TESTS * 0.5**48)[0] == "duel_cannot_fail"


def test_without_duels_alpha_is_not_asked():
    assert make_plan(Request(), [RELU], "fake", alpha=1e-30).duel_family == 0


def test_an_interpreter_for_a_base_that_nothing_is_duelled_with_is_refused():
    kind, words = _refusal(Request(base_python="/opt/python", duel=DuelWhat.NONE), EDITED)

    assert kind == "base_python_not_duelled"
    assert "--duel none" in words
    assert "/opt/python" in words


def test_duels_asked_for_where_there_is_no_base_are_missed_aloud():
    plan = make_plan(Request(duel=DuelWhat.ALL), [RELU], "fake")

    assert plan.base_note == Reason("nothing_to_duel")
    assert "--against" in sentence(plan.base_note)
    assert make_plan(Request(), [RELU], "fake").base_note is None


# --- shards -----------------------------------------------------------------------------------------------------------


def _shared(counts, shards, last=None, **plan):
    ops = tuple(PlannedOp(op, performance=tuple(f"n={i}" for i in range(count))) for op, count in counts.items())
    return {each.op: each for each in shared_out(Plan(ops, 1, 2.0, "cuda", **plan), shards, last)}


def _loads(shared):
    loads = {}
    for each in shared.values():
        loads[each.shard] = loads.get(each.shard, 0.0) + each.seconds
    return loads


def test_without_a_last_run_cases_take_the_budget_and_the_longest_op_comes_first():
    shared = _shared({"a": 5, "b": 3, "c": 3, "d": 2, "e": 1}, 2)

    assert {op: each.seconds for op, each in shared.items()} == {"a": 10.0, "b": 6.0, "c": 6.0, "d": 4.0, "e": 2.0}
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

    assert {op: each.seconds for op, each in shared.items()} == {"a": 20.0, "b": 4.0, "new": 6.0}
    assert {op: each.shard for op, each in shared.items()} == {"a": 1, "b": 2, "new": 2}


def test_what_needs_no_worker_is_given_to_no_shard():
    same = PlannedBase(same=True)
    ops = (
        PlannedOp("broken", performance=("n=1",), failure=Reason("x")),
        PlannedOp("same", performance=("n=1", "n=2"), base=same),
        PlannedOp("control", performance=("n=1", "n=2"), base=same, audit=("n=2",)),
        PlannedOp("changed", ("n=0",), ("n=1",)),
    )
    plan = Plan(ops, 1, 1.0, "cuda", skip_unchanged=True)

    assert [each.shard for each in shared_out(plan, 2)] == [0, 0, 2, 1]
    assert [cases_to_run(plan, op) for op in ops] == [0, 0, 1, 2]
    assert [cases_to_run(replace(plan, skip_unchanged=False), op) for op in ops] == [0, 2, 2, 2]


def test_more_shards_than_ops_leaves_some_empty():
    assert {each.shard for each in _shared({"a": 1, "b": 1}, 5).values()} == {1, 2}


def test_a_shards_family_is_that_of_all():
    plan = Plan((PlannedOp("a", performance=("n=1",)),), 1, 1.0, "cuda")

    assert (plan.family, replace(plan, shard_family=9).family) == (1, 9)
