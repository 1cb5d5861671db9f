"""The creep that no single merge request shows."""

import math
from dataclasses import replace

import numpy as np
import pytest

from perfci.core.model import Epoch
from perfci.statistics import drift
from tests.thresholds.ratchet.histories import CASE, ELSEWHERE, run


def _runs(count, creep=0.0, spread=0.003, seed=1, start=10, shift_spread=0.05, boards=1, **more):
    """Accepted runs; the creep begins after the first so many."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(count):
        moved = creep * max(number - start + 1, 0)
        us = 100 * math.exp(rng.normal(0, spread) + moved)
        shift = rng.normal(0, shift_spread) + moved
        found.append(run(number, kernel_us=us, shift=shift, board=f"GPU-{number % boards}", **more))
    return found


def test_a_creep_of_a_tenth_of_a_per_cent_a_run_is_found_in_time():
    found = drift.creep(_runs(40, creep=0.001), CASE)

    assert found.found
    assert found.change == pytest.approx(0.028, abs=0.004)
    assert found.anchor == tuple(f"r{number}" for number in range(10))
    assert found.recent == tuple(f"r{number}" for number in range(35, 40))


def test_a_steady_kernel_has_not_crept():
    found = drift.creep(_runs(60), CASE)

    assert not found.found
    assert abs(found.change) < 0.005 < found.threshold


def test_the_steadier_of_kernel_and_speedup_is_taken():
    assert drift.creep(_runs(20), CASE).figure == drift.KERNEL
    assert drift.creep(_runs(20, spread=0.05, shift_spread=0.003), CASE).figure == drift.SPEEDUP


def test_fourteen_runs_are_too_few():
    assert drift.creep(_runs(14), CASE) is None
    assert drift.creep(_runs(15), CASE) is not None
    assert drift.creep([], CASE) is None


def test_the_anchor_lies_about_the_release():
    found = drift.creep(_runs(40), CASE, released="r20")

    assert found.anchor == tuple(f"r{number}" for number in range(15, 25))
    assert drift.creep(_runs(40), CASE, released="r33") is None


def test_an_accepted_loss_and_a_new_environment_start_anew():
    loss = run("x", kernel_us=110.0, epoch=Epoch("why", (CASE,)))
    before = _runs(30, environment=ELSEWHERE)

    assert drift.creep([*_runs(30), loss, *_runs(10, seed=2)], CASE) is None
    assert drift.creep([*before, *_runs(10, seed=2)], CASE) is None
    assert drift.creep([*before, *_runs(15, seed=2)], CASE).anchor[0] == "r0"


def test_other_boards_than_the_anchors_widen_what_counts_as_a_change():
    same = [run(number, kernel_us=100.0 * (1.005 if number >= 15 else 1.0)) for number in range(20)]
    other = [
        run(number, kernel_us=100.0 * (1.005 if number >= 15 else 1.0), board="GPU-9" if number >= 15 else "GPU-1")
        for number in range(20)
    ]

    assert drift.creep(same, CASE).found
    assert not drift.creep(other, CASE).found


def _alarms(values, on):
    """Share of histories of unchanged runs, one a row, that are told as creep."""
    rows = zip(values.tolist(), on, strict=True)
    return sum(drift.shift(row) > drift.threshold(row, boards, 100.0) for row, boards in rows) / len(values)


def test_runs_that_resemble_the_one_before_are_no_creep():
    rng, r = np.random.default_rng(4), 0.7
    values = rng.normal(0, 0.003, (1000, 60))
    for at in range(1, 60):
        values[:, at] = r * values[:, at - 1] + math.sqrt(1 - r * r) * values[:, at]

    assert _alarms(values, [[0] * 60] * 1000) <= 0.015


def test_a_creep_does_not_hide_itself_in_the_spread():
    still, creeping = (drift.creep(_runs(40, creep=creep), CASE).spread for creep in (0.0, 0.001))

    assert creeping == pytest.approx(still, rel=0.1)


def test_steady_runs_raise_an_alarm_in_less_than_one_of_a_thousand():
    rng, alarms, checks = np.random.default_rng(8), 0, 6000
    for _ in range(checks):
        figures = rng.normal(0, 0.003, (2, 30)).tolist()
        values = min(figures, key=drift.spread)
        alarms += drift.shift(values) > drift.factor(30) * drift.spread(values)

    # A rate of 1 in 1,000 would give more than 16 once in a thousand times.
    assert alarms <= 16


@pytest.mark.parametrize("length", drift.FACTORS)
def test_the_table_of_factors_is_what_simulation_gives(length):
    # Another numpy may draw other values from the same seed: the table then differs by the error of 100,000 draws.
    assert drift.simulated(length) == pytest.approx(drift.FACTORS[length], rel=0.02)


def test_the_history_of_one_case_gives_the_answer_of_the_whole():
    runs = [replace(one, cases=(*one.cases, replace(one.cases[0], case="other"))) for one in _runs(40, creep=0.001)]
    runs[3] = replace(runs[3], cases=runs[3].cases[1:])
    alone = drift.by_case(runs)

    assert list(alone) == [CASE, "other"]
    assert drift.creep(alone[CASE], CASE) == drift.creep(runs, CASE)
    assert all(len(one.cases) <= 1 for one in alone[CASE])
    assert drift.by_case([]) == {}
