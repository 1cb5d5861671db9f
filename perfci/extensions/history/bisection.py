"""The search for the commit that made a kernel slower: what a duel shows about a revision, and how sure that is.

Every revision is duelled with GOOD. Its shift, log scale, positive if it is slower, is the mean of its processes'
medians. Between two levels it is good in the lower half and bad in the upper. If it is certainly at neither end, it
carries a part of the loss, and both parts are searched. The chances of all steps add up. See docs/bisecting.md.
"""

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol

from perfci.core.model import Fact, Interval, Reason
from perfci.extensions.common.strays import SAME, Shown, Stray, estimate_noise

LOOKS = (1, 2, 4, 8)  # Processes of a revision's looks. The later ones only if noise asks for them.
STEP = 5e-3  # chance of an error below which a step of the search needs no further look

CONFIRM = 1e-3
"""The same of the duel that confirms a culprit, and of a revision that parts the loss in two: these bear the weight."""

PARTED = 4  # processes without which none does
BEYOND = 0.05  # chance of an error above which a revision counts as not tried
DOUBT = 0.01  # chance of an error up to which a loss is beyond doubt
LEAST = 1e-4  # no commit is ever named with less doubt: no model of noise holds further out

QUARTER, HALF = 0.25, 0.5

UNCLEAR = 3  # revisions that noise may hide before the search of a range gives up: more of them would show no more

_AWAY = (0.25, 0.5, 0.125, 0.375)
"""Share of the revisions left, best first, to skip after each one that could not be tried: away from it."""


class Rating(StrEnum):
    """The kind of a revision."""

    GOOD = "good"
    BAD = "bad"
    PART = "part"  # it carries a part of the loss
    SKIP = "skip"  # it cannot be tried, or noise hides what it is


@dataclass(frozen=True)
class Leg:
    """One revision tried."""

    commit: str
    side: Rating
    error: float = 0.0  # chance that noise alone put it on this side
    seen: Shown | None = None  # its duel with GOOD. None if it was not timed
    shift: Interval | None = None  # log scale
    reason: Reason | None = None  # why it could not be tried, or need not be


@dataclass(frozen=True)
class Loss:
    """The place at which a loss, or a part of it, came in."""

    suspects: tuple[str, ...]
    """the culprit alone; several if revisions beside it could not be tried, the one that is surely slow first"""
    low: float  # shift against GOOD before it, and with it; log scale
    high: float
    error: float  # chance that it did not come in here

    @property
    def gap(self) -> float:
        """The loss that came in here, log scale."""
        return self.high - self.low


class World(Protocol):
    """The revisions, and what can be asked of them."""

    def suspects(self, good: Collection[str], bad: str) -> Sequence[str]:
        """Revisions that `bad` has and none of `good` has, those first that halve them best."""

    def look(self, commit: str, processes: int) -> Shown | Rating | Reason:
        """The duel of a revision with GOOD in so many processes. Its rating if no noise blurs that. Or why neither."""

    def note(self, commit: str) -> Reason | None:
        """A note about a revision that was looked at, such as why it was not timed."""


@dataclass
class BisectionSearch:
    """One search. All its duels show the noise of the next."""

    world: World
    tell: Callable[[Leg], None]
    duels: list[Shown] = field(default_factory=list)
    steps: list[Leg] = field(default_factory=list)

    def noise(self) -> Stray:
        """As far as it is known by now."""
        return estimate_noise(self.duels)

    def run(self, good: str, bad: str, first: Shown, tests: int = 1) -> tuple[Loss, ...]:
        """The place of the loss that BAD's duel with GOOD showed. tests: cases of which this one was chosen for it."""
        self.duels.append(first)
        return self._narrow(frozenset({good}), SAME, bad, first, tests * self.noise().chance(first.shift, first))

    def _narrow(self, good: frozenset[str], low: Shown, bad: str, high: Shown, error: float) -> tuple[Loss, ...]:
        skipped: list[str] = []
        unclear = 0
        while True:
            left = [commit for commit in self.world.suspects(good, bad) if commit != bad]
            tried = choose_next([commit for commit in left if commit not in skipped], len(skipped))
            if tried is None or unclear >= UNCLEAR:
                return (Loss((bad, *left), low.shift, high.shift, min(error, 1.0)),)
            step = self._step(tried, low, high)
            error += step.error
            match step.side:
                case Rating.GOOD:
                    good |= {tried}
                case Rating.BAD:
                    bad = tried
                case Rating.SKIP:
                    skipped.append(tried)
                    unclear += step.seen is not None
                case Rating.PART if step.seen:
                    before = self._narrow(good, low, tried, step.seen, error)
                    return (*before, *self._narrow(good | {tried}, step.seen, bad, high, error))

    def _step(self, commit: str, low: Shown, high: Shown) -> Leg:
        """One revision, looked at until noise would hardly put it on another side."""
        step = Leg(commit, Rating.SKIP)
        for processes in LOOKS:
            seen = self.world.look(commit, processes)
            if isinstance(seen, Reason):
                step = Leg(commit, Rating.SKIP, reason=seen)
                break
            if isinstance(seen, Rating):
                step = Leg(commit, seen, reason=self.world.note(commit))
                break
            step = self._weigh(commit, seen, low, high)
            if len(seen.processes) < processes or (step.error <= STEP and step.side is not Rating.SKIP):
                break
        if step.seen and (step.side is Rating.SKIP or step.error > BEYOND):
            loss = math.expm1(high.shift - low.shift)
            facts: dict[str, Fact] = {"processes": len(step.seen.processes), "loss": loss}
            step = replace(step, side=Rating.SKIP, error=0.0, reason=Reason("bisect_unclear", facts))
        if step.seen and step.seen.processes:
            self.duels.append(step.seen)
        self.steps.append(step)
        self.tell(step)
        return step

    def _weigh(self, commit: str, seen: Shown, low: Shown, high: Shown) -> Leg:
        """The answer of a look; SKIP if a part of the loss can be neither claimed nor excluded yet."""
        noise = estimate_noise([*self.duels, seen])
        error = noise.chance(HALF * (high.shift - low.shift), seen, low, high)
        apart = max(noise.chance(seen.shift - low.shift, seen, low), noise.chance(high.shift - seen.shift, seen, high))
        place = (seen.shift - low.shift) / (high.shift - low.shift)
        side = Rating.GOOD if place < HALF else Rating.BAD
        if QUARTER <= place <= 1 - QUARTER:
            error = max(error, apart)
            if apart <= CONFIRM and len(seen.processes) >= PARTED:
                side = Rating.PART
            # Far from both ends, though not far enough; or so near to one that noise took it from there.
            elif len(seen.processes) < LOOKS[-1] or apart <= STEP:
                side = Rating.SKIP
        return Leg(commit, side, error, seen, noise.interval(seen), self.world.note(commit))


def choose_next(left: Sequence[str], skipped: int) -> str | None:
    """The revision to try next, of those not tried yet, best first: after one that failed not its neighbour.

    >>> choose_next("abcdefgh", 0), choose_next("abcdefgh", 1), choose_next("abcdefgh", 2), choose_next("", 0)
    ('a', 'c', 'e', None)
    """
    if not left:
        return None
    return left[int(len(left) * _AWAY[(skipped - 1) % len(_AWAY)])] if skipped else left[0]


def confirm(shown: Shown, gap: float, stray: Stray) -> tuple[bool, float]:
    """Whether a culprit's duel with its parent shows the gap (log scale), and the chance that noise alone does."""
    return shown.shift >= HALF * gap, stray.chance(HALF * gap, shown)


def find_certainty(search: float, confirmation: float = 1.0) -> float:
    """How sure a culprit is. Search and confirmation have to err to name a wrong one: the smaller chance counts."""
    return 1 - min(max(min(search, confirmation), LEAST), 1.0)
