"""How often healthy boards are put aside, and how soon sick ones: `perfci history --boards` over simulated nights.

python benchmarks/boards.py [FLEETS]

Four boards run eight cases a night. Boards differ for good by a standard deviation, nights by 0.5 %, cases by 1 %.
"""

from __future__ import annotations

import sys

import numpy as np

from perfci.core.model import Device, Environment
from perfci.extensions.common.accepted_runs import BoardCounts, HistoryCase, HistoryRun, Spread
from perfci.extensions.history.boards import Board, compare_boards

BOARDS, NIGHTS, CASES = 4, 8, 8
NIGHT, CASE = 0.005, 0.01  # standard deviations, log
BETWEEN = {"kernels of 10 to 40 us": 0.006, "of 3 to 10 us": 0.013, "products of matrices": 0.02}
SLOWER = (0.04, 0.06, 0.08, 0.1)  # from the sixth night on


def simulate(between: float, slower: float, rng: np.random.Generator) -> tuple[Board, ...]:
    """Boards after their nights, of which the first became slower by so much (log) three nights ago."""
    usual, runs = rng.normal(0, between, BOARDS), []
    for night in range(NIGHTS):
        for board in range(BOARDS):
            shift = usual[board] + slower * (board == 0 and night >= NIGHTS - 3) + rng.normal(0, NIGHT)
            us = 50 * np.exp(shift + rng.normal(0, CASE, CASES))
            cases = (
                HistoryCase(f"n={at}", 12, Spread(time_us, time_us, time_us), Spread(time_us, time_us, time_us))
                for at, time_us in enumerate(us)
            )
            place = Environment(Device("cuda", "H", "h", f"GPU-{board}"), "activity", "3.11", {}, "host", "Linux")
            counts = BoardCounts(f"GPU-{board}", CASES)
            day = f"2026-01-{night + 1:02}T00:00:00Z"
            runs.append(HistoryRun(f"{night}-{board}", day, place, tuple(cases), boards=(counts,)))
    return compare_boards({"op": runs})


def main(fleets: int = 250) -> None:
    """Print both rates."""
    rng = np.random.default_rng(5)
    for name, between in BETWEEN.items():
        aside = sum(board.sick for _ in range(fleets) for board in simulate(between, 0.0, rng))
        print(f"healthy, {between:.1%} apart ({name}): {aside} of {fleets * BOARDS} put aside")
    for slower in SLOWER:
        aside = sum(simulate(BETWEEN["kernels of 10 to 40 us"], slower, rng)[0].sick for _ in range(fleets))
        print(f"slower by {slower:.0%} for three nights: {aside} of {fleets} put aside")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
