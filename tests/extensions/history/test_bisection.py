"""The search for a culprit, on histories of revisions that answer with noise."""

import math
import random
from statistics import fmean

import pytest

from perfci.core.model import Reason
from perfci.extensions.common import strays
from perfci.extensions.common.strays import SAME, Shown, Stray, estimate_noise, find_tail
from perfci.extensions.history import bisect as bisection
from perfci.extensions.history.bisect import BisectionSearch, Loss, Rating, confirm, find_certainty

BROKEN = Reason("kernel_raised", {})
COMMITS = 64


class History:
    """Commits 0 to COMMITS in a line, each a little noise away from what it costs.

    loss: commit -> what it costs, log scale. Blocks have normal noise; a process is biased as long as it lives, by a
    normal error, or with heavy tails by one of t(3) of the same scale.
    """

    def __init__(self, loss, seed=1, *, block=0.004, process=0.001, heavy=False, broken=()):
        self.loss, self.block, self.process, self.heavy, self.broken = loss, block, process, heavy, set(broken)
        self.random = random.Random(seed)
        self.duels = {}

    def level(self, commit):
        return sum(cost for at, cost in self.loss.items() if at <= int(commit))

    def duel(self, commit, against, processes):
        pair = self.duels.setdefault((commit, against), [])
        while len(pair) < processes:
            shift = self.level(commit) - self.level(against) + self._bias()
            pair.append(tuple(self.random.gauss(shift, self.block) for _ in range(12)))
        return Shown(tuple(pair[:processes]))

    def _bias(self):
        wide = math.sqrt(self.random.gammavariate(1.5, 2) / 3) if self.heavy else 1.0
        return self.random.gauss(0, self.process) / wide

    def suspects(self, good, bad):
        last = max(map(int, good))
        return sorted(
            map(str, range(last + 1, int(bad) + 1)), key=lambda number: abs(2 * int(number) - last - int(bad))
        )

    def look(self, commit, processes):
        return BROKEN if int(commit) in self.broken else self.duel(commit, "0", processes)

    def note(self, commit):
        return None

    def search(self):
        """The places found, and the search; no places without a certain loss."""
        for processes in (4, 8):
            first = self.duel(str(COMMITS), "0", processes)
            if estimate_noise([first]).chance(first.shift / 2, first, first) <= bisection.STEP:
                break
        search = BisectionSearch(self, lambda step: None)
        beyond = estimate_noise([first]).chance(first.shift, first) <= bisection.DOUBT
        return (search.run("0", str(COMMITS), first) if beyond else ()), search

    def sure(self, place, search):
        """How sure the one suspect of a place is, compared with its parent; None if that denies it."""
        (commit,) = place.suspects
        for processes in bisection.LOOKS[1:]:
            duel = self.duel(commit, str(int(commit) - 1), processes)
            agrees, chance = confirm(duel, place.gap, estimate_noise([*search.duels, duel]))
            if agrees and chance <= bisection.CONFIRM:
                break
        return find_certainty(place.error, chance) if agrees else None


def named(loss, seed=1, **options):
    """What a whole search names: one commit, or the first and the last of those that it could not tell apart."""
    history = History(loss, seed, **options)
    places, search = history.search()
    spans = [sorted(map(int, place.suspects)) for place in places]
    return [span[0] if len(span) == 1 else (span[0], span[-1]) for span in spans], places, search


@pytest.mark.parametrize("at", [1, 2, 33, 63, 64])
def test_a_culprit_is_found_wherever_it_stands(at):
    assert named({at: 0.03})[0] == [at]


def test_a_large_loss_takes_one_process_a_revision_and_a_small_one_more():
    counts = [[len(step.seen.processes) for step in named({40: loss})[2].steps] for loss in (0.05, 0.012)]

    assert set(counts[0]) == {1}
    assert fmean(counts[1]) > 1


# --- how sure ---------------------------------------------------------------------------------------------------------

NOISES = {
    "little noise": (0.03, {}),
    "the least noise that is assumed, near the least loss": (0.01, {"process": 0.00116, "heavy": True}),
    "processes of normal bias": (0.02, {"process": 0.003}),
    "processes of heavy tails": (0.02, {"process": 0.003, "heavy": True}),
    "wild processes": (0.03, {"process": 0.005, "heavy": True}),
    "noisy blocks": (0.02, {"block": 0.02}),
}


@pytest.mark.parametrize(("loss", "options"), NOISES.values(), ids=NOISES)
def test_what_is_said_to_be_sure_is_right_at_least_as_often(loss, options):
    doubts, search_doubts, wrong, search_wrong = [], [], 0, 0
    for seed in range(60):
        at = random.Random(seed).randrange(1, COMMITS + 1)
        history = History({at: loss}, seed, **options)
        places, search = history.search()
        for place in places:
            search_doubts.append(place.error)
            search_wrong += str(at) not in place.suspects
            if len(place.suspects) == 1 and (sure := history.sure(place, search)) is not None:
                doubts.append(1 - sure)
                wrong += place.suspects != (str(at),)

    assert len(doubts) >= 45
    # Errors come one by one: as many more as Poisson's distribution has once in 1,000 times are no evidence.
    assert wrong <= _most(sum(doubts))
    assert search_wrong <= _most(sum(search_doubts))


def _most(expected):
    """The number that a Poisson variable of this mean exceeds in less than 1 of 1,000 times."""
    chance, count = math.exp(-expected), 0
    total = chance
    while 1 - total > 1e-3:
        count += 1
        chance *= expected / count
        total += chance
    return count


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("processes", [1, 2, 4, 8])
def test_a_duel_strays_no_more_often_than_its_chance_says(heavy, processes):
    history = History({}, 5, process=strays.BIAS / math.sqrt(3) if heavy else strays.BIAS)
    history.heavy = heavy
    stray = Stray(history.block)
    duels = [history.duel(str(number), "0", processes) for number in range(1500)]

    for distance in (0.002, 0.003, 0.005):
        beyond = sum(duel.shift > distance for duel in duels)
        assert beyond <= _most(len(duels) * stray.chance(distance, duels[0]))


def test_noise_is_learnt_from_all_duels_and_never_below_what_devices_showed():
    history = History({}, process=0.004, block=0.01)
    noise = estimate_noise([history.duel(str(number), "0", 4) for number in range(40)])
    quiet = estimate_noise([Shown(((0.0,) * 12, (0.0,) * 12))])

    assert noise.block == pytest.approx(0.01, rel=0.1)
    # The median of twelve blocks adds some of their spread.
    assert noise.process == pytest.approx(math.hypot(0.004, 0.01 * 1.2 / math.sqrt(12)), rel=0.2)
    assert (quiet.block, quiet.process) == (0.0, strays.BIAS)


def test_an_interval_covers_the_change_in_95_of_100_duels():
    history = History({1: 0.02}, 3, process=strays.BIAS)
    stray = Stray(history.block)
    intervals = [stray.interval(History({1: 0.02}, seed, process=strays.BIAS).duel("1", "0", 2)) for seed in range(400)]

    covered = sum(interval.low <= 0.02 <= interval.high for interval in intervals) / len(intervals)
    assert 0.92 <= covered <= 0.99


def test_the_tail_falls_all_the_way():
    values = [find_tail(deviations) for deviations in (-1, 0, 1, 2, 3, 10, 99.9, 100.1, 1000)]

    assert values == sorted(values, reverse=True)
    assert find_tail(99.9) == pytest.approx(find_tail(100.1), rel=0.01)


def test_a_culprit_that_its_parent_denies_is_not_confirmed():
    shown = Shown(((0.001,) * 12,) * 4)

    assert confirm(shown, 0.05, estimate_noise([shown]))[0] is False
    assert confirm(Shown(((0.05,) * 12,) * 4), 0.05, estimate_noise([shown])) == (True, pytest.approx(0.0, abs=1e-3))


# --- several culprits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("loss", [{20: 0.02, 45: 0.02}, {20: 0.024, 45: 0.016}, {10: 0.02, 30: 0.02, 50: 0.02}])
def test_commits_that_share_a_loss_are_all_found(loss, seed):
    losses, places, search = named(loss, seed)

    assert losses == list(loss)
    assert [place.gap for place in places] == pytest.approx(list(loss.values()), abs=0.006)
    assert Rating.PART in {step.side for step in search.steps}


def test_halves_too_small_to_be_told_apart_from_one_loss_give_a_range_with_both():
    (span,), _, search = named({20: 0.006, 45: 0.006})

    assert span[0] <= 20 and span[1] >= 45
    assert {step.reason.kind for step in search.steps if step.side is Rating.SKIP} == {"bisect_unclear"}
    assert len([step for step in search.steps if step.side is Rating.SKIP]) <= bisection.UNCLEAR


# --- revisions that cannot be tried -----------------------------------------------------------------------------------


def test_broken_revisions_around_the_culprit_leave_a_range_that_holds_it():
    first_losses, (place,), search = named({30: 0.04}, broken=range(28, 36))

    assert first_losses == [(28, 36)]
    # The one that is surely slow comes first.
    assert place.suspects[0] == "36"
    assert all(step.reason == BROKEN for step in search.steps if step.side is Rating.SKIP)


# --- answers instead of times -----------------------------------------------------------------------------------------


def test_a_failure_is_followed_without_a_doubt_of_noise():
    history = History({17: 1.0}, broken=[16])
    look = history.look
    history.look = lambda commit, _: (
        look(commit, 1) if commit == "16" else Rating.BAD if history.level(commit) else Rating.GOOD
    )
    search = BisectionSearch(history, lambda step: None)

    assert search.run("0", str(COMMITS), SAME) == (Loss(("17", "16"), 0.0, 0.0, 0.0),)
    assert all(step.seen is None for step in search.steps)
