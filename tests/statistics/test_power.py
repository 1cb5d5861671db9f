import math

import numpy as np
import pytest

from perfci.statistics import duel_rule, exact, many_duels
from perfci.statistics.duel_rule import Ruling

TAU, ALPHA = 0.01, 0.01


def _shifts(spread, count=48, seed=3):
    return np.random.default_rng(seed).normal(0, spread, count).tolist()


def test_the_spread_is_that_of_the_blocks_whatever_their_level():
    shifts = _shifts(0.002)

    found = many_duels.noise([0.3 + shift for shift in shifts], TAU, ALPHA, 30)

    assert found.blocks == 48
    assert found.spread == pytest.approx(np.std(shifts, ddof=1))
    assert found.smallest == many_duels.noise(shifts, TAU, ALPHA, 30).smallest


def test_the_noisier_the_blocks_the_larger_is_what_a_duel_sees():
    seen = [many_duels.noise(_shifts(spread), TAU, ALPHA, 30).smallest for spread in (0.0005, 0.01, 0.03, 0.06)]

    assert seen == sorted(seen)
    assert seen[0] == pytest.approx(1.25 * TAU, rel=0.02)
    assert seen[-1] > 2 * TAU


def test_more_cases_in_the_family_hide_more():
    alone, many = (many_duels.noise(_shifts(0.01), TAU, ALPHA, family).smallest for family in (1, 10**7))

    assert alone < many


def test_noise_beyond_all_steps_has_no_smallest_slow_down():
    assert many_duels.noise(_shifts(1.0), TAU, ALPHA, 30).smallest is None


@pytest.mark.slow
@pytest.mark.parametrize(("spread", "effect"), [(0.004, 1.25), (0.01, 1.5), (0.02, 2.0), (0.03, 3.0)])
def test_the_share_found_is_that_of_duels_judged_one_by_one(spread, effect):
    residuals = np.asarray(_shifts(spread))
    log_tau = math.log1p(TAU)
    d = np.random.default_rng(1).choice(residuals, (60, duel_rule.PROCESSES, duel_rule.BLOCKS))

    found = many_duels.ends(many_duels.reading(d, 30, ALPHA), log_tau, effect * log_tau).slower.mean()

    one_by_one = [_judged((duel + effect * log_tau).tolist()) is Ruling.SLOWER for duel in d]
    assert found == pytest.approx(np.mean(one_by_one))
    assert 0 < found < 1


def _judged(duel):
    """A whole duel by `looks` alone, each look in its turn."""
    for blocks in (duel_rule.FIRST, duel_rule.SECOND):
        if duel_rule.early(duel[0][:blocks], TAU) is Ruling.CLEARED:
            return Ruling.CLEARED
    said = Ruling.OPEN
    for processes in duel_rule.FINAL:
        seen = duel_rule.look(duel[:processes], TAU)
        said = duel_rule.answer(seen, *(exact.holm([p], 30)[0] for p in (seen.p_slower, seen.p_faster)), ALPHA)
        if said is not Ruling.OPEN:
            break
    return said
