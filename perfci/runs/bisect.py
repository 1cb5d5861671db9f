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
from perfci.core.wording import because
from perfci.git import history
from perfci.git.history import Commit, FileChange
from perfci.runs.bench import Listener, claim_bench
from perfci.runs.bisect_revisions import FOLDER, BisectOptions, Revisions, TriedRevision
from perfci.statistics import bisection
from perfci.statistics.bisection import DOUBT, SAME, BisectionSearch, Leg, Loss, Shown, Stray, certainty, confirmed
from perfci.thresholds.read import load

FIRST = (4, 8)
"""Processes of BAD's duel with GOOD: the more there are, the clearer every later step."""

SLOWER = 8
"""Most cases in which a culprit is compared with its parent."""

LEADING = 3
"""Cases that the first duel follows up, before one of them is chosen."""

_OF_ENDS = {"revision_unknown": "bisect_unknown", "revision_misspelt": "bisect_misspelt"}
"""Kinds whose sentences name an option that bisect has not."""


@dataclass(frozen=True)
class Culprit:
    """The commit that brought a loss, or a part of it."""

    suspects: tuple[Commit, ...]
    """one, or several that look the same"""
    change: float
    """that came in here by the search, ratio - 1"""
    sure: float | None
    """least chance that it is so, None if answers are exact"""
    own: Interval | None = None
    """its duel with its own parent, ratio - 1"""
    confirmed: bool | None = None
    """whether that duel shows what the search found, None if there was none"""
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
    """what BAD does wrong, if that is what was searched for"""
    steps: tuple[Leg, ...] = ()
    culprits: tuple[Culprit, ...] = ()
    others: tuple[Commit, ...] = ()
    """further commits of the range that touched the op, the newest first"""
    before: tuple[Reason, ...] = ()
    """what people should know beforehand"""
    said: tuple[Reason, ...] = ()
    """what people should know of the result"""
    nothing: Reason | None = None
    """why there is nothing to find"""
    resumed: bool = False


@dataclass(frozen=True)
class Audience:
    """Callbacks of a search while it runs."""

    begun: Callable[[Bisection], None]
    """called with what is searched for, once that is known"""
    tried: Callable[[Leg, Commit], None]
    """called with each revision that was tried"""


def bisect_op(
    settings: Settings, options: BisectOptions, command: str, listener: Listener, audience: Audience
) -> Bisection:
    """Find what made an op slower, or wrong, between two revisions.

    The work tree, its index and every ref stay as they are. Raises UsageError if the two revisions or the op give
    nothing to search, StoredFileError if the search's own file is damaged or cannot be written.
    """
    if not options.op:
        raise UsageError("bisect_without_op", good=options.good, bad=options.bad)
    found = history.find_ends(settings.root, options.good, options.bad)
    if isinstance(found, Reason):
        raise UsageError(_OF_ENDS.get(found.kind, found.kind), **found.facts)
    own = dataclasses.replace(settings, reports=settings.reports / FOLDER)
    with claim_bench(own, listener) as bench:
        return _Bisect(Revisions(bench, settings, options, command, found), audience).search()


class _Bisect:
    """One search, from its two ends to its culprits."""

    def __init__(self, revisions: Revisions, audience: Audience) -> None:
        self.revisions = revisions
        self._audience = audience

    def search(self) -> Bisection:
        """Compares the two ends, and searches for what differs: answers if BAD's are wrong, else times."""
        revisions = self.revisions
        revisions.check_ends()
        first = revisions.try_commit(revisions.bad, revisions.good)
        if first.wrong is not None:
            return self._search_failure(first)
        if first.failure:
            raise UsageError(first.failure.kind, **first.failure.facts)
        if first.duels:
            return self._search_loss(first)
        # Nothing was timed: the work is the same, or the two have no case in common.
        if first.failures and not first.same:
            why = because("bisect_ends_apart", next(iter(first.failures.values())), op=revisions.op)
            raise UsageError(why.kind, **why.facts)
        facts: dict[str, Fact] = {"op": revisions.op, "good": revisions.good[:10], "bad": revisions.bad[:10]}
        return dataclasses.replace(self._describe(first), nothing=Reason("bisect_same_work", facts))

    # --- speed ----------------------------------------------------------------------------------------------------

    def _search_loss(self, first: TriedRevision) -> Bisection:
        revisions = self.revisions
        leading = sorted(first.duels, key=lambda case: -Shown(first.duels[case]).shift)[:LEADING]
        for processes in FIRST:
            first = revisions.try_commit(revisions.bad, revisions.good, tuple(leading), processes)
            duels = {case: Shown(blocks) for case, blocks in first.duels.items()}
            known = bisection.noise(duels.values())
            case = min(leading, key=lambda each: known.chance(duels[each].shift, duels[each]))
            if known.chance(bisection.HALF * abs(duels[case].shift), duels[case], duels[case]) <= bisection.STEP:
                break
            leading = [case]
        whole = self._describe(first, case, _to_ratio(known.interval(duels[case])))
        floor = load(revisions.settings.thresholds).for_case(revisions.op, case).floor(first.timer)
        if (nothing := _explain_no_loss(case, duels, known, floor / first.base_us[case])) is not None:
            return dataclasses.replace(whole, nothing=nothing)
        revisions.case = case
        # The case that is followed, then others that are slower too, those first that lost most.
        order = sorted(duels, key=lambda each: (each != case, -duels[each].shift))[:SLOWER]
        intervals = {each: known.interval(duels[each]) for each in order}
        slower = {each: _to_ratio(seen) for each, seen in intervals.items() if each == case or seen.low > 0}
        self._audience.begun(dataclasses.replace(whole, slower=slower))
        search = BisectionSearch(revisions, self._hear)
        places = search.run(revisions.good, revisions.bad, duels[case], len(duels))
        culprits = tuple(self._confirm(place, search, tuple(slower)) for place in places)
        whole = self._describe(first, case, _to_ratio(search.noise().interval(duels[case])))
        return dataclasses.replace(
            whole,
            slower=slower,
            steps=tuple(search.steps),
            culprits=culprits,
            others=revisions.list_others({commit.id for each in culprits for commit in each.suspects}),
            said=_describe_rest(culprits, whole.first),
        )

    def _confirm(self, place: Loss, search: BisectionSearch, slower: tuple[str, ...]) -> Culprit:
        """The culprit beside its own parent: fresh evidence, of what it alone does."""
        revisions = self.revisions
        commits = tuple(revisions.commit(each) for each in place.suspects)
        found = Culprit(commits, math.expm1(place.gap), certainty(place.error, None))
        if len(commits) > 1:
            return found
        files, elsewhere = revisions.list_changes(commits[0])
        found = dataclasses.replace(found, files=files, elsewhere=elsewhere)
        parent = next(iter(commits[0].parents), None)
        if parent is None:
            return found
        case, commit = revisions.case, commits[0].id
        own, chance, agrees = SAME, 1.0, False
        for processes in bisection.LOOKS[1:]:
            tried = revisions.try_commit(commit, parent, slower, processes)
            seen = tried.see(case)
            if isinstance(seen, Reason):
                return dataclasses.replace(found, said=(because("bisect_parent_untried", seen, commit=parent[:10]),))
            own, known = seen, bisection.noise([*search.duels, seen])
            agrees, chance = confirmed(seen, place.gap, known)
            if agrees and chance <= bisection.CONFIRM:
                break
        known = bisection.noise([*search.duels, own])
        duels = {each: tried.see(each) for each in slower}
        shown = {each: _to_ratio(known.interval(seen)) for each, seen in duels.items() if isinstance(seen, Shown)}
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

    def _search_failure(self, first: TriedRevision) -> Bisection:
        """BAD is wrong, or fails, and GOOD does not."""
        revisions = self.revisions
        revisions.fails_by = first
        alone = revisions.try_commit(revisions.good, None)
        if alone.failure:
            why = because("bisect_good_fails", alone.failure, good=revisions.good[:10])
            raise UsageError(why.kind, **why.facts)
        whole = dataclasses.replace(self._describe(first), failure=first.failure)
        self._audience.begun(whole)
        search = bisection.ExactSearch(revisions, self._hear)
        (place,) = search.run(revisions.good, revisions.bad, SAME)
        commits = tuple(revisions.commit(each) for each in place.suspects)
        files, elsewhere = revisions.list_changes(commits[0]) if len(commits) == 1 else ((), 0)
        return dataclasses.replace(
            whole,
            steps=tuple(search.steps),
            culprits=(Culprit(commits, 0.0, None, files=files, elsewhere=elsewhere),),
            others=revisions.list_others({commit.id for commit in commits}),
            before=tuple(revisions.said),
        )

    # --- what both have -------------------------------------------------------------------------------------------

    def _hear(self, step: Leg) -> None:
        self._audience.tried(step, self.revisions.commit(step.commit))

    def _describe(self, first: TriedRevision, case: str | None = None, change: Interval | None = None) -> Bisection:
        revisions = self.revisions
        return Bisection(
            op=revisions.op,
            good=revisions.commit(revisions.good),
            bad=revisions.commit(revisions.bad),
            commits=revisions.count(),
            seed=revisions.state.seed,
            device=first.device,
            case=case,
            first=change,
            base_us=first.base_us.get(case) if case else None,
            before=tuple(revisions.said),
            resumed=revisions.resumed,
        )


def _explain_no_loss(case: str, duels: Mapping[str, Shown], known: Stray, least: float) -> Reason | None:
    """Why there is no loss that could be searched, None if there is one.

    least: the smallest change that the timer can show, ratio.
    """
    seen, shown = duels[case], _to_ratio(known.interval(duels[case]))
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
    gain = _to_ratio(known.interval(duels[won]))
    if len(duels) * known.chance(-duels[won].shift, duels[won]) <= DOUBT:
        return Reason("bisect_faster", {**facts, "case": won, "change": gain.value, "low": gain.low, "high": gain.high})
    return Reason("bisect_not_slower", facts)


def _describe_rest(culprits: Sequence[Culprit], first: Interval | None) -> tuple[Reason, ...]:
    """What the culprits leave of the loss, if that is more than noise."""
    owns = [each.own for each in culprits if each.own and each.confirmed]
    if first is None or len(owns) < len(culprits):
        return ()
    loss, parts = math.log1p(first.value), math.fsum(math.log1p(own.value) for own in owns)
    reach = math.hypot(*(math.log1p(each.high) - math.log1p(each.value) for each in (first, *owns)))
    if abs(loss - parts) <= reach:
        return ()
    facts: dict[str, Fact] = {"rest": math.expm1(abs(loss - parts)), "change": first.value}
    return (Reason("bisect_rest" if loss > parts else "bisect_won_back", facts),)


def _to_ratio(shift: Interval) -> Interval:
    """An interval of shifts as one of changes, ratio - 1."""
    return Interval(math.expm1(shift.value), math.expm1(shift.low), math.expm1(shift.high), shift.confidence)
