"""Which candidates come next, and which one wins: a coarse grid, then steps around the best ones.

Nothing here measures. What comes next follows from what is known alone, so that an interrupted search goes on as if it
had never stopped.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfci.core.model import Interval
from perfci.lab.tune.records import FINAL, SEARCH, SUITE, Config, Regime, Tried, Value, key
from perfci.statistics import exact

MOST_COARSE = 48
"""Candidates of a coarse grid; a larger one is sampled."""

MOST_TRIED = 160
"""Candidates of one entry in all."""

MOST_POINTS = 50_000
"""Combinations that are looked through; of more, so many are drawn."""

LEADERS = 2
"""Best candidates whose neighbours are tried: one alone may sit in a hollow of its own."""

FINALISTS = 4

TIE = 0.005
"""Log of a ratio of times below which two candidates are equal: the simpler one is taken."""

LEAST = 0.01
"""Log of a ratio that a candidate has to gain at least before a file is changed."""


@dataclass(frozen=True)
class Grid:
    """The candidates of one entry."""

    lists: Mapping[str, tuple[Value, ...]]
    is_valid: Callable[[Config], bool]
    seed: int
    current: Config | None = None
    near: Config | None = None
    """among equals what is nearest to this counts as the simplest: a model tells fewer apart than a device"""

    @functools.cached_property
    def coarse(self) -> Sequence[Config]:
        """The ends of every list and each second value between, in order; a seeded sample where these are many."""
        ends = {name: _thinned(values) for name, values in self.lists.items()}
        points = [point for point in _points(ends, self.seed) if self.is_valid(point)]
        if not points:
            points = [point for point in _points(self.lists, self.seed) if self.is_valid(point)]
        if len(points) > MOST_COARSE:
            chosen = sorted(random.Random(self.seed).sample(range(len(points)), MOST_COARSE))
            points = [points[index] for index in chosen]
        return points

    def neighbours(self, config: Config) -> Iterator[Config]:
        """What differs in one value by one step; of values without order, in one value."""
        for name, values in self.lists.items():
            for value in _beside(values, config.get(name)):
                candidate = self._with(config, {name: value})
                if self.is_valid(candidate):
                    yield candidate

    def traded(self, config: Config) -> Iterator[Config]:
        """What is a step more in one number and a step less in another: rules often bound their product."""
        steps = {name: _around(values, config.get(name)) for name, values in self.lists.items()}
        for more, less in itertools.permutations(steps, 2):
            up, down = steps[more][1], steps[less][0]
            if up is not None and down is not None:
                candidate = self._with(config, {more: up, less: down})
                if self.is_valid(candidate):
                    yield candidate

    def _with(self, config: Config, changes: Config) -> Config:
        return {**{name: config.get(name, values[0]) for name, values in self.lists.items()}, **changes}

    def simplicity(self, config: Config) -> tuple[int, tuple[int, ...]]:
        """Small for what stands first in the lists."""
        own, other = (self._places(each) for each in (config, self.near or {}))
        places = tuple(abs(one - two) for one, two in zip(own, other, strict=True)) if self.near else own
        return sum(places), places

    def _places(self, config: Config) -> tuple[int, ...]:
        return tuple(
            values.index(config[name]) if config.get(name) in values else len(values)
            for name, values in self.lists.items()
        )


def coming(grid: Grid, known: Sequence[Tried]) -> list[Config]:
    """The candidates to try next; none where the search is over."""
    seen = {each.key for each in known if each.stage == SEARCH}
    room = MOST_TRIED - len(seen)
    seen.add(key(grid.current))  # the anchor itself
    coarse = _fresh(grid.coarse, seen)
    if room <= 0 or coarse:
        return coarse[: max(room, 0)]
    leaders = _leaders(grid, known)
    near = [point for config in leaders for point in grid.neighbours(config)]
    traded = (point for config in leaders[:1] for point in grid.traded(config))
    return (_fresh(near, seen) or _fresh([*traded], seen))[:room]


def ranked(grid: Grid, known: Sequence[Tried]) -> list[Config]:
    """Candidates that work, the fastest first."""
    scores = {each.key: (_score(each), each.config) for each in known if each.stage == SEARCH and _stands(each, known)}
    named = [(score, grid.simplicity(config), config) for score, config in scores.values() if config is not None]
    return [config for _, _, config in sorted(named, key=lambda each: each[:2])]


def _leaders(grid: Grid, known: Sequence[Tried]) -> list[Config]:
    """The best candidates, today's choice among them where it has a place in the lists."""
    works = not any(each.failure for each in known if each.config is None)
    leading = [(_score(each), each.config) for each in known if each.stage == SEARCH and _stands(each, known)]
    scores = [(score, config) for score, config in leading if config is not None]
    if works and grid.current is not None:
        scores.append((0.0, grid.current))
    scores.sort(key=lambda each: (each[0], grid.simplicity(each[1])))
    return [config for _, config in scores[:LEADERS]]


def finalists(grid: Grid, known: Sequence[Tried]) -> list[Config]:
    """Candidates that are held against today's choice with many blocks."""
    return ranked(grid, known)[:FINALISTS]


@dataclass(frozen=True)
class Choice:
    """What a search came to for one entry."""

    regime: Regime
    config: Config | None
    """what the entry should have; None: it stays as it is"""
    change: Interval | None = None
    """of the time by it, ratio - 1; None where it stays, and where there was nothing to hold it against"""
    fastest: Interval | None = None
    """the same of the fastest candidate that was tried, whether it is taken or not"""
    tried: int = 0
    failed: int = 0

    @property
    def changed(self) -> bool:
        """Whether the file has to change."""
        return self.config is not None and self.config != self.regime.current


def decide(grid: Grid, regime: Regime, known: Sequence[Tried], *, needed: bool = False) -> Choice:
    """The fastest finalist that is right; among equals today's choice, then the simplest.

    Today's choice gives way only to what is faster beyond doubt (95 %) and by more than LEAST. needed: an entry that is
    not there yet gets the best in any case, since one behind it would take its calls otherwise.
    """
    finals = {
        each.key: each for each in known if each.stage == FINAL and each.config is not None and _stands(each, known)
    }
    mine = [each for each in known if each.config is not None]
    tried = len({each.key for each in mine if each.stage == SEARCH})
    failed = len({each.key for each in mine if each.failure})
    if not finals:
        return Choice(regime, None, tried=tried, failed=failed)
    spans = {name: exact.location(series(each)) for name, each in finals.items()}
    best = min(span.value for span in spans.values())
    level = [name for name, span in spans.items() if span.value <= best + TIE]
    taken = min(level, key=lambda name: grid.simplicity(finals[name].config or {}))
    span, fastest = spans[taken], _ratio(min(spans.values(), key=lambda each: each.value))
    config = finals[taken].config
    if finals[taken].anchor is not None:  # today's choice does not work here
        return Choice(regime, config, None, fastest, tried=tried, failed=failed)
    wins = span.high < 0 and span.value <= -LEAST
    if not wins and not (needed and regime.current is None):
        return Choice(regime, None, None, fastest, tried=tried, failed=failed)
    return Choice(regime, config, _ratio(span), fastest, tried=tried, failed=failed)


def series(tried: Tried) -> list[float]:
    """Block by block the mean shift of its cases."""
    return [math.fsum(column) / len(column) for column in zip(*tried.shifts.values(), strict=False)]


def _ratio(span: Interval) -> Interval:
    return Interval(math.expm1(span.value), math.expm1(span.low), math.expm1(span.high), span.confidence)


def _score(tried: Tried) -> float:
    found = series(tried)
    return math.fsum(found) / len(found) if found else math.inf


def _stands(tried: Tried, known: Sequence[Tried]) -> bool:
    """Whether nothing is known against a candidate."""
    wrong = {each.key for each in known if each.failure and each.stage in {SEARCH, FINAL, SUITE}}
    return tried.failure is None and tried.key not in wrong


def _fresh(points: Sequence[Config], seen: set[str]) -> list[Config]:
    fresh = {key(point): point for point in points if key(point) not in seen}
    return list(fresh.values())


def _is_scale(values: Sequence[Value]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _thinned(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """First, last and each second between of a scale; all of what has no order."""
    if not _is_scale(values) or len(values) < 3:
        return values
    return tuple(value for index, value in enumerate(values) if index % 2 == 0 or index == len(values) - 1)


def _beside(values: tuple[Value, ...], value: Value) -> list[Value]:
    if value not in values:
        return list(values)
    place = values.index(value)
    if not _is_scale(values):
        return [each for each in values if each != value]
    return [values[index] for index in (place - 1, place + 1) if 0 <= index < len(values)]


def _around(values: Sequence[Value], value: Value) -> tuple[Value, Value]:
    """The numbers before and behind one in its list; None where there is none."""
    if not _is_scale(values) or value not in values:
        return None, None
    place = values.index(value)
    return (values[place - 1] if place else None), (values[place + 1] if place + 1 < len(values) else None)


def _points(lists: Mapping[str, tuple[Value, ...]], seed: int) -> Iterator[Config]:
    sizes = math.prod(len(values) for values in lists.values())
    if sizes <= MOST_POINTS:
        for point in itertools.product(*lists.values()):
            yield dict(zip(lists, point, strict=True))
        return
    drawn = random.Random(seed)
    for _ in range(MOST_POINTS):
        yield {name: drawn.choice(values) for name, values in lists.items()}
