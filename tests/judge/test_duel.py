import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from perfci.core.model.baseline import BaselineCase
from perfci.core.model.basics import Gate, Reason, Suite, Verdict
from perfci.core.model.compiled import Identity, LaunchIdentity
from perfci.core.model.measured import BaseArm, SustainedTurn
from perfci.core.model.run import DuelWhat
from perfci.core.wording import sentence
from perfci.statistics import duel_rule, exact
from tests.decision_examples import (
    BASE,
    CASE,
    again,
    against,
    baseline,
    blocks,
    duel_plan,
    duelled,
    environment,
    hosted,
    judged,
    row_of,
    run,
)

IN_TURNS = BaseArm(same=False, duelled=True, turns=True)
SAME = BaseArm(same=True, duelled=True)
PROVEN = BaseArm(same=True)
BOOM = Reason("boom", {"what": "it broke"})


def _judged(case, stored=None, *, planned=None, now=None, **limits):
    return judged(run(case, planned=planned or duel_plan(), now=now), stored, **limits)


def _row(case, stored=None, **options):
    return row_of(_judged(case, stored, **options))


def _answer(case, stored=None, **options):
    answer = _judged(case, stored, **options)
    row = row_of(answer)
    return row.verdict, row.reasons[0].kind, [need.processes for need in answer.needs]


def _kinds(row):
    return [reason.kind for reason in row.reasons]


# --- kernel against base ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (duelled(0.0, count=4), (Verdict.PASS, "duel_cleared", [])),
        (duelled(0.0, count=3), (Verdict.INCONCLUSIVE, "duel_open", [1])),
        (duelled(0.02, count=4), (Verdict.INCONCLUSIVE, "duel_open", [1])),
        (duelled(0.005), (Verdict.PASS, "duel_cleared", [])),
        (duelled(0.02), (Verdict.INCONCLUSIVE, "duel_open", [1])),
        (duelled(0.017, 0.017), (Verdict.INCONCLUSIVE, "duel_open", [3])),
        (duelled(0.03, 0.03), (Verdict.REGRESSED, "duel_slower", [])),
        (duelled(0.017, 0.017, 0.017), (Verdict.INCONCLUSIVE, "duel_open", [3])),
        (duelled(0.02, 0.02, 0.02, 0.02), (Verdict.REGRESSED, "duel_slower", [])),
        (duelled(0.04, 0.0), (Verdict.INCONCLUSIVE, "duel_open", [3])),
        (duelled(0.018, 0.0, 0.0, 0.0), (Verdict.PASS, "duel_cleared", [])),
        (duelled(-0.02), (Verdict.INCONCLUSIVE, "duel_open", [1])),
        (duelled(-0.03, -0.03), (Verdict.IMPROVED, "duel_faster", [])),
        (duelled(-0.02, -0.02, -0.02, -0.02), (Verdict.IMPROVED, "duel_faster", [])),
        (duelled(0.013, 0.013, 0.013, 0.013, spread=0.01), (Verdict.INCONCLUSIVE, "duel_undecided", [])),
    ],
    ids=[
        "4 blocks clear", "3 blocks clear nothing", "4 slower ones ask", "12 clear", "12 slower ones ask",
        "2 processes ask", "2 decide what is far off", "a process that brought nothing is asked for again",
        "4 decide", "2 that differ ask", "a single biased one is outvoted", "faster asks too",
        "faster in 2 that is far off", "faster in 4", "all blocks are spent",
    ],
)  # fmt: skip
def test_a_duel_is_judged_look_by_look(measured, expected):
    assert _answer(against(measured)) == expected


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (duelled(0.0, count=4), (Verdict.INCONCLUSIVE, "duel_open", [1])),
        (duelled(0.0), (Verdict.INCONCLUSIVE, "duel_open", [1])),
        (duelled(0.0, 0.0), (Verdict.PASS, "duel_cleared", [])),
        (duelled(0.03, 0.03), (Verdict.REGRESSED, "duel_slower", [])),
        (duelled(0.0, 0.0, spread=0.04), (Verdict.INCONCLUSIVE, "duel_open", [3])),
        (duelled(0.0, 0.0, 0.0, 0.0, spread=0.08), (Verdict.INCONCLUSIVE, "duel_undecided", [])),
    ],
    ids=[
        "4 blocks clear nothing", "nor do 12", "2 processes do", "they decide too", "not if they could not see 2 tau",
        "nor do 4 then",
    ],
)  # fmt: skip
def test_processes_that_take_turns_clear_nothing_that_they_could_not_have_seen(measured, expected):
    assert _answer(against(measured, IN_TURNS)) == expected


def test_a_duel_of_two_processes_tells_the_slow_down_that_it_could_have_seen():
    quiet, noisy = (_row(against(duelled(*[0.0] * 4, spread=spread), IN_TURNS)) for spread in (0.001, 0.08))

    assert (quiet.verdict, noisy.verdict) == (Verdict.PASS, Verdict.INCONCLUSIVE)
    # In steps of tau, as a self-check tells it: two agreeing processes have to be beyond their bias too.
    assert [row.reasons[-1].facts["least"] for row in (quiet, noisy)] == pytest.approx([0.0125, 0.083], abs=1e-3)
    blind = _row(against(duelled(*[0.0] * 4, spread=0.3), IN_TURNS)).reasons[-1]
    assert (blind.kind, blind.facts["most"]) == ("duel_in_turns_blind", pytest.approx(0.12))
    assert "duel_in_turns" not in _kinds(_row(against(duelled(0.0))))


def test_a_regression_tells_its_numbers_and_what_changed():
    changes = (Reason("code_changed", {"kernel": "_k", "before": "aaaa", "after": "bbbb"}),)
    arm = BaseArm(same=False, duelled=True, changes=changes)

    row = _row(against(duelled(0.02, 0.02, 0.02, 0.02), arm))

    assert sentence(row.reasons[0]).startswith(
        "+2.0 % against the base (51.0 us, was 50.0 us), side by side in 48 blocks"
    )
    assert "by process +2.0 % to +2.1 %; 1.0 % is allowed" in sentence(row.reasons[0])
    assert row.reasons[1:] == changes
    assert row.p_adjusted == pytest.approx(0.5**48)


# --- the same device work ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("change", "second"), [(0.03, "duel_slower"), (-0.03, "duel_faster")])
def test_the_same_work_cannot_be_slower_or_faster_so_the_measurement_is_at_fault(change, second):
    row = _row(against(duelled(change, change), SAME))

    assert (row.verdict, _kinds(row)) == (Verdict.INCONCLUSIVE, ["control_failed", second])


def test_what_is_proven_unchanged_and_was_not_timed_says_how_it_was_proven():
    call = Identity(launches=(LaunchIdentity("_k", "code", (1,)),), inputs="digest")

    row = _row(against((), PROVEN, identity=call))

    assert (row.verdict, row.reasons) == (Verdict.UNCHANGED, (Reason("unchanged_work", {"launches": 1}),))


def _on_main(measured, stored=None, **options):
    planned = duel_plan(skip_unchanged=False, base=replace(BASE, how="baseline"))
    return _judged(against(measured, PROVEN), stored, planned=planned, **options)


def _main(measured, stored=None, **limits):
    """A run of the main branch, with a base that is the commit of the baseline: all is timed, nothing duelled."""
    main = _on_main(measured, stored, **limits)
    return row_of(main).verdict, _kinds(row_of(main)), [need.processes for need in main.needs]


def test_the_same_work_timed_against_the_baseline_is_unchanged_whatever_its_noise():
    assert _main(blocks(), baseline()) == (Verdict.UNCHANGED, ["unchanged_timed", "no_change"], [])
    assert _main(blocks()) == (Verdict.UNCHANGED, ["unchanged_timed", "new_case"], [])
    assert _main(blocks(1 / 1.05, clock=1.05), baseline()) == (
        Verdict.UNCHANGED,
        ["unchanged_timed", "stale_regime"],
        [],
    )
    assert _main(again(1.05, 1.0), baseline()) == (Verdict.UNCHANGED, ["unchanged_timed", "slower_disputed"], [])


def test_the_same_work_that_left_its_baseline_has_drifted_and_nothing_has_to_confirm_it():
    assert _main(blocks(1.05), baseline()) == (Verdict.DRIFTED, ["drifted_same_work", "time_moved"], [])
    assert _main(blocks(0.95), baseline()) == (Verdict.DRIFTED, ["drifted_same_work", "time_moved"], [])
    assert _main(again(1.05), baseline()) == (Verdict.DRIFTED, ["drifted_same_work", "slower_confirmed"], [])
    assert _main(again(0.95), baseline()) == (Verdict.DRIFTED, ["drifted_same_work", "faster_confirmed"], [])


def _short(*uuids):
    """The baseline of a kernel of 5 us, of as many boards."""
    stored = baseline(runs=len(uuids))
    (case,) = stored.cases
    short = tuple(replace(block, kernel_us=block.kernel_us / 10) for block in case.blocks)
    runs = tuple(
        replace(known, environment=environment(uuid=uuid)) for known, uuid in zip(stored.runs, uuids, strict=True)
    )
    return replace(stored, runs=runs, cases=(replace(case, blocks=short),))


@pytest.mark.parametrize(
    ("board", "factor", "verdict"),
    [
        ("GPU-1", 1.027, Verdict.DRIFTED),
        ("GPU-9", 1.027, Verdict.UNCHANGED),
        ("GPU-9", 0.973, Verdict.UNCHANGED),
        ("GPU-9", 1.12, Verdict.DRIFTED),
        ("GPU-9", 0.88, Verdict.DRIFTED),
    ],
)
def test_an_unseen_board_has_drifted_only_beyond_what_boards_differ_by(board, factor, verdict):
    row = row_of(_on_main(again(factor / 10), _short("GPU-1", "GPU-1", "GPU-1"), now=environment(uuid=board)))

    assert row.verdict is verdict
    assert row.verdict.gate is (Gate.WARNS if verdict is Verdict.DRIFTED else Gate.OK)


def test_the_same_work_that_moved_with_its_reference_has_drifted():
    for clock in (1.05, 0.95):
        first, confirmed = blocks(clock=clock), again(1.0, clock=clock)
        assert _main(first, baseline()) == (Verdict.DRIFTED, ["drifted_same_work", "time_moved"], [])
        assert _main(confirmed, baseline()) == (Verdict.DRIFTED, ["drifted_same_work", "alike_confirmed"], [])


# --- drift ------------------------------------------------------------------------------------------------------------


def test_the_same_work_that_the_duel_cleared_has_drifted_by_one_look_at_the_baseline_and_a_change_has_not():
    moved = duelled(0.0, level=1.06)
    same, changed = _judged(against(moved, SAME), baseline()), _judged(against(moved), baseline())

    assert (row_of(same).verdict, _kinds(row_of(same)), same.needs) == (Verdict.DRIFTED, ["drifted", "time_moved"], ())
    assert (row_of(changed).verdict, [need.processes for need in changed.needs]) == (Verdict.PASS, [2])


@pytest.mark.parametrize("clock", [1.06, 0.94])
def test_kernel_base_and_reference_that_left_the_baseline_together_have_drifted(clock):
    row = _row(against(duelled(0.0, 0.0, 0.0, count=(4, 12, 12), level=clock, clock=clock)), baseline())

    assert (row.verdict, _kinds(row)) == (Verdict.DRIFTED, ["drifted", "alike_confirmed"])
    assert row.reasons[1].facts["change"] == pytest.approx(clock - 1, abs=0.005)
    assert row.reasons[1].facts["reference_change"] == pytest.approx(clock - 1, abs=0.005)


def test_where_another_driver_moved_kernel_and_base_it_is_named():
    now = environment(driver="590")
    drifted = _row(against(duelled(0.0, 0.0, 0.0, level=1.06)), baseline(), now=now)
    slower = _row(against(duelled(0.03, 0.03, level=1.06)), baseline(), now=now)

    assert (drifted.verdict, _kinds(drifted)) == (
        Verdict.DRIFTED, ["drifted", "slower_confirmed", "environment_may_have"]
    )  # fmt: skip
    assert "device.driver 580 -> 590" in sentence(drifted.reasons[2])
    assert slower.verdict is Verdict.REGRESSED


@pytest.mark.parametrize(
    ("measured", "stored", "kinds"),
    [
        (duelled(0.0, level=1.06, clock=1.06), baseline(), ["duel_cleared", "alike_suspected"]),
        (duelled(0.0, level=1.01, clock=1.06), baseline(), ["duel_cleared", "reference_moved"]),
        (duelled(0.0), baseline(timer="event"), ["duel_cleared"]),
        (duelled(0.0), None, ["duel_cleared"]),
        (duelled(0.0, count=4), baseline(runs=1), ["duel_cleared"]),
    ],
    ids=["another regime", "another reference", "another timer", "no baseline", "too few blocks for the screen"],
)
def test_a_stale_or_missing_baseline_never_decides_where_a_base_is_at_hand(measured, stored, kinds):
    row = _row(against(measured), stored, planned=duel_plan(*(CASE, *(f"rows={n}" for n in range(50)))))

    assert (row.verdict, _kinds(row)) == (Verdict.PASS, kinds)


def test_the_baseline_never_fails_a_change_that_the_duel_clears():
    row = _row(against(duelled(0.0, 0.0, 0.0, level=1.2, spread=0.02)), baseline())

    assert row.verdict not in {Verdict.REGRESSED, Verdict.IMPROVED}
    assert "slower_confirmed" in _kinds(row)


# --- a reference that moved alone -------------------------------------------------------------------------------------


def _riding():
    """A baseline with a kernel that rides on the clock as its reference does, from 0 to 10 % slower than usual."""
    stored = [baseline(clock=clock).cases[0].blocks for clock in (1.0, 1.1)]
    return replace(baseline(), cases=(BaselineCase(CASE, stored[0] + stored[1]),))


@pytest.mark.parametrize("duel", [True, False], ids=["duelled", "proven the same"])
def test_where_it_makes_the_kernel_look_slower_the_drift_is_put_down_to_it(duel):
    timed = duelled(0.0, 0.0, 0.0, level=1.05)
    if not duel:
        timed = tuple(replace(block, arms=_without_base(block), shifts=_speedup_only(block)) for block in timed)
    planned = duel_plan(skip_unchanged=False)

    row = _row(against(timed, replace(SAME, duelled=duel)), _riding(), planned=planned)

    assert (row.verdict, _kinds(row)) == (Verdict.DRIFTED, ["reference_moved", "slower_confirmed"])


def _without_base(block):
    return {name: arm for name, arm in block.arms.items() if name != "base"}


def _speedup_only(block):
    return {"kernel/reference": block.shifts["kernel/reference"]}


# --- a base that cannot be compared -----------------------------------------------------------------------------------


@pytest.mark.parametrize("same", [False, None])
def test_of_a_change_that_neither_duel_nor_baseline_speaks_of_nobody_knows(same):
    row = _row(against(blocks(), BaseArm(same=same)))

    assert (row.verdict, _kinds(row)) == (Verdict.INCONCLUSIVE, ["not_duelled", "new_case"])


# --- the span ---------------------------------------------------------------------------------------------------------


def _spanned(kernel, *processes, count=12, spread=0.001):
    return duelled(*processes, count=count, spread=spread, spans=(kernel, 1.2))


# --- the host ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (hosted(0.0, count=4), (Verdict.PASS, "duel_cleared", [])),
        (hosted(5.0), (Verdict.INCONCLUSIVE, "duel_host_open", [1])),
        (hosted(5.0, 5.0), (Verdict.REGRESSED, "duel_host_slower", [])),
        (hosted(1.25, 1.25, 1.25, 1.25), (Verdict.REGRESSED, "duel_host_slower", [])),
        (hosted(0.7, 0.7), (Verdict.PASS, "duel_cleared", [])),  # less than 3 us
        (hosted(0.24, 0.24, us=30.0), (Verdict.REGRESSED, "duel_host_slower", [])),
        (hosted(0.2, 0.2, us=30.0), (Verdict.INCONCLUSIVE, "duel_host_open", [3])),  # two processes may stray by that
        (hosted(0.14, 0.14, us=30.0), (Verdict.PASS, "duel_cleared", [])),  # less than 15 %
        (hosted(5.0, 0.0, 0.0, 0.0), (Verdict.PASS, "duel_cleared", [])),  # one process sees nothing
        (hosted(-0.5, -0.5), (Verdict.PASS, "duel_cleared", [])),  # shorter is never blamed
    ],
)
def test_a_call_that_keeps_the_host_longer_than_three_us_and_15_percent_is_a_regression(host, expected):
    assert _answer(against(duelled(0.0), host=host)) == expected


def test_a_longer_host_time_of_the_same_device_work_is_a_regression_though_nothing_was_timed():
    row = _row(against(base=PROVEN, host=hosted(7.5, 7.5)))

    assert (row.verdict, _kinds(row)) == (Verdict.REGRESSED, ["duel_host_slower", "unchanged_work"])
    assert "34.0 us instead of 4.00 us (30.0 us more;" in sentence(row.reasons[0])


def test_host_times_are_corrected_for_the_number_of_cases_that_may_be_duelled():
    host = hosted(1.3, 1.3)  # beyond what is allowed in each of 24 blocks

    one, many = (_row(against(duelled(0.0), host=host), planned=duel_plan(family=size)) for size in (1, 10**6))

    assert (one.verdict, many.verdict) == (Verdict.REGRESSED, Verdict.INCONCLUSIVE)


def test_host_times_without_a_base_are_shown_and_judge_nothing():
    alone = tuple(replace(block, arms={"kernel": block.arms["kernel"]}, shift=None) for block in hosted(5.0, count=4))

    row = _row(against(duelled(0.0), host=alone))

    assert (row.verdict, row.comparison.duel_host) == (Verdict.PASS, None)
    assert row.comparison.host.host_us == pytest.approx(24.0, rel=0.02)


def test_a_span_within_its_margin_or_shorter_is_no_matter():
    assert _answer(against(_spanned(1.25, 0.0, count=4))) == (Verdict.PASS, "duel_cleared", [])
    assert _answer(against(_spanned(1.0, 0.0, count=4))) == (Verdict.PASS, "duel_cleared", [])
    assert _answer(against(_spanned(0.9, 0.0, 0.0, 0.0, 0.0))) == (Verdict.PASS, "duel_cleared", [])


# --- what decides, and what is said beside it -------------------------------------------------------------------------

NOT_DUELLED = duel_plan(duel=DuelWhat.NONE, skip_unchanged=False, family=0)
OTHER_TOOLCHAIN = replace(BASE, changed_pins=("requirements.txt: triton 3.7 -> 3.8",))
LONGER_SPAN = _spanned(1.8, 0.0, 0.0, 0.0, 0.0)
MOVED = duelled(0.0, 0.0, 0.0, count=(4, 12, 12), level=1.06)
DECIDED = {
    "what looks like cheating, not timed": (
        against((), PROVEN, identity=Identity(), suspicion=(BOOM,)), {}, Verdict.SUSPECT, ["boom", "unchanged_work"],
    ),
    "kernel and base that left the baseline together": (
        against(MOVED), {"stored": baseline()}, Verdict.DRIFTED, ["drifted", "slower_confirmed"],
    ),
    "another driver, without a duel": (
        against(again(1.05), BaseArm(same=False)),
        {"stored": baseline(), "now": environment(driver="590"), "planned": NOT_DUELLED},
        Verdict.STALE, ["stale_environment", "not_duelled"],
    ),
    "a base that is wrong itself, so that the baseline decides": (
        against(again(1.05), BaseArm(failure=BOOM)), {"stored": baseline()},
        Verdict.REGRESSED, ["slower_confirmed", "boom"],
    ),
    "the same work by another toolchain, so that the baseline decides": (
        against(again(1.05), PROVEN),
        {"stored": baseline(), "planned": duel_plan(skip_unchanged=False, base=OTHER_TOOLCHAIN)},
        Verdict.REGRESSED, ["slower_confirmed", "toolchain_unproven"],
    ),
    "host work between a launch's kernels": (
        against(LONGER_SPAN), {}, Verdict.REGRESSED, ["duel_span_slower", "duel_cleared"],
    ),
    "host work, of which identity knows nothing": (
        against(LONGER_SPAN, SAME), {}, Verdict.REGRESSED, ["duel_span_slower", "duel_cleared"],
    ),
    "a longer span of the same files": (
        against(LONGER_SPAN, SAME), {"planned": duel_plan(same=True)},
        Verdict.INCONCLUSIVE, ["control_failed", "duel_span_slower", "duel_cleared"],
    ),
    "the same host time": (
        against(base=PROVEN, host=hosted(0.0, count=4)), {}, Verdict.UNCHANGED, ["unchanged_work"],
    ),
    "a longer host time of the same files": (
        against(duelled(0.0), SAME, host=hosted(7.5, 7.5)), {"planned": duel_plan(same=True)},
        Verdict.INCONCLUSIVE, ["control_failed", "duel_host_slower", "duel_cleared"],
    ),
    "a host that could not be compared": (
        against(duelled(0.0), unhosted=BOOM), {}, Verdict.PASS, ["duel_cleared", "boom"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("case", "how", "verdict", "kinds"), DECIDED.values(), ids=DECIDED)
def test_a_case_has_its_verdict_and_the_reasons_beside_it(case, how, verdict, kinds):
    row = _row(case, **how)

    assert (row.verdict, _kinds(row)) == (verdict, kinds)


# --- a target beside the duel -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("measured", "target", "expected"),
    [
        (duelled(0.0, count=6), 1.2, (Verdict.PASS, [])),
        (duelled(0.0, count=4), 1.2, (Verdict.INCONCLUSIVE, [2])),
        (duelled(0.0, count=6), 1.8, (Verdict.INCONCLUSIVE, [2])),
        (duelled(0.0, 0.0), 1.8, (Verdict.INCONCLUSIVE, [2])),
        (duelled(0.0, 0.0, 0.0), 1.8, (Verdict.TOO_SLOW, [])),
        (duelled(0.02), 1.8, (Verdict.INCONCLUSIVE, [2])),
        (duelled(0.017, 0.017), 1.8, (Verdict.INCONCLUSIVE, [3])),
        (duelled(0.02, 0.02, 0.02, 0.02), 1.8, (Verdict.REGRESSED, [])),
    ],
    ids=[
        "reached", "too few blocks", "missed once", "missed in a process of the duel's too", "missed thrice",
        "both ask", "the duel asks for more", "slower outweighs too slow",
    ],
)  # fmt: skip
def test_a_target_beside_a_duel_keeps_its_own_rule_and_the_larger_wish_counts(measured, target, expected):
    verdict, _, needs = _answer(against(measured), speedup=target)

    assert (verdict, needs) == expected


# --- peak memory ------------------------------------------------------------------------------------------------------


def _held(now, before, *, same=False, **limits):
    arm = BaseArm(same=same, duelled=True, peak_bytes=before)
    return _row(against(duelled(0.0, count=4), arm, peak_bytes=now), **limits)


def test_a_kernel_that_holds_more_memory_than_is_allowed_has_regressed():
    row = _held(1060 << 20, 1000 << 20, peak_memory=0.05)

    assert (row.verdict, _kinds(row)) == (Verdict.REGRESSED, ["peak_memory_grew", "duel_cleared"])
    assert "1.04 GiB of device memory at most, the base's 1000 MiB: +6.0 %" in sentence(row.reasons[0])


def test_memory_within_what_is_allowed_or_not_gated_is_no_matter():
    assert _held(1050, 1000, peak_memory=0.05).verdict is Verdict.PASS
    assert _held(1051, 1000, peak_memory=0.05).verdict is Verdict.REGRESSED
    assert _held(10, 1000, peak_memory=0.0).verdict is Verdict.PASS
    assert _kinds(_held(5000, 1000)) == ["duel_cleared"]


@pytest.mark.parametrize(("now", "before"), [(None, 1000), (1000, None), (None, None)])
def test_a_gate_on_memory_that_cannot_look_says_so(now, before):
    row = _held(now, before, peak_memory=0.05)

    assert (row.verdict, _kinds(row)[0]) == (Verdict.INCONCLUSIVE, "peak_memory_unknown")


# --- ops with the base's files -----------------------------------------------------------------------------------

FILES = duel_plan(same=True)


def test_an_op_with_the_bases_own_files_is_unchanged_in_both_suites_without_being_run():
    rows = judged(replace(run(planned=FILES), ops=())).rows

    assert [(row.suite, row.case, row.verdict, row.reasons[0].kind) for row in rows] == [
        (Suite.ACCURACY, None, Verdict.UNCHANGED, "unchanged_files"),
        (Suite.PERFORMANCE, CASE, Verdict.UNCHANGED, "unchanged_files"),
    ]
    assert "origin/main" in sentence(rows[0].reasons[0])


def test_a_control_of_such_an_op_is_judged_and_the_rest_stays_unchanged():
    planned = duel_plan(CASE, "rows=1", same=True)

    judged = _judged(against(duelled(0.0, count=4), SAME), planned=planned)

    assert (row_of(judged).reasons[0].kind, row_of(judged, "rows=1").reasons[0].kind) == (
        "duel_cleared",
        "unchanged_files",
    )


def test_a_control_whose_worker_dies_is_an_error_of_the_op_and_its_cases_stay_unchanged():
    rows = judged(run(planned=FILES, op={"failure": BOOM}, accuracy=())).rows

    assert [(row.suite, row.case, row.verdict) for row in rows] == [
        (Suite.PERFORMANCE, None, Verdict.ERROR),
        (Suite.ACCURACY, None, Verdict.UNCHANGED),
        (Suite.PERFORMANCE, CASE, Verdict.UNCHANGED),
    ]


# --- every combination ------------------------------------------------------------------------------------------------

ARMS = {
    "no base": None,
    "changed": BaseArm(same=False, duelled=True),
    "unknown": BaseArm(same=None, duelled=True, changes=(BOOM,)),
    "control": SAME,
    "proven": PROVEN,
    "failed": BaseArm(failure=BOOM),
}
DUELS = {
    "not duelled": again(1.0),
    "cleared": duelled(0.0, count=6),
    "open": duelled(0.02),
    "slower": duelled(0.03, 0.03),
    "faster": duelled(-0.03, -0.03),
    "undecided": duelled(0.013, 0.013, 0.013, 0.013, spread=0.01),
    "host work": _spanned(1.8, 0.0, 0.0, 0.0, 0.0),
}
STORED = {"none": None, "fits": baseline(), "moved": baseline(clock=0.94), "stale": baseline(timer="event")}
HINDERED = {"quiet": 0.0, "partly": 0.3, "mostly": 0.8}
TARGETS = {"none": None, "reached": 1.2, "missed": 1.8}


def _hindered(timed, share):
    state = replace(timed[0].state, throttle=("thermal",))
    return tuple(replace(block, state=state) if n < share * len(timed) else block for n, block in enumerate(timed))


@pytest.mark.slow
@pytest.mark.parametrize("duel", DUELS)
@pytest.mark.parametrize("arm", ARMS)
def test_whatever_comes_together_one_row_says_what_the_rules_say(arm, duel):
    """Of each pair a seventh of all else that may come together, another one each time."""
    combinations = itertools.product(STORED, HINDERED, TARGETS, ((), (BOOM,)))
    first = ([*ARMS].index(arm) + 2 * [*DUELS].index(duel)) % 7
    for stored, hindered, target, suspicion in itertools.islice(combinations, first, None, 7):
        case = against(_hindered(DUELS[duel], HINDERED[hindered]), ARMS[arm], suspicion=suspicion)

        judged = _judged(case, STORED[stored], speedup=TARGETS[target], span_margin=0.3)

        _hold_the_rules(judged, case, hindered)


def _hold_the_rules(comparison, case, hindered):
    row, base = row_of(comparison), case.base
    seen = row.comparison.duel
    duels = seen is not None and base is not None and not base.failure
    p = (exact.holm([seen.p_slower], 1)[0], exact.holm([seen.p_faster], 1)[0]) if duels else ()
    answer = duel_rule.answer(seen, *p, 0.01) if duels else None
    kinds = set(_kinds(row))

    assert (row.verdict is Verdict.SUSPECT) == bool(case.suspicion)
    assert not (comparison.needs and (case.suspicion or hindered == "mostly"))
    assert comparison.needs == () or comparison.needs[0].processes <= duel_rule.PROCESSES - 1
    if row.verdict in {Verdict.REGRESSED, Verdict.TOO_SLOW, Verdict.IMPROVED, Verdict.DRIFTED}:
        assert hindered == "quiet"
    if row.verdict is Verdict.REGRESSED and duels:
        assert answer is duel_rule.Ruling.SLOWER or "duel_span_slower" in kinds
    if row.verdict is Verdict.IMPROVED and duels:
        assert answer is duel_rule.Ruling.FASTER
    if base is not None and base.same:
        assert row.verdict is not Verdict.IMPROVED
        assert row.verdict is not Verdict.REGRESSED or "duel_span_slower" in kinds
    if row.verdict is Verdict.UNCHANGED:
        assert base.same
    if row.verdict is Verdict.STALE:
        assert not duels
    if base is not None and base.failure:
        assert "boom" in kinds


# --- sustained speed --------------------------------------------------------------------------------------------------


def _turns(*changes, pairs=12, spread=0.004):
    """Pairs of turns of one process a change, at the power limit."""
    made = []
    for process, change in enumerate(changes):
        rng = np.random.default_rng([9, process])
        for _ in range(pairs):
            base = 210 * rng.lognormal(0, spread)
            kernel = base * math.exp(math.log1p(change) + rng.normal(0, spread))
            made += [
                SustainedTurn("base", process, base, 1450.0, base / 1e6 * 700),
                SustainedTurn("kernel", process, kernel, 1410.0, kernel / 1e6 * 700),
            ]
    return tuple(made)


def _at_limit(change, *sustained, **options):
    blocks_ = tuple(replace(block, clock_mhz=1965.0) for block in duelled(*(change,) * max(len(sustained), 1), us=180))
    return against(blocks_, sustained=_turns(*sustained, **options), flops=2 * 4096**3)


def test_a_loss_at_the_power_limit_alone_regresses_the_case():
    row = _row(_at_limit(0.001, 0.04, 0.04))

    assert (row.verdict, row.reasons[0].kind) == (Verdict.REGRESSED, "duel_sustained_slower")
    assert row.reasons[0].facts["change"] == pytest.approx(0.04, abs=0.004)


def test_the_verdict_names_both_regimes():
    row = _row(_at_limit(0.058, 0.076, 0.076))
    facts = row.reasons[0].facts

    assert row.reasons[0].kind == "duel_slower_limited"
    assert facts["change"] == pytest.approx(0.058, abs=0.001)
    assert facts["sustained"] == pytest.approx(0.076, abs=0.005)
    assert (facts["mhz"], facts["kernel_alone_mhz"], facts["base_alone_mhz"]) == (1965, 1410, 1450)


def test_sustained_figures_of_each_arm_come_with_energy():
    figures = {figure.arm: figure for figure in _row(_at_limit(0.058, 0.076, 0.076)).comparison.sustained}

    assert figures["base"].us == pytest.approx(210, rel=0.01)
    assert figures["base"].joules == pytest.approx(0.147, rel=0.01)
    assert figures["base"].gflops_per_watt == pytest.approx(2 * 4096**3 / 0.147 / 1e9, rel=0.01)


def test_what_is_as_fast_in_both_regimes_passes():
    row = _row(_at_limit(0.0, 0.0, pairs=4))

    assert (row.verdict, _kinds(row)[:2]) == (Verdict.PASS, ["duel_cleared", "regimes"])


def test_a_loss_at_the_limit_that_one_process_suspects_gets_another():
    verdict, kind, needs = _answer(_at_limit(0.001, 0.04))

    assert (verdict, kind, needs) == (Verdict.INCONCLUSIVE, "duel_sustained_open", [1])


def test_a_kernel_that_reaches_the_limit_in_one_process_only_stays_undecided():
    case = replace(_at_limit(0.001, 0.04, 0.04), sustained=_turns(0.04))

    assert _answer(case) == (Verdict.INCONCLUSIVE, "duel_sustained_undecided", [])


def test_turns_of_kernels_that_do_the_same_work_and_differ_are_no_proof():
    case = replace(_at_limit(0.0, 0.04, 0.04), base=SAME)

    assert _answer(case, planned=duel_plan(same=True))[:2] == (Verdict.INCONCLUSIVE, "control_failed")


def test_an_unpaired_turn_counts_for_its_figure_alone():
    case = replace(
        _at_limit(0.0, 0.0), sustained=(SustainedTurn("reference", 0, 300.0), SustainedTurn("kernel", 0, 210.0))
    )
    seen = _row(case).comparison

    assert [figure.arm for figure in seen.sustained] == ["reference", "kernel"]
    assert seen.duel_sustained is None


def test_blocks_at_a_clock_that_was_held_down_do_not_count_if_others_are_as_many():
    free, held = duelled(0.0), duelled(0.05, count=10)
    case = against((*free, *(replace(block, held=True) for block in held)))

    assert _row(case).comparison.duel.blocks == len(free)
    assert _row(against(tuple(replace(block, held=True) for block in free))).comparison.duel.blocks == len(free)
