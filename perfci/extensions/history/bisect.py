"""Finds the commit between two revisions that made a kernel slower, or wrong, by `bisection`.

Revisions are written out one at a time and duelled with GOOD, unless the op has the same files or device work.
"""

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass

from perfci.core.errors import UsageError
from perfci.core.model import Fact, Interval, Reason, because
from perfci.core.settings import Settings
from perfci.extensions.common.strays import SAME, estimate_noise
from perfci.extensions.history import bisection, commits
from perfci.extensions.history.bisection import BisectionSearch, Leg, Loss, confirm, find_certainty
from perfci.extensions.history.commits import Commit
from perfci.extensions.history.revisions import FOLDER, BisectOptions, Revisions, TriedRevision
from perfci.runs.bench import Listener, claim_bench
from perfci.statistics.exact import to_ratio
from perfci.thresholds.read import load

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
        if noise.chance(bisection.HALF * abs(duels[case].shift), duels[case], duels[case]) <= bisection.STEP:
            break
        leading = [case]
    seen, change = duels[case], to_ratio(noise.interval(duels[case]))
    whole = dataclasses.replace(whole, case=case, first=change, base_us=first.base_us[case])
    floor = load(revisions.settings.thresholds).for_case(whole.op, case).floor(first.timer)
    least = floor / first.base_us[case]  # the smallest change that the timer can show
    if len(duels) * noise.chance(seen.shift, seen) > bisection.DOUBT or change.value < least:
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
    for processes in bisection.LOOKS[1:]:
        seen = revisions.try_commit(commit, parents[0], (revisions.case,), processes).see(revisions.case)
        if isinstance(seen, Reason):
            return dataclasses.replace(culprit, said=(because("bisect_parent_untried", seen, commit=parents[0][:10]),))
        own, noise = seen, estimate_noise([*search.duels, seen])
        agrees, chance = confirm(own, place.gap, noise)
        if agrees and chance <= bisection.CONFIRM:
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
