"""Slow drift in kept histories: creep since the last release and steps, and a note of it on the default branch."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci import store
from perfci.core.environment import told
from perfci.core.errors import StoredFileError
from perfci.core.model import UNTIMED, Bearing, Fact, HistoryRun, Judgements, Reason, Run, Step
from perfci.core.settings import Settings
from perfci.git.tags import Release, releases
from perfci.ops.spec import matches
from perfci.statistics import changepoints, drift
from perfci.statistics.changepoints import Change
from perfci.statistics.drift import Creep
from perfci.store.history import History, read_history
from perfci.store.past.series import environment_steps


@dataclass(frozen=True)
class CaseDrift:
    """What the accepted runs of a case say."""

    case: str
    runs: int
    creep: Creep | None
    """None where it has too few runs of this environment, since the release or since its last epoch"""
    release: str | None
    """about which the anchor lies; None: its first runs"""
    changes: tuple[Change, ...]
    few: bool
    """too few runs for any step to be told"""

    @property
    def found(self) -> bool:
        """Whether it crept, or took a step for the worse that nothing explains."""
        return bool(self.creep and self.creep.found) or any(change.unexplained for change in self.changes)


@dataclass(frozen=True)
class Surrounding:
    """A change of the environment, boards aside."""

    before: HistoryRun
    after: HistoryRun
    fields: str
    why: str | None = None
    """what people said of it when they recorded it as a step of the baseline"""


def known_releases(
    history: Sequence[HistoryRun], where: Settings, named: str | None = None
) -> tuple[Release, ...] | Reason:
    """About which an anchor may lie, the newest first."""
    commits = {run.environment.commit for run in history if run.environment.commit}
    return releases(where.root, commits, named, where.release_tags) if commits or named else ()


def drifts(found: History, known: Sequence[Release], pattern: str | None = None) -> tuple[CaseDrift, ...]:
    """Every case that the newest run has or left open, in its order."""
    alone = drift.by_case(found.runs)
    return tuple(of_case(runs, case, known) for case, runs in alone.items() if matches(case, pattern))


def stored_drifts(
    history: Sequence[HistoryRun], known: Sequence[Release], pattern: str | None = None
) -> tuple[tuple[Creep, str | None], ...]:
    """Figures of tensors stored in low precision that crept, with the release about which each anchor lies."""
    cases = [each.case for each in history[-1].stored if matches(each.case, pattern)] if history else []
    found = (_stored_creep(history, case, figure, known) for case in cases for figure in drift.STORED_ZEROS)
    return tuple((creep, release) for creep, release in found if creep and creep.found)


def _stored_creep(
    history: Sequence[HistoryRun], case: str, figure: str, known: Sequence[Release]
) -> tuple[Creep | None, str | None]:
    for release in known:
        held = [run.run for run in history if run.environment.commit in release.holds]
        found = drift.stored_creep(history, case, figure, held[-1]) if held else None
        if found and held[-1] in found.anchor:
            return found, release.name
    return drift.stored_creep(history, case, figure), None


def stored_reason(op: str, creep: Creep, history: Sequence[HistoryRun], release: str | None) -> Reason:
    """A creep of storage in a sentence."""
    told = creep_reason(op, creep, history, release)
    what = shlex.join(["perfci", "history", "--op", op])
    return Reason("stored_crept", {**told.facts, "command": what})


def recorded_steps(baselines: Path, found: History) -> tuple[Step, ...]:
    """The steps that were recorded for an op; none if its baseline is gone or cannot be read."""
    try:
        path = store.baseline_path(baselines, found.device, found.op)
        return store.read_baseline(path).steps if path.is_file() else ()
    except StoredFileError:
        return ()


def surroundings(found: History, recorded: Sequence[Step] = ()) -> Iterator[Surrounding]:
    """Where the environment changed between two runs."""
    why = {run: step.why for step in recorded for run in step.after.run_ids}
    steps = environment_steps(found.runs)
    for before, after in zip(found.runs, found.runs[1:], strict=False):
        fields = [each for each in steps.get(after.run, ()) if each.bearing is not Bearing.BOARD]
        if fields:
            yield Surrounding(before, after, told(fields), why.get(after.run))


def creep_of(history: Sequence[HistoryRun], case: str, known: Sequence[Release]) -> tuple[Creep | None, str | None]:
    """Creep since the newest release that has runs enough about it and since it; else since the first runs."""
    for release in known:
        held = [at for at, run in enumerate(history) if run.environment.commit in release.holds]
        # With all runs of one environment and epoch the anchor would begin half of its length before the last of these.
        if not held or len(history) < max(held[-1] - drift.ANCHOR // 2, 0) + drift.ANCHOR + drift.RECENT:
            continue
        last = history[held[-1]].run
        found = drift.creep(history, case, last)
        # Where the anchor is not about the release, the release is not in this environment or epoch.
        if found and last in found.anchor:
            return found, release.name
    return drift.creep(history, case), None


def creep_reason(op: str, creep: Creep, history: Sequence[HistoryRun], release: str | None) -> Reason:
    """A creep in a sentence."""
    by_id = {run.run: run for run in history}
    first, last = by_id[creep.anchor[-1]].environment, by_id[creep.recent[0]].environment
    facts: dict[str, Fact] = {
        "op": op,
        "case": creep.case,
        "figure": creep.figure,
        "change": creep.change,
        "threshold": creep.threshold,
        "anchor": len(creep.anchor),
        "recent": len(creep.recent),
        "release": release,
        "since": by_id[creep.anchor[0]].created[:10],
        "good": (first.commit or creep.anchor[-1])[: changepoints.DIGITS],
        "bad": (last.commit or creep.recent[0])[: changepoints.DIGITS],
        "command": shlex.join(_next(op, creep.case, first.commit, last.commit)),
    }
    return Reason("crept_since_release" if release else "crept", facts)


def _next(op: str, case: str, good: str | None, bad: str | None) -> list[str]:
    what = ["--op", op, "--case", case]
    if good and bad and good != bad:
        return ["perfci", "bisect", *what, good[: changepoints.DIGITS], bad[: changepoints.DIGITS]]
    return ["perfci", "history", *what]


def with_history(run: Run, judgements: Judgements, rules: Settings) -> Judgements:
    """Judgements of a run of the default branch with a note where its ops have crept; it fails nothing.

    A merge request is told nothing: the creep is not its own. Neither is a run that the judge still asks more of.
    """
    base = run.plan.base
    if judgements.needs or run.plan.device in UNTIMED or (base is not None and base.rules):
        return judgements
    crept = [each for op in run.ops for each in _crept(op.op, run, rules)]
    if not crept:
        return judgements
    op, worst = max(crept, key=lambda each: each[1].change)
    facts: dict[str, Fact] = {"count": len(crept), "op": op, "case": worst.case, "change": worst.change}
    return dataclasses.replace(judgements, notes=(*judgements.notes, Reason("history_crept", facts)))


def _crept(op: str, run: Run, rules: Settings) -> Iterator[tuple[str, Creep]]:
    try:
        history = read_history(rules.baselines, run.environment.device.key, op).runs
    except StoredFileError:  # told by perfci history, and where a run is accepted
        return
    if len(history) < drift.ANCHOR + drift.RECENT:
        return
    known = known_releases(history, rules)
    for case, runs in drift.by_case(history).items():
        found, _ = creep_of(runs, case, () if isinstance(known, Reason) else known)
        if found and found.found:
            yield op, found
    yield from ((op, creep) for creep, _ in stored_drifts(history, () if isinstance(known, Reason) else known))


def of_case(history: Sequence[HistoryRun], case: str, known: Sequence[Release]) -> CaseDrift:
    """What the accepted runs of one case say; their other cases are not looked at."""
    creep, release = creep_of(history, case, known)
    return CaseDrift(
        case=case,
        runs=sum(any(each.case == case for each in run.cases) for run in history),
        creep=creep,
        release=release,
        changes=changepoints.changes(history, case),
        few=changepoints.too_few(history, case),
    )
