"""The candidates of a search for configurations, their results, and the file that keeps them."""

import functools
import itertools
import json
import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from perfci.core.codec import decode, encode
from perfci.core.errors import StoredFileError
from perfci.core.files import append_regular, read_regular
from perfci.core.model import Fact, Interval, Reason
from perfci.statistics import exact
from perfci.store.files import write_atomically

Value = int | float | str | bool | None
Config = Mapping[str, Value]  # a configuration's values by name, with dots if it is one of several kernels

SEARCH, FINAL, SUITE = "search", "final", "suite"
"""Stages of a candidate: timed once, compared with the best over many blocks, run through the accuracy suite."""


@dataclass(frozen=True)
class Regime:
    """Calls that share one entry of the tuned file."""

    label: str
    when: Mapping[str, Any]  # what the entry asks for
    lists: Mapping[str, tuple[Value, ...]]  # what each value may be
    current: Config | None = None
    """the entry's configuration today, None if there is no entry and the op uses its own"""
    cases: tuple[str, ...] = ()  # performance cases that it serves


@dataclass(frozen=True)
class Attempt:
    """One candidate in one stage, as it is kept on disk."""

    regime: str
    config: Config | None  # None: what the op takes today
    stage: str = SEARCH
    shifts: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """case -> logarithm of its time over that of the anchor in the same block, below 0 is faster"""
    us: Mapping[str, float] = field(default_factory=dict)  # case -> time, microseconds
    anchor: Config | None = None  # what it was compared with: None for what the op takes today
    failure: Reason | None = None

    @property
    def key(self) -> str:
        """The configuration as text."""
        return key(self.config)


def key(config: Config | None) -> str:
    """A configuration as text that is the same for the same values."""
    return "current" if config is None else json.dumps(dict(config), sort_keys=True)


def describe_config(config: Config | None) -> str:
    """A configuration for people.

    >>> describe_config({"block": 64, "tma": True}), describe_config(None)
    ('block=64 tma=true', '')
    """
    values = {name: value if isinstance(value, str) else json.dumps(value) for name, value in (config or {}).items()}
    return " ".join(f"{name}={value}" for name, value in values.items())


def flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """A configuration with dots instead of nesting.

    >>> flatten({"keys": {"block": 16}, "warps": 4})
    {'keys.block': 16, 'warps': 4}
    """
    flat: dict[str, Any] = {}
    for name, value in config.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def nest(config: Config) -> dict[str, Any]:
    """The same as it stands in a file.

    >>> nest({"keys.block": 16, "warps": 4})
    {'keys': {'block': 16}, 'warps': 4}
    """
    nested: dict[str, Any] = {}
    for name, value in config.items():
        *path, last = name.split(".")
        place = nested
        for part in path:
            place = place.setdefault(part, {})
        place[last] = value
    return nested


# --- the file of a search: a line about the search, then one line for each candidate ----------------------------------


@dataclass(frozen=True)
class SearchHead:
    """The question of a search. Another one starts anew."""

    asked: Mapping[str, Fact]
    seed: int
    format: Literal[1] = 1


@dataclass
class SearchFile:
    """A search's file."""

    path: Path
    head: SearchHead
    tried: list[Attempt]
    resumed: bool = False
    anew: bool = False  # this search has replaced another one in the file

    def add(self, tried: Attempt) -> None:
        """Keeps one more. It is on disk when this returns."""
        self.tried.append(tried)
        with append_regular(self.path) as file:
            file.write(encode(tried) + b"\n")
            file.flush()
            os.fsync(file.fileno())


def open_search(path: Path, asked: Mapping[str, Fact], seed: int | None, fresh_seed: int) -> SearchFile:
    """The search in a file if it asks the same, else a new one. Raises StoredFileError if the file is damaged."""
    file: SearchFile | None = None
    if path.exists():
        # The text after the last newline was being written when the search ended.
        head, *others = read_regular(path).split(b"\n")[:-1] or [b""]
        number = 1
        try:
            file = SearchFile(path, decode(head, SearchHead), [])
            for number, line in enumerate(others, start=2):  # noqa: B007 - the error names it
                file.tried.append(decode(line, Attempt))
        except ValueError as error:
            raise StoredFileError("tune_state_damaged", path=str(path), line=number, why=str(error)) from error
    if file and file.head.asked == asked and seed in {None, file.head.seed}:
        search = file
        search.resumed = bool(search.tried)
    else:
        search = SearchFile(path, SearchHead(asked, fresh_seed if seed is None else seed), [], anew=file is not None)
    write_atomically(path, b"".join(encode(record) + b"\n" for record in (search.head, *search.tried)))
    return search


MOST_COARSE = 48  # Candidates of a coarse grid. A larger grid is sampled.
MOST_TRIED = 160  # candidates of one entry in all
MOST_POINTS = 50_000  # Most combinations that are looked through. If there are more, so many are drawn.
LEADERS = 2  # best candidates with neighbours that are tried: one alone may be a local optimum

FINALISTS = 4

TIE = 0.005  # log of a ratio of times below which two candidates are equal: the simpler one is taken
LEAST = 0.01  # least gain of a candidate, log of a ratio, before a file is changed


@dataclass(frozen=True)
class Choices:
    """The candidates of one entry."""

    lists: Mapping[str, tuple[Value, ...]]
    is_valid: Callable[[Config], bool]
    seed: int
    current: Config | None = None

    @functools.cached_property
    def coarse(self) -> Sequence[Config]:
        """The ends of every list and each second value between, in order, or a seeded sample if these are many."""
        thinned = {
            name: tuple(dict.fromkeys((*values[::2], values[-1]))) if _is_scale(values) else values
            for name, values in self.lists.items()
        }
        points = self._list_valid(thinned) or self._list_valid(self.lists)
        if len(points) > MOST_COARSE:
            chosen = sorted(random.Random(self.seed).sample(range(len(points)), MOST_COARSE))
            points = [points[index] for index in chosen]
        return points

    def _list_valid(self, lists: Mapping[str, tuple[Value, ...]]) -> list[Config]:
        points: Iterator[tuple[Value, ...]] = itertools.product(*lists.values())
        if math.prod(len(values) for values in lists.values()) > MOST_POINTS:
            drawn = random.Random(self.seed)
            points = (tuple(drawn.choice(values) for values in lists.values()) for _ in range(MOST_POINTS))
        configs = (dict(zip(lists, point, strict=True)) for point in points)
        return [config for config in configs if self.is_valid(config)]

    def list_neighbours(self, config: Config) -> list[Config]:
        """Configurations that differ in one value: by one step, or by any other value if its values have no order."""
        neighbours = []
        for name, values in self.lists.items():
            others = [value for value in values if value != config.get(name)]
            if config.get(name) in values and _is_scale(values):
                others = [value for value in _find_beside(values, config.get(name)) if value is not None]
            neighbours += [self._change(config, {name: other}) for other in others]
        return list(filter(self.is_valid, neighbours))

    def list_trades(self, config: Config) -> list[Config]:
        """A step more in one number and a step less in another: rules often bound their product."""
        steps = {name: _find_beside(values, config.get(name)) for name, values in self.lists.items()}
        pairs = (({more: steps[more][1]}, {less: steps[less][0]}) for more, less in itertools.permutations(steps, 2))
        changes = (up | down for up, down in pairs if None not in {*up.values(), *down.values()})
        return list(filter(self.is_valid, (self._change(config, change) for change in changes)))

    def _change(self, config: Config, changes: Config) -> Config:
        return {**{name: config.get(name, values[0]) for name, values in self.lists.items()}, **changes}

    def simplicity(self, config: Config) -> tuple[int, tuple[int, ...]]:
        """Small for what stands first in the lists."""
        lists = self.lists.items()
        places = [values.index(config[name]) if config.get(name) in values else len(values) for name, values in lists]
        return sum(places), tuple(places)


def _is_scale(values: Sequence[Value]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _find_beside(values: Sequence[Value], value: Value) -> tuple[Value, Value]:
    """The numbers before and after one in its list, None if there is none."""
    if not _is_scale(values) or value not in values:
        return None, None
    place = values.index(value)
    return (values[place - 1] if place else None), (values[place + 1] if place + 1 < len(values) else None)


# --- what comes next --------------------------------------------------------------------------------------------------


def find_next(grid: Choices, attempts: Sequence[Attempt]) -> list[Config]:
    """The candidates to try next, none if the search is over."""
    seen = {attempt.key for attempt in attempts if attempt.stage == SEARCH}
    room = max(MOST_TRIED - len(seen), 0)
    seen.add(key(grid.current))  # the anchor itself

    def keep_fresh(points: Sequence[Config]) -> list[Config]:
        return list({key(point): point for point in points if key(point) not in seen}.values())

    coarse = keep_fresh(grid.coarse)
    if not room or coarse:
        return coarse[:room]
    scored = _score(grid, attempts)
    # Today's choice leads too if it works and has a place in the lists.
    if grid.current is not None and not any(attempt.failure for attempt in attempts if attempt.config is None):
        scored.append((0.0, grid.simplicity(grid.current), grid.current))
    leaders = [config for _, _, config in sorted(scored, key=lambda row: row[:2])[:LEADERS]]
    near = [point for config in leaders for point in grid.list_neighbours(config)]
    traded = [point for config in leaders[:1] for point in grid.list_trades(config)]
    return (keep_fresh(near) or keep_fresh(traded))[:room]


def choose_finalists(grid: Choices, attempts: Sequence[Attempt]) -> list[Config]:
    """The fastest candidates that work, which are compared with today's choice over many blocks."""
    return [config for _, _, config in sorted(_score(grid, attempts), key=lambda row: row[:2])[:FINALISTS]]


def _score(grid: Choices, attempts: Sequence[Attempt]) -> list[tuple[float, tuple[int, tuple[int, ...]], Config]]:
    """Mean shift and simplicity of each candidate that works."""
    failed = {attempt.key for attempt in attempts if attempt.failure}
    works = {attempt.key: attempt for attempt in attempts if attempt.stage == SEARCH and attempt.key not in failed}
    means = ((work.config, average_shifts(work)) for work in works.values())
    return [
        (math.fsum(shifts) / len(shifts) if shifts else math.inf, grid.simplicity(config), config)
        for config, shifts in means
        if config is not None
    ]


# --- the decision -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Choice:
    """The result of a search for one entry."""

    regime: Regime
    config: Config | None  # what the entry should have, None: it stays as it is
    change: Interval | None = None
    """of the time by it, ratio - 1. None if it stays, or if there was nothing to compare it with"""
    tried: int = 0
    failed: int = 0

    @property
    def changed(self) -> bool:
        """Whether the file has to change."""
        return self.config is not None and self.config != self.regime.current


def decide(grid: Choices, regime: Regime, attempts: Sequence[Attempt], *, needed: bool = False) -> Choice:
    """The fastest finalist that is right, of equals the simplest. Today's stays unless beaten by LEAST, beyond doubt.

    needed: an entry that is not there yet gets the best, since one after it would take its calls otherwise.
    """
    failures = {attempt.key for attempt in attempts if attempt.failure}
    mine = [attempt for attempt in attempts if attempt.config is not None]
    finals = {attempt.key: attempt for attempt in mine if attempt.stage == FINAL and attempt.key not in failures}
    tried = len({attempt.key for attempt in mine if attempt.stage == SEARCH})
    failed = len({attempt.key for attempt in mine if attempt.failure})
    if not finals:
        return Choice(regime, None, None, tried, failed)
    spans = {name: exact.location(average_shifts(final)) for name, final in finals.items()}
    best = min(spans.values(), key=lambda span: span.value)
    level = [name for name, span in spans.items() if span.value <= best.value + TIE]
    taken = min(level, key=lambda name: grid.simplicity(finals[name].config or {}))
    span, config, change = spans[taken], finals[taken].config, None
    if finals[taken].anchor is None:  # else today's choice does not work here
        if (span.high < 0 and span.value <= -LEAST) or (needed and regime.current is None):
            change = exact.to_ratio(span)
        else:
            config = None
    return Choice(regime, config, change, tried, failed)


def average_shifts(tried: Attempt) -> list[float]:
    """Block by block the mean shift of its cases."""
    return [math.fsum(column) / len(column) for column in zip(*tried.shifts.values(), strict=False)]
