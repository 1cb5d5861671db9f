from dataclasses import replace

import pytest

from perfci.core.model import (
    ErrorStats,
    Expected,
    Gate,
    Need,
    PerformanceCase,
    PlannedBase,
    PlannedOp,
    Reason,
    Suite,
    Verdict,
)
from perfci.core.wording import sentence
from perfci.judge import judge
from perfci.judge.speed import PROOFS
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import OpThresholds, Thresholds
from tests.decision_examples import CASE, again, baseline, blocks, check, environment, judged, plan, row_of, run

BOOM = Reason("boom", {"what": "it broke"})


def _speed(measured, stored=None, **limits):
    speed = judged(measured, stored, **limits)
    row = row_of(speed)
    return row.verdict, row.reasons[0].kind, speed.needs


NEED = (Need("op", CASE, 2),)


# --- against the baseline ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measured", "stored", "expected"),
    [
        (blocks(), None, (Verdict.NEW, "new_case", ())),
        (blocks(), baseline(), (Verdict.PASS, "no_change", ())),
        (blocks(1.05), baseline(), (Verdict.INCONCLUSIVE, "slower_suspected", NEED)),
        (again(1.05), baseline(), (Verdict.REGRESSED, "slower_confirmed", ())),
        (blocks(1.05) + again(1.0)[10:], baseline(), (Verdict.PASS, "slower_refuted", ())),
        (again(1.05, 1.0), baseline(), (Verdict.INCONCLUSIVE, "slower_disputed", ())),
        (again(1.05)[:20], baseline(), (Verdict.INCONCLUSIVE, "slower_suspected", NEED)),
        (blocks(0.95), baseline(), (Verdict.INCONCLUSIVE, "faster_suspected", NEED)),
        (again(0.95), baseline(), (Verdict.IMPROVED, "faster_confirmed", ())),
        (blocks(0.95) + again(1.0)[10:], baseline(), (Verdict.PASS, "faster_refuted", ())),
        (again(0.95, 1.0), baseline(), (Verdict.INCONCLUSIVE, "faster_disputed", ())),
        (blocks(1.0, clock=1.05), baseline(), (Verdict.STALE, "stale_regime", ())),
        (again(1.25, clock=1.05), baseline(), (Verdict.REGRESSED, "slower_confirmed", ())),
        (blocks(1.25, clock=1.05) + again(1.0, clock=1.05)[10:], baseline(), (Verdict.STALE, "stale_regime", ())),
        (blocks(), baseline(timer="event"), (Verdict.STALE, "stale_timer", ())),
        (blocks(1.05, count=2), baseline(runs=1), (Verdict.INCONCLUSIVE, "too_few_blocks", ())),
    ],
    ids=[
        "no baseline", "same", "slower once", "slower thrice", "slower only at first", "one of two agrees",
        "one re-measurement is missing", "faster once", "faster thrice", "faster only at first", "one of two is faster",
        "another regime", "gross in another regime", "gross only at first, elsewhere", "another timer", "too few",
    ],
)  # fmt: skip
def test_a_case_is_judged_against_its_baseline(measured, stored, expected):
    assert _speed(run(measured), stored) == expected


# --- in another environment -------------------------------------------------------------------------------------------

ELSEWHERE = {
    "driver": {"driver": "590"},
    "board": {"uuid": "GPU-2"},
    "torch": {"torch": "2.13"},
    "Python": {"python": "3.12.1"},
    "variable": {"variables": {"NVIDIA_TF32_OVERRIDE": "0"}},
}


@pytest.mark.parametrize("change", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize(
    ("measured", "span"),
    [
        (blocks(1.08), None),
        (again(1.08), None),
        (again(1.5), None),
        (again(1.08, 1.0), None),
        (again(0.92), None),
        (again(1.0, span=1.5, activities=2), 1.1),
        (blocks(clock=1.05), None),
        (again(1.25, clock=1.05), None),
    ],
    ids=["suspected", "confirmed", "gross", "disputed", "faster", "span", "regime", "gross in another regime"],
)
def test_what_another_environment_may_have_done_is_stale_and_never_red(measured, span, change):
    judgements = judged(run(measured, now=environment(**change)), baseline(span=span))
    row = row_of(judgements)

    assert (row.verdict, judgements.needs, judgements.gate) == (Verdict.STALE, (), Gate.WARNS)
    (field,) = [differ.field for differ in row.comparison.differs]
    assert row.reasons[0].facts["fields"].startswith(f"{field} ")
    assert "perfci accept --environment" in sentence(row.reasons[0])


def test_a_difference_below_the_timers_floor_never_matters():
    speed = _speed(run(again(1.05)), baseline(), floor_us={"activity": 10.0})

    assert speed == (Verdict.PASS, "below_floor", ())


def test_noise_that_hides_a_slow_down_asks_once_and_then_warns():
    (look,) = row_of(judged(run(blocks(1.03)), baseline())).comparison.screens
    hazy = {"margin": look.change.value - 1e-4}

    assert _speed(run(blocks(1.03)), baseline(), **hazy) == (Verdict.INCONCLUSIVE, "too_noisy", NEED)
    assert _speed(run(again(1.04)), baseline(), margin=0.04)[2] == ()


def test_a_family_too_large_for_the_blocks_says_how_many_are_needed():
    names = (CASE, *(f"rows={number}" for number in range(400)))
    measured = run(blocks(1.2, count=3), planned=plan(*names))

    reason = row_of(judged(measured, baseline())).reasons[0]

    assert reason.kind == "too_few_blocks"
    assert (reason.facts["needed"], reason.facts["family"]) == (4, 401)


# --- span and target --------------------------------------------------------------------------------------------------


def test_a_stretched_span_is_a_regression_of_its_own():
    measured = run(again(span=1.5, activities=2, factor=1.0))

    row = row_of(judged(measured, baseline(span=1.1)))

    assert (row.verdict, row.reasons[0].kind) == (Verdict.REGRESSED, "span_confirmed")
    assert row.reasons[1].kind == "no_change"


@pytest.mark.parametrize(
    ("measured", "target", "expected"),
    [
        (blocks(), 1.2, (Verdict.PASS, ())),
        (blocks(), 1.8, (Verdict.INCONCLUSIVE, NEED)),
        (again(1.0), 1.8, (Verdict.TOO_SLOW, ())),
        (blocks(), 1.5, (Verdict.INCONCLUSIVE, NEED)),
        (again(1.0), 1.5, (Verdict.INCONCLUSIVE, ())),
        (again(1.0, 0.6), 1.8, (Verdict.INCONCLUSIVE, ())),
        (blocks(count=4), 1.4, (Verdict.INCONCLUSIVE, NEED)),
    ],
    ids=["reached", "missed once", "missed thrice", "inside", "still inside", "one process reaches it", "few blocks"],
)
def test_a_target_is_gated_by_the_lower_end_of_the_speedup(measured, target, expected):
    row_verdict, _, needs = _speed(run(measured), baseline(), speedup=target, span_margin=0.99)

    assert (row_verdict, needs) == expected


# --- what hides an answer ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "state", [{"throttle": ("thermal",)}, {"throttle": ("power_brake",)}, {"foreign_processes": 1}, {"ecc_errors": 2}]
)
@pytest.mark.parametrize("factor", [1.05, 0.95])
def test_throttling_and_foreign_processes_hide_what_was_beyond_doubt(state, factor):
    verdict, kind, needs = _speed(run(again(factor, **state)), baseline())

    assert (verdict, needs) == (Verdict.INCONCLUSIVE, ())
    assert kind in ("throttled", "foreign_processes", "ecc_errors")


def test_they_hide_a_pass_too_where_most_blocks_had_them():
    held = blocks(count=3, throttle=("thermal",)) + blocks()[3:7] + blocks(foreign_processes=2)[7:]

    row = row_of(judged(run(held), baseline()))

    assert row.verdict is Verdict.INCONCLUSIVE
    assert [reason.kind for reason in row.reasons] == ["throttled", "foreign_processes", "no_change"]


def test_the_ordinary_power_cap_hides_nothing():
    assert _speed(run(again(1.05, throttle=("power_cap",))), baseline())[0] is Verdict.REGRESSED


def test_noisy_launches_are_told_and_gate_nothing():
    row = row_of(judged(run(blocks(rsd=0.2)), baseline()))

    assert row.verdict is Verdict.PASS
    assert row.reasons[-1].kind == "noisy_blocks"
    assert row.reasons[-1].facts["count"] == 10


def test_a_suspicious_measurement_decides_before_anything_else():
    case = PerformanceCase(CASE, blocks=blocks(1.2), suspicion=(BOOM,))

    judgements = judged(run(case), baseline())

    assert row_of(judgements).verdict is Verdict.SUSPECT
    assert row_of(judgements).reasons[0] == BOOM
    assert judgements.needs == ()


@pytest.mark.parametrize("kind", sorted(PROOFS))
def test_what_is_suspect_by_proof_fails_the_gate_until_somebody_agrees_to_it(kind):
    proof = Reason(kind, {"case": CASE, "name": "x", "operation": "aten.mm", "gbps": 9e3, "tflops": 2e3, "limit": 4e3})
    measured = run(PerformanceCase(CASE, blocks=blocks(), suspicion=(proof,)))

    def judge_with(*entries):
        ops = {"op": OpThresholds(CaseThresholds(), expected=entries)}
        return judge(measured, {"op": baseline()}, Thresholds(CaseThresholds(), ops=ops))

    agreed = Expected("op", "*", 0.0, "a library does it", "2099-01-01", weaker="work")
    open_, closed = judge_with(), judge_with(agreed)
    others = [replace(agreed, weaker="values"), replace(agreed, until="2026-01-31")]

    assert (row_of(open_).verdict, open_.gate) == (Verdict.SUSPECT, Gate.FAILS)
    assert "- {weaker: work, why:" in sentence(row_of(open_).reasons[1])
    assert (row_of(closed).verdict, closed.gate) == (Verdict.SUSPECT, Gate.WARNS)
    assert "a library does it" in sentence(row_of(closed).reasons[1])
    assert all(judge_with(other).gate is Gate.FAILS for other in others)


def test_what_is_faster_by_its_own_word_alone_is_in_doubt_until_somebody_trusts_it():
    reported = PerformanceCase(CASE, blocks=again(0.95), self_reported=Reason("case_is_new"))

    def judge_with(case, *entries):
        ops = {"op": OpThresholds(CaseThresholds(), expected=entries)}
        row = row_of(judge(run(case), {"op": baseline()}, Thresholds(CaseThresholds(), ops=ops)))
        return row.verdict, row.reasons[0].kind

    trusted = Expected("op", "*", 0.0, "a CUDA graph", "2099-01-01", weaker="work")

    assert judge_with(reported) == (Verdict.INCONCLUSIVE, "faster_self_reported")
    assert judge_with(reported, trusted) == (Verdict.IMPROVED, "faster_confirmed")
    assert judge_with(replace(reported, self_reported=None)) == (Verdict.IMPROVED, "faster_confirmed")
    assert judge_with(replace(reported, blocks=blocks())) == (Verdict.PASS, "no_change")


def test_what_only_looks_odd_warns():
    odd = Reason("other_stream", {"case": CASE})

    judgements = judged(run(PerformanceCase(CASE, blocks=blocks(), suspicion=(odd,))), baseline())

    assert (row_of(judgements).verdict, judgements.gate) == (Verdict.SUSPECT, Gate.WARNS)


# --- cases without a time ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("raised", "verdict"), [(False, Verdict.WRONG), (True, Verdict.ERROR)])
def test_a_failure_while_measuring_is_wrong_or_an_error(raised, verdict):
    row = row_of(judged(run(PerformanceCase(CASE, failure=BOOM, raised=raised)), baseline()))

    assert (row.verdict, row.reasons) == (verdict, (BOOM,))


def test_an_op_that_the_run_never_reached_is_inconclusive_in_both_suites():
    measured = replace(run(stopped="SIGTERM"), ops=())

    rows = judged(measured, baseline()).rows

    assert [(row.suite, row.case, row.verdict, row.reasons[0].kind) for row in rows] == [
        (Suite.ACCURACY, None, Verdict.INCONCLUSIVE, "accuracy_stopped"),
        (Suite.PERFORMANCE, CASE, Verdict.INCONCLUSIVE, "case_stopped"),
    ]


def test_a_case_that_only_the_baseline_knows_is_removed():
    judgements = judged(run(blocks()), baseline(CASE, "rows=9,dtype=float16"))

    assert row_of(judgements, "rows=9,dtype=float16").verdict is Verdict.REMOVED


# --- ops that broke ---------------------------------------------------------------------------------------------------


def test_an_op_that_breaks_before_its_accuracy_is_done_is_one_error():
    judgements = judged(run(accuracy=(), op={"failure": BOOM}), baseline(CASE, "rows=9,dtype=float16"))

    assert [(row.suite, row.case, row.verdict, row.reasons) for row in judgements.rows] == [
        (Suite.ACCURACY, None, Verdict.ERROR, (BOOM,))
    ]


def test_an_op_that_crashes_after_a_wrong_answer_is_wrong_alone_and_its_crash_is_told():
    crash = Reason("boom", {"signal": "SIGABRT"})
    planned = plan(CASE, accuracy=("n=1", "n=2"))

    rows = judged(run(accuracy=(check("n=1", failure=BOOM),), planned=planned, op={"failure": crash})).rows

    assert {row.verdict for row in rows} == {Verdict.WRONG}
    assert rows[0].reasons[0].kind == "accuracy_failed"
    assert rows[0].reasons[-1] == crash


def test_an_op_that_does_not_load_is_one_error():
    measured = replace(run(planned=replace(plan(), ops=(PlannedOp("op", failure=BOOM),))), ops=())

    assert [(row.case, row.verdict, row.reasons) for row in judged(measured).rows] == [(None, Verdict.ERROR, (BOOM,))]


@pytest.mark.parametrize(
    ("kind", "base", "verdicts"),
    [
        ("backend_lacks_package", PlannedBase(), [Verdict.ERROR]),
        ("backend_needs_device", PlannedBase(), [Verdict.INCONCLUSIVE]),
        ("backend_needs_device", PlannedBase(lent=True), []),
        ("backend_lacks_package", None, []),
    ],
)
def test_a_backend_that_cannot_run_here_has_no_verdict_unless_the_bases_could(kind, base, verdicts):
    facts = {"op": "op", "backend": "CUDA C++", "device": "cpu", "module": "cupy", "package": "cupy-cuda13x"}
    planned = replace(plan(), ops=(PlannedOp("op", failure=Reason(kind, facts), base=base),))

    assert [row.verdict for row in judged(replace(run(planned=planned), ops=())).rows] == verdicts


# --- accuracy ---------------------------------------------------------------------------------------------------------


def test_right_kernels_pass_with_their_counts_and_the_fresh_seed():
    row = row_of(judged(run(blocks(), accuracy=(check(), check(seed=77, fresh=True)))), None, Suite.ACCURACY)

    assert row.verdict is Verdict.PASS
    assert row.reasons == (Reason("accuracy_passed", {"checks": 2, "cases": 1, "seed": 77}),)


def test_of_wrong_cases_the_one_that_is_furthest_beyond_what_is_allowed_is_named():
    off = {"n=1": {"value": 0.2, "limit": 0.1}, "n=2": {"value": 3.0, "limit": 0.1}}
    checks = tuple(check(case, failure=Reason("boom", facts)) for case, facts in off.items())

    whole, *cases = judged(run(accuracy=checks, planned=plan(CASE, accuracy=tuple(off)))).rows

    assert whole.reasons[0].facts["case"] == "n=2"
    assert [row.case for row in cases if row.suite is Suite.ACCURACY] == ["n=2", "n=1"]


def test_a_wrong_kernel_is_wrong_as_a_whole_and_by_case_and_is_not_timed():
    other = "rows=9,dtype=float16"
    checks = (check(), check(failure=BOOM, seed=5), check(other))

    rows = judged(run(accuracy=checks, planned=plan(CASE, "rows=1", accuracy=(CASE, other))), baseline()).rows

    assert [(row.suite, row.case, row.verdict) for row in rows] == [
        (Suite.ACCURACY, None, Verdict.WRONG),
        (Suite.ACCURACY, CASE, Verdict.WRONG),
        (Suite.PERFORMANCE, None, Verdict.WRONG),
    ]
    assert sentence(rows[0].reasons[0]).startswith(f"1 of 3 checks failed, in 1 case, the worst {CASE} with values")
    assert rows[0].reasons[1] == rows[1].reasons[0] == BOOM
    assert rows[2].reasons[0].facts == {"count": 2, "case": CASE}


def test_where_nothing_is_timed_a_wrong_kernel_is_not_said_to_have_kept_its_cases_from_it():
    rows = judged(run(accuracy=(check(failure=BOOM),), planned=replace(plan(CASE), device="cpu")), baseline()).rows

    assert {row.suite for row in rows} == {Suite.ACCURACY}


def _verdict_of(checks):
    rows = judge(run(accuracy=checks), {}, Thresholds()).rows
    assert rows[0].verdict is rows[1].verdict
    return rows[0].verdict


def test_unchecked_cases_are_counted_and_named():
    checks = (check(), *(check(f"rows={n}", unchecked=BOOM) for n in range(5)))

    row = row_of(judged(run(accuracy=checks)), None, Suite.ACCURACY)

    assert row.verdict is Verdict.PASS
    assert row.reasons[1].facts == {"checks": 5, "cases": 5, "names": "rows=0; rows=1; rows=2 and 2 more"}
    assert row.reasons[2:] == (BOOM,)


@pytest.mark.parametrize(
    ("more", "verdict"),
    [
        ((check("rows=0", errors=ErrorStats(0)), check("rejects=a string")), Verdict.INCONCLUSIVE),
        ((check("batch=0,cols=3", errors=ErrorStats(3)), check("shape=(3;0)")), Verdict.INCONCLUSIVE),
        ((check("rows=0", errors=ErrorStats(0)), check("rows=3", errors=ErrorStats(3))), Verdict.PASS),
        ((check("rows=3,dim=0,scale=0.5", errors=ErrorStats(3)),), Verdict.PASS),
        ((), Verdict.INCONCLUSIVE),
    ],
    ids=["no elements, or refused", "an answer to no elements", "one with elements", "an option of 0", "none"],
)
def test_what_could_not_be_checked_passes_by_a_case_with_elements_alone(more, verdict):
    row = row_of(judged(run(accuracy=(check(unchecked=BOOM), *more))), None, Suite.ACCURACY)

    assert row.verdict is verdict
    assert (row.reasons[0].kind == "accuracy_nothing_checked") is (verdict is Verdict.INCONCLUSIVE)


def test_a_case_whose_records_were_lost_is_neither_wrong_nor_an_error():
    lost = PerformanceCase(CASE, blocks=blocks(), failure=Reason("records_lost", {"case": CASE}), raised=True)

    row = row_of(judged(run(lost), baseline()))

    assert (row.verdict, row.reasons[0].kind) == (Verdict.INCONCLUSIVE, "records_lost")


def test_a_pass_by_a_vacuous_tolerance_is_inconclusive_and_what_is_wrong_is_still_wrong():
    facts = {"case": "rows=1", "broken": "zeros", "atol": 35.0, "rtol": 0.0, "rms": 0.1, "dtype": "float32"}
    vacuous = Reason("vacuous", facts)
    checks = (check(), check("rows=1", unchecked=vacuous), check("rows=2", unchecked=vacuous))

    row = row_of(judged(run(accuracy=checks)), None, Suite.ACCURACY)

    assert (row.verdict, row.reasons) == (Verdict.INCONCLUSIVE, (vacuous,))
    assert _verdict_of((*checks, check(failure=BOOM))) is Verdict.WRONG


def test_without_an_accelerator_right_kernels_are_ok_and_speed_is_said_to_be_unknown():
    judgements = judged(run(op={"unmeasured": BOOM}, now=environment(timer=None, key="cpu")), baseline())

    assert [(row.suite, row.verdict) for row in judgements.rows] == [(Suite.ACCURACY, Verdict.PASS)]
    assert BOOM in judgements.rows[0].reasons
    assert judgements.notes == (BOOM,)
    assert judgements.gate is Gate.OK


def test_every_planned_case_is_accounted_for():
    names = tuple(f"rows={number}" for number in range(6))
    timed = (
        PerformanceCase(names[0], blocks=blocks()),
        PerformanceCase(names[1], failure=BOOM),
        PerformanceCase(names[2], failure=BOOM, raised=True),
        PerformanceCase(names[3], blocks=blocks(), suspicion=(BOOM,)),
        PerformanceCase(names[4]),
    )

    rows = judged(run(*timed, planned=plan(*names)), baseline(*names)).rows

    assert {row.case: row.verdict for row in rows if row.suite is Suite.PERFORMANCE} == dict(
        zip(
            names,
            [Verdict.PASS, Verdict.WRONG, Verdict.ERROR, Verdict.SUSPECT, Verdict.INCONCLUSIVE, Verdict.INCONCLUSIVE],
            strict=True,
        )
    )
