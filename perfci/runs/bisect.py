"""Finds the commit between two revisions that made a kernel slower, or wrong, by `perfci.statistics.bisection`.

Revisions are written out beside the work tree, one at a time, and duelled with GOOD by this perfci, in this
environment. Those whose op has the same files, or does the same device work, are not timed. All answers are kept, so
that an interrupted search goes on where it stopped.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from perfci.core.errors import UsageError
from perfci.core.model import Fact, Interval, Reason
from perfci.core.settings import Settings
from perfci.core.wording import caused
from perfci.git import history
from perfci.git.history import Commit, FileChange
from perfci.runs.bench import Listener, claimed
from perfci.runs.bisect_revisions import FOLDER, BisectOptions, Ground, Tried
from perfci.statistics import bisection
from perfci.statistics.bisection import DOUBT, SAME, Found, Noise, Search, Seen, Step, certainty, confirmed
from perfci.thresholds.read import load

FIRST = (4, 8)
"""Processes of BAD's duel with GOOD: the more, the better every later step can be told apart."""

SLOWER = 8
"""Most cases in which a culprit is held against its parent."""

LEADING = 3
"""Cases that the first duel follows up, before one of them is chosen."""

_OF_ENDS = {"revision_unknown": "bisect_unknown", "revision_misspelt": "bisect_misspelt"}
"""Kinds whose sentences name an option that bisect has not."""


@dataclass(frozen=True)
class Culprit:
    """Where a loss came in, or a part of it."""

    suspects: tuple[Commit, ...]
    """one, or several that could not be told apart"""
    change: float
    """that came in here by the search, ratio - 1"""
    sure: float | None
    """chance that it is so, at least; None where answers are exact"""
    own: Interval | None = None
    """its duel with its own parent, ratio - 1"""
    confirmed: bool | None = None
    """whether that duel shows what the search found; None where there was none"""
    cases: Mapping[str, Interval] = field(default_factory=dict)
    """the same for each case that is slower in BAD"""
    files: tuple[FileChange, ...] = ()
    """what it changed of the op"""
    elsewhere: int = 0
    """files that it changed besides"""
    said: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Bisection:
    """The whole answer."""

    op: str
    good: Commit
    bad: Commit
    commits: int
    """that BAD has and GOOD has not"""
    seed: int
    device: str
    case: str | None = None
    """the one that was followed"""
    first: Interval | None = None
    """BAD against GOOD in that case, ratio - 1"""
    base_us: float | None = None
    """GOOD's time"""
    slower: Mapping[str, Interval] = field(default_factory=dict)
    """all cases that are slower in BAD, ratio - 1"""
    failure: Reason | None = None
    """what BAD does wrong, where that is what was searched for"""
    steps: tuple[Step, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    others: tuple[Commit, ...] = ()
    """further commits of the range that touched the op, the newest first"""
    before: tuple[Reason, ...] = ()
    """what is to be known beforehand"""
    said: tuple[Reason, ...] = ()
    """what is to be known of the outcome"""
    nothing: Reason | None = None
    """why there is nothing to find"""
    resumed: bool = False


@dataclass(frozen=True)
class Audience:
    """Who hears of a search while it is under way."""

    begun: Callable[[Bisection], None]
    """what is searched for, once that is known"""
    tried: Callable[[Step, Commit], None]
    """each revision that was tried"""


def bisect_op(
    settings: Settings, options: BisectOptions, command: str, listener: Listener, audience: Audience
) -> Bisection:
    """Find what made an op slower, or wrong, between two revisions.

    The work tree, its index and every ref stay as they are. Raises UsageError where the two revisions or the op give
    nothing to search, StoredFileError where the search's own file is damaged or cannot be written.
    """
    if not options.op:
        raise UsageError("bisect_without_op", good=options.good, bad=options.bad)
    found = history.ends(settings.root, options.good, options.bad)
    if isinstance(found, Reason):
        raise UsageError(_OF_ENDS.get(found.kind, found.kind), **found.facts)
    own = dataclasses.replace(settings, reports=settings.reports / FOLDER)
    with claimed(own, listener) as bench:
        ground = Ground(bench, settings, options, command, *found)
        return _Hunt(ground, audience).answer()


class _Hunt:
    """One search, from its two ends to its culprits."""

    def __init__(self, ground: Ground, audience: Audience) -> None:
        self.ground = ground
        self._audience = audience

    def answer(self) -> Bisection:
        ground = self.ground
        ground.check_ends()
        first = ground.tried(ground.bad, ground.good)
        if first.wrong is not None:
            return self._by_answers(first)
        if first.failure:
            raise UsageError(first.failure.kind, **first.failure.facts)
        return self._by_speed(first)

    # --- speed ----------------------------------------------------------------------------------------------------

    def _by_speed(self, first: Tried) -> Bisection:
        ground = self.ground
        if not first.duels:
            return self._nothing(first)
        leading = sorted(first.duels, key=lambda case: -Seen(first.duels[case]).shift)[:LEADING]
        for processes in FIRST:
            first = ground.tried(ground.bad, ground.good, tuple(leading), processes)
            duels = {case: Seen(blocks) for case, blocks in first.duels.items()}
            known = bisection.noise(duels.values())
            case = min(leading, key=lambda each: known.chance(duels[each].shift, duels[each]))
            if known.chance(bisection.HALF * abs(duels[case].shift), duels[case], duels[case]) <= bisection.STEP:
                break
            leading = [case]
        floor = load(ground.settings.thresholds).for_case(ground.op, case).floor(first.timer)
        if (nothing := _not_slower(case, duels, known, floor / first.base_us[case])) is not None:
            return dataclasses.replace(self._whole(first, case, duels[case], known), nothing=nothing)
        ground.case = case
        slower = _slower(case, duels, known)
        self._audience.begun(dataclasses.replace(self._whole(first, case, duels[case], known), slower=slower))
        search = Search(ground, self._heard)
        places = search.run(ground.good, ground.bad, duels[case], len(duels))
        culprits = tuple(self._culprit(place, search, tuple(slower)) for place in places)
        whole = self._whole(first, case, duels[case], search.noise())
        return dataclasses.replace(
            whole,
            slower=slower,
            steps=tuple(search.steps),
            culprits=culprits,
            others=ground.others(_named(culprits)),
            said=_remainder(culprits, whole),
        )

    def _nothing(self, first: Tried) -> Bisection:
        """Nothing was timed: the work is the same, or no case of the two can be held against each other."""
        ground = self.ground
        if first.failures and not first.same:
            why = next(iter(first.failures.values()))
            why = caused("bisect_ends_apart", why, op=ground.op)
            raise UsageError(why.kind, **why.facts)
        facts: dict[str, Fact] = {"op": ground.op, "good": ground.good[:10], "bad": ground.bad[:10]}
        return dataclasses.replace(self._whole(first), nothing=Reason("bisect_same_work", facts))

    def _culprit(self, place: Found, search: Search, slower: tuple[str, ...]) -> Culprit:
        ground = self.ground
        commits = tuple(ground.commit(each) for each in place.suspects)
        change = math.expm1(place.gap)
        if len(commits) > 1:
            return Culprit(commits, change, certainty(place.error, None))
        files, elsewhere = ground.changed(commits[0])
        found = Culprit(commits, change, certainty(place.error, None), files=files, elsewhere=elsewhere)
        parent = next(iter(commits[0].parents), None)
        if parent is None:
            return found
        return self._confirmed(found, place, parent, search, slower)

    def _confirmed(self, found: Culprit, place: Found, parent: str, search: Search, slower: tuple[str, ...]) -> Culprit:
        """The culprit beside its own parent: fresh evidence, of what it alone does."""
        case, commit = self.ground.case, found.suspects[0].id
        own, chance, agrees = SAME, 1.0, False
        for processes in bisection.LOOKS[1:]:
            tried = self.ground.tried(commit, parent, slower, processes)
            seen = tried.seen(case)
            if isinstance(seen, Reason):
                return dataclasses.replace(found, said=(caused("bisect_parent_untried", seen, commit=parent[:10]),))
            own, known = seen, bisection.noise([*search.duels, seen])
            agrees, chance = confirmed(seen, place.gap, known)
            if agrees and chance <= bisection.CONFIRM:
                break
        known = bisection.noise([*search.duels, own])
        duels = {each: tried.seen(each) for each in slower}
        shown = {each: _ratio(known.interval(seen)) for each, seen in duels.items() if isinstance(seen, Seen)}
        facts: dict[str, Fact] = {"change": shown[case].value, "searched": found.change, "commit": commit[:10]}
        return dataclasses.replace(
            found,
            sure=certainty(place.error, chance) if agrees else None,
            own=shown[case],
            confirmed=agrees,
            cases=shown,
            said=() if agrees else (Reason("bisect_unconfirmed", facts),),
        )

    # --- wrong answers and errors ---------------------------------------------------------------------------------

    def _by_answers(self, first: Tried) -> Bisection:
        """BAD is wrong, or fails, where GOOD does not."""
        ground = self.ground
        ground.fails_by = first
        alone = ground.tried(ground.good, None)
        if alone.failure:
            why = caused("bisect_good_fails", alone.failure, good=ground.good[:10])
            raise UsageError(why.kind, **why.facts)
        self._audience.begun(dataclasses.replace(self._whole(first), failure=first.failure))
        search = bisection.ExactSearch(ground, self._heard)
        (place,) = search.run(ground.good, ground.bad, SAME)
        commits = tuple(ground.commit(each) for each in place.suspects)
        files, elsewhere = ground.changed(commits[0]) if len(commits) == 1 else ((), 0)
        culprit = Culprit(commits, 0.0, None, files=files, elsewhere=elsewhere)
        return dataclasses.replace(
            self._whole(first),
            failure=first.failure,
            steps=tuple(search.steps),
            culprits=(culprit,),
            others=ground.others(_named((culprit,))),
        )

    # --- what both have -------------------------------------------------------------------------------------------

    def _heard(self, step: Step) -> None:
        self._audience.tried(step, self.ground.commit(step.commit))

    def _whole(
        self, first: Tried, case: str | None = None, seen: Seen | None = None, known: Noise | None = None
    ) -> Bisection:
        ground = self.ground
        return Bisection(
            op=ground.op,
            good=ground.commit(ground.good),
            bad=ground.commit(ground.bad),
            commits=ground.count(),
            seed=ground.state.seed,
            device=first.device,
            case=case,
            first=_ratio(known.interval(seen)) if known and seen else None,
            base_us=first.base_us.get(case) if case else None,
            before=tuple(ground.said),
            resumed=ground.resumed,
        )


def _not_slower(case: str, duels: Mapping[str, Seen], known: Noise, least: float) -> Reason | None:
    """Why there is no loss that could be searched; None where there is one.

    least: the change that the timer can tell apart, ratio.
    """
    seen, shown = duels[case], _ratio(known.interval(duels[case]))
    facts: dict[str, Fact] = {
        "case": case,
        "change": shown.value,
        "low": shown.low,
        "high": shown.high,
        "blocks": seen.blocks,
        "processes": len(seen.processes),
        "cases": len(duels),
        "least": least,
    }
    if len(duels) * known.chance(seen.shift, seen) <= DOUBT:
        return Reason("bisect_below_timer", facts) if shown.value < least else None
    won = min(duels, key=lambda each: duels[each].shift)
    gain = _ratio(known.interval(duels[won]))
    if len(duels) * known.chance(-duels[won].shift, duels[won]) <= DOUBT:
        return Reason("bisect_faster", {**facts, "case": won, "change": gain.value, "low": gain.low, "high": gain.high})
    return Reason("bisect_not_slower", facts)


def _slower(case: str, duels: Mapping[str, Seen], known: Noise) -> Mapping[str, Interval]:
    """The case that is followed, then others that are slower too, those first that lost most."""
    order = sorted(duels, key=lambda each: (each != case, -duels[each].shift))[:SLOWER]
    shown = {each: known.interval(duels[each]) for each in order}
    return {each: _ratio(interval) for each, interval in shown.items() if each == case or interval.low > 0}


def _remainder(culprits: Sequence[Culprit], whole: Bisection) -> tuple[Reason, ...]:
    """What the culprits leave of the loss, where it is more than noise."""
    owns = [each.own for each in culprits if each.own and each.confirmed]
    if whole.first is None or len(owns) < len(culprits):
        return ()
    loss, parts = math.log1p(whole.first.value), math.fsum(math.log1p(own.value) for own in owns)
    reach = math.hypot(*(math.log1p(each.high) - math.log1p(each.value) for each in (whole.first, *owns)))
    if abs(loss - parts) <= reach:
        return ()
    facts: dict[str, Fact] = {"rest": math.expm1(abs(loss - parts)), "change": whole.first.value}
    return (Reason("bisect_rest" if loss > parts else "bisect_won_back", facts),)


def _named(culprits: Sequence[Culprit]) -> set[str]:
    return {commit.id for culprit in culprits for commit in culprit.suspects}


def _ratio(shift: Interval) -> Interval:
    """An interval of shifts as one of changes, ratio - 1."""
    return Interval(math.expm1(shift.value), math.expm1(shift.low), math.expm1(shift.high), shift.confidence)
