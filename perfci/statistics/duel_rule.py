"""The rule of a duel: when base and head, timed side by side, have shown enough.

d is the Hodges-Lehmann shift of head against base in one block, log scale, positive if head is slower. tau is the
slow-down that is allowed, inside the null hypothesis, and twice tau the one that is to be found. So a case is cleared
only if the centre of d is small and its interval ends below twice tau. The looks after 4 to 12 blocks of one process
can only clear. Those after 24 of two and 48 of four have an eighth of alpha each, since four questions are asked at
both, after Holm over all cases. Processes must agree too, since an allocation may slow one arm for as long as a process
lives, which no test within it can see: two must be slower by tau and more than any such bias seen, of four three by
tau / 2. Host times, whose processes stray by more, have a guard to themselves. IMPROVED is the same rule mirrored.
Revisions that have a process each are cleared by the final looks alone, and only if the interval of d ends below tau,
since their spread may hide more. docs/how-good-is-perfci.md holds how often the rule errs (benchmarks/verdicts.py,
benchmarks/clearing.py, benchmarks/turns.py).
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

EARLY = {4: 0.4, 6: 0.4, 8: 0.4, 12: 0.6}  # blocks of the first process at its looks -> shifts that clear, times tau
FIRST, BLOCKS = min(EARLY), max(EARLY)  # blocks of a process at its first look, and at most
FINAL = {2: 24, 4: 48}  # processes -> blocks at the two looks that may decide against a case

PROCESSES = 4

PROMISE = 2.0  # times tau: the slow-down that is to be found
SURE, SURE_OF_PROCESSES = 0.99, 0.95
"""One-sided confidence that d lies below that, by all blocks and by the medians of processes, which are few."""

AGREEING = 3  # of so many processes as there are at the last look, those that must see the change by themselves
WHOLE = 6  # least blocks of a process that can agree: the median of fewer is too much that of single blocks

BIAS = math.log1p(0.0075)
"""Log scale. Above the largest stray of 401 processes of unchanged kernels on shared buffers (0.66 %, seven H200s)."""

HOST_BIAS = math.log1p(0.075)
"""The same of host times: above the largest stray of 75 processes of unchanged kernels (5.1 %, one H200's host)."""

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
        reach=find_reach(processes),
    )  # fmt: skip


def early(shifts: Sequence[float], tau: float) -> Ruling:
    """The first process's looks. shifts: d of its blocks so far, at least one. tau: allowed slow-down, ratio - 1."""
    seen = look([shifts], tau)
    return Ruling.CLEARED if _is_cleared(seen, find_share(len(shifts))) else Ruling.OPEN


def answer(seen: Look, p_slower: float, p_faster: float, alpha: float) -> Ruling:
    """How a duel stands, its p values adjusted for the other cases. alpha is of the whole family, over all TESTS."""
    tau, level = seen.tau, alpha / TESTS
    medians, whole = np.array(seen.medians), np.array(seen.sizes) >= WHOLE
    least = None if seen.guard is None else tau + seen.guard / 2
    if np.count_nonzero(whole) < min(FINAL):
        cleared = not seen.apart and _is_cleared(seen, find_share(seen.blocks))
    elif p_slower <= level and agree(medians, tau, whole, seen.guard, least):
        return Ruling.SLOWER
    elif p_faster <= level and agree(-medians, tau, whole, seen.guard, least):
        return Ruling.FASTER
    else:
        cleared = _is_cleared(seen, 1.0) and not (seen.apart and seen.shift.high > tau)
    if cleared:
        return Ruling.CLEARED
    return Ruling.OPEN if seen.processes < PROCESSES else Ruling.UNDECIDED


def processes_wanted(seen: Look) -> int:
    """Processes that the next look needs, those so far included."""
    return next((processes for processes in FINAL if processes > seen.processes), PROCESSES)


def can_decide(family: int, alpha: float) -> bool:
    """Whether the last look could find one of `family` cases slower at all: its least p is 2 to the minus blocks."""
    return family * 0.5 ** FINAL[PROCESSES] <= alpha / TESTS


def next_early(blocks: int) -> int:
    """Blocks of the first process at its next look after so many, or as many if that was the last one."""
    return next((count for count in EARLY if count > blocks), blocks)


def find_share(blocks: int) -> float:
    """Returns how many times tau the centre of so many blocks of the first process may be to clear a case. -1: none."""
    return next((share for count, share in reversed(EARLY.items()) if blocks >= count), -1.0)


def _is_cleared(seen: Look, share: float) -> bool:
    """Whether the centre is within so many times tau, and the promise lies beyond what the noise leaves possible."""
    centre = abs(seen.shift.value)
    return centre <= share * seen.tau and centre + seen.reach < PROMISE * seen.tau


def find_reach(processes: Sequence[Sequence[float]]) -> float:
    """How far a figure of blocks may lie beyond its centre, by all blocks, or by the processes' medians if further."""
    medians = [statistics.median(process) for process in processes if len(process) >= WHOLE]
    reach = exact.mean_reach([value for process in processes for value in process], SURE)
    of_processes = exact.mean_reach(medians, SURE_OF_PROCESSES) if len(medians) > min(FINAL) else 0.0
    return float(max(reach, of_processes))


def may_be_longer(seen: Look) -> bool:
    """Whether head may be slower by more than tau, or the noise leaves twice tau possible."""
    return seen.shift.value > seen.tau or seen.shift.value + seen.reach >= PROMISE * seen.tau


def agree(
    medians: Floats, tau: float, whole: Flags | bool = True, bias: float | None = None, least: float | None = None
) -> Flags:
    """Whether enough processes are slower. medians, whole (blocks enough): (..., processes). Times are log scale.

    Two must be beyond tau by `bias` (None: BIAS), of four three beyond `least` (None: tau / 2).
    """
    if medians.shape[-1] < PROCESSES:
        return np.asarray(medians.min(axis=-1) > tau + (BIAS if bias is None else bias))
    return np.asarray(np.count_nonzero((medians > (tau / 2 if least is None else least)) & whole, axis=-1) >= AGREEING)
