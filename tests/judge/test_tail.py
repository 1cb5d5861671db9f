from dataclasses import replace

import pytest

from perfci.core.model import ArmBlock, BaseArm, Expected, Gate, Verdict
from perfci.judge import judge
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import OpThresholds, Thresholds
from tests.decision_examples import CASE, against, duel_plan, duelled, judged, row_of, run


def _judged(case, **limits):
    return judged(run(case, planned=duel_plan()), **limits)


def _row(case, **limits):
    return row_of(_judged(case, **limits))


def _kinds(row):
    return [reason.kind for reason in row.reasons]


TAILED = duelled(0.0, 0.0, slow=3.0)


def test_launches_that_take_longer_are_a_warning_with_their_figures():
    row = _row(against(TAILED))

    assert (row.verdict, row.gate, row.reasons[0].kind) == (Verdict.TAIL, Gate.WARNS, "tail_slower")
    facts = row.reasons[0].facts
    assert facts["share"] == pytest.approx(12 / 480)
    assert facts["times"] == pytest.approx(3.0, abs=0.01)
    assert facts["mean"] == pytest.approx(0.05, abs=0.001)
    assert facts["change"] == pytest.approx(0.0, abs=0.001)
    assert facts["base_share"] == 0.0
    assert "duel_cleared" in _kinds(row)


def test_a_tail_fails_where_thresholds_say_so():
    row = _row(against(TAILED), tail="fails")

    assert (row.verdict, row.gate) == (Verdict.TAIL, Gate.FAILS)


@pytest.mark.parametrize(
    ("measured", "verdict", "kind", "processes"),
    [
        (duelled(0.0, count=4), Verdict.PASS, "duel_cleared", []),
        (duelled(0.0, count=4, slow=3.0), Verdict.INCONCLUSIVE, "tail_open", [1]),
        (duelled(0.0, count=12, slow=3.0), Verdict.INCONCLUSIVE, "tail_open", [1]),
        (TAILED, Verdict.TAIL, "tail_slower", []),
        (duelled(0.0, 0.0, slow=1.19), Verdict.PASS, "duel_cleared", []),
        (duelled(0.0, 0.0, 0.0, 0.0, count=(12, 1, 1, 1), slow=3.0), Verdict.INCONCLUSIVE, "tail_undecided", []),
        (duelled(0.03, 0.03, slow=3.0), Verdict.REGRESSED, "duel_slower", []),
    ],
    ids=["none", "a hint", "a hint of a process", "found", "within tau", "too few blocks", "slower anyway"],
)
def test_a_hint_asks_for_more_processes_until_it_is_decided(measured, verdict, kind, processes):
    judged = _judged(against(measured))

    row = row_of(judged)
    assert (row.verdict, row.reasons[0].kind) == (verdict, kind)
    assert [need.processes for need in judged.needs] == processes


def test_a_control_whose_launches_differ_was_measured_wrongly():
    row = _row(against(TAILED, BaseArm(same=True, duelled=True)))

    assert row.verdict is Verdict.INCONCLUSIVE
    assert _kinds(row)[:2] == ["control_failed", "tail_slower"]


def test_a_hot_device_hides_a_tail():
    row = _row(against(duelled(0.0, 0.0, slow=3.0, throttle=("thermal",))))

    assert row.verdict is Verdict.INCONCLUSIVE
    assert row.reasons[0].kind == "throttled"


def test_a_run_that_did_not_keep_its_slowest_launches_is_judged_by_its_medians():
    def forget(arm):
        return ArmBlock(replace(arm.time, slowest_us=()))

    old = tuple(
        replace(block, arms={name: forget(arm) for name, arm in block.arms.items()})
        for block in duelled(0.0, count=4, slow=3.0)
    )

    row = _row(against(old))

    assert row.verdict is Verdict.PASS
    assert row.comparison.tail is None


def test_an_expected_entry_takes_a_tail():
    entry = Expected("op", CASE, 0.08, "a rare path does more", "2026-12-31", "thresholds/op.yaml", 3)
    measured = run(against(TAILED), planned=duel_plan())

    judgements = judge(measured, {}, Thresholds(ops={"op": OpThresholds(CaseThresholds(), expected=(entry,))}))
    reached = judge(
        measured, {}, Thresholds(ops={"op": OpThresholds(CaseThresholds(), expected=(replace(entry, up_to=0.02),))})
    )

    assert row_of(judgements).verdict is Verdict.EXPECTED
    assert row_of(judgements).reasons[0].kind == "expected_of_tail"
    assert row_of(reached).verdict is Verdict.TAIL


# --- levels -----------------------------------------------------------------------------------------------------------


def test_processes_that_differ_are_told_beside_the_verdict():
    row = _row(against(duelled(0.0, 0.1, 0.0, 0.1)))

    assert row.verdict is Verdict.INCONCLUSIVE
    (split,) = [reason for reason in row.reasons if reason.kind == "split_processes"]
    assert (split.facts["count"], split.facts["processes"]) == (2, 4)
    assert split.facts["apart"] == pytest.approx(0.1, abs=0.001)


def test_one_process_that_differs_does_not_pass_in_silence():
    row = _row(against(duelled(0.0, 0.1, 0.0, 0.0)))

    assert row.verdict is Verdict.INCONCLUSIVE
    assert "split_processes" in _kinds(row)
    assert _kinds(row)[:2] == ["duel_undecided", "tail_undecided"]


def test_a_level_that_costs_too_little_is_told_beside_a_pass():
    row = _row(against(duelled(0.0, 0.025, 0.0, 0.0)))

    assert row.verdict is Verdict.PASS
    assert "split_processes" in _kinds(row)


def test_blocks_that_differ_are_told_with_the_tail_that_they_are():
    fast, slow = duelled(0.0, 0.0, 0.0, 0.0), duelled(0.2, 0.2, 0.2, 0.2)
    blocks = tuple(slow[n] if n % 4 == 0 else fast[n] for n in range(48))

    row = _row(against(blocks))

    assert row.verdict is Verdict.TAIL
    (split,) = [reason for reason in row.reasons if reason.kind == "split_blocks"]
    assert (split.facts["count"], split.facts["blocks"]) == (12, 48)
