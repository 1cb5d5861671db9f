"""What changes of ops cost a model, and the verdict where a limit is stated."""

import math
from dataclasses import replace

import pytest

from perfci.core.model import Comparison, Interval, Judgement, Judgements, Look, Reason, Suite, Verdict
from perfci.extensions.workloads.costs import Cost, find_changes, predict, weigh_verdicts
from perfci.extensions.workloads.records import Call, Workload, write_workload


def call(op, us, params):
    return Call(op, us=us, params=params)


WORKLOAD = Workload(
    "llama", clock="device", step_us=1000.0, busy_us=990.0,
    calls=(
        call("softmax", 70.0, "rows=32, cols=4096, dtype=torch.float16"),
        call("softmax", 30.0, "rows=32, cols=5000, dtype=torch.float16"),
        call("softmax", 10.0, "rows=32, cols=4096, dtype=torch.float32"),
        call("matmul", 500.0, "m=32, n=8, k=8, dtype=torch.float16"),
    ),
)  # fmt: skip
CASE = ("softmax", "rows=32,cols=4096,dtype=float16")


def test_a_step_changes_by_the_share_of_the_calls_times_their_change():
    cost = predict(WORKLOAD, {CASE: Interval(0.04, 0.03, 0.05)})

    # 7 % of the time has this very case, 3 % one near it, and the 1 % in float32 is no such case.
    assert cost.share == pytest.approx(0.10)
    assert cost.unknown == pytest.approx(0.01)
    assert cost.change.value == pytest.approx(0.004)
    assert (cost.change.low, cost.change.high) == pytest.approx((0.003, 0.005))


def test_a_case_of_far_larger_sizes_stands_for_no_call():
    cost = predict(WORKLOAD, {("softmax", "rows=32,cols=40960,dtype=float16"): Interval(0.04, 0.03, 0.05)})

    assert cost == Cost(Interval(0.0, 0.0, 0.0), 0.0, pytest.approx(0.11))


def test_half_widths_of_several_cases_add_up_as_squares():
    matmul = ("matmul", "m=32,n=8,k=8,dtype=float16")
    cost = predict(WORKLOAD, {CASE: Interval(0.10, 0.06, 0.14), matmul: Interval(-0.02, -0.026, -0.014)})

    assert cost.change.value == pytest.approx(0.1 * 0.10 - 0.5 * 0.02)
    assert cost.change.high - cost.change.value == pytest.approx(math.hypot(0.1 * 0.04, 0.5 * 0.006))


def judged(verdict, change, half=0.002, op="softmax", case=CASE[1]):
    shift = Interval(*(math.log1p(change + side) for side in (0.0, -half, half)))
    duel = Look(24, 2, shift, 0.0, 1.0, (shift.value,) * 2, (12, 12), 0.01)
    seen = Comparison(op, case, duel=duel)
    return Judgement(op, Suite.PERFORMANCE, case, verdict, (Reason("duel_slower", {"change": change}),), seen)


def weigh(tmp_path, *rows, limits=None, workload=WORKLOAD):
    write_workload(tmp_path, workload)
    return weigh_verdicts(Judgements(rows), tmp_path, limits or {})


def test_a_slower_case_says_what_it_costs_and_a_note_sums_up(tmp_path):
    told = weigh(tmp_path, judged(Verdict.REGRESSED, 0.041))

    [row] = told.rows
    assert [reason.kind for reason in row.reasons] == ["duel_slower", "model_case"]
    assert row.reasons[1].facts["change"] == pytest.approx(0.0041, rel=1e-3)
    assert [note.kind for note in told.notes] == ["model_slower"]


def test_a_cost_is_an_upper_bound_if_the_device_waits_for_the_host(tmp_path):
    told = weigh(tmp_path, judged(Verdict.REGRESSED, 0.041), workload=replace(WORKLOAD, busy_us=500.0))

    assert told.rows[0].reasons[1].kind == "model_at_most"
    assert [note.kind for note in told.notes] == ["model_slower_at_most"]


def test_a_kernel_that_reaches_the_power_limit_counts_as_it_does_there():
    row = judged(Verdict.REGRESSED, 0.10)
    held = replace(row.comparison.duel, shift=Interval(math.log1p(0.06), math.log1p(0.05), math.log1p(0.07)))

    changes = find_changes([replace(row, comparison=replace(row.comparison, duel_sustained=held))])

    assert changes[CASE].value == pytest.approx(0.06)


def test_an_improvement_says_what_it_brings_and_what_passed_says_nothing(tmp_path):
    assert weigh(tmp_path, judged(Verdict.IMPROVED, -0.05)).notes[0].kind == "model_faster"
    assert weigh(tmp_path, judged(Verdict.PASS, 0.0001)) == Judgements((judged(Verdict.PASS, 0.0001),))


def test_cases_that_do_the_same_work_as_the_base_did_not_change():
    other = "rows=32,cols=5000,dtype=float16"
    same = Judgement("softmax", Suite.PERFORMANCE, other, Verdict.UNCHANGED, (Reason("unchanged_files"),))

    changes = find_changes([judged(Verdict.REGRESSED, 0.041), same])

    assert changes["softmax", other] == Interval(0.0, 0.0, 0.0)
    assert predict(WORKLOAD, changes).change.value == pytest.approx(0.07 * 0.041, rel=1e-3)


@pytest.mark.parametrize(
    ("change", "half", "verdict", "kind"),
    [
        (0.04, 0.002, Verdict.PASS, "model_within"),
        (0.06, 0.002, Verdict.REGRESSED, "model_beyond"),
        (0.06, 0.02, Verdict.INCONCLUSIVE, "model_undecided"),
    ],
)
def test_a_stated_limit_is_held_against_the_interval_of_all_ops_together(tmp_path, change, half, verdict, kind):
    told = weigh(tmp_path, judged(Verdict.REGRESSED, change, half), limits={"llama": 0.005})

    row = told.rows[-1]
    assert (row.op, row.verdict, row.reasons[0].kind) == ("model-llama", verdict, kind)
