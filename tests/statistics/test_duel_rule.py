import math

import numpy as np
import pytest
import scipy  # its parts are imported when they are first used

from perfci.statistics import duel_rule, exact
from perfci.statistics.duel_rule import Ruling

TAU = 0.01
LOG_TAU = math.log1p(TAU)
ALPHA = 0.01
FAMILY = 30


def _answer(processes, family=FAMILY):
    """The answer to one case of so many, of which the others show nothing."""
    seen = duel_rule.look(processes, TAU)
    return duel_rule.answer(seen, *(exact.holm([p], family)[0] for p in (seen.p_slower, seen.p_faster)), ALPHA)


def _processes(*levels, spread=0.001, seed=1):
    """Twelve blocks a process, around a level each."""
    rng = np.random.default_rng(seed)
    return [rng.normal(level, spread, duel_rule.BLOCKS).tolist() for level in levels]


def _mirrored(processes):
    return [[-shift for shift in process] for process in processes]


# --- the first process ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shifts", "expected"),
    [
        ([0.0, 0.0, 0.0], Ruling.OPEN),
        ([0.0, 0.004, -0.003, 0.004], Ruling.CLEARED),
        ([0.0, 0.004, -0.03, 0.004], Ruling.OPEN),
        ([0.006, 0.004, 0.007, 0.008], Ruling.OPEN),
        ([-0.006, -0.004, -0.007, -0.008], Ruling.OPEN),
        ([0.0045] * 11, Ruling.OPEN),
        ([0.0045] * 12, Ruling.CLEARED),
        ([0.007] * 12, Ruling.OPEN),
        ([-0.007] * 12, Ruling.OPEN),
        ([0.03, -0.03] * 6, Ruling.OPEN),
    ],
    ids=[
        "too few",
        "4 within",
        "4 noisy",
        "4 slower",
        "4 faster",
        "11",
        "12 within",
        "12 slower",
        "12 faster",
        "noisy",
    ],
)  # fmt: skip
def test_one_process_only_ever_clears(shifts, expected):
    assert duel_rule.early(shifts, TAU) is expected
    assert _answer([shifts]) is expected


# --- what a look sums up ----------------------------------------------------------------------------------------------


def test_a_look_states_blocks_processes_medians_and_the_exact_p():
    first, second = _processes(0.03, 0.04, spread=0.004)

    seen = duel_rule.look([first, second], TAU)

    d = np.array([*first, *second])
    assert (seen.blocks, seen.processes) == (24, 2)
    assert seen.medians == (np.median(first), np.median(second))
    assert seen.tau == LOG_TAU
    assert seen.shift == exact.location(d)
    assert seen.p_slower == 0.5**24
    assert seen.p_faster == 1.0


# --- the looks that decide --------------------------------------------------------------------------------------------


def test_two_processes_decide_what_no_bias_of_one_could_explain():
    assert _answer(_processes(0.03, 0.03)) is Ruling.SLOWER
    assert _answer(_processes(0.017, 0.017)) is Ruling.OPEN
    assert _answer(_processes(0.03, 0.017)) is Ruling.OPEN


def test_four_processes_decide_twice_tau():
    assert _answer(_processes(0.02, 0.02, 0.02, 0.02)) is Ruling.SLOWER


@pytest.mark.parametrize("bias", [0.005, 0.01, 0.015, 0.03, 0.1, 0.5])
@pytest.mark.parametrize("processes", [2, 4])
def test_no_single_process_can_fail_a_merge_request(bias, processes):
    for place in range(processes):
        levels = [0.0] * processes
        levels[place] = bias
        assert _answer(_processes(*levels), family=1) in (Ruling.CLEARED, Ruling.OPEN, Ruling.UNDECIDED)


def test_a_single_process_cannot_prevent_it_either():
    for place in range(4):
        levels = [0.02] * 4
        levels[place] = 0.004
        assert _answer(_processes(*levels)) is Ruling.SLOWER


@pytest.mark.parametrize("sign", [1, -1])
def test_a_process_that_ended_after_fewer_than_six_blocks_agrees_with_nothing(sign):
    changed = Ruling.SLOWER if sign > 0 else Ruling.FASTER
    one, two, cool = _processes(sign * 0.03, sign * 0.03, sign * 0.0045)

    assert _answer([one, two[:5]]) is Ruling.OPEN
    assert _answer([one, two[:6]]) is changed
    assert _answer([one, two, cool, one[:1]]) is Ruling.UNDECIDED
    assert _answer([one, two, cool, one[:6]]) is changed


def test_the_four_questions_at_both_looks_spend_alpha_together():
    slower = duel_rule.look(_processes(0.03, 0.03), TAU)

    assert duel_rule.answer(slower, ALPHA / 8, 1.0, ALPHA) is Ruling.SLOWER
    assert duel_rule.answer(slower, ALPHA / 7, 1.0, ALPHA) is Ruling.OPEN


@pytest.mark.parametrize(
    "levels", [(0.0,), (0.02,), (0.03, 0.03), (0.02, 0.02), (0.02,) * 4, (0.02, 0.02, 0.0, 0.0), (0.009,) * 4]
)
def test_faster_is_slower_mirrored(levels):
    processes = _processes(*levels)
    mirrored = {Ruling.SLOWER: Ruling.FASTER}

    forwards, backwards = _answer(processes), _answer(_mirrored(processes))

    assert backwards is mirrored.get(forwards, forwards)


# --- simulation: what the rule does as a whole ------------------------------------------------------------------------


def _first_looks(shifts):
    """Blocks used, and whether they cleared the case."""
    for blocks in duel_rule.EARLY:
        if duel_rule.early(shifts[:blocks], TAU) is Ruling.CLEARED:
            return blocks, True
    return blocks, False


def _duel(draw, family=FAMILY):
    """One duel to its end: answer and blocks. draw: shifts of one process's 12 blocks."""
    processes = [draw()]
    blocks, cleared = _first_looks(processes[0])
    if cleared:
        return Ruling.CLEARED, blocks
    for wanted in duel_rule.FINAL:
        processes += [draw() for _ in range(wanted - len(processes))]
        duel = _answer(processes, family)
        if duel is not Ruling.OPEN:
            break
    return duel, duel_rule.FINAL[len(processes)]


def _normal(rng, level, spread):
    return lambda: rng.normal(level, spread, duel_rule.BLOCKS)


def test_an_unchanged_kernel_is_cleared_after_six_blocks_on_average_and_never_blamed():
    rng = np.random.default_rng(2)

    ended = [_duel(_normal(rng, 0.0, 0.6 * LOG_TAU)) for _ in range(1000)]

    assert {answer for answer, _ in ended} == {Ruling.CLEARED}
    assert np.mean([blocks for _, blocks in ended]) <= 6


def test_twice_tau_is_seen():
    rng = np.random.default_rng(3)

    ended = [_duel(_normal(rng, 2 * LOG_TAU, 0.6 * LOG_TAU))[0] for _ in range(400)]

    assert ended.count(Ruling.SLOWER) >= 396


@pytest.mark.parametrize("noise", ["normal", "heavy"])
def test_at_the_edge_of_what_is_allowed_a_family_is_blamed_no_more_often_than_alpha(noise):
    """All 30 cases of a run slower by exactly tau: looks, tests and cases together may cost 1 % of all runs."""
    rng = np.random.default_rng(5)
    heavy = {"normal": rng.standard_normal, "heavy": lambda size: rng.standard_t(3, size)}[noise]
    families, size = 100, FAMILY

    def draw():
        return LOG_TAU * (1 + 0.6 * heavy(duel_rule.BLOCKS))

    blamed = [sum(_duel(draw)[0] is Ruling.SLOWER for _ in range(size)) > 0 for _ in range(families)]

    assert scipy.stats.binomtest(sum(blamed), families, ALPHA, alternative="greater").pvalue > 1e-3
