"""What boards of a model differ by, and which stand out from the others, from what accepted runs left behind. Pure.

Three figures a board: the share of its cases about which nothing could be said, the share of its suspects that fresh
processes overturned, and how far its A/A duels spread against those of the other boards, case by case. The unit is a
run on a board, since cases of one run share its night. The shares are tested by drawing which runs were the board's at
random, the spread by the exact rank sum; Holm over all boards and figures. docs/drift.md says how rarely that errs.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from perfci.core.environment import unmixable
from perfci.core.model import BoardCounts, Environment, Fact, HistoryCase, HistoryRun, Interval, Reason, board_key
from perfci.statistics import exact

ALPHA = 0.01
"""Chance, at most, that a look names any board of a model of which all are alike."""

LEAST_RATIO = 1.25
"""A smaller ratio of spreads is never reported, however sure it is."""

LEAST_SHARE = 0.05
"""The same of a share, less the other boards'."""

NEWEST = 30
"""Runs of a board that count: a board that was repaired does not keep its past for ever."""

OTHERS = 200
"""Runs of all other boards that its own are compared with, at most."""

DRAWS = 9_999

FIGURES = 3

RATE = 0.001
"""Chance with which an unseen board of a model lies beyond what boards are allowed to differ by."""

PRIOR_BOARDS = 8.0
"""Boards that the usual spread is worth beside those that were measured: it comes from many cases."""

SPREAD = ((0.0, 0.023), (3.0, 0.013), (10.0, 0.006), (40.0, 0.004))
"""(from this kernel length on, standard deviation between boards of a model, log scale), but for products of matrices.

From 18 H200s; docs/drift.md has the figures and where they come from."""

_FLOOR = 1e-6
"""Spread of an A/A duel, log scale, below which none is told apart."""


@dataclass(frozen=True)
class Share:
    """Of a board's cases, against those of the other boards; run by run."""

    count: int
    of: int
    others: float | None
    """the same share on the other boards. None if there is none"""
    p: float | None = None
    """that it is no larger than theirs. None if that cannot be tested"""

    @property
    def value(self) -> float | None:
        """None of nothing."""
        return self.count / self.of if self.of else None


@dataclass(frozen=True)
class SpreadTest:
    """A board's A/A spread against that of its model's other boards."""

    ratio: Interval
    p: float
    """one-sided, exact, of a spread that is no larger"""


@dataclass(frozen=True)
class Board:
    """What is known of a board."""

    board: str
    """UUID"""
    runs: int
    inconclusive: Share
    overturned: Share
    """of the suspects"""
    spread: SpreadTest | None
    """None if there are too few A/A duels, here or elsewhere, for any answer"""
    nulls: int
    """runs with A/A duels"""
    outside: tuple[str, ...] = ()
    """what it stands out in: inconclusive, overturned, spread"""


@dataclass
class _Unit:
    """A run on a board."""

    created: str
    judged: int = 0
    inconclusive: int = 0
    suspects: int = 0
    overturned: int = 0
    spreads: list[float] = field(default_factory=list)
    """of each A/A duel, log, against the usual one of its case and environment"""


def boards(histories: Mapping[str, Sequence[HistoryRun]]) -> tuple[Board, ...]:
    """Every board of a device model; histories: the runs of each op on it. By UUID; runs without one are left out."""
    units = _units(histories)
    shares = {name: _shares(units, name) for name in ("inconclusive", "overturned")}
    spreads = spread_tests({board: [_spread(unit) for unit in own if unit.spreads] for board, own in units.items()})
    p = [
        *(shares[name][board].p for name in shares for board in units),
        *(found.p if found else None for found in spreads.values()),
    ]
    sure = iter(each <= ALPHA for each in adjusted([1.0 if each is None else each for each in p], len(p)))
    outside: dict[str, list[str]] = {board: [] for board in units}
    for name, by_board in shares.items():
        for board, share in by_board.items():
            if next(sure) and (share.value or 0.0) - (share.others or 0.0) >= LEAST_SHARE:
                outside[board].append(name)
    for board, found in spreads.items():
        if next(sure) and found and found.ratio.value >= LEAST_RATIO:
            outside[board].append("spread")
    return tuple(
        Board(
            board,
            len(own),
            shares["inconclusive"][board],
            shares["overturned"][board],
            spreads[board],
            sum(bool(unit.spreads) for unit in own),
            tuple(outside[board]),
        )
        for board, own in units.items()
    )


def usual_spread(kernel_us: float) -> float:
    """Standard deviation of a kernel's time between boards of a model, log scale, as boards differ as a rule.

    >>> usual_spread(4.9), usual_spread(120.0)
    (0.013, 0.004)
    """
    return next(spread for start, spread in reversed(SPREAD) if kernel_us >= start)


def room(by_board: Mapping[str, Sequence[float]]) -> float:
    """What an unseen board may differ by from these, log scale, as they and boards as a rule differ.

    by_board: logarithms of a kernel's times in microseconds, of one board at least.
    """
    middles = [statistics.median(values) for values in by_board.values()]
    centre, count = statistics.fmean(middles), len(middles)
    seen = math.fsum((middle - centre) ** 2 for middle in middles)
    usual = usual_spread(math.exp(centre)) ** 2
    between = (PRIOR_BOARDS * usual + seen) / (PRIOR_BOARDS + count - 1)
    return statistics.NormalDist().inv_cdf(1 - RATE) * math.sqrt(between * (1 + 1 / count))


def adjusted(p: Sequence[float], family: int) -> list[float]:
    """Holm's adjustment over boards and figures."""
    return exact.holm(p, max(family, len(p)))


def spread_tests(spreads: Mapping[str, Sequence[float]]) -> Mapping[str, SpreadTest | None]:
    """Each board's A/A spreads, log, one a run and the newest last, against those of all other boards."""
    return {board: _against(board, spreads) for board in spreads}


def told_of(board: Board, device: str) -> tuple[Reason, ...]:
    """What a board stands out in, with what to do next."""
    facts: dict[str, Fact] = {"board": board.board, "device": device, "runs": board.runs}
    found = []
    for name in board.outside:
        if name == "spread" and board.spread:
            ratio = board.spread.ratio
            told: dict[str, Fact] = {"ratio": ratio.value, "low": ratio.low, "high": ratio.high}
            found.append(Reason("board_spreads", {**facts, **told, "nulls": board.nulls}))
        elif name == "inconclusive":
            found.append(Reason("board_unsettled", {**facts, **_share_facts(board.inconclusive)}))
        elif name == "overturned":
            found.append(Reason("board_overturned", {**facts, **_share_facts(board.overturned)}))
    return tuple(found)


def _share_facts(share: Share) -> dict[str, Fact]:
    return {"share": share.value, "others": share.others, "count": share.count, "of": share.of}


# --- runs on boards ---------------------------------------------------------------------------------------------------


def _units(histories: Mapping[str, Sequence[HistoryRun]]) -> dict[str, list[_Unit]]:
    """Board -> its runs, the newest last; spellings of one UUID are one board."""
    found: dict[tuple[str, str], _Unit] = {}
    names: dict[str, str] = {}
    for runs in histories.values():
        for run in {each.run: each for each in runs}.values():
            for counts in _counts(run):
                names.setdefault(board_key(counts.board), counts.board)
                _add(found.setdefault((board_key(counts.board), run.run), _Unit(run.created)), counts)
    for key, name, value in _null_spreads(histories):
        if (key, name) in found:
            found[key, name].spreads.append(value)
    by_board: dict[str, list[_Unit]] = {}
    for (key, _), unit in sorted(found.items(), key=lambda item: (item[1].created, item[0])):
        by_board.setdefault(names[key], []).append(unit)
    return {board: by_board[board][-NEWEST:] for board in sorted(by_board)}


def _counts(run: HistoryRun) -> tuple[BoardCounts, ...]:
    """Older lines have what was left open, and no suspects."""
    uuid = run.environment.device.uuid
    if run.boards or not uuid:
        return run.boards
    open_cases = len(run.inconclusive)
    return (BoardCounts(uuid, len(run.cases) + open_cases, open_cases),)


def _add(unit: _Unit, counts: BoardCounts) -> None:
    unit.judged += counts.judged
    unit.inconclusive += counts.inconclusive
    unit.suspects += counts.suspects
    unit.overturned += counts.overturned


def _null_spreads(histories: Mapping[str, Sequence[HistoryRun]]) -> list[tuple[str, str, float]]:
    """Board, run and spread of each A/A duel, against the median of its case in its environment.

    If only one board measured a case there is nothing to compare it with.
    """
    found: list[tuple[str, str, float]] = []
    for runs in histories.values():
        groups: dict[tuple[int, str, str], list[tuple[str, str, float]]] = {}
        places: list[Environment] = []
        for run in {each.run: each for each in runs}.values():
            place = _place(places, run.environment)
            for case in run.cases:
                board = case.board or run.environment.device.uuid
                if board and case.null and case.null[0]:
                    told = (board_key(board), run.run, _log_spread(case))
                    groups.setdefault((place, case.case, case.cache), []).append(told)
        for group in groups.values():
            if len({board for board, _, _ in group}) > 1:
                usual = statistics.median(value for _, _, value in group)
                found += [(board, run, value - usual) for board, run, value in group]
    return found


def _place(known: list[Environment], environment: Environment) -> int:
    """Which of the environments seen so far it is, boards aside."""
    at = next((at for at, each in enumerate(known) if not unmixable(each, environment)), None)
    if at is None:
        known.append(environment)
        return len(known) - 1
    return at


def _log_spread(case: HistoryCase) -> float:
    """Of the first process: later ones exist only where the first strayed."""
    return math.log(max(statistics.fmean(map(abs, case.null[0])), _FLOOR))


def _spread(unit: _Unit) -> float:
    return statistics.fmean(unit.spreads)


# --- tests ------------------------------------------------------------------------------------------------------------


def _against(board: str, spreads: Mapping[str, Sequence[float]]) -> SpreadTest | None:
    own = list(spreads[board])[-NEWEST:]
    others = [value for other, values in spreads.items() if other != board for value in values[-NEWEST:]][-OTHERS:]
    # If the smallest p is too large for Holm's first step, no run of the board could ever be enough.
    if not own or not others or exact.smallest_p(len(own), len(others)) * FIGURES * len(spreads) > ALPHA:
        return None
    pairs = exact.pairs(own, others)
    shift = pairs.shift()
    ratio = Interval(math.exp(shift.value), math.exp(shift.low), math.exp(shift.high), shift.confidence)
    return SpreadTest(ratio, pairs.p_above(0.0))


def _shares(units: Mapping[str, Sequence[_Unit]], name: str) -> dict[str, Share]:
    part, whole = ("inconclusive", "judged") if name == "inconclusive" else ("overturned", "suspects")
    counts = {
        board: np.array([(getattr(unit, part), getattr(unit, whole)) for unit in own if getattr(unit, whole)]).reshape(
            -1, 2
        )
        for board, own in units.items()
    }
    return {board: _share(board, counts) for board in units}


def _share(board: str, counts: Mapping[str, NDArray[np.int64]]) -> Share:
    own, others = (
        counts[board],
        np.concatenate([counts[each] for each in counts if each != board] or [np.empty((0, 2), dtype=np.int64)]),
    )
    count, of = map(int, own.sum(axis=0))
    if not len(own) or not len(others):
        return Share(count, of, None)
    return Share(count, of, float(others[:, 0].sum() / others[:, 1].sum()), _drawn_p(own, others))


def _drawn_p(own: NDArray[np.int64], others: NDArray[np.int64]) -> float:
    """Of a mean share of the own runs that is as large, if the runs are dealt out at random; seeded.

    Phipson, Smyth, Stat. Appl. Genet. Mol. Biol. 9 (2010) 39: the deal at hand counts as one more.
    """
    both = np.concatenate([own, others])
    shares = both[:, 0] / both[:, 1]
    if not shares.any():
        return 1.0
    rng = np.random.default_rng((8, len(own), len(others)))
    dealt = rng.random((DRAWS, len(shares))).argpartition(len(own) - 1, axis=1)[:, : len(own)]
    as_large = int(np.count_nonzero(shares[dealt].mean(axis=1) >= shares[: len(own)].mean() - 1e-12))
    return (1 + as_large) / (1 + DRAWS)
