"""The benchmark of the ratchet has the same lives as `ratchet.propose`."""

import math

import numpy as np
import pytest

from perfci.extensions.history.ratchet.steps import propose
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import OpThresholds, Thresholds
from tests.benchmark_modules import imported
from tests.extensions.history.ratchet.histories import CASE, run

STORED = ("speedup", "span_margin", "peak_memory", "rsd")


@pytest.fixture(scope="module")
def bench(pytestconfig):
    with imported(pytestconfig.rootpath / "benchmarks", "ratchet") as modules:
        yield modules


@pytest.fixture(scope="module")
def world(bench):
    return bench.ratchet.recorded_worlds()[3]


def _history(world, seen):
    return [
        run(
            number,
            board=str(seen.boards[number]),
            null=(tuple(seen.nulls[number].tolist()),),
            shift=float(seen.values["speedup"][number]),
            kernel_us=world.base_us,
            span_us=math.exp(seen.values["span_margin"][number]),
            rsd=math.exp(seen.values["rsd"][number]),
            peak_bytes=2**20,
        )
        for number in range(len(seen.boards))
    ]


def _proposed(history, limits):
    changes = propose(history, limits, "op", family=30)
    proposed = {change.key: change.after for change in changes}
    return {key: ((0.0, value),) if key == "tau" else value for key, value in proposed.items()}


@pytest.mark.nightly  # test_steps.py has every step of it
def test_a_life_learns_what_is_proposed(bench, world):
    seen, state = bench.ratchet.runs(world, np.random.default_rng(1), 26), bench.ratchet.began(world)
    history, limits = _history(world, seen), Thresholds()
    for merge in range(26):
        bench.ratchet.learn(world, state, seen, merge)
        fields = dict(limits.ops["op"].cases[0][1]) if limits.ops else {}
        fields |= {
            key: value for key, value in _proposed(history[: merge + 1], limits).items() if key in (*STORED, "tau")
        }
        limits = Thresholds(ops={"op": OpThresholds(CaseThresholds(), ((CASE, fields),))})

    limit = limits.for_case("op", CASE)
    assert state.tau < 0.01
    assert limit.tau_at(world.base_us) == pytest.approx(state.tau, rel=1e-9)
    assert [getattr(limit, key) for key in STORED] == pytest.approx([state.targets[key] for key in STORED], rel=1e-6)


def test_the_targets_of_a_life_alarm_as_the_judge_does(bench, world):
    shifts = np.full((3, 6), 0.05) + np.random.default_rng(3).normal(0, 1e-3, (3, 6))

    assert bench.ratchet.confirmed(shifts, 0.04)
    assert not bench.ratchet.confirmed(shifts, 0.0504)
    one_process_is_well = shifts - np.array([0.0, 0.0, 0.02])[:, None]
    assert not bench.ratchet.confirmed(one_process_is_well, 0.04)


def test_every_recorded_world_draws_duels_without_a_preferred_sign(bench, world):
    d = world.duels(np.random.default_rng(4), 2000, 4, 12)

    assert d.shape == (2000, 4, 12)
    assert abs(d.mean()) < 4 * d.std() / math.sqrt(8000)
