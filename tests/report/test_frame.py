import pytest

from perfci.report import frame
from perfci.store import LaunchRow


def test_the_frame_has_a_row_a_block_and_arm(examples):
    run, _ = examples.small()

    table = frame.blocks(run)

    assert tuple(table.columns) == frame.COLUMNS
    assert len(table) == 2 * 8 + 2 * 16
    assert list(table["arm"].unique()) == ["kernel", "reference"]
    assert table["process"].max() == 1


def test_the_frame_of_a_run_without_blocks_has_the_same_columns(examples):
    run, _ = examples.on_cpu()

    table = frame.blocks(run)

    assert tuple(table.columns) == frame.COLUMNS
    assert table.empty
    assert frame.spreads(table) == ()


def test_the_frame_holds_the_numbers_of_the_run(examples):
    run, _ = examples.small()
    block = run.ops[0].performance[0].blocks[3]

    table = frame.blocks(run)
    row = table[(table["case"] == run.ops[0].performance[0].case) & (table["block"] == 3) & (table["arm"] == "kernel")]

    assert row["median_us"].item() == block.arms["kernel"].time.median_us
    assert row["sm_clock_mhz"].item() == block.state.sm_clock_mhz
    assert row["started_s"].item() == block.started_s


def test_spreads_without_launches_are_medians_over_the_blocks(examples):
    run, _ = examples.small()
    blocks = run.ops[0].performance[0].blocks
    times = [block.arms["kernel"].time for block in blocks]

    spread = frame.spreads(frame.blocks(run))[0]

    assert (spread.op, spread.arm, spread.blocks) == ("softmax", "kernel", 8)
    assert spread.launches == sum(time.launches for time in times)
    assert spread.min_us == min(time.min_us for time in times)
    assert spread.p95_us == pytest.approx(sum(sorted(time.p95_us for time in times)[3:5]) / 2)
    assert spread.p99_us is None


def test_arms_are_shown_in_one_order_however_they_were_stored(examples):
    arms = {"reference": 9.0, "base": 5.0, "kernel": 5.0}
    blocks = tuple(examples.block(i, arms, examples.random.Random(i)) for i in range(3))
    case = examples.PerformanceCase(case="n=1", blocks=blocks)
    run = examples.run([examples.OpRun("softmax", performance=(case,))])

    assert [spread.arm for spread in frame.spreads(frame.blocks(run))] == ["kernel", "base", "reference"]


def test_spreads_with_launches_pool_them_all(examples):
    run, _ = examples.small()
    case = run.ops[0].performance[0].case
    rows = [
        LaunchRow("softmax", case, 0, b, "kernel", tuple(float(100 * b + i) for i in range(1, 101))) for b in range(5)
    ]

    spread = frame.spreads(frame.blocks(run), frame.launches(rows))[0]

    assert (spread.min_us, spread.p50_us) == (1.0, 250.5)
    assert spread.p99_us == pytest.approx(1 + 0.99 * 499)
    assert spread.exact
    assert spread.rsd == pytest.approx(144.48 / 250.5, rel=1e-3)


def test_the_99th_percentile_needs_enough_launches(examples):
    run, _ = examples.small()
    rows = [LaunchRow("softmax", run.ops[0].performance[0].case, 0, 0, "kernel", (1.0,) * (frame.P99_LAUNCHES - 1))]

    assert frame.spreads(frame.blocks(run), frame.launches(rows))[0].p99_us is None


def test_clocks_are_the_ends_of_what_was_seen(examples):
    run, _ = examples.small()
    states = [block.state for case in run.ops[0].performance for block in case.blocks]

    clocks = frame.clocks(frame.blocks(run))

    assert clocks.blocks == 24
    assert clocks.sm_clock_mhz == (min(s.sm_clock_mhz for s in states), max(s.sm_clock_mhz for s in states))
    assert clocks.throttle == (("power_cap", sum("power_cap" in s.throttle for s in states)),)


def test_clocks_of_a_device_that_tells_nothing_are_unknown(examples):
    run, _ = examples.on_cpu()

    clocks = frame.clocks(frame.blocks(run))

    assert clocks.sm_clock_mhz is None
    assert clocks.throttle == ()
