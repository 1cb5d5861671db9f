"""What accepted runs have earned: only ever tighter, a quarter of the gap a step, with reasons."""

import math
from dataclasses import replace

import numpy as np
import pytest

from perfci.core.model import Suite
from perfci.core.wording import sentence
from perfci.extensions.common.accepted_runs import Epoch
from perfci.extensions.history import ratchet
from perfci.extensions.history.ratchet import steps
from perfci.extensions.history.ratchet.noise import RATE
from perfci.extensions.history.ratchet.steps import KEYS, propose, rescale_targets
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.layers import is_stricter
from perfci.thresholds.limits import OpThresholds, Thresholds
from tests.extensions.history.ratchet.histories import (
    CASE,
    ELSEWHERE,
    HERE,
    errors,
    nulls,
    run,
    with_figure,
    with_nulls,
)

FAMILY = 30
PLAIN = Thresholds()


def _limits(**fields):
    return Thresholds(ops={"op": OpThresholds(CaseThresholds(), ((CASE, fields),))})


def _propose(history, limits=PLAIN, **more):
    return {(change.key, change.suite): change for change in propose(history, limits, "op", family=FAMILY, **more)}


def _one(history, key, limits=PLAIN, suite=Suite.PERFORMANCE):
    return _propose(history, limits).get((key, suite))


def _speedups(count, middle=1.5, spread=0.01, seed=1):
    return (middle * np.exp(np.random.default_rng(seed).normal(0, spread, count))).tolist()


# --- tau --------------------------------------------------------------------------------------------------------------


def test_tau_goes_a_quarter_of_the_way_from_the_default_to_what_its_noise_bears():
    change = _one(with_nulls(30), "tau")

    assert change.before == 0.01
    assert change.bound == 0.0025
    assert change.after == pytest.approx(0.01 - 0.25 * (0.01 - 0.0025), rel=1e-3)
    assert change.runs == tuple(f"r{number}" for number in range(30))
    assert 0 < change.predicted <= RATE


def test_nineteen_nulls_leave_the_default():
    assert _one(with_nulls(19), "tau") is None


def test_nulls_of_another_environment_do_not_count():
    before = [replace(null, environment=ELSEWHERE) for null in with_nulls(30)]

    assert _one([*before, *with_nulls(19)], "tau") is None
    assert _one([*before, *with_nulls(20)], "tau").runs == tuple(f"r{number}" for number in range(20))


@pytest.mark.parametrize("before", [0.0025, 0.002, 0.00252])
def test_a_tau_at_its_floor_or_below_stays(before):
    assert _one(with_nulls(30), "tau", _limits(tau=((0.0, before),))) is None


def test_what_the_timer_cannot_tell_is_the_floor_of_short_kernels():
    history = [
        replace(null, cases=(replace(null.cases[0], kernel_us=run(0, kernel_us=8.0).cases[0].kernel_us),))
        for null in with_nulls(30)
    ]
    change = _one(history, "tau")

    assert (change.before, change.bound) == (0.025, 0.1 / 8.0)


@pytest.mark.nightly  # each step has its test
def test_tau_settles_by_steps_and_never_turns_round():
    history, tau, seen = with_nulls(60, block=0.004), 0.01, []
    for count in range(20, 61, 5):
        change = _one(history[:count], "tau", _limits(tau=((0.0, tau),)))
        if change:
            assert change.after < tau
            assert tau - change.after <= 0.25 * (tau - change.bound) + 1e-12
            tau = change.after
        seen.append(tau)

    assert seen == sorted(seen, reverse=True)
    assert seen[-1] < 0.009


# --- other thresholds -------------------------------------------------------------------------------------------------


def test_a_speedup_target_comes_near_what_the_next_run_will_reach():
    history = with_figure("speedup", _speedups(40))
    change = _one(history, "speedup", _limits(speedup=1.2))

    assert 1.4 < change.bound < 1.5
    assert change.after == pytest.approx(1.2 + 0.25 * (change.bound - 1.2), rel=1e-3)
    assert change.after <= 1.2 + 0.25 * (change.bound - 1.2)
    assert change.predicted < 1e-6


def test_a_target_that_was_not_set_begins_with_four_times_the_room():
    history = with_figure("speedup", _speedups(40))
    change, middle = _one(history, "speedup"), math.log(1.5)

    assert change.before is None
    assert math.log(change.after) - middle == pytest.approx(4 * (math.log(change.bound) - middle), rel=0.05)


def test_seven_runs_earn_nothing_but_nulls_aside():
    assert _propose(with_figure("speedup", _speedups(7))) == {}
    assert _one(with_figure("speedup", _speedups(8)), "speedup") is not None


def test_a_new_epoch_starts_anew():
    history = [*with_figure("speedup", _speedups(30)), run("x", epoch=Epoch("why", (CASE,)), speedup=1.3)]
    later = with_figure("speedup", _speedups(8, middle=1.3))

    assert _one([*history, *later[:6]], "speedup", _limits(speedup=1.1)) is None
    change = _one([*history, *later], "speedup", _limits(speedup=1.1))
    assert change.bound < 1.3
    assert len(change.runs) == 9


def test_a_case_that_its_run_left_inconclusive_teaches_nothing():
    history = [
        *with_figure("speedup", _speedups(20)),
        run("x", speedup=9.0, inconclusive=(CASE,)),
        run("y", speedup=1.5),
    ]

    assert "x" not in _one(history, "speedup").runs


def test_a_first_call_that_compiled_nothing_teaches_nothing():
    def learnt(middle):
        return _one(with_figure("compile_s", _speedups(20, middle, 0.05)), "compile_s")

    assert learnt(0.5).after > 0.5
    assert learnt(0.0003) is None


def test_a_share_of_the_bandwidth_is_learnt_only_where_it_is_held():
    device = replace(HERE.device, l2_bytes=50 << 20)
    place = replace(HERE, device=device)

    def learnt(**more):
        figures = {"environment": place, "bytes_moved": 4 * device.l2_bytes} | more
        shares = [0.9 + 0.001 * (number % 3) for number in range(20)]
        return ("bandwidth_share", Suite.PERFORMANCE) in _propose(with_figure("bandwidth_share", shares, **figures))

    assert learnt()
    assert not learnt(bytes_moved=4 * device.l2_bytes - 1)
    assert not learnt(bytes_moved=None)
    assert not learnt(cache="warm")
    assert not learnt(environment=HERE)


def test_errors_of_both_suites_are_bounded_each_by_its_own():
    spread = np.random.default_rng(3).normal(0, 0.01, 20)
    history = [
        run(number, errors=errors(p99_abs=1e-3 * math.exp(size)), accuracy=errors(p99_abs=1e-4 * math.exp(size)))
        for number, size in enumerate(spread)
    ]
    timed, checked = (_one(history, "p99_abs", suite=suite) for suite in (Suite.PERFORMANCE, Suite.ACCURACY))

    assert 1e-3 < timed.bound < 1.3e-3
    assert 1e-4 < checked.bound < 1.3e-4


def test_exact_results_are_bounded_by_the_roundoff_of_their_dtype():
    history = [run(number, errors=errors(max_abs=0.0)) for number in range(12)]
    change = _one(history, "max_abs")

    assert change.bound == pytest.approx(1.1 * 2.0**-11, rel=0.01)


@pytest.mark.parametrize("key", [key.name for key in KEYS])
def test_every_key_tightens_by_steps_and_keeps_its_rate(key):
    rng = np.random.default_rng(4)
    threshold = next(threshold_key for threshold_key in KEYS if threshold_key.name == key)
    before = None
    for _ in range(25):
        series = ratchet.steps.FigureSeries(tuple(rng.normal(0, 0.01, 40).tolist()), ("GPU-1",) * 40, ("r",) * 40)
        change = steps.tighten_figure(series, threshold, before)
        if change is None:
            continue
        assert before is None or is_stricter(threshold.name, change.after, before)
        assert before is None or abs(change.after - before) <= 0.25 * abs(change.bound - before) * (1 + 1e-9)
        assert change.predicted <= RATE
        before = change.after

    assert before is not None


# --- what was accepted, another environment, what is shown -----------------------------------------------------------


def test_an_accepted_loss_scales_the_target_by_what_the_duel_measured():
    (change,) = rescale_targets(_limits(speedup=1.4), "op", {CASE: math.log(1.08)}, "r9")

    assert change.after == pytest.approx(1.4 / 1.08)
    assert change.runs == ("r9",)
    assert "+8.0 %" in sentence(change.why)


def test_every_change_has_a_sentence_with_its_numbers():
    history = [
        replace(one, cases=(replace(one.cases[0], null=null, peak_bytes=2**20),))
        for one, null in zip(with_figure("speedup", _speedups(30)), nulls(30), strict=True)
    ]
    told = {change.key: sentence(change.why) for change in propose(history, PLAIN, "op", family=FAMILY)}

    assert {"tau", "speedup", "peak_memory"} <= told.keys()
    assert "30 A/A duels" in told["tau"]
    assert all(CASE in text and text != "-" and " - " not in text.replace("from - to", "") for text in told.values())
