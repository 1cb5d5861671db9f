"""What changes of ops cost a model, and the verdict where a limit is stated."""

import math
from dataclasses import replace

import pytest

from perfci.core.model.basics import Interval, Look, Reason, Suite, Verdict
from perfci.core.model.decision import Comparison, Judgement, Judgements
from perfci.core.model.measured import PerformanceCase
from perfci.core.model.place import Device, DeviceState
from perfci.extensions.workloads.costs import Changed, Cost, find_changes, predict, weigh_verdicts
from perfci.extensions.workloads.recording import sum_up
from perfci.extensions.workloads.records import Call, Slice, Workload, write_workload
from tests import decision_examples

RUN = decision_examples.run()


def call(op, us, params):
    return Call(op, us=us, params=params)


def changed(value, low, high, **facts):
    return Changed(Interval(value, low, high), **facts)


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
    cost = predict(WORKLOAD, {CASE: changed(0.04, 0.03, 0.05)})

    # 7 % of the time has this very case, 3 % one near it, and the 1 % in float32 is no such case.
    assert cost.share == pytest.approx(0.10)
    assert cost.unknown == pytest.approx(0.01)
    assert cost.change.value == pytest.approx(0.004)
    assert (cost.change.low, cost.change.high) == pytest.approx((0.003, 0.005))


def test_a_case_of_far_larger_sizes_stands_for_no_call():
    cost = predict(WORKLOAD, {("softmax", "rows=32,cols=40960,dtype=float16"): changed(0.04, 0.03, 0.05)})

    assert cost == Cost(Interval(0.0, 0.0, 0.0), 0.0, pytest.approx(0.11))


def test_half_widths_of_several_cases_add_up_as_squares():
    matmul = ("matmul", "m=32,n=8,k=8,dtype=float16")
    cost = predict(WORKLOAD, {CASE: changed(0.10, 0.06, 0.14), matmul: changed(-0.02, -0.026, -0.014)})

    assert cost.change.value == pytest.approx(0.1 * 0.10 - 0.5 * 0.02)
    assert cost.change.high - cost.change.value == pytest.approx(math.hypot(0.1 * 0.04, 0.5 * 0.006))


def judged(verdict, change, half=0.002, op="softmax", case=CASE[1]):
    shift = Interval(*(math.log1p(change + side) for side in (0.0, -half, half)))
    duel = Look(24, 2, shift, 0.0, 1.0, (shift.value,) * 2, (12, 12), 0.01)
    seen = Comparison(op, case, duel=duel)
    return Judgement(op, Suite.PERFORMANCE, case, verdict, (Reason("duel_slower", {"change": change}),), seen)


def weigh(tmp_path, *rows, limits=None, workload=WORKLOAD):
    write_workload(tmp_path, workload)
    return weigh_verdicts(RUN, Judgements(rows), tmp_path, limits or {})


def test_a_slower_case_says_what_it_costs_and_a_note_sums_up(tmp_path):
    told = weigh(tmp_path, judged(Verdict.REGRESSED, 0.041))

    [row] = told.rows
    assert [reason.kind for reason in row.reasons] == ["duel_slower", "model_case"]
    assert row.reasons[1].facts["change"] == pytest.approx(0.0041, rel=1e-3)
    assert [note.kind for note in told.notes] == ["model_slower", "model_unmeasured"]
    assert told.notes[1].facts["unknown"] == pytest.approx(0.01)  # the calls in float32


def test_a_cost_is_an_upper_bound_if_the_device_waits_for_the_host(tmp_path):
    told = weigh(tmp_path, judged(Verdict.REGRESSED, 0.041), workload=replace(WORKLOAD, busy_us=500.0))

    assert told.rows[0].reasons[1].kind == "model_at_most"
    assert told.notes[0].kind == "model_slower_at_most"


def test_a_kernel_that_reaches_the_power_limit_has_its_change_there_too():
    row = judged(Verdict.REGRESSED, 0.10)
    held = replace(row.comparison.duel, shift=Interval(math.log1p(0.06), math.log1p(0.05), math.log1p(0.07)))

    changes = find_changes([replace(row, comparison=replace(row.comparison, duel_sustained=held))], RUN)

    assert changes[CASE].sustained.value == pytest.approx(0.06)
    assert changes[CASE].change.value == pytest.approx(0.10)


@pytest.mark.parametrize(
    ("clock_mhz", "throttle", "expected"),
    [
        (1500, ("power_cap",), (0.006, 0.005, 0.007)),  # the model's clock is held down, and so counts the change there
        (1980, (), (0.010, 0.009, 0.011)),
        (1500, (), (0.010, 0.009, 0.011)),  # by something else
        (None, (), (0.006, 0.005, 0.011)),  # not known, so both
    ],
)
def test_what_counts_of_two_changes_is_the_one_in_the_state_that_the_model_runs_in(clock_mhz, throttle, expected):
    workload = replace(WORKLOAD, free_mhz=1980.0, state=DeviceState(sm_clock_mhz=clock_mhz, throttle=throttle))

    cost = predict(workload, {CASE: changed(0.10, 0.09, 0.11, sustained=Interval(0.06, 0.05, 0.07))})

    assert (cost.change.value, cost.change.low, cost.change.high) == pytest.approx(expected)


def test_readings_of_a_board_are_summed_up_by_what_half_of_them_say():
    low, free = DeviceState(sm_clock_mhz=1500, throttle=("power_cap",)), DeviceState(sm_clock_mhz=1980)

    assert sum_up([low, low, free]).throttle == ("power_cap",)
    assert sum_up([low, free, free]) == DeviceState(sm_clock_mhz=1980)
    assert sum_up([DeviceState()]) is None


GAPPED = replace(
    WORKLOAD, device=Device("cuda", "NVIDIA H200", "nvidia-h200"),
    timeline=tuple(Slice(2.5 * place, 2.0, 7, "softmax") for place in range(5)),
)  # fmt: skip


def test_a_call_with_its_inputs_in_the_cache_gets_longer_by_as_many_microseconds_as_alone():
    measured = changed(0.04, 0.03, 0.05, us=140.0, device="nvidia-h200")

    cost = predict(GAPPED, {CASE: measured}).change

    # Twice as long alone as in the step: +5.6 us there, and 1.2 of the call of 30 us, whose size is another.
    assert (cost.value, cost.low, cost.high) == pytest.approx((0.0068, 0.003, 0.0085))
    assert predict(GAPPED, {CASE: replace(measured, device="nvidia-b200")}).change.value == pytest.approx(0.004)


def test_at_the_power_limit_a_call_gets_longer_by_as_many_microseconds_as_alone_there():
    held = replace(GAPPED, free_mhz=1980.0, state=DeviceState(sm_clock_mhz=1500, throttle=("power_cap",)))
    measured = changed(0.10, 0.09, 0.11, sustained=Interval(0.06, 0.05, 0.07), us=50.0, device="nvidia-h200")

    cost = predict(held, {CASE: replace(measured, sustained_us=60.0)}).change

    assert cost.value == pytest.approx((0.06 * 60 + 0.06 * 30) / 1000)


def test_a_launch_more_costs_the_gap_before_it():
    cost = predict(GAPPED, {CASE: changed(0.04, 0.03, 0.05, launches=3.0)}).change

    # Two kinds of calls have three launches more, and as recorded a gap of 0.5 us between two, of which half counts.
    assert (cost.value, cost.low, cost.high) == pytest.approx((0.004 + 0.0015, 0.003, 0.005 + 0.003))


def test_launches_that_the_base_has_not_are_counted_in_the_blocks_of_the_run():
    blocks = [
        replace(block, arms={**block.arms, "base": replace(block.arms["kernel"], activities=1)})
        for block in decision_examples.blocks(activities=4)
    ]
    run = decision_examples.run(PerformanceCase(CASE[1], blocks=tuple(blocks)))

    changes = find_changes([judged(Verdict.REGRESSED, 0.041, op="op")], run)

    assert changes["op", CASE[1]].launches == 3
    assert changes["op", CASE[1]].device == "nvidia-h200"


def test_times_of_a_host_say_nothing_of_what_a_kernel_costs(tmp_path):
    told = weigh(tmp_path, judged(Verdict.REGRESSED, 0.041), workload=replace(WORKLOAD, clock="host"))

    assert [reason.kind for reason in told.rows[0].reasons] == ["duel_slower"]
    assert told.notes == ()


def test_an_improvement_says_what_it_brings_and_what_passed_says_nothing(tmp_path):
    assert weigh(tmp_path, judged(Verdict.IMPROVED, -0.05)).notes[0].kind == "model_faster"
    assert weigh(tmp_path, judged(Verdict.PASS, 0.0001)) == Judgements((judged(Verdict.PASS, 0.0001),))


def test_cases_that_do_the_same_work_as_the_base_did_not_change():
    other = "rows=32,cols=5000,dtype=float16"
    same = Judgement("softmax", Suite.PERFORMANCE, other, Verdict.UNCHANGED, (Reason("unchanged_files"),))

    changes = find_changes([judged(Verdict.REGRESSED, 0.041), same], RUN)

    assert changes["softmax", other] == Changed()
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


def test_a_limit_of_a_model_that_was_never_recorded_is_told_whatever_changed(tmp_path):
    [note] = weigh(tmp_path, judged(Verdict.UNCHANGED, 0.0), limits={"lama": 0.005}).notes

    assert (note.kind, note.facts["name"], note.facts["known"]) == ("workload_missing", "lama", "llama")
