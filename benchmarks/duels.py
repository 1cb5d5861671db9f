"""Duels by the product's rule: whole families at a time, stopped when the product would stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from perfci.core.model import Block, Tail
from perfci.measure.blocks import BLOCK_WARMUP, FLUSH_US
from perfci.statistics import duel_rule, exact, tail_rule
from perfci.statistics.duel_rule import Look, Ruling
from perfci.thresholds.case import CaseThresholds

FAMILY = 30
"""Cases that are duelled in one run, of which every check is one."""

LIMITS = CaseThresholds()

TIMER = "activity"
"""The product's first choice, with a floor that is 0.1 us."""


def tightened(share: float) -> CaseThresholds:
    """Returns the thresholds with tau, and so the promise, times a factor; the timer's resolution stays."""
    return CaseThresholds(tau=tuple((start, share * tau) for start, tau in LIMITS.tau))


class Duel(Protocol):
    """The source of one case's blocks."""

    @property
    def base_us(self) -> float: ...

    @property
    def rounds(self) -> int:
        """Launches of an arm in a block."""
        ...

    @property
    def processes(self) -> int:
        """How many there are."""
        ...

    def shifts(self, process: int, blocks: int) -> Sequence[float]:
        """Returns shifts of a process's first blocks, log scale; plus is slower."""
        ...


class Whole(Duel, Protocol):
    """A duel with its launches, of which perfci looks at more than the medians."""

    def blocks(self, process: int, blocks: int) -> Sequence[Block]:
        """Returns a process's first blocks, with the same shifts."""
        ...


@dataclass(frozen=True)
class Outcome:
    """How one duel ended. OPEN: the product would need more blocks than there are."""

    answer: Ruling
    blocks: int
    processes: int
    device_ms: float
    """launches, warm-up and flushes of both arms, as estimated"""
    tail: Ruling = Ruling.CLEARED
    """what was said about the launches that medians do not see"""


def play(
    duels: Sequence[Duel],
    limits: CaseThresholds = LIMITS,
    family: int | None = None,
    timer: str = TIMER,
    *,
    apart: bool = False,
    tails: bool = False,
) -> list[Outcome]:
    """Play all duels of one run to their end.

    family: cases that the run duels, at least as many as there are here; the others show nothing. apart: by the rule of
    revisions that have a process each. tails: look at more than the medians of duels that have their launches.
    """
    taus = [limits.allowed(duel.base_us, timer) for duel in duels]
    seen = [replace(_first(duel, tau, apart, tails), apart=apart) for duel, tau in zip(duels, taus, strict=True)]
    answers = _answers(seen, family or len(duels), limits.alpha)
    tails_of = [_tail(duel, look, tails) for duel, look in zip(duels, seen, strict=True)]
    while more := [
        number
        for number, answer in enumerate(answers)
        # What fails beyond doubt is measured no further.
        if (answer is Ruling.OPEN or (tails_of[number] is Ruling.OPEN and answer is not Ruling.SLOWER))
        and seen[number].processes < duel_rule.processes_wanted(seen[number]) <= duels[number].processes
    ]:
        for number in more:
            again = _again(duels[number], taus[number], duel_rule.processes_wanted(seen[number]))
            seen[number] = replace(again, apart=apart)
            tails_of[number] = _tail(duels[number], seen[number], tails)
        answers = _answers(seen, family or len(duels), limits.alpha)
    return [_outcome(*ended) for ended in zip(duels, seen, answers, tails_of, strict=True)]


def _first(duel: Duel, tau: float, apart: bool, tails: bool) -> Look:
    for blocks in (duel_rule.BLOCKS,) if apart else duel_rule.EARLY:
        shifts = duel.shifts(0, blocks)
        seen = duel_rule.look([shifts], tau)
        if not {duel_rule.early(shifts, tau), _tail(duel, seen, tails)} & {Ruling.OPEN}:
            break
    return seen


def _tail(duel: Duel | Whole, seen: Look, tails: bool) -> Ruling:
    if not tails:
        return Ruling.CLEARED
    blocks = [block for process, count in enumerate(seen.sizes) for block in duel.blocks(process, count)]
    tail: Tail | None = tail_rule.find_tail(blocks, seen)
    return tail_rule.answer(tail, seen) if tail else Ruling.CLEARED


def _again(duel: Duel, tau: float, processes: int) -> Look:
    return duel_rule.look([duel.shifts(process, duel_rule.BLOCKS) for process in range(processes)], tau)


def _answers(seen: Sequence[Look], family: int, alpha: float) -> list[Ruling]:
    slower = exact.holm([look.p_slower for look in seen], family)
    faster = exact.holm([look.p_faster for look in seen], family)
    return [duel_rule.answer(*evidence, alpha) for evidence in zip(seen, slower, faster, strict=True)]


def _outcome(duel: Duel, look: Look, answer: Ruling, tail: Ruling) -> Outcome:
    launches = 2 * look.blocks * (duel.rounds + BLOCK_WARMUP)
    return Outcome(answer, look.blocks, look.processes, launches * (duel.base_us + FLUSH_US) / 1e3, tail)


@dataclass(frozen=True)
class Tally:
    """What many checks came to."""

    answers: Counter[Ruling]
    blocks: int
    device_ms: float

    @property
    def checks(self) -> int:
        return self.answers.total()

    @property
    def alarms(self) -> int:
        """Verdicts that mean a changed kernel."""
        return self.answers[Ruling.SLOWER] + self.answers[Ruling.FASTER]

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.answers + other.answers, self.blocks + other.blocks, self.device_ms + other.device_ms)


NOTHING = Tally(Counter(), 0, 0.0)


def tally(outcomes: Iterable[Outcome]) -> Tally:
    ended = list(outcomes)
    return Tally(
        Counter(outcome.answer for outcome in ended),
        sum(outcome.blocks for outcome in ended),
        sum(outcome.device_ms for outcome in ended),
    )
