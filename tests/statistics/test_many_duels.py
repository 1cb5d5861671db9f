"""The vectorised rule is the rule of `perfci.statistics.duel_rule`, duel by duel."""

import math

import numpy as np
import pytest

from perfci.statistics import duel_rule, exact, many_duels
from perfci.statistics.duel_rule import Ruling

ALPHA, FAMILY = 0.01, 30


def _by_looks(d, tau, family=FAMILY, alpha=ALPHA):
    """(answer, blocks) of one duel as the product plays it, with the p of the worst place in the family."""
    for blocks in duel_rule.EARLY:
        if duel_rule.early(d[0][:blocks], tau) is Ruling.CLEARED:
            return Ruling.CLEARED, blocks
    for processes, blocks in duel_rule.FINAL.items():
        seen = duel_rule.look([list(blocks) for blocks in d[:processes]], tau)
        adjusted = [min(p * family, 1.0) for p in (seen.p_slower, seen.p_faster)]
        answer = duel_rule.answer(seen, *adjusted, alpha)
        if answer is not Ruling.OPEN:
            return answer, blocks
    raise AssertionError("the last look leaves nothing open")


def _by_rule(d, tau, family=FAMILY, alpha=ALPHA, effect=0.0):
    ends = many_duels.ends(many_duels.reading(d, family, alpha), math.log1p(tau), effect)
    names = np.full(len(d), Ruling.CLEARED, dtype=object)
    names[ends.slower], names[ends.faster], names[ends.undecided] = Ruling.SLOWER, Ruling.FASTER, Ruling.UNDECIDED
    return list(zip(names.tolist(), ends.blocks.tolist(), strict=True))


@pytest.mark.parametrize("effect", [0.0, 0.006, 0.011, -0.02, 0.03])
@pytest.mark.parametrize("spread", [0.001, 0.006])
def test_it_ends_every_duel_as_looks_does(effect, spread):
    rng = np.random.default_rng(int(effect * 1e4) % 97 + int(spread * 1e4))
    d = rng.normal(0, spread, (60, 4, 12)) + rng.normal(0, spread, (60, 4, 1)) + effect

    assert _by_rule(d, 0.01) == [_by_looks(blocks, 0.01) for blocks in d]


def test_all_four_ends_come_up_among_the_duels_that_are_compared():
    rng = np.random.default_rng(7)
    d = rng.normal(0, 0.004, (300, 4, 12)) + rng.normal(0, 0.008, (300, 1, 1)) + rng.normal(0, 0.006, (300, 4, 1))
    rule = _by_rule(d, 0.005)

    assert rule == [_by_looks(blocks, 0.005) for blocks in d]
    assert {answer for answer, _ in rule} == {Ruling.CLEARED, Ruling.SLOWER, Ruling.FASTER, Ruling.UNDECIDED}
    assert {blocks for _, blocks in rule} == {4, 6, 8, 12, 24, 48}


def test_a_family_too_large_for_any_verdict_gives_none():
    d = np.full((1, 4, 12), 0.5)

    assert many_duels.needed(48, 10**15, ALPHA) is None
    assert _by_rule(d, 0.01, family=10**15) == [(Ruling.UNDECIDED, 48)] == [_by_looks(d[0], 0.01, family=10**15)]


@pytest.mark.parametrize("blocks", [24, 48])
def test_as_many_averages_are_needed_as_the_signed_rank_test_asks_for(blocks):
    needed = many_duels.needed(blocks, FAMILY, ALPHA)
    tail = exact.signed_rank_tail(blocks)

    assert tail[needed] * FAMILY <= ALPHA / duel_rule.TESTS < tail[needed - 1] * FAMILY


def test_many_duels_are_read_in_parts_without_a_seam():
    d = np.random.default_rng(3).normal(0, 0.004, (2100, 4, 12)) + 0.005
    whole, part = many_duels.reading(d, FAMILY, ALPHA), many_duels.reading(d[1500:], FAMILY, ALPHA)

    assert len(whole) == 2100
    assert np.array_equal(whole.tested[4].above[1500:], part.tested[4].above)


# --- how small a slow-down a duel would have found --------------------------------------------------------------------


def _shifts(spread, count=48, seed=3):
    return np.random.default_rng(seed).normal(0, spread, count).tolist()


def test_the_spread_is_that_of_the_blocks_whatever_their_level():
    shifts = _shifts(0.002)

    noise = many_duels.noise([0.3 + shift for shift in shifts], 0.01, ALPHA, 30)

    assert noise.blocks == 48
    assert noise.spread == pytest.approx(np.std(shifts, ddof=1))
    assert noise.smallest == many_duels.noise(shifts, 0.01, ALPHA, 30).smallest


def test_the_noisier_the_blocks_the_larger_is_what_a_duel_sees():
    seen = [many_duels.noise(_shifts(spread), 0.01, ALPHA, 30).smallest for spread in (0.0005, 0.01, 0.03, 0.06)]

    assert seen == sorted(seen)
    assert seen[0] == pytest.approx(1.25 * 0.01, rel=0.02)
    assert seen[-1] > 2 * 0.01


@pytest.mark.parametrize("spread", [1.0, 2.0, 3.0, 6.0])
def test_noise_of_blocks_clears_twice_tau_in_no_more_than_one_of_twenty(spread):
    tau = math.log1p(0.01)
    d = np.random.default_rng(8).normal(0, spread * tau, (1000, 4, 12))

    ends = many_duels.ends(many_duels.reading(d, FAMILY, ALPHA), tau, 2 * tau)

    assert np.mean(ends.slower | ends.undecided) >= 0.95
