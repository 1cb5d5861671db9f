"""The static model: what bounds a launch, and what it refuses to guess."""

import dataclasses

import pytest

from perfci.extensions.lab.tune.model import CompiledLaunch, NoModelError, Work, estimate, floor_us

DEVICE = {"processors": 100, "bandwidth_gbps": 1000.0, "l2_gbps": 4000.0, "tflops": {"float16": 100.0, "float32": 10.0}}
FULL = CompiledLaunch(programs=800, warps=8, resident=8, shared_bytes=0)


def test_a_call_that_keeps_memory_at_work_takes_its_bytes_over_the_bandwidth():
    us = estimate(Work(10**9, None, None), [FULL], DEVICE)

    assert us == pytest.approx(1000.0)
    assert floor_us(Work(10**9, None, None), DEVICE) == pytest.approx(1000.0)


def test_a_last_round_that_is_not_full_costs_like_a_full_one():
    work = Work(1, 10**12, "float16")

    assert estimate(work, [dataclasses.replace(FULL, programs=100)], DEVICE) == pytest.approx(10_000.0)
    assert estimate(work, [dataclasses.replace(FULL, programs=101)], DEVICE) == pytest.approx(10_000.0 * 200 / 101)


def test_products_are_rated_by_dtype_and_held_up_by_too_few_warps():
    few = CompiledLaunch(programs=100, warps=1, resident=2, shared_bytes=1 << 16)

    assert estimate(Work(1, 10**12, "float32"), [FULL], DEVICE) == pytest.approx(100_000.0)
    assert estimate(Work(1, 10**12, "float16"), [few], DEVICE) == pytest.approx(10_000.0 * 4)


def test_loads_and_spills_go_through_the_cache():
    assert estimate(Work(10**6, None, None, 4 * 10**9), [FULL], DEVICE) == pytest.approx(1000.0)
    spilling = dataclasses.replace(FULL, spill_bytes=64)
    more = 2 * 64 * 32 * 8 * 800 / 4000.0 / 1e3
    assert estimate(Work(10**6, None, None, 4 * 10**9), [spilling], DEVICE) == pytest.approx(1000.0 + more)


@pytest.mark.parametrize("lacking", ["processors", "bandwidth_gbps", "tflops"])
def test_a_description_without_a_number_that_is_needed_is_named(lacking):
    with pytest.raises(NoModelError, match=lacking):
        estimate(Work(10**9, 10**9, "float16"), [FULL], {**DEVICE, lacking: None})
