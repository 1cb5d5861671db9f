"""Boards compared with each other, by accepted runs."""

import math
from dataclasses import replace

import numpy as np
import pytest

from perfci.core.wording import sentence
from perfci.extensions.common.accepted_runs import BoardCounts, HistoryCase, Spread
from perfci.extensions.history import boards
from perfci.statistics import board_spread
from tests.extensions.history.ratchet.histories import CASE, ELSEWHERE, HERE, run


def night(number, board, *, spread=0.001, counts=None, seed=0, environment=HERE, case=CASE, **more):
    """A run on a board, with an A/A duel of that spread."""
    rng = np.random.default_rng((seed, number))
    null = (tuple((spread * rng.standard_t(4, 6)).tolist()),) if spread else ()
    accepted = run(number, environment=environment, board=board, case=case, null=null, **more)
    told = () if counts is None else (BoardCounts(board, *counts),)
    return replace(accepted, created=f"2026-{1 + number // 28:02}-{1 + number % 28:02}T00:00:00Z", boards=told)


def nights(count, spreads, **more):
    """Boards by turns, each with the spread of its A/A duels."""
    names = list(spreads)
    return [
        night(number, names[number % len(names)], spread=spreads[names[number % len(names)]], **more)
        for number in range(count)
    ]


def by_name(runs, op="softmax"):
    return {board.board: board for board in boards.compare_boards({op: runs})}


def test_a_board_whose_controls_spread_more_is_named_with_a_ratio_and_what_to_do():
    compared = by_name(nights(60, {"GPU-1": 0.001, "GPU-2": 0.003, "GPU-3": 0.001}))

    assert {name: board.outside for name, board in compared.items()} == {"GPU-1": (), "GPU-2": ("spread",), "GPU-3": ()}
    ratio = compared["GPU-2"].spread.ratio
    assert 1.5 < ratio.low < 3 < ratio.high < 5
    (reason,) = boards.describe_board(compared["GPU-2"], "nvidia-h200")
    assert "GPU-2" in sentence(reason) and "quarantine" in sentence(reason) and "{" not in sentence(reason)


def test_boards_that_are_alike_are_rarely_named():
    named = sum(
        any(board.outside for board in by_name(nights(60, dict.fromkeys(("a", "b", "c"), 0.001), seed=seed)).values())
        for seed in range(100)
    )

    assert named <= 4  # 1 expected at most


def test_a_new_environment_is_no_boards_fault():
    early = [night(number, f"GPU-{number % 2}", spread=0.001) for number in range(20)]
    late = [night(number, "GPU-2", spread=0.01, environment=ELSEWHERE) for number in range(20, 40)]
    compared = by_name([*early, *late])

    assert compared["GPU-2"].spread is None
    assert compared["GPU-2"].outside == ()


def test_a_board_that_leaves_more_open_is_named():
    runs = [
        night(number, board, spread=None, counts=(10, 3 if board == "GPU-2" else 0))
        for number, board in enumerate(["GPU-1", "GPU-2", "GPU-3"] * 12)
    ]
    compared = by_name(runs)

    assert compared["GPU-2"].outside == ("inconclusive",) and compared["GPU-1"].outside == ()
    assert (compared["GPU-2"].inconclusive.value, compared["GPU-2"].inconclusive.others) == (0.3, 0.0)
    (reason,) = boards.describe_board(compared["GPU-2"], "nvidia-h200")
    assert "36 of 120" in sentence(reason)


def test_a_board_whose_suspects_are_overturned_is_named():
    runs = [
        night(number, board, spread=None, counts=(10, 0, 4, 4 if board == "GPU-2" else 1))
        for number, board in enumerate(["GPU-1", "GPU-2"] * 15)
    ]
    compared = by_name(runs)

    assert compared["GPU-2"].outside == ("overturned",)
    assert "overturned" in sentence(boards.describe_board(compared["GPU-2"], "nvidia-h200")[0])


def test_one_bad_night_names_no_board():
    counts = {7: (100, 60)}
    runs = [
        night(number, f"GPU-{number % 2}", spread=None, counts=counts.get(number, (100, 0))) for number in range(40)
    ]

    assert not any(board.outside for board in by_name(runs).values())


def test_a_case_counts_for_the_board_that_it_names():
    night_run = night(1, "GPU-1", counts=(1, 0))
    moved = replace(
        night_run,
        cases=(replace(night_run.cases[0], board="GPU-2"),),
        boards=(BoardCounts("GPU-1", 1), BoardCounts("GPU-2", 1)),
    )
    compared = by_name([moved, *(night(number, f"GPU-{number % 2 + 1}", counts=(1, 0)) for number in range(2, 20))])

    assert (compared["GPU-1"].runs, compared["GPU-2"].runs) == (10, 10)
    assert (compared["GPU-1"].nulls, compared["GPU-2"].nulls) == (9, 10)


def test_spellings_of_a_board_are_one():
    runs = [night(1, "GPU-AB12-cd"), night(2, "gpu-ab12-cd"), night(3, "ab12cd")]

    assert [board.runs for board in boards.compare_boards({"softmax": runs})] == [3]


@pytest.mark.parametrize("board", ["GPU-1", None])
def test_a_single_board_one_run_and_none_are_held_against_nothing(board):
    compared = boards.compare_boards({"softmax": [night(1, board)]})

    assert boards.compare_boards({}) == () == boards.compare_boards({"softmax": []})
    assert [(board.outside, board.spread, board.inconclusive.p) for board in compared] == [((), None, None)] * bool(
        board
    )


def test_boards_that_were_measured_replace_what_boards_differ_by_as_a_rule():
    rng = np.random.default_rng(9)

    def room(count, spread):
        return board_spread.find_room(
            {str(at): math.log(5) + rng.normal(0, spread) + np.zeros(3) for at in range(count)}
        )

    # The spread is an estimate, of eight boards' worth: Student's t exceeds 4.5 in one of a thousand.
    assert room(1, 0.05) == pytest.approx(4.5 * math.sqrt(2) * board_spread.usual_spread(5.0), rel=0.01)
    assert room(60, 0.001) < room(1, 0.001) / 2
    assert room(60, 0.05) == pytest.approx(3.09 * 0.05, rel=0.3)


@pytest.mark.parametrize(
    ("kernel_us", "intensity", "spread"),
    [(2.0, 0.1, 0.0255), (5.0, 0.1, 0.0149), (20.0, 40.0, 0.008), (200.0, 1.0, 0.0082), (200.0, 400.0, 0.05)],
)
def test_fewer_than_one_of_a_thousand_unseen_boards_lies_beyond_the_room(kernel_us, intensity, spread):
    """By the largest spread that was measured of such kernels."""
    rng = np.random.default_rng(10)
    seen, unseen = math.log(kernel_us) + spread * rng.standard_normal((2, 50_000))

    beyond = np.mean(np.abs(unseen - seen) > board_spread.find_room({"GPU-1": [math.log(kernel_us)]}, intensity))

    assert beyond <= board_spread.RATE


# --- sick boards ------------------------------------------------------------------------------------------------------

CASES = [f"rows={rows}" for rows in range(8)]


def fleet(nights, offsets, seed=0, clocks=None, errors=None, spread=0.01):
    """Each night a run on every board, in which references of cases differ by board, night and case (log)."""
    rng = np.random.default_rng((11, seed))
    runs = []
    for number in range(nights):
        for board, offset in offsets.items():
            shift = offset(number) if callable(offset) else offset
            us = 50 * np.exp(shift + rng.normal(0, 0.005) + rng.normal(0, spread, len(CASES)))
            clock = (clocks or {}).get(board, 1800.0)
            cases = tuple(
                HistoryCase(case, 12, spread_of(case_us), spread_of(case_us), clock_mhz=clock)
                for case, case_us in zip(CASES, us, strict=True)
            )
            counts = BoardCounts(board, len(CASES), ecc_errors=(errors or {}).get(board, 0))
            made = replace(run(f"{number}-{board}", board=board), cases=cases, boards=(counts,))
            runs.append(replace(made, created=f"2026-{1 + number // 28:02}-{1 + number % 28:02}T00:00:00Z"))
    return runs


def spread_of(us):
    return Spread(us, us, us)


def outside(runs):
    return {name: board.outside for name, board in by_name(runs).items()}


def test_a_board_whose_references_are_slower_than_its_siblings_is_sick_from_its_first_slow_night_on():
    runs = fleet(12, {"GPU-1": 0.0, "GPU-2": lambda night: 0.1 * (night >= 6), "GPU-3": 0.0, "GPU-4": 0.0})
    compared = by_name(runs)

    assert {name: board.sick for name, board in compared.items()} == {
        "GPU-1": False,
        "GPU-2": True,
        "GPU-3": False,
        "GPU-4": False,
    }
    assert compared["GPU-2"].outside == ("slow",)
    assert compared["GPU-2"].since == tuple(f"r{night}-GPU-2" for night in range(6, 12))
    assert (compared["GPU-2"].began or "").startswith("2026-01-07")
    reopened = boards.list_reopened(compared["GPU-2"], {"softmax": runs, "relu": runs[:8]})
    assert reopened == {}  # the other boards' times are the newest of every case
    assert boards.list_reopened(compared["GPU-2"], {"softmax": runs[:-2]}) == {"softmax": tuple(CASES)}


def test_one_healthy_run_clears_a_board():
    runs = fleet(16, {"GPU-1": 0.0, "GPU-2": lambda night: 0.1 * (night != 15), "GPU-3": 0.0})

    assert outside(runs) == {"GPU-1": (), "GPU-2": (), "GPU-3": ()}
    assert outside(runs[:-3])["GPU-2"] == ("slow",)


def test_a_lower_clock_and_memory_errors_are_said_by_name():
    same = dict.fromkeys(("GPU-1", "GPU-2", "GPU-3"), 0.0)

    assert outside(fleet(8, same, clocks={"GPU-3": 1700.0})) == {"GPU-1": (), "GPU-2": (), "GPU-3": ("clock",)}
    failing = by_name(fleet(2, same, errors={"GPU-1": 3}))["GPU-1"]
    assert (failing.outside, failing.sick) == (("ecc",), True)
    assert "3 beside its newest run" in sentence(boards.describe_board(failing, "nvidia-h200")[0])


def test_boards_that_differ_as_healthy_ones_do_are_hardly_ever_put_aside():
    rng = np.random.default_rng(3)
    alarms = 0
    for seed in range(40):
        usual = dict(zip(("a", "b", "c", "d"), rng.normal(0, 0.013, 4).tolist(), strict=True))
        alarms += any(board.sick for board in by_name(fleet(8, usual, seed)).values())

    assert alarms == 0  # benchmarks/boards.py: less than 1 of 1,000 boards


def test_what_boards_of_a_model_differ_by_is_known_from_several():
    rng = np.random.default_rng(4)
    usual = {f"GPU-{number}": float(offset) for number, offset in enumerate(rng.normal(0, 0.01, 12))}
    compared = list(by_name(fleet(6, usual)).values())

    assert boards.find_difference(compared) == pytest.approx(np.std(list(usual.values()), ddof=1), rel=0.25)
    assert boards.find_difference(compared[:2]) is None


def test_a_run_from_the_future_is_not_a_boards_newest():
    """The runner of the third night had a wrong clock. Later runs show that the board was repaired."""
    slow = {"GPU-1": 0.0, "GPU-2": lambda night: 0.1 * (night < 14), "GPU-3": 0.0}
    runs = [
        replace(night_run, created="2099-01-01T00:00:00Z") if night_run.run == "r2-GPU-2" else night_run
        for night_run in fleet(16, slow)
    ]

    assert outside(runs)["GPU-2"] == ()
