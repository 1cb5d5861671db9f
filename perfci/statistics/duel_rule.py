"""The rule of a duel: when base and head, timed side by side, have shown enough.

d is the Hodges-Lehmann shift of head against base in one block, log scale, positive if head is slower. tau is the
slow-down that is allowed, inside the null hypothesis. The looks after 4 and 12 blocks of one process can only clear.
Those after 24 of two and 48 of four have an eighth of alpha each, since four questions are asked at both, after Holm
over all cases. Processes must agree too, since an allocation may slow one arm for as long as a process lives, which no
test within it can see: two must be slower by tau and more than any such bias seen, of four three by tau / 2. IMPROVED
is the same rule mirrored. Revisions that have a process each are cleared by the final looks alone, and only if the
interval of d ends below tau, since their spread may hide more. docs/how-good-is-perfci.md holds how often the rule errs
(benchmarks/verdicts.py, benchmarks/turns.py).
"""

import math
import statistics
from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from perfci.core.model import Look
from perfci.statistics import exact
from perfci.statistics.exact import Floats

Flags = NDArray[np.bool_]

FIRST, SECOND = 4, 12  # blocks of the first process at its two looks
CLEAR_FIRST, CLEAR_SECOND = 0.5, 0.75  # what the first process clears: shifts up to so many tau
BLOCKS = 12  # blocks of every later process
FINAL = {2: 24, 4: 48}  # processes -> blocks at the two looks that may decide against a case

PROCESSES = 4

AGREEING = 3  # of so many processes as there are at the last look, those that must see the change by themselves
WHOLE = 6  # least blocks of a process that can agree: the median of fewer is too much that of single blocks

BIAS = math.log1p(0.0075)
"""Log scale. Above the largest stray of 401 processes of unchanged kernels on shared buffers (0.66 %, seven H200s)."""

QUESTIONS = 4  # that share alpha: whether device time, span, host time and sustained time are longer
TESTS = QUESTIONS * len(FINAL)  # how often an unchanged case may be called slower


class Ruling(StrEnum):
    """How a duel stands so far."""

    CLEARED = "cleared"
    SLOWER = "slower"
    FASTER = "faster"
    OPEN = "open"  # more blocks would decide
    UNDECIDED = "undecided"  # all blocks are spent


def look(processes: Sequence[Sequence[float]], tau: float) -> Look:
    """Sum a duel up. processes: d of each process's blocks, at least one block. tau: allowed slow-down, ratio - 1."""
    allowed = math.log1p(tau)
    d = [shift for process in processes for shift in process]
    mirrored = [-shift for shift in d]
    tested = len(processes) >= min(FINAL)
    return Look(
        blocks=len(d), processes=len(processes), sizes=tuple(map(len, processes)), tau=allowed, shift=exact.location(d),
        p_slower=exact.signed_rank_p(d, allowed) if tested else 1.0,
        p_faster=exact.signed_rank_p(mirrored, allowed) if tested else 1.0,
        medians=tuple(statistics.median(process) for process in processes),
        p_differs=max(exact.signed_rank_p(d, -allowed), exact.signed_rank_p(mirrored, -allowed)),
    )  # fmt: skip


def early(shifts: Sequence[float], tau: float) -> Ruling:
    """The first process's looks. shifts: d of its blocks so far, at least one. tau: allowed slow-down, ratio - 1."""
    cleared = _is_cleared(len(shifts), statistics.median(shifts), exact.location(shifts).value, math.log1p(tau))
    return Ruling.CLEARED if cleared else Ruling.OPEN


def answer(seen: Look, p_slower: float, p_faster: float, alpha: float) -> Ruling:
    """How a duel stands, its p values adjusted for the other cases. alpha is of the whole family, over all TESTS."""
    centre, tau, level = seen.shift.value, seen.tau, alpha / TESTS
    medians, whole = np.array(seen.medians), np.array(seen.sizes) >= WHOLE
    if np.count_nonzero(whole) < min(FINAL):
        cleared = not seen.apart and _is_cleared(seen.blocks, seen.medians[0], centre, tau)
    elif p_slower <= level and agree(medians, tau, whole):
        return Ruling.SLOWER
    elif p_faster <= level and agree(-medians, tau, whole):
        return Ruling.FASTER
    else:
        cleared = abs(centre) <= tau and not (seen.apart and seen.shift.high > tau)
    if cleared:
        return Ruling.CLEARED
    return Ruling.OPEN if seen.processes < PROCESSES else Ruling.UNDECIDED


def processes_wanted(seen: Look) -> int:
    """Processes that the next look needs, those so far included."""
    return next((processes for processes in FINAL if processes > seen.processes), PROCESSES)


def can_decide(family: int, alpha: float) -> bool:
    """Whether the last look could find one of `family` cases slower at all: its least p is 2 to the minus blocks."""
    return family * 0.5 ** FINAL[PROCESSES] <= alpha / TESTS


def _is_cleared(blocks: int, median: float, centre: float, tau: float) -> bool:
    """Whether the blocks of one process clear a case. tau: log scale."""
    if blocks >= SECOND:
        return abs(centre) <= CLEAR_SECOND * tau
    return blocks >= FIRST and abs(median) <= CLEAR_FIRST * tau


def agree(medians: Floats, tau: float, whole: Flags | bool = True, bias: float | None = None) -> Flags:
    """Whether enough processes are slower. medians, whole (blocks enough): (..., processes). Times are log scale."""
    if medians.shape[-1] < PROCESSES:
        return np.asarray(medians.min(axis=-1) > tau + (BIAS if bias is None else bias))
    return np.asarray(np.count_nonzero((medians > tau / 2) & whole, axis=-1) >= AGREEING)
