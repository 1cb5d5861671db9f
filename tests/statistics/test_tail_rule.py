import numpy as np
import pytest
import scipy  # its parts are imported when they are first used

from perfci.core.model import ArmBlock, Block
from perfci.statistics import duel_rule, exact, tail_rule
from perfci.statistics.duel_rule import Ruling

TAU = 0.01


def _arm(launches):
    modes = exact.modes(launches)
    return ArmBlock(exact.summary(launches), modes_us=modes if len(modes) > 1 else ())


def _blocks(*processes):
    """Blocks of pairs of launches, the kernel's and the base's; a process is a list of such pairs."""
    return [
        Block(
            index, process, 0.0,
            {"kernel": _arm(kernel), "base": _arm(base)},
            {"kernel/base": exact.launch_shift(kernel, base)},
        )
        for process, pairs in enumerate(processes)
        for index, (kernel, base) in enumerate(pairs)
    ]  # fmt: skip


def _seen(blocks):
    by_process = {}
    for block in blocks:
        by_process.setdefault(block.process, []).append(block.shifts["kernel/base"])
    seen = duel_rule.look(list(by_process.values()), TAU)
    return tail_rule.find_tail(blocks, seen), seen


def _answer(*processes):
    return tail_rule.answer(*_seen(_blocks(*processes)))


def _launches(*slow, us=100.0, count=20):
    """Launches that all take the same, but for some that take so many times as long."""
    return [us] * (count - len(slow)) + [us * times for times in slow]


USUAL = (_launches(), _launches())
SPIKED = (_launches(3.0), _launches())
NOISY = (_launches(), _launches(3.0))  # the base has the slow launch
WORN = (_launches(us=120.0), _launches())  # all of the kernel's launches take longer


# --- what is summed up ------------------------------------------------------------------------------------------------


def test_blocks_whose_mean_is_slower_count_by_an_exact_signed_rank_test():
    tail, _ = _seen(_blocks([SPIKED, USUAL] * 6, [SPIKED, USUAL] * 6))

    assert tail.p == 2**-12
    assert tail.mean == pytest.approx(0.05)
    assert tail.costs == pytest.approx((0.05, 0.05))


def test_slow_launches_of_the_base_count_against_those_of_the_kernel():
    mixed, _ = _seen(_blocks([SPIKED, NOISY, USUAL] * 4))
    faster, _ = _seen(_blocks([NOISY, USUAL] * 6))

    assert mixed.p > 0.1
    assert faster.p == 1.0


def test_the_90th_percentile_is_tested_too():
    # Means of blocks differ by the base's slow launch, which the percentiles do not have.
    kernel, base = _launches(1.2, 1.2, 1.2), _launches(9.0)

    tail, _ = _seen(_blocks([(kernel, base)] * 12))

    assert tail.p == 2**-12
    assert tail.mean < 0 < tail.p90


@pytest.mark.parametrize("count", range(1, 41))
def test_the_90th_percentile_is_that_of_all_launches(count):
    times = np.random.default_rng(count).lognormal(3, 0.3, count)

    assert exact.summary(times).p90_us == pytest.approx(np.quantile(times, 0.9))


def test_slow_launches_are_counted_and_measured_by_the_bases_median():
    tail, _ = _seen(_blocks([SPIKED, (_launches(3.4), _launches(1.5)), *[USUAL] * 10]))

    assert tail.share == pytest.approx(2 / 240)
    assert tail.base_share == pytest.approx(1 / 240)
    assert tail.times == pytest.approx(3.2)


def test_a_share_of_launches_beyond_the_slowest_tenth_is_a_lower_bound():
    tail, _ = _seen(_blocks([(_launches(*[1.5] * 8), _launches())] * 4))

    assert 0.1 < tail.share <= 8 / 20


def test_blocks_of_older_runs_which_lack_their_slowest_launches_tell_nothing():
    (block,) = _blocks([SPIKED])
    time = exact.summary([100.0])
    old = Block(0, 0, 0.0, block.arms | {"kernel": ArmBlock(type(time)(*list(vars(time).values())[:-1]))}, block.shifts)

    assert tail_rule.find_tail([old], duel_rule.look([[0.0]], TAU)) is None


# --- levels -----------------------------------------------------------------------------------------------------------


def _levels(*processes):
    tail, _ = _seen(_blocks(*processes))
    return round(tail.apart, 3), tail.slow_blocks, tail.slow_processes


def test_blocks_on_a_slower_level_are_told_apart_from_whole_processes():
    assert _levels([WORN, USUAL, USUAL, USUAL] * 3, [USUAL, WORN, USUAL, USUAL] * 3) == (0.2, 6, 0)
    assert _levels([USUAL] * 12, [WORN] * 12, [USUAL] * 12, [WORN] * 12) == (0.2, 24, 2)


def test_levels_within_twice_of_what_is_allowed_are_one():
    slightly = (_launches(us=101.5), _launches())

    assert _levels([USUAL] * 12, [slightly] * 12) == (0.0, 0, 0)
    assert _levels([USUAL] * 24) == (0.0, 0, 0)


# --- the ruling -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("processes", "expected"),
    [
        ([[USUAL] * 4], Ruling.CLEARED),
        ([[SPIKED, *[USUAL] * 3]], Ruling.OPEN),
        ([[SPIKED, NOISY, USUAL, USUAL]], Ruling.CLEARED),
        ([[(_launches(6.0), _launches()), *[USUAL] * 11]], Ruling.CLEARED),
        ([[SPIKED, SPIKED, *[USUAL] * 10]], Ruling.OPEN),
        ([[SPIKED] * 12], Ruling.OPEN),
        ([[SPIKED, USUAL] * 6] * 2, Ruling.SLOWER),
        ([[SPIKED] * 12, [USUAL] * 12], Ruling.OPEN),
        ([[SPIKED] * 12, *[[USUAL] * 12] * 3], Ruling.UNDECIDED),
        ([*[[SPIKED, *[USUAL] * 3] * 3] * 3, [USUAL] * 12], Ruling.UNDECIDED),
        ([*[[SPIKED, *[USUAL] * 2] * 4] * 3, [USUAL] * 12], Ruling.SLOWER),
        ([[SPIKED, NOISY, *[USUAL] * 10]] * 4, Ruling.CLEARED),
    ],
    ids=[
        "4 as usual", "one slow launch in 4 blocks asks", "one in each arm does not", "one alone in 12 does not",
        "two blocks of 12 ask", "one process never decides", "two processes decide", "one of two asks",
        "one of four is in doubt", "too few blocks for the level", "three of four processes", "as many in the base",
    ],
)  # fmt: skip
def test_how_a_tail_stands(processes, expected):
    assert _answer(*processes) is expected


def test_a_slow_down_of_all_launches_is_no_tail():
    assert _answer(*[[WORN] * 12] * 4) is Ruling.CLEARED


def test_a_faster_kernel_with_the_same_slow_launches_has_no_tail():
    kernel, base = _launches(6.0, us=50.0), _launches(3.0, us=100.0)

    assert _answer(*[[(kernel, base)] * 12] * 4) is Ruling.CLEARED


def test_a_faster_kernel_whose_mean_is_slower_has_one():
    kernel = _launches(*[5.0] * 4, us=90.0)

    assert _answer(*[[(kernel, _launches())] * 12] * 2) is Ruling.SLOWER


# --- by simulation ----------------------------------------------------------------------------------------------------


def test_arms_that_could_be_exchanged_reach_a_level_no_more_often_than_it_says():
    rng = np.random.default_rng(5)
    reached, checks = 0, 300
    for _ in range(checks):
        times = 100 * rng.lognormal(0, 0.02, (24, 2, 12)) * np.where(rng.random((24, 2, 12)) < 0.05, 3.0, 1.0)
        tail, _ = _seen(_blocks([tuple(pair) for pair in times[:12]], [tuple(pair) for pair in times[12:]]))
        reached += tail.p <= 0.05

    # The smaller of two p values is tested.
    assert scipy.stats.binomtest(reached, checks, 0.1, "greater").pvalue > 0.01


def test_a_fiftieth_of_launches_that_take_three_times_as_long_is_found():
    rng = np.random.default_rng(6)
    seen = 0
    for _ in range(20):
        times = 100 * rng.lognormal(0, 0.01, (48, 2, 30))
        times[:, 0] *= np.where(rng.random((48, 30)) < 0.02, 3.0, 1.0)
        pairs = [tuple(pair) for pair in times]
        seen += _answer(*(pairs[start : start + 12] for start in range(0, 48, 12))) is Ruling.SLOWER

    assert seen >= 19


def _share_cleared(rng, draw, checks=40):
    """How often 48 blocks of 30 launches pass both rules. draw: the kernel's launches as a share of 100 us."""
    cleared = 0
    for _ in range(checks):
        base, kernel = draw(0.5), draw(0.5 + 0.0225 / 0.25)
        times = 100 * rng.lognormal(0, 0.01, (48, 2, 30)) * np.stack([kernel, base], axis=1)
        pairs = [tuple(pair) for pair in times]
        cleared += _answer(*(pairs[start : start + 12] for start in range(0, 48, 12))) is Ruling.CLEARED
    return cleared / checks


def test_two_levels_of_launches_whose_shares_change_do_not_pass():
    rng = np.random.default_rng(9)

    assert _share_cleared(rng, lambda share: np.where(rng.random((48, 30)) < share, 1.25, 1.0)) <= 0.1


def test_what_the_duel_and_the_tail_allow_does_not_add_up():
    rng = np.random.default_rng(10)

    for _ in range(10):
        times = 100 * rng.lognormal(0, 0.01, (48, 2, 30))
        times[:, 0] *= 1.009 * np.where(rng.random((48, 30)) < 0.05, 1.18, 1.0)
        pairs = [tuple(pair) for pair in times]
        assert _answer(*(pairs[start : start + 12] for start in range(0, 48, 12))) is not Ruling.CLEARED
