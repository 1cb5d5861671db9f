import math

import pytest

from perfci.report import frame
from perfci.store.launches import LaunchRow


def test_the_frame_holds_the_numbers_of_the_run(examples):
    run, _ = examples.small()
    block = run.ops[0].performance[0].blocks[3]

    table = frame.tabulate_blocks(run)
    row = table[(table["case"] == run.ops[0].performance[0].case) & (table["block"] == 3) & (table["arm"] == "kernel")]

    assert row["median_us"].item() == block.arms["kernel"].time.median_us
    assert row["sm_clock_mhz"].item() == block.state.sm_clock_mhz
    assert row["started_s"].item() == block.started_s


def test_the_frame_has_each_blocks_change_against_the_base_in_the_kernels_rows(examples):
    run, _ = examples.duelled()
    case = next(case for op in run.ops if op.op == "softmax" for case in op.performance if len(case.blocks) == 24)

    table = frame.tabulate_blocks(run)
    mine = table[(table["op"] == "softmax") & (table["case"] == case.case)].set_index("arm")

    changes = [math.expm1(block.shifts["kernel/base"]) for block in case.blocks]
    assert list(mine.loc["kernel", "change_base"]) == pytest.approx(changes)
    assert mine.loc[["base", "reference"], "change_base"].isna().all()


def test_spreads_without_launches_are_medians_over_the_blocks(examples):
    run, _ = examples.small()
    blocks = run.ops[0].performance[0].blocks
    times = [block.arms["kernel"].time for block in blocks]

    spread = frame.pool_spreads(frame.tabulate_blocks(run))[0]

    assert (spread.op, spread.arm, spread.blocks) == ("softmax", "kernel", 8)
    assert spread.launches == sum(time.launches for time in times)
    assert spread.min_us == min(time.min_us for time in times)
    assert spread.p95_us == pytest.approx(sum(sorted(time.p95_us for time in times)[3:5]) / 2)
    assert spread.p99_us is None


def test_spreads_with_launches_pool_them_all(examples):
    run, _ = examples.small()
    case = run.ops[0].performance[0].case
    rows = [
        LaunchRow("softmax", case, 0, b, "kernel", tuple(float(100 * b + i) for i in range(1, 101))) for b in range(5)
    ]

    spread = frame.pool_spreads(frame.tabulate_blocks(run), frame.tabulate_launches(rows))[0]

    assert (spread.min_us, spread.p50_us) == (1.0, 250.5)
    assert spread.p99_us == pytest.approx(1 + 0.99 * 499)
    assert spread.exact
    assert spread.rsd == pytest.approx(144.48 / 250.5, rel=1e-3)
