"""Finds the commit between two revisions that made a kernel slower, or wrong, and says how sure that is.

Every revision is written out and duelled with GOOD, unless the op has the same files or device work. Its shift, log
scale, positive if it is slower, is the mean of its processes' medians. Between two levels it is good in the lower half
and bad in the upper. If it is certainly at neither end, it carries a part of the loss, and both parts are searched. The
chances of all steps add up. See docs/bisecting.md.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from perfci.core.errors import UsageError
from perfci.core.model import Fact, Interval, Reason, because
from perfci.core.settings import Settings
from perfci.extensions.common.strays import SAME, Shown, Stray, estimate_noise
from perfci.extensions.history import commits
from perfci.extensions.history.commits import Commit
from perfci.extensions.history.revisions import FOLDER, BisectOptions, Rating, Revisions, TriedRevision
from perfci.runs.bench import Listener, claim_bench
from perfci.statistics.exact import to_ratio
from perfci.thresholds.read import load

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


FIRST = (4, 8)  # processes of BAD's duel with GOOD: the more there are, the clearer every later step
LEADING = 3  # cases that the first duel follows up, before one of them is chosen


@dataclass(frozen=True)
class Culprit:
    """The commit that brought a loss, or a part of it."""

    suspects: tuple[Commit, ...]  # one, or several that look the same
    change: float  # that came in here by the search, ratio - 1
    sure: float | None  # least chance that it is so, None if answers are exact
    own: Interval | None = None  # its duel with its parent, ratio - 1
    confirmed: bool | None = None  # whether that duel shows what the search found, None if there was none
    files: tuple[str, ...] = ()  # of the op that it changed
    said: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Bisection:
    """The whole answer."""

    op: str
    good: Commit
    bad: Commit
    commits: int  # that BAD has and GOOD has not
    seed: int
    device: str
    case: str | None = None  # the one that was followed
    first: Interval | None = None  # BAD against GOOD in that case, ratio - 1
    base_us: float | None = None  # GOOD's time
    failure: Reason | None = None  # what BAD does wrong, if that is what was searched for
    steps: tuple[Leg, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    nothing: Reason | None = None  # why there is nothing to find


@dataclass(frozen=True)
class Audience:
    """Callbacks of a search while it runs."""

    begun: Callable[[Bisection], None]  # called with what is searched for, once that is known
    tried: Callable[[Leg, Commit], None]  # called with each revision that was tried


def bisect_op(
    settings: Settings, options: BisectOptions, command: str, listener: Listener, audience: Audience
) -> Bisection:
    """Find what made an op slower, or wrong. Refs and work tree stay. Raises UsageError for nothing to search."""
    ends = commits.find_ends(settings.root, options.good, options.bad)
    moved = dataclasses.replace(settings, reports=settings.reports / FOLDER)
    with claim_bench(moved, listener) as bench:
        revisions = Revisions(bench, settings, options, command, ends)
        revisions.check_ends()
        first = revisions.try_commit(revisions.bad, revisions.good)
        good, bad = revisions.describe(revisions.good), revisions.describe(revisions.bad)
        whole = Bisection(revisions.op, good, bad, revisions.count(), revisions.seed, first.device)
        if first.wrong is not None:
            return _search_failure(whole, first, revisions, audience)
        if first.failure:
            raise UsageError(first.failure.kind, **first.failure.facts)
        if first.duels:
            return _search_loss(whole, first, revisions, audience)
    # Nothing was timed: the work is the same, or the two have no case in common.
    if first.failures and not first.same:
        why = because("bisect_ends_apart", next(iter(first.failures.values())), op=whole.op)
        raise UsageError(why.kind, **why.facts)
    facts: dict[str, Fact] = {"op": whole.op, "good": ends[0][:10], "bad": ends[1][:10]}
    return dataclasses.replace(whole, nothing=Reason("bisect_same_work", facts))


def _search_loss(whole: Bisection, first: TriedRevision, revisions: Revisions, audience: Audience) -> Bisection:
    leading = sorted(first.duels, key=lambda case: -first.duels[case].shift)[:LEADING]
    for processes in FIRST:
        first = revisions.try_commit(revisions.bad, revisions.good, tuple(leading), processes)
        duels = first.duels
        noise = estimate_noise(duels.values())
        case = min(leading, key=lambda name: noise.chance(duels[name].shift, duels[name]))
        if noise.chance(HALF * abs(duels[case].shift), duels[case], duels[case]) <= STEP:
            break
        leading = [case]
    seen, change = duels[case], to_ratio(noise.interval(duels[case]))
    whole = dataclasses.replace(whole, case=case, first=change, base_us=first.base_us[case])
    floor = load(revisions.settings.thresholds).for_case(whole.op, case).floor(first.timer)
    least = floor / first.base_us[case]  # the smallest change that the timer can show
    if len(duels) * noise.chance(seen.shift, seen) > DOUBT or change.value < least:
        facts: dict[str, Fact] = {"case": case, "change": change.value, "low": change.low, "high": change.high}
        facts |= {"least": least, "blocks": seen.blocks, "processes": len(seen.processes), "cases": len(duels)}
        return dataclasses.replace(whole, nothing=Reason("bisect_not_slower", facts))
    revisions.case = case
    audience.begun(whole)
    search = BisectionSearch(revisions, lambda step: audience.tried(step, revisions.describe(step.commit)))
    places = search.run(revisions.good, revisions.bad, duels[case], len(duels))
    culprits = tuple(_confirm(place, search, revisions) for place in places)
    change = to_ratio(search.noise().interval(duels[case]))
    return dataclasses.replace(whole, first=change, steps=tuple(search.steps), culprits=culprits)


def _confirm(place: Loss, search: BisectionSearch, revisions: Revisions) -> Culprit:
    """The culprit beside its parent: fresh evidence, of what it alone does."""
    commits = tuple(revisions.describe(suspect) for suspect in place.suspects)
    culprit = Culprit(commits, math.expm1(place.gap), find_certainty(place.error))
    if len(commits) > 1:
        return culprit
    commit, parents = commits[0].id, commits[0].parents
    culprit = dataclasses.replace(culprit, files=revisions.list_changes(commit))
    if not parents:
        return culprit
    own, chance, agrees = SAME, 1.0, False
    for processes in LOOKS[1:]:
        seen = revisions.try_commit(commit, parents[0], (revisions.case,), processes).see(revisions.case)
        if isinstance(seen, Reason):
            return dataclasses.replace(culprit, said=(because("bisect_parent_untried", seen, commit=parents[0][:10]),))
        own, noise = seen, estimate_noise([*search.duels, seen])
        agrees, chance = confirm(own, place.gap, noise)
        if agrees and chance <= CONFIRM:
            break
    change = to_ratio(noise.interval(own))
    facts: dict[str, Fact] = {"change": change.value, "searched": culprit.change, "commit": commit[:10]}
    sure = find_certainty(place.error, chance) if agrees else None
    said = () if agrees else (Reason("bisect_unconfirmed", facts),)
    return dataclasses.replace(culprit, sure=sure, own=change, confirmed=agrees, said=said)


def _search_failure(whole: Bisection, first: TriedRevision, revisions: Revisions, audience: Audience) -> Bisection:
    """BAD is wrong, or fails, and GOOD does not."""
    revisions.fails_by = first
    alone = revisions.try_commit(revisions.good, None)
    if alone.failure:
        why = because("bisect_good_fails", alone.failure, good=revisions.good[:10])
        raise UsageError(why.kind, **why.facts)
    whole = dataclasses.replace(whole, failure=first.failure)
    audience.begun(whole)
    search = BisectionSearch(revisions, lambda step: audience.tried(step, revisions.describe(step.commit)))
    (place,) = search.run(revisions.good, revisions.bad, SAME)
    commits = tuple(revisions.describe(suspect) for suspect in place.suspects)
    files = revisions.list_changes(commits[0].id) if len(commits) == 1 else ()
    culprits = (Culprit(commits, 0.0, None, files=files),)
    return dataclasses.replace(whole, steps=tuple(search.steps), culprits=culprits)
