"""What counts as a leak, and what as decay, on series whose answer is known."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from perfci.lab.soak.rules import LEAST_WINDOWS, WINDOWS, decay, leak, windows

PER_WINDOW = 50
TRACES = Path(__file__).parents[3] / "benchmarks" / "traces"


def held_after(calls_of, windows=20):
    """Readings of memory where the n-th call leaves `calls_of(n)` bytes behind."""
    total, readings = 1 << 20, [1 << 20]
    for window in range(windows):
        total += sum(calls_of(window * PER_WINDOW + call + 1) for call in range(PER_WINDOW))
        readings.append(total)
    return readings


def test_a_steady_leak_is_told_with_its_size():
    assert leak(held_after(lambda call: 512)) == 512 * PER_WINDOW


def test_a_leak_of_every_hundredth_call_is_found():
    found = leak(held_after(lambda call: 512 * (call % 100 == 0)))

    assert found == pytest.approx(512 / 100 * PER_WINDOW, rel=0.1)


@pytest.mark.parametrize("full", [10, 250, 400, 700])
def test_a_cache_that_is_full_after_some_calls_is_no_leak(full):
    assert leak(held_after(lambda call: 4096 * (call <= full))) is None


def test_memory_that_goes_up_and_down_or_shrinks_is_no_leak():
    rng = np.random.default_rng(3)
    for _ in range(200):
        assert leak((1 << 20) + 512 * rng.integers(0, 2, 21)) is None
    assert leak(held_after(lambda call: -8)) is None
    assert leak([5] * 21) is None


def test_a_leak_under_memory_that_goes_up_and_down_is_found():
    rng = np.random.default_rng(4)
    readings = np.array(held_after(lambda call: 512)) + 4096 * rng.integers(0, 2, 21)

    assert leak(readings) == pytest.approx(512 * PER_WINDOW, rel=0.1)


def test_too_few_readings_tell_nothing():
    assert leak([1, 2, 3, 4]) is None


@pytest.mark.parametrize("calls", [8, 9, 40, 41, 999, 1000, 12345])
def test_windows_hold_all_calls_and_are_alike(calls):
    sizes = windows(calls)

    assert sum(sizes) == calls
    assert max(sizes) - min(sizes) <= 1
    assert LEAST_WINDOWS <= len(sizes) <= WINDOWS


def test_too_few_calls_make_no_windows():
    assert windows(7) == []
    assert windows(39, least=5) == []


# --- decay ------------------------------------------------------------------------------------------------------------


def times(change, noise=0.003, seed=1, count=20):
    """Medians that become slower by a ratio over all windows."""
    rng = np.random.default_rng(seed)
    return 100 * np.exp(np.linspace(0, np.log1p(change), count) + rng.normal(0, noise, count))


def test_a_decay_of_ten_per_cent_is_beyond_three():
    found = decay(times(0.10), [1980] * 20)

    assert found.change.low < 0.10 < found.change.high
    assert found.beyond(0.03)
    assert not found.explained(0.03)
    assert found.clock == 0


def test_a_decay_of_the_limit_itself_is_not_beyond_doubt():
    assert sum(decay(times(0.03, seed=seed), [None] * 20).beyond(0.03) for seed in range(200)) <= 8


def test_steady_times_never_fail():
    assert not any(decay(times(0.0, 0.01, seed), [None] * 20).beyond(0.03) for seed in range(300))


def test_one_slow_window_is_no_decay():
    series = times(0.0)
    series[-1] *= 2

    assert not decay(series, [None] * 20).beyond(0.03)


def test_a_decay_that_follows_the_clock_is_explained_and_one_beyond_it_is_not():
    clocks = [round(1980 - 300 * step / 19) for step in range(20)]
    following = 100 * 1980 / np.array(clocks)

    assert decay(following, clocks).beyond(0.03)
    assert decay(following, clocks).explained(0.03)
    assert decay(following, clocks).clock == pytest.approx(-300 / 1980, rel=0.05)
    assert not decay(following * times(0.2) / 100, clocks).explained(0.03)


def test_recorded_launches_of_an_h200_never_fail_but_at_the_power_cap_without_a_look_at_the_clock():
    failed = Counter()
    with gzip.open(TRACES / "h200-sequential.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            times_ms = np.array(line["ev"])
            medians = [float(np.median(part)) for part in np.split(times_ms, 20)]
            failed[line["case"]] += decay(medians, [None] * 20).beyond(0.03)

    assert +failed == {"matmul_8192x8192x4096_bf16": 41}
    assert len(failed) == 6


def test_a_clock_that_is_missing_once_explains_nothing():
    found = decay(times(0.10), [1980] * 19 + [None])

    assert found.clock is None
    assert not found.explained(0.03)
