"""What is kept of each op on each device model, read one history at a time: all of them would not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from perfci import store
from perfci.core.errors import StoredFileError
from perfci.core.model import Environment, HistoryRun, Reason, Step
from perfci.report.past import DAMAGE
from perfci.store.history import ENDING, read_history
from perfci.thresholds.limits import Thresholds
from perfci.thresholds.read import load

Layered = Callable[[Thresholds, str, Environment], tuple[Thresholds, tuple[Reason, ...]]]
"""Thresholds that people wrote, an op and an environment -> those in force there, and what is said of them."""


def _as_written(written: Thresholds, _op: str, _where: Environment) -> tuple[Thresholds, tuple[Reason, ...]]:
    """Nothing earned, nothing relaxed."""
    return written, ()


@dataclass(frozen=True, order=True)
class Place:
    """An op on a device model."""

    device: str
    """key"""
    op: str


@dataclass(frozen=True)
class Kept:
    """The history of one place, with what explains and limits its numbers."""

    place: Place
    runs: tuple[HistoryRun, ...] = ()
    """in the file's order, the oldest first"""
    problems: tuple[Reason, ...] = ()
    """what could not be read, or looks wrong"""
    steps: tuple[Step, ...] = ()
    """recorded changes of the environment, from the baseline"""
    limits: Thresholds = field(default_factory=Thresholds)
    """in force for the newest run's environment"""
    notes: tuple[Reason, ...] = ()
    """what is said of them: relaxed entries, and earned values without effect"""

    @property
    def damaged(self) -> bool:
        """Whether something of it could not be read."""
        return any(problem.kind in DAMAGE or not self.runs for problem in self.problems)


def places(baselines: Path) -> tuple[Place, ...]:
    """Every op on every device model that has a history, by name."""
    found = [path for path in baselines.glob(f"*/*{ENDING}") if not path.name.startswith(".")]
    return tuple(sorted(Place(path.parent.name, path.name.removesuffix(ENDING)) for path in found))


def limits(folder: Path, root: Path) -> tuple[Thresholds, tuple[Reason, ...]]:
    """The thresholds that people wrote; the built-in ones, and why, where their files cannot be read."""
    try:
        return load(folder, root=root), ()
    except StoredFileError as error:
        return Thresholds(), (_shown(error.reason, root),)


def read(baselines: Path, place: Place, known: Thresholds, root: Path, layered: Layered = _as_written) -> Kept:
    """All about one place; what cannot be read is a problem of it, so that the others go on.

    known: what people wrote; layered: what makes of it what is in force.
    """
    try:
        found = read_history(baselines, place.device, place.op)
    except StoredFileError as error:
        return Kept(place, problems=(_shown(error.reason, root),))
    problems, steps = list(found.problems), tuple[Step, ...]()
    try:
        steps = _steps(baselines, place)
    except StoredFileError as error:
        problems.append(error.reason)
    limits, notes = known, tuple[Reason, ...]()
    try:
        limits, notes = layered(known, place.op, found.runs[-1].environment) if found.runs else (known, ())
    except StoredFileError as error:
        problems.append(error.reason)
    return Kept(place, found.runs, tuple(_shown(each, root) for each in problems), steps, limits, notes)


def _steps(baselines: Path, place: Place) -> tuple[Step, ...]:
    path = store.baseline_path(baselines, place.device, place.op)
    return store.read_baseline(path).steps if path.is_file() else ()


def _shown(reason: Reason, root: Path) -> Reason:
    """A site is read elsewhere: files by their place in the project, not by that on the machine which built it."""
    facts = {name: _relative(value, root) if isinstance(value, str) else value for name, value in reason.facts.items()}
    return replace(reason, facts=facts)


def _relative(value: str, root: Path) -> str:
    return value.removeprefix(f"{root}/")


def all_of(baselines: Path, known: Thresholds, root: Path, layered: Layered = _as_written) -> Iterator[Kept]:
    """One after the other."""
    return (read(baselines, place, known, root, layered) for place in places(baselines))
