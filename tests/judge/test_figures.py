"""Limits on a case's figures: share of the copy's bandwidth, first call, errors."""

from dataclasses import replace

import numpy as np
import pytest

from perfci.core.model.basics import ErrorStats, Gate, Suite, Verdict
from perfci.core.model.decision import Comparison, Need
from perfci.core.model.measured import AccuracyCase, OpRun, PerformanceCase
from perfci.core.model.place import Limits
from perfci.core.model.run import Expected, Plan, PlannedOp, Run, Shard
from perfci.core.wording import sentence
from perfci.extensions.shards.part import merge
from perfci.extensions.shards.plans import ShardedOp, ShardPlan
from perfci.judge import judge
from perfci.judge.compare import Context
from perfci.judge.figures import CEILING, judge_bandwidth
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import OpThresholds, Thresholds
from tests.decision_examples import (
    CASE,
    again,
    assert_worded,
    baseline,
    blocks,
    check,
    environment,
    judged,
    plan,
    row_of,
    run,
)

COPY_GBPS, L2 = 4000.0, 10 << 20
MOVED = 180_000_000  # 90 % of the copy in 50 us
DEFAULT, OWN = "thresholds/default.yaml", "thresholds/op.yaml"


def here(l2=L2):
    return replace(environment(), device=replace(environment().device, l2_bytes=l2))


def case(timed, **facts):
    return PerformanceCase(CASE, blocks=timed, **facts)


def entry(up_to, pattern=CASE):
    return Expected("op", pattern, up_to=up_to, until="2027-01-31", file=OWN, line=2, why="meant")


def timed_run(measured, copy=COPY_GBPS, l2=L2, **options):
    return run(measured, now=here(l2), limits=Limits(copy, options.pop("rates", {})), **options)


def moving(timed, **facts):
    return case(timed, **{"bytes_moved": MOVED} | facts)


def decided(measured, stored=None, entries=(), **limits):
    """Judged by what the op's file asks for."""
    thresholds = Thresholds(CaseThresholds(), {"op": OpThresholds(CaseThresholds(**limits), (), tuple(entries))})
    judgements = judge(measured, {"op": stored} if stored else {}, thresholds)
    for reason in (*judgements.notes, *(reason for row in judgements.rows for reason in row.reasons)):
        assert_worded(reason)
    return judgements


def share_of(timed, wanted, stored=None, **options):
    share = decided(timed_run(timed, **options), stored or baseline(), bandwidth_share=wanted)
    return row_of(share), share.needs


def kinds(row):
    return [reason.kind for reason in row.reasons]


def told(row, kind):
    return next(sentence(reason) for reason in row.reasons if reason.kind == kind)


# --- share of the bandwidth -------------------------------------------------------------------------------------------

NEED = (Need("op", CASE, 2),)


@pytest.mark.parametrize(
    ("timed", "wanted", "verdict", "kind", "needs"),
    [
        (blocks(), 0.8, Verdict.PASS, "bandwidth_reached", ()),
        (blocks(), 0.97, Verdict.INCONCLUSIVE, "bandwidth_suspected", NEED),
        (again(1.0), 0.97, Verdict.TOO_SLOW, "bandwidth_low", ()),
        (blocks(), 0.9, Verdict.INCONCLUSIVE, "bandwidth_undecided", NEED),
        (again(1.0), 0.9, Verdict.INCONCLUSIVE, "bandwidth_undecided", ()),
        (again(1.0, 0.9), 0.995, Verdict.INCONCLUSIVE, "bandwidth_suspected", ()),
        (blocks(count=4), 0.8, Verdict.INCONCLUSIVE, "bandwidth_too_few_blocks", NEED),
    ],
    ids=["reached", "missed once", "missed thrice", "inside", "still inside", "one process reaches it", "few blocks"],
)
def test_a_share_of_the_copy_is_judged_as_a_speedup_target_is(timed, wanted, verdict, kind, needs):
    judgements = decided(timed_run(moving(timed)), bandwidth_share=wanted)
    row = row_of(judgements)

    assert (row.verdict, row.reasons[0].kind) == (verdict, kind) or verdict is Verdict.PASS
    assert kind in kinds(row)
    assert verdict is not Verdict.PASS or row.gate is Gate.OK
    assert judgements.needs == needs


def test_the_copy_that_is_measured_once_may_be_off_before_a_kernel_is_blamed():
    reached = 0.9
    within, beyond = (share_of(moving(again(1.0)), reached * (1 + CEILING) * by)[0] for by in (0.99, 1.01))

    assert (within.verdict, within.reasons[0].kind) == (Verdict.INCONCLUSIVE, "bandwidth_undecided")
    assert beyond.verdict is Verdict.TOO_SLOW


NOT_HELD = {
    "undeclared": ({"bytes_moved": None}, {}, Verdict.INCONCLUSIVE, "bandwidth_undeclared"),
    "declared as nothing": ({"bytes_moved": 0}, {}, Verdict.INCONCLUSIVE, "bandwidth_undeclared"),
    "no copy measured": ({}, {"copy": None}, Verdict.INCONCLUSIVE, "bandwidth_unknown"),
    "cache unknown": ({}, {"l2": None}, Verdict.INCONCLUSIVE, "bandwidth_unknown"),
    "within the cache": ({"bytes_moved": 4 * L2 - 1}, {}, Verdict.PASS, "bandwidth_small"),
    "warm": ({"cache": "warm"}, {}, Verdict.PASS, "bandwidth_warm"),
    "by arithmetic": (
        {"flops": MOVED * 300, "dtype": "float16"},
        {"rates": {"float16": 800.0}},
        Verdict.PASS,
        "bandwidth_by_arithmetic",
    ),
    "rate unknown": ({"flops": MOVED, "dtype": "float8"}, {}, Verdict.PASS, "bandwidth_by_arithmetic"),
}


@pytest.mark.parametrize(("facts", "options", "verdict", "kind"), NOT_HELD.values(), ids=NOT_HELD)
def test_a_share_that_cannot_be_held_says_so_where_somebody_asked_for_it(facts, options, verdict, kind):
    row, needs = share_of(moving(again(1.0), **facts), 0.99, baseline(), **options)

    assert kind in kinds(row)
    # Its baseline is of a cold cache.
    assert row.verdict is (Verdict.STALE if facts.get("cache") else verdict)
    assert needs == ()


def test_a_share_for_all_ops_is_meant_for_those_that_memory_bounds():
    for facts in ({"bytes_moved": None}, {"bytes_moved": L2}, {"flops": MOVED * 300, "dtype": "float16"}):
        measured = timed_run(moving(again(1.0), **facts), rates={"float16": 800.0})
        row = row_of(judged(measured, baseline(), bandwidth_share=0.99))
        assert (row.verdict, kinds(row)) == (Verdict.PASS, ["no_change"])

    bound = timed_run(moving(again(1.0), flops=MOVED, dtype="float16"), rates={"float16": 800.0})
    assert row_of(judged(bound, baseline(), bandwidth_share=0.99)).verdict is Verdict.TOO_SLOW


def test_an_expected_slow_down_widens_the_share_as_it_does_the_speedup():
    entries = [entry(up_to, CASE) for up_to in (0.10, 0.02)]
    measured = timed_run(moving(again(1.0)))

    covered, beyond = (row_of(decided(measured, entries=[entry], bandwidth_share=0.97)) for entry in entries)

    assert (covered.verdict, kinds(covered)[:2]) == (Verdict.EXPECTED, ["expected_of_bandwidth", "bandwidth_low"])
    assert (beyond.verdict, kinds(beyond)[0]) == (Verdict.TOO_SLOW, "bandwidth_low")


H200_COPIES = (
    4110.6, 4107.3, 4184.6, 4186.7, 4167.7, 4177.6, 4186.5, 4145.3, 4206.9,
    4167.0, 4185.4, 4072.6, 4161.3, 4083.5, 4162.8, 4131.0, 4167.5, 4136.9,
)  # fmt: skip
"""GB/s of the first copy that 9 processes of one H200 made, on an idle board and after 1,500 matrix products."""


def _timed(rng):
    """Three processes: blocks vary by 0.3 %, processes by 0.36 %, as on live ones."""
    (block,), kernel = blocks(count=1), blocks(count=1)[0].arms["kernel"]
    for process, bias in enumerate(rng.normal(0, 0.0036, 3)):
        for us in 50 * np.exp(bias + rng.normal(0, 0.003, 8)):
            arms = {"kernel": replace(kernel, time=replace(kernel.time, median_us=float(us)))}
            yield replace(block, process=process, arms=arms)


def test_a_kernel_at_its_very_limit_is_hardly_ever_blamed():
    """The copy varies as it did on a device; a kernel that misses by 10 % always is."""
    rng, usual = np.random.default_rng(5), float(np.median(H200_COPIES))
    limits = CaseThresholds(bandwidth_share=0.9)
    measured = replace(run(moving(again(1.0))), environment=here())

    def blamed(true):
        timed = moving(tuple(_timed(rng)), bytes_moved=round(true * usual * 50_000))
        now = replace(measured, limits=Limits(float(rng.choice(H200_COPIES))))
        context = Context(now, Thresholds(), limits, Comparison("op", "c"))
        return judge_bandwidth(timed, context).verdict is Verdict.TOO_SLOW

    assert sum(blamed(0.9) for _ in range(600)) == 0  # 95 % bound: 1 in 200
    assert sum(blamed(0.81) for _ in range(100)) == 100


# --- first call -------------------------------------------------------------------------------------------------------


def first_call(seconds, *again_s, timed=None, limit=2.0):
    measured = run(case(timed or again(1.0), compile_s=seconds, compile_again_s=again_s))
    judgements = decided(measured, baseline(), compile_s=limit)
    return row_of(judgements), judgements.needs


@pytest.mark.parametrize(
    ("seconds", "again_s", "verdict", "kind"),
    [
        (1.9, (), Verdict.PASS, "no_change"),
        (2.0, (9.0, 9.0), Verdict.PASS, "no_change"),
        (2.1, (2.2, 3.0), Verdict.TOO_SLOW, "compile_too_slow"),
        (2.1, (2.2, 1.9), Verdict.INCONCLUSIVE, "compile_disputed"),
        (2.1, (0.4, 0.5), Verdict.PASS, "compile_refuted"),
        (2.1, (4.3, 4.4), Verdict.INCONCLUSIVE, "compile_other_state"),
        (2.1, (2.5,), Verdict.INCONCLUSIVE, "compile_suspected"),
        (None, (), Verdict.INCONCLUSIVE, "compile_unknown"),
    ],
    ids=["below", "at the limit", "thrice", "disputed", "busy once", "found compiled", "one asked", "absent"],
)
def test_a_slow_first_call_fails_only_where_fresh_processes_compiled_as_slowly(seconds, again_s, verdict, kind):
    row, needs = first_call(seconds, *again_s)

    assert row.verdict is verdict
    assert kind in kinds(row)
    assert verdict is Verdict.PASS or row.reasons[0].kind == kind
    assert needs == ()


@pytest.mark.parametrize(
    ("planned", "verdict"),
    [
        (plan(), Verdict.TOO_SLOW),
        (plan(filter="rows=*"), Verdict.PASS),
        (plan(suites=(Suite.PERFORMANCE,)), Verdict.PASS),
    ],
    ids=["whole", "some cases", "one suite"],
)
def test_an_earned_limit_is_held_in_runs_like_those_that_earned_it(planned, verdict):
    measured = run(case(again(1.0), compile_s=0.9, compile_again_s=(0.9, 0.95)), planned=planned)
    earned = Thresholds(earned={"op": {CASE: {"compile_s": 0.6}}})
    written = Thresholds(CaseThresholds(compile_s=0.6))

    for rules, wanted in ((earned, verdict), (written, Verdict.TOO_SLOW)):
        row = row_of(judge(measured, {"op": baseline()}, rules))
        assert row.verdict is wanted
        told = [reason for reason in row.reasons if reason.kind.startswith("compile_")]
        assert [reason.kind for reason in told] == [
            "compile_too_slow" if wanted is Verdict.TOO_SLOW else "compile_not_held"
        ]
        assert_worded(told[0])


# --- errors -----------------------------------------------------------------------------------------------------------

ERRORS = ErrorStats(1000, max_abs=0.01, mean_abs=1e-4, p99_abs=1e-3, rmse=2e-4)


def checked(*checks, stored=True, **limits):
    return decided(run(again(1.0), accuracy=checks), baseline() if stored else None, **limits)


def wrong_rows(judgements):
    return [(row.suite, row.case, row.reasons[0].kind) for row in judgements.rows if row.verdict is Verdict.WRONG]


@pytest.mark.parametrize(
    ("limits", "kind"),
    [
        ({"mean_abs": 9e-5}, "checked_errors_overall"),
        ({"rmse": 1e-4}, "checked_errors_overall"),
        ({"p99_abs": 9e-4}, "checked_errors_in_places"),
        ({"max_abs": 0.009}, "checked_errors_in_places"),
        ({"max_abs": 0.0}, "checked_errors_in_places"),
        ({"max_abs": 0.009, "rmse": 1.9e-4}, "checked_errors_overall"),
    ],
)
def test_errors_beyond_a_limit_are_wrong_although_the_checks_passed(limits, kind):
    judgements = checked(check(errors=ERRORS), **limits)

    assert wrong_rows(judgements) == [(Suite.ACCURACY, None, "accuracy_beyond_limits"), (Suite.ACCURACY, CASE, kind)]
    assert judgements.gate is Gate.FAILS


def test_the_worst_of_the_checks_on_ordinary_values_is_held_as_the_history_keeps_it():
    worse = replace(ERRORS, max_abs=0.02)
    fresh, large = check(seed=9, fresh=True, errors=worse), AccuracyCase(CASE, "large", "contiguous", 3, errors=worse)

    assert wrong_rows(checked(check(errors=ERRORS), fresh, max_abs=0.015))
    assert not wrong_rows(checked(check(errors=ERRORS), large, max_abs=0.015))
    judgements = checked(check(errors=ERRORS), fresh, max_abs=0.015)
    facts = row_of(judgements, suite=Suite.ACCURACY).reasons[0].facts
    assert (facts["value"], facts["checks"], facts["max_abs"]) == (0.02, 2, 0.02)


def test_timed_outputs_have_the_same_limits_and_outweigh_a_slow_down():
    row = row_of(decided(run(case(again(1.05), errors=ERRORS)), baseline(), rmse=1e-4))

    assert (row.verdict, kinds(row)[:2]) == (Verdict.WRONG, ["timed_errors_overall", "slower_confirmed"])
    assert "rmse of the timed outputs is 2.00e-04" in sentence(row.reasons[0])


# --- whatever the run ------------------------------------------------------------------------------------------------


def test_shards_that_were_merged_are_held_against_the_copy_that_was_measured_first():
    cases = (CASE, "rows=1")
    ops = tuple(PlannedOp(op, performance=(one,)) for op, one in zip(("op", "other"), cases, strict=True))
    sharded = ShardPlan(
        perfci="1", created="2026-01-01T00:00:00Z", commit=None, rules="r", alpha=0.01, shards=2, timer="auto",
        plan=Plan(ops, 7, 1.0, "cuda", (Suite.PERFORMANCE,)), ops=(ShardedOp("op", 1), ShardedOp("other", 2)), family=2,
    )  # fmt: skip
    joined = _merged(sharded, cases)

    limits = Thresholds(CaseThresholds(bandwidth_share=0.97))
    judgements = judge(joined, {}, limits)

    assert joined.limits.copy_gbps == COPY_GBPS
    assert [row.verdict for row in judgements.rows] == [Verdict.TOO_SLOW, Verdict.TOO_SLOW]


def _merged(sharded, cases):
    blank = Run("merged", "2026-01-02T00:00:00Z", "1", "perfci ci merge", here(), sharded.plan)
    runs = []
    for number, (planned, one, copy) in enumerate(zip(sharded.plan.ops, cases, (COPY_GBPS, 4050.0), strict=True), 1):
        measured = OpRun(planned.op, performance=(replace(moving(again(1.0)), case=one),))
        runs.append(
            replace(
                blank, id=f"run{number}", plan=replace(sharded.plan, ops=(planned,)), ops=(measured,),
                limits=Limits(copy), shard=Shard("a" * 64, number, 2, done=True),
            )
        )  # fmt: skip
    return merge(sharded, "a" * 64, runs, blank)
