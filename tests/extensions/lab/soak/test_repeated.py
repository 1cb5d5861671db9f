"""The same call many times: whether the answers are equal, and which readings count as a leak or a decay."""

import gzip
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from perfci.extensions.lab.soak.calls import check_determinism
from perfci.extensions.lab.soak.verdicts import (
    SoakMeasured,
    Status,
    conclude,
    find_leak,
    is_beyond,
    measure_decay,
    trend,
    trend_p,
)

PER_WINDOW = 50
TRACES = Path(__file__).parents[4] / "benchmarks" / "traces"


def inputs(rows, device, seed):
    return {"x": np.random.default_rng(seed).normal(size=(rows, 4))}


def test_a_kernel_that_answers_alike_passes(subject):
    determinism = check_determinism(subject(lambda x: x * 2.0, inputs), 50)

    assert (type(determinism), determinism.numbers) == (SoakMeasured, {"calls": 50})
    assert isinstance(check_determinism(subject(lambda x: x * np.nan, inputs), 10), SoakMeasured)


def test_one_call_that_answers_otherwise_is_found_and_named(subject):
    calls = []

    def change(x):
        calls.append(1)
        out = x * 2.0
        if len(calls) == 500:
            out[2, 1] += 1e-12
        return out

    determinism = check_determinism(subject(change, inputs), 1000)

    assert determinism.reason.kind == "soak_differs"
    assert {"call": 500, "count": 1, "index": "(2, 1)"}.items() <= determinism.reason.facts.items()


def test_an_output_that_a_later_call_writes_into_is_found(subject):
    kept = np.empty((4, 4))

    determinism = check_determinism(subject(lambda x: np.multiply(x, 2.0, out=kept), inputs), 50)

    assert (determinism.status, determinism.reason.kind) == (Status.FAIL, "soak_rewritten")


# --- leaks ------------------------------------------------------------------------------------------------------------


def read_memory(bytes_of, windows=20):
    """Readings of memory if the n-th call leaves `bytes_of(n)` bytes behind."""
    total, readings = 1 << 20, [1 << 20]
    for window in range(windows):
        total += sum(bytes_of(window * PER_WINDOW + call + 1) for call in range(PER_WINDOW))
        readings.append(total)
    return readings


def test_a_steady_leak_is_found_with_its_size_also_under_memory_that_goes_up_and_down():
    noise = 4096 * np.random.default_rng(4).integers(0, 2, 21)

    assert find_leak(read_memory(lambda call: 512)) == 512 * PER_WINDOW
    assert find_leak(np.array(read_memory(lambda call: 512)) + noise) == pytest.approx(512 * PER_WINDOW, rel=0.1)
    leak = find_leak(read_memory(lambda call: 512 * (call % 100 == 0)))
    assert leak == pytest.approx(512 / 100 * PER_WINDOW, rel=0.1)


@pytest.mark.parametrize("full", [10, 250, 400, 700])
def test_a_cache_that_is_full_after_some_calls_is_no_leak(full):
    assert find_leak(read_memory(lambda call: 4096 * (call <= full))) is None


def test_memory_that_goes_up_and_down_or_shrinks_is_no_leak():
    rng = np.random.default_rng(3)
    for _ in range(200):
        assert find_leak((1 << 20) + 512 * rng.integers(0, 2, 21)) is None
    assert find_leak(read_memory(lambda call: -8)) is None
    assert find_leak([1, 2, 3, 4]) is None


# --- decay ------------------------------------------------------------------------------------------------------------


def draw_times(change, noise=0.003, seed=1, count=20):
    """Medians that become slower by a ratio over all windows."""
    rng = np.random.default_rng(seed)
    return 100 * np.exp(np.linspace(0, np.log1p(change), count) + rng.normal(0, noise, count))


def fails(medians, clocks=(None,) * 20):
    return is_beyond(measure_decay(medians, clocks), 0.03)


def test_a_decay_of_ten_per_cent_is_beyond_three():
    decay = measure_decay(draw_times(0.10), [1980] * 20)

    assert decay["low"] < 0.10 < decay["high"]
    assert is_beyond(decay, 0.03)
    assert decay["left"] > 0.03
    assert decay["clock"] == 0


def test_steady_times_a_single_slow_window_and_a_decay_of_the_limit_itself_are_not_beyond_doubt():
    spiked = draw_times(0.0)
    spiked[-1] *= 2

    assert sum(fails(draw_times(0.03, seed=seed)) for seed in range(200)) <= 8
    assert not any(fails(draw_times(0.0, 0.01, seed)) for seed in range(300))
    assert not fails(spiked)


def test_a_decay_that_follows_the_clock_is_explained_and_one_beyond_it_is_not():
    clocks = [round(1980 - 300 * step / 19) for step in range(20)]
    following = 100 * 1980 / np.array(clocks)

    decay = measure_decay(following, clocks)

    assert is_beyond(decay, 0.03)
    assert decay["left"] <= 0.03
    assert decay["clock"] == pytest.approx(-300 / 1980, rel=0.05)
    assert measure_decay(following * draw_times(0.2) / 100, clocks)["left"] > 0.03
    assert measure_decay(following, [*clocks[:-1], None])["left"] is None


def test_recorded_launches_of_an_h200_never_fail_but_at_the_power_cap_without_a_look_at_the_clock():
    failed = Counter()
    with gzip.open(TRACES / "h200-sequential.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in map(json.loads, lines):
            failed[line["case"]] += fails([float(np.median(part)) for part in np.split(np.array(line["ev"]), 20)])

    assert +failed == {"matmul_8192x8192x4096_bf16": 41}
    assert len(failed) == 6


# --- what a worker may say --------------------------------------------------------------------------------------------

STEADY = (1.0,) * 20
LEAKING = tuple(float(reading) for reading in read_memory(lambda call: 512))
SAID = {
    "memory that is steady": ("memory", {}, {"held": STEADY}, "PASS"),
    "memory that leaks": ("memory", {}, {"held": LEAKING}, "FAIL"),
    "memory that leaks outside": ("memory", {}, {"held": STEADY, "outside": LEAKING}, "FAIL"),
    "memory without readings": ("memory", {"calls": 1000}, {}, "ERROR"),
    "memory of few readings": ("memory", {}, {"held": (1.0, None, 1.0)}, "ERROR"),
    "times that are steady": ("decay", {}, {"medians_us": STEADY, "clocks_mhz": STEADY}, "PASS"),
    "times that decay": ("decay", {}, {"medians_us": tuple(draw_times(0.5)), "clocks_mhz": STEADY}, "FAIL"),
    "times without the clock's": ("decay", {}, {"medians_us": STEADY, "clocks_mhz": ()}, "ERROR"),
    "times of nothing": ("decay", {}, {"medians_us": (0.0,) * 20, "clocks_mhz": STEADY}, "ERROR"),
    "no times": ("decay", {"first_us": 1.0, "last_us": 1.0}, {}, "ERROR"),
    "all answers": ("determinism", {"calls": 1000}, {}, "PASS"),
    "fewer answers": ("determinism", {"calls": 999}, {}, "ERROR"),
    "answers that are no number": ("determinism", {"calls": "1000"}, {}, "ERROR"),
    "no round": ("streams", {"rounds": 0}, {}, "ERROR"),
    "no thread": ("threads", {}, {}, "ERROR"),
    "no slice": ("large", {}, {}, "ERROR"),
}


@pytest.mark.parametrize(("test", "numbers", "series", "status"), SAID.values(), ids=SAID)
def test_whether_a_test_passes_is_decided_from_its_numbers(test, numbers, series, status):
    said = SoakMeasured("scale", test, "rows=1", numbers, series)

    assert conclude(said, 1000, 0.03).status == status


def test_a_trend_is_seen_beyond_noise_and_seldom_where_there_is_none():
    rng = np.random.default_rng(12)
    noise = rng.normal(size=(500, 20))

    false = sum(trend_p(series) < 0.01 for series in noise)
    trends = [trend(series + 0.2 * np.arange(20)) for series in noise[:100]]

    assert false <= 12  # 5 are expected
    assert all(trend_p(series + np.arange(20)) < 1e-6 for series in noise[:20])
    assert sum(trend.low <= 0.2 <= trend.high for trend in trends) >= 88
