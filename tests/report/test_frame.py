from dataclasses import replace

import numpy as np
import pytest

from perfci.core.model import ArmBlock, Block, PerformanceCase
from perfci.report import frame
from perfci.statistics import exact


def test_an_arms_figures_are_medians_over_its_blocks(examples):
    run, _ = examples.small()
    times = [block.arms["kernel"].time for block in run.ops[0].performance[0].blocks]

    spread = frame.pool_spreads(run)[0]

    assert (spread.op, spread.arm, spread.blocks) == ("softmax", "kernel", 8)
    assert spread.launches == sum(time.launches for time in times)
    assert spread.min_us == min(time.min_us for time in times)
    assert spread.p50_us == pytest.approx(np.median([time.median_us for time in times]))
    assert spread.iqr_us == pytest.approx(np.median([time.p75_us - time.p25_us for time in times]))
    assert spread.mean_us == pytest.approx(np.mean([time.mean_us for time in times]))


def _case(*blocks):
    made = [
        Block(index, 0, 0.0, {"kernel": ArmBlock(exact.summary(launches))}, {}) for index, launches in enumerate(blocks)
    ]
    return PerformanceCase("n=1", blocks=tuple(made))


def test_p99_and_standard_deviation_are_of_all_launches_with_each_blocks_shift_taken_out():
    launches = 10.0 * np.random.default_rng(3).lognormal(0, 0.05, (12, 30))
    clocks = np.linspace(1.0, 1.3, 12)[:, None]  # each block has its clock
    shifted = launches / np.median(launches, axis=1)[:, None] * 10.0

    (spread,) = frame.pool_case("op", _case(*(shifted * clocks)))

    usual = np.median(10.0 * clocks)
    assert spread.launches == 360
    assert spread.p99_us == pytest.approx(usual * np.quantile(shifted / 10.0, 0.99))
    assert spread.p90_us == pytest.approx(np.median(np.quantile(shifted * clocks, 0.9, axis=1)))
    assert spread.rsd == pytest.approx(0.05, rel=0.1)
    assert spread.sd_us == pytest.approx(spread.rsd * spread.mean_us)


def test_few_launches_have_no_p99():
    (few,), (enough,) = (frame.pool_case("op", _case(*[[1.0, 2.0, 3.0] * 11] * count)) for count in (3, 4))

    assert (few.launches, few.p99_us) == (99, None)
    assert (enough.launches, enough.p99_us) == (132, 3.0)


def test_blocks_of_older_runs_have_neither_p90_nor_p99():
    case = _case(*[[1.0, 2.0, 3.0] * 11] * 4)
    old = [replace(block.arms["kernel"].time, slowest_us=()) for block in case.blocks]
    blocks = [replace(block, arms={"kernel": ArmBlock(time)}) for block, time in zip(case.blocks, old, strict=True)]

    (spread,) = frame.pool_case("op", replace(case, blocks=tuple(blocks)))

    assert (spread.p50_us, spread.p90_us, spread.p99_us) == (2.0, None, None)
