"""Differences between boards of a model, and which stand out from the others, by accepted runs.

The shares of a board's open cases and of its overturned suspects are tested by dealing out runs at random, the spread
of its A/A duels by the exact rank sum, with Holm over all. The unit is a run on a board, since cases of one run share
its night. A board is sick if its newest runs are, several in a row: the median of a run's references or clocks lies
beyond what healthy boards differ by. Error rates: docs/drift.md.
"""

import contextlib
import itertools
import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfci.core.environment import unmixable
from perfci.core.errors import StoredFileError
from perfci.core.model import Environment, Fact, Interval, Reason, board_key
from perfci.extensions.common.accepted_runs import BoardCounts, HistoryCase, HistoryRun
from perfci.extensions.common.history import history_devices, history_ops, read_history
from perfci.statistics import exact

ALPHA = 0.01  # chance, at most, that a look names any board of a model of which all are alike
LEAST_RATIO = 1.25  # a smaller ratio of spreads is never reported, however sure it is
LEAST_SHARE = 0.05  # the same of a share, less the other boards'
NEWEST = 30  # runs of a board that count, since boards are repaired
OTHERS = 200  # runs of other boards that its are compared with, at most

DRAWS = 9_999

FIGURES = 3

SICK = frozenset({"slow", "clock", "ecc"})
"""Figures that put a board aside by themselves. What people look at first is how often the others err."""
LEAST_SLOW = 1.05  # ratio of the references' times: at the power cap healthy boards of a model differ by 2 to 5 %
LEAST_CLOCK = 1.03  # ratio of the other boards' clocks to its own
ENDS = {"slow": LEAST_SLOW, "clock": LEAST_CLOCK}
SICK_RUNS = 3  # in a row that look sick: one night proves nothing. Of memory errors one run is enough

_FLOOR = 1e-6  # spread of an A/A duel, log scale, below which all count as alike


@dataclass(frozen=True)
class Share:
    """Of a board's cases, against those of the other boards; run by run."""

    count: int
    of: int
    others: float | None  # the same share on the other boards
    p: float | None = None  # that it is no larger than theirs. None if that cannot be tested

    @property
    def value(self) -> float | None:
        """None of nothing."""
        return self.count / self.of if self.of else None


@dataclass(frozen=True)
class SpreadTest:
    """A board's A/A spread against that of its model's other boards, or its references' time, or their clock."""

    ratio: Interval
    p: float  # one-sided, exact, of a spread that is no larger


@dataclass(frozen=True)
class Board:
    """A board's figures."""

    board: str  # UUID
    runs: int
    inconclusive: Share
    overturned: Share  # of the suspects
    spread: SpreadTest | None  # None if there are too few A/A duels
    nulls: int  # runs with A/A duels
    slow: SpreadTest | None = None  # its references' time / the other boards'. None if they do not compare
    clock: SpreadTest | None = None  # the other boards' clock / its own, the same
    ecc_errors: int = 0  # memory errors that its newest run saw and that could not be corrected
    outside: tuple[str, ...] = ()  # what it stands out in: inconclusive, overturned, spread, slow, clock, ecc
    since: tuple[str, ...] = ()  # ids of its newest runs in which it was sick, the oldest first
    began: str | None = None  # when the first of these was made
    changes: Mapping[str, float] = field(default_factory=dict)
    """by how much slower its references are in these runs, or the other boards' clock is higher, ratio - 1"""

    @property
    def sick(self) -> bool:
        """Whether it gets no more work: until a run on it is healthy, or people clear it."""
        return not SICK.isdisjoint(self.outside)


@dataclass
class _Unit:
    """A run on a board."""

    run: str
    created: str  # or when the next one was, if its clock was ahead
    counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros((2, 2), np.int64))
    """for inconclusive and overturned: cases, and those that might have been"""
    spreads: list[float] = field(default_factory=list)
    """of each A/A duel, log, against the usual one of its case and environment"""
    slow: list[float] = field(default_factory=list)  # of each reference's time, the same
    clock: list[float] = field(default_factory=list)  # of each case's clock, the same, higher where that is lower
    ecc_errors: int = 0

    def find_signs(self) -> list[str]:
        """In what it looks like a run on a sick board. Several of them show that."""
        values_of = {name: values for name in ENDS if (values := getattr(self, name))}
        signs = [name for name, values in values_of.items() if statistics.median(values) > math.log(ENDS[name])]
        return [*signs, *["ecc"] * (self.ecc_errors > 0)]


def compare_boards(histories: Mapping[str, Sequence[HistoryRun]]) -> tuple[Board, ...]:
    """Returns every board of a device model by UUID; histories: op -> its runs there. Runs without one are left out."""
    units = _list_units(histories)
    shares = {name: _compare_shares(units, row) for row, name in enumerate(("inconclusive", "overturned"))}
    spreads = compare_spreads(
        {
            board: [statistics.fmean(unit.spreads) for unit in of_board if unit.spreads]
            for board, of_board in units.items()
        }
    )

    def collect(name: str) -> dict[str, list[float]]:
        return {
            board: [statistics.median(value) for unit in of_board if (value := getattr(unit, name))]
            for board, of_board in units.items()
        }

    slow, clock = (compare_spreads(collect(name)) for name in ENDS)
    by_figure: dict[str, Mapping[str, Share | SpreadTest | None]] = {**shares, "spread": spreads}
    family = [(figure, board) for figure in by_figure for board in units]
    p = [1.0 if (one := by_figure[name][board]) is None or one.p is None else one.p for name, board in family]
    sure = {key for key, p_adjusted in zip(family, exact.holm(p, len(p)), strict=True) if p_adjusted <= ALPHA}

    def stands_out(figure: str, board: str) -> bool:
        test = by_figure[figure][board]
        if isinstance(test, SpreadTest):
            return test.ratio.value >= LEAST_RATIO
        return test is not None and (test.value or 0.0) - (test.others or 0.0) >= LEAST_SHARE

    boards = []
    for board, of_board in units.items():
        inconclusive, overturned = (share[board] for share in shares.values())
        nulls = sum(bool(unit.spreads) for unit in of_board)
        outside = tuple(name for name in by_figure if (name, board) in sure and stands_out(name, board))
        # One healthy run is enough for a board that was repaired.
        since = [*itertools.takewhile(_Unit.find_signs, reversed(of_board))][::-1]
        if len(since) >= SICK_RUNS or of_board[-1].ecc_errors:
            outside += tuple(of_board[-1].find_signs())
        else:
            since = []
        values_of = {name: [value for unit in since for value in getattr(unit, name)] for name in ENDS}
        changes = {name: math.expm1(statistics.median(values)) for name, values in values_of.items() if values}
        shown = Board(board, len(of_board), inconclusive, overturned, spreads[board], nulls, slow[board], clock[board])
        shown = replace(shown, ecc_errors=of_board[-1].ecc_errors, outside=outside, changes=changes)
        began = since[0].created if since else None
        boards.append(replace(shown, since=tuple(unit.run for unit in since), began=began))
    return tuple(boards)


def list_reopened(board: Board, histories: Mapping[str, Sequence[HistoryRun]]) -> Mapping[str, tuple[str, ...]]:
    """Returns by op the cases with newest accepted times of a sick board alone, and of its sick runs."""
    shares, key = {}, board_key(board.board)
    for op, runs in histories.items():
        newest = {case.case: (run.run, case.board or run.environment.device.uuid) for run in runs for case in run.cases}
        here = (case for case, (run, uuid) in newest.items() if run in board.since and board_key(uuid or "") == key)
        if cases := tuple(here):
            shares[op] = cases
    return shares


def describe_board(board: Board, device: str) -> tuple[Reason, ...]:
    """The figures in which a board stands out, with the next step."""
    facts: dict[str, dict[str, Fact]] = {
        kind: {"share": share.value, "others": share.others, "count": share.count, "of": share.of}
        for kind, share in (("board_unsettled", board.inconclusive), ("board_overturned", board.overturned))
    }
    if board.spread:
        ratio = board.spread.ratio
        facts["board_spreads"] = {"ratio": ratio.value, "low": ratio.low, "high": ratio.high, "nulls": board.nulls}
    for name, change in board.changes.items():
        facts[f"board_{name}"] = {"change": change, "count": len(board.since), "since": (board.began or "")[:10]}
    facts["board_ecc"] = {"count": board.ecc_errors}
    kinds = {
        "inconclusive": "board_unsettled",
        "overturned": "board_overturned",
        **{"spread": "board_spreads", "slow": "board_slow", "clock": "board_clock", "ecc": "board_ecc"},
    }
    return tuple(
        Reason(kinds[name], {"board": board.board, "device": device, **facts[kinds[name]]}) for name in board.outside
    )


def find_difference(boards: Sequence[Board]) -> float | None:
    """Returns the standard deviation of healthy boards' times of the same references, ratio. None of fewer than 3."""
    shifts = [math.log(board.slow.ratio.value) for board in boards if board.slow and not board.sick]
    # Each is against all others, of which it is none.
    return statistics.stdev(shifts) * (len(shifts) - 1) / len(shifts) if len(shifts) > 2 else None


def _list_units(histories: Mapping[str, Sequence[HistoryRun]]) -> dict[str, list[_Unit]]:
    """Board -> its runs, the newest last; spellings of one UUID are one board."""
    units: dict[tuple[str, str], _Unit] = {}
    names: dict[str, str] = {}
    for runs in histories.values():
        # A run cannot have been made after those that were accepted later.
        times = list(itertools.accumulate((run.created for run in reversed(runs)), min))[::-1]
        for run, created in zip(runs, times, strict=True):
            uuid, left = run.environment.device.uuid, len(run.inconclusive)
            # Older lines have what was left open, and no suspects.
            older = (BoardCounts(uuid, len(run.cases) + left, left),) if uuid else ()
            for counts in run.boards or older:
                key = board_key(counts.board)
                names.setdefault(key, counts.board)
                unit = units.setdefault((key, run.run), _Unit(run.run, created))
                unit.created = min(unit.created, created)
                unit.counts += ((counts.inconclusive, counts.judged), (counts.overturned, counts.suspects))
                unit.ecc_errors = max(unit.ecc_errors, counts.ecc_errors)
    placed = [list(zip(runs, _number_environments(runs), strict=True)) for runs in histories.values()]
    for name, value in (("spreads", _log_spread), ("slow", _log_reference), ("clock", _log_clock)):
        for key, run_id, offset in _list_offsets(placed, value):
            if (key, run_id) in units:
                getattr(units[key, run_id], name).append(offset)
    by_board: dict[str, list[_Unit]] = {}
    for (key, _), unit in sorted(units.items(), key=lambda item: (item[1].created, item[0])):
        by_board.setdefault(names[key], []).append(unit)
    return {board: by_board[board][-NEWEST:] for board in sorted(by_board)}


def _log_spread(case: HistoryCase) -> float | None:
    """Of its A/A duel. First processes only: later ones exist only if these strayed."""
    return math.log(max(statistics.fmean(map(abs, case.null[0])), _FLOOR)) if case.null and case.null[0] else None


def _log_reference(case: HistoryCase) -> float | None:
    return math.log(case.reference_us.median_us) if case.reference_us and case.reference_us.median_us > 0 else None


def _log_clock(case: HistoryCase) -> float | None:
    """Higher where the clock is lower."""
    return -math.log(case.clock_mhz) if case.clock_mhz else None


def _number_environments(runs: Sequence[HistoryRun]) -> Iterator[int]:
    """Yields which of the environments so far a run has, boards aside."""
    places: list[Environment] = []
    for run in runs:
        same = (at for at, environment in enumerate(places) if not unmixable(environment, run.environment))
        if (place := next(same, len(places))) == len(places):
            places.append(run.environment)
        yield place


def _list_offsets(
    placed: Sequence[Sequence[tuple[HistoryRun, int]]], value: Callable[[HistoryCase], float | None]
) -> list[tuple[str, str, float]]:
    """Board, run, value of each case less the usual one of the same case in the same environment on all boards."""
    offsets: list[tuple[str, str, float]] = []
    for runs in placed:
        groups: dict[tuple[int, str, str], list[tuple[str, str, float]]] = {}
        for run, place in runs:
            for case in run.cases:
                board, seen = case.board or run.environment.device.uuid, value(case)
                if board and seen is not None:
                    key = (place, case.case, case.cache)
                    groups.setdefault(key, []).append((board_key(board), run.run, seen))
        for group in groups.values():
            if len({board for board, _, _ in group}) > 1:
                usual = statistics.median(value for _, _, value in group)
                offsets += [(board, run_id, value - usual) for board, run_id, value in group]
    return offsets


def compare_spreads(spreads: Mapping[str, Sequence[float]]) -> dict[str, SpreadTest | None]:
    """Returns each board's A/A spreads, log, one a run and the newest last, against those of all other boards."""
    tests: dict[str, SpreadTest | None] = {}
    for board, values in spreads.items():
        of_board = list(values)[-NEWEST:]
        others = [value for other, spread in spreads.items() if other != board for value in spread[-NEWEST:]][-OTHERS:]
        tests[board] = None
        # If the smallest p is too large for Holm's first step, no run of the board could ever be enough.
        if of_board and others and exact.smallest_p(len(of_board), len(others)) * FIGURES * len(spreads) <= ALPHA:
            pairs = exact.pairs(of_board, others)
            shift = pairs.shift()
            ratio = Interval(math.exp(shift.value), math.exp(shift.low), math.exp(shift.high), shift.confidence)
            tests[board] = SpreadTest(ratio, pairs.p_above(0.0))
    return tests


def _compare_shares(units: Mapping[str, Sequence[_Unit]], row: int) -> dict[str, Share]:
    every = {board: np.stack([unit.counts[row] for unit in of_board]) for board, of_board in units.items()}
    counts = {board: of_board[of_board[:, 1] > 0] for board, of_board in every.items()}
    shares = {}
    for board, of_board in counts.items():
        count, of = map(int, of_board.sum(axis=0))
        others = np.concatenate([np.empty((0, 2), np.int64), *(counts[count] for count in counts if count != board)])
        shares[board] = Share(count, of, None)
        if len(of_board) and len(others):
            share = float(others[:, 0].sum() / others[:, 1].sum())
            shares[board] = Share(count, of, share, _draw_p(of_board, others))
    return shares


def _draw_p(of_board: NDArray[np.int64], others: NDArray[np.int64]) -> float:
    """P of as large a mean share in random deals, seeded: Phipson, Smyth, Stat. Appl. Genet. Mol. Biol. 9 (2010) 39."""
    both = np.concatenate([of_board, others])
    shares = both[:, 0] / both[:, 1]
    if not shares.any():
        return 1.0
    rng = np.random.default_rng((8, len(of_board), len(others)))
    dealt = rng.random((DRAWS, len(shares))).argpartition(len(of_board) - 1, axis=1)[:, : len(of_board)]
    as_large = int(np.count_nonzero(shares[dealt].mean(axis=1) >= shares[: len(of_board)].mean() - 1e-12))
    return (1 + as_large) / (1 + DRAWS)


MOST_OPS = 50  # of a model with histories that are read: a sick board shows in each, and a plan takes seconds


def find_sick(baselines: Path) -> Iterator[str]:
    """Yields the UUIDs of sick boards of any model. A damaged history has none."""
    for device in history_devices(baselines):
        histories = {}
        for op in history_ops(baselines, device)[:MOST_OPS]:
            with contextlib.suppress(StoredFileError):
                histories[op] = read_history(baselines, device, op, follow=False).runs
        yield from (board.board for board in compare_boards(histories) if board.sick)
