"""Keeps what accepted runs have earned, by `perfci.thresholds.ratchet`, in `thresholds/<device key>/<op>.yaml`.

Worked out without a lock, since that may take a while; written with the folder held, and only over what was read.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from pathlib import Path

from perfci.core.environment import mixed, told
from perfci.core.errors import PerfciError, StoredFileError, UsageError
from perfci.core.model import Comparison, Fact, HistoryRun, Reason, Suite
from perfci.core.settings import Settings
from perfci.core.wording import ENGLISH, caused, sentence, speaking
from perfci.runs.effective_thresholds import place, shown
from perfci.store.files import write_atomically
from perfci.store.history import STOPPING, held, history_devices, history_ops, read_history
from perfci.thresholds.earned import EarnedFile, earned_path, read_earned, read_file
from perfci.thresholds.layers import Earned, stricter, strictest
from perfci.thresholds.limits import Thresholds
from perfci.thresholds.origins import origin
from perfci.thresholds.ratchet import figures, steps
from perfci.thresholds.ratchet.figures import KEYS
from perfci.thresholds.ratchet.steps import Change, propose, rescaled
from perfci.thresholds.ratchet.steps import Earned as Known
from perfci.thresholds.read import load
from perfci.thresholds.write import Which, with_earned

MOST_VALUES = 5
"""Values that are named in a sentence."""

_KEPT = {"ratchet_tau": "earned_tau", "ratchet_figure": "earned_figure", "ratchet_growth": "earned_growth"}
"""Kind of what is proposed -> kind of what is kept beside the value."""


@dataclass(frozen=True)
class TightenOptions:
    """What is to be tightened."""

    ops: tuple[str, ...] = ()
    """names; empty for all that have a history"""
    device: str | None = None
    """key; None for all"""
    write: bool = False


@dataclass(frozen=True)
class Tightened:
    """What became of an op on a device."""

    op: str
    device: str
    """key"""
    changes: tuple[Earned, ...] = ()
    """values that were, or would be, written, each with its record"""
    whys: tuple[Reason, ...] = ()
    """one a change"""
    anew: tuple[Earned, ...] = ()
    """values that go back to where they began, since the environment is another now"""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """id of a case in the file -> its name of now"""
    said: tuple[Reason, ...] = ()
    failure: Reason | None = None
    """why its file could not be read or written; then nothing of it changed"""
    path: Path | None = None
    """where it was written"""

    @property
    def moves(self) -> bool:
        """Whether there is anything to write."""
        return bool(self.changes or self.anew or self.renamed)


@dataclass(frozen=True)
class _Ready:
    """An op that is worked out, with what its file is to become."""

    told: Tightened
    file: EarnedFile | None = None
    content: bytes | None = None


def tighten(settings: Settings, options: TightenOptions, day: date | None = None) -> list[Tightened]:
    """What the histories of accepted runs have earned, op by op and device by device; stored if that is wished.

    One op that cannot be read or written is told and costs no other. Raises UsageError where there is no history of
    what is asked for, StoredFileError for thresholds of people that cannot be read.
    """
    written = load(settings.thresholds, None, settings.root)
    today = (day or datetime.now(UTC).date()).isoformat()
    ready = [
        _ready(settings, written, device, op, today)
        for device, ops in _histories(settings, options).items()
        for op in ops
    ]
    return [_stored(settings, each) if options.write else each.told for each in ready]


def refuse_in_pipeline(variables: Mapping[str, str] | None = None) -> None:
    """Raise UsageError in pipelines of merge requests, and of other branches than the default one."""
    known = os.environ if variables is None else variables
    if known.get("CI_MERGE_REQUEST_IID") or known.get("CI_PIPELINE_SOURCE") == "merge_request_event":
        raise UsageError("tighten_in_merge_request")
    branch, default = known.get("CI_COMMIT_BRANCH"), known.get("CI_DEFAULT_BRANCH")
    if default and branch != default:
        raise UsageError("tighten_off_default", default=default, branch=branch or known.get("CI_COMMIT_TAG") or "-")


# --- which ops --------------------------------------------------------------------------------------------------------


def _histories(settings: Settings, options: TightenOptions) -> dict[str, list[str]]:
    """Device -> the ops asked for that have a history there."""
    devices = history_devices(settings.baselines)
    if not devices and options.device is None and not options.ops:
        return {}
    if not devices:
        raise UsageError("tighten_no_history")
    if options.device is not None and options.device not in devices:
        raise UsageError("tighten_no_device", device=options.device, known=", ".join(devices))
    chosen = [options.device] if options.device is not None else devices
    there = {device: history_ops(settings.baselines, device) for device in chosen}
    known = sorted({op for ops in there.values() for op in ops})
    for op in options.ops:
        if op not in known:
            raise UsageError("tighten_no_op", op=op, known=", ".join(known) or "-")
    return {device: [op for op in ops if not options.ops or op in options.ops] for device, ops in there.items()}


def counted(settings: Settings, device: str, op: str) -> tuple[tuple[HistoryRun, ...], tuple[Reason, ...]]:
    """An op's accepted runs that count, and what is to be known of the others.

    Raises StoredFileError where the history is to be mended first.
    """
    found = read_history(settings.baselines, device, op)
    for problem in found.problems:
        if problem.kind in STOPPING:
            raise StoredFileError(problem.kind, **problem.facts)
    dirty = sum(run.environment.dirty for run in found.runs)
    said = (Reason("earned_dirty", {"op": op, "device": device, "count": dirty}),) if dirty else ()
    return tuple(run for run in found.runs if not run.environment.dirty), said


def family_of(history: Sequence[HistoryRun]) -> int:
    """Cases of an op that a change to its kernel duels, one with the other."""
    return len(figures.cases(history[-1], Suite.PERFORMANCE)) if history else 0


# --- one op -----------------------------------------------------------------------------------------------------------


def _ready(settings: Settings, written: Thresholds, device: str, op: str, today: str) -> _Ready:
    try:
        history, said = counted(settings, device, op)
    except StoredFileError as error:
        why = caused("earned_unread", error.reason, op=op, device=device)
        return _Ready(Tightened(op, device, failure=why))
    if not history:
        nothing = Reason("earned_nothing", {"op": op, "device": device})
        return _Ready(Tightened(op, device, said=(*said, nothing)))
    try:
        file = read_file(earned_path(settings.thresholds, device, op), op, device, settings.root)
        return _worked_out(settings, written, file, history, said, today)
    except StoredFileError as error:
        return _Ready(Tightened(op, device, said=said, failure=error.reason))


def _worked_out(
    settings: Settings,
    written: Thresholds,
    file: EarnedFile,
    history: Sequence[HistoryRun],
    said: tuple[Reason, ...],
    today: str,
) -> _Ready:
    renamed = _renamed(file, history)
    named = [dataclasses.replace(each, case=renamed.get(each.case, each.case)) for each in file.values]
    gone = set(_anew(file, named, history))
    kept = {(each.case, each.key): each for each in named if (each.case, each.key) not in gone}
    limits = dataclasses.replace(written, earned={file.op: _values(kept)})
    proposed = [
        change
        for change in _agreed(propose(history, limits, file.op, family=family_of(history)), history)
        if _is_news(change, kept.get((change.case, change.key)))
    ]
    changes = tuple(_recorded(change, kept.get((change.case, change.key)), file, today) for change in proposed)
    anew = tuple(each for each in named if (each.case, each.key) in gone)
    whys = tuple(change.why for change in proposed)
    told_anew = (_told_anew(file, anew, history),) if anew else ()
    told = Tightened(file.op, file.device, changes, whys, anew, renamed, (*said, *told_anew))
    if not told.moves:
        return _Ready(told)
    before = {now: old for old, now in renamed.items()}
    dropped = {(before.get(case, case), key) for case, key in gone}
    _refuse_links(file.path, settings)
    return _Ready(told, file, with_earned(file, history[-1].environment, changes, dropped, renamed))


def _values(kept: Mapping[Which, Earned]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for (case, key), each in kept.items():
        found.setdefault(case, {})[key] = each.value
    return found


def _renamed(file: EarnedFile, history: Sequence[HistoryRun]) -> dict[str, str]:
    """Cases of the file that have another name now, by what the runs say."""
    there = {each.case for each in file.values}
    now: dict[str, str] = {}
    for run in reversed(history):
        now |= {old: now.get(new, new) for new, old in run.renamed.items()}
    return {old: new for old, new in now.items() if old in there and new not in there and old != new}


def _anew(file: EarnedFile, named: Sequence[Earned], history: Sequence[HistoryRun]) -> tuple[Which, ...]:
    if file.environment is None:
        return ()
    known = {(each.case, each.key): Known(each.value, each.began, file.environment) for each in named}
    return steps.anew(history, known)


def _told_anew(file: EarnedFile, anew: Sequence[Earned], history: Sequence[HistoryRun]) -> Reason:
    assert file.environment is not None
    named = [
        f"{each.key} {shown(each.key, each.value)} -> {shown(each.key, each.began)} ({each.case})"
        for each in anew[:MOST_VALUES]
    ]
    more = [f"... (+{len(anew) - MOST_VALUES})"] if len(anew) > MOST_VALUES else []
    facts: dict[str, Fact] = {"op": file.op, "device": file.device, "count": len(anew)}
    fields = told(mixed(file.environment, history[-1].environment))
    return Reason("earned_anew", {**facts, "fields": fields, "values": "; ".join([*named, *more])})


def _agreed(proposed: Sequence[Change], history: Sequence[HistoryRun]) -> Iterator[Change]:
    """One change a case and key.

    A case id that both suites have is judged by one value in both; so it moves where both have earned that, to the
    looser of the two.
    """
    found: dict[Which, list[Change]] = {}
    for change in proposed:
        found.setdefault((change.case, change.key), []).append(change)
    for (case, key), changes in found.items():
        if len(changes) == _suites_with(history, case, key):
            yield max(changes, key=lambda change: change.after)


def _suites_with(history: Sequence[HistoryRun], case: str, key: str) -> int:
    """How many suites measure what a key is about; only errors are measured by both."""
    known = next((each for each in KEYS if each.name == key), None)
    if known is None or not known.error:
        return 1
    both = [figures.cases(history[-1], suite).get(case) for suite in (Suite.PERFORMANCE, Suite.ACCURACY)]
    return sum(each is not None and known.figure(each) is not None for each in both)


def _is_news(change: Change, known: Earned | None) -> bool:
    """Whether a run was accepted since the last step: one night's runs make one step, however often it is asked."""
    return known is None or known.edited or known.last != change.runs[-1]


def _recorded(change: Change, known: Earned | None, file: EarnedFile, today: str) -> Earned:
    facts = {**change.why.facts}
    with speaking(ENGLISH):
        why = sentence(Reason(_KEPT[change.why.kind], facts))
    return Earned(
        op=change.op,
        case=change.case,
        key=change.key,
        value=change.after,
        before=change.before,
        after=change.after,
        bound=float(f"{change.bound:.4g}"),
        began=known.began if known else change.before,
        predicted=change.predicted,
        date=today,
        runs=len(dict.fromkeys(change.runs)),
        first=change.runs[0],
        last=change.runs[-1],
        why=why,
        file=str(file.path),
    )


# --- writing ----------------------------------------------------------------------------------------------------------


def _stored(settings: Settings, ready: _Ready) -> Tightened:
    if ready.file is None or ready.content is None:
        return ready.told
    try:
        replace_file(settings, ready.file.path, ready.file.content, ready.content)
    except PerfciError as error:
        return dataclasses.replace(ready.told, failure=error.reason)
    return dataclasses.replace(ready.told, path=ready.file.path)


def replace_file(settings: Settings, path: Path, before: bytes | None, after: bytes) -> None:
    """Write a thresholds file where it still is as it was read; None: there was none.

    Raises StoredFileError where somebody changed it since, where it is a link, and where it cannot be written.
    """
    _refuse_links(path, settings)
    with held(settings.thresholds):
        now = path.read_bytes() if path.exists() else None
        if now != before:
            raise StoredFileError("thresholds_changed_meanwhile", file=place(path, settings.root))
        if after != now:
            write_atomically(path, after)


def _refuse_links(path: Path, settings: Settings) -> None:
    link = next((each for each in (path, path.parent) if each.is_symlink() and each != settings.thresholds), None)
    if link:
        raise StoredFileError("thresholds_linked", file=place(link, settings.root))


# --- an accepted loss -------------------------------------------------------------------------------------------------


def shift_of(seen: Comparison | None) -> float | None:
    """The slow-down that is accepted, log scale: as the duel has it, else as the screen; None where nothing tells."""
    if seen is None:
        return None
    if seen.duel is not None:
        return seen.duel.shift.value
    return math.log1p(seen.screens[0].change.value) if seen.screens else None


def rescale(
    settings: Settings, op: str, run: HistoryRun, shifts: Mapping[str, float], day: date | None = None
) -> tuple[Reason, ...]:
    """Make targets of speed as tight for a kernel with an accepted loss as they were before; gives what is to be said.

    run: with which the epoch began; shifts: its cases -> accepted slow-down, log scale. Only what was earned is
    scaled: a target that a person wrote stays, and is said where the kernel misses it now. What cannot be read or
    written is said and changes nothing.
    """
    device = run.environment.device.key
    try:
        written = load(settings.thresholds, None, settings.root)
        files = read_earned(settings.thresholds, device, settings.root)
        file = files.by_op.get(op, EarnedFile(op, device, earned_path(settings.thresholds, device, op)))
        if file.environment is not None and mixed(file.environment, run.environment):
            file = dataclasses.replace(file, values=())
        return tuple(_rescaled(settings, written, file, run, shifts, day))
    except PerfciError as error:
        return (error.reason,)


def _rescaled(
    settings: Settings,
    written: Thresholds,
    file: EarnedFile,
    run: HistoryRun,
    shifts: Mapping[str, float],
    day: date | None,
) -> Iterator[Reason]:
    limits = dataclasses.replace(written, earned={file.op: file.by_case()})
    known = {(each.case, each.key): each for each in file.values}
    today = (day or datetime.now(UTC).date()).isoformat()
    values = []
    for change in rescaled(limits, file.op, shifts, run.run):
        mine = known.get((change.case, change.key))
        own = strictest(written.for_case(file.op, change.case), change.key)
        if mine is not None and stricter(change.key, mine.value, own):
            values.append(_scaled(mine, change, run.run, today))
        elif _misses(run, change, own):
            yield _kept_target(settings, change, own)
    if values:
        content = with_earned(file, run.environment, values)
        replace_file(settings, file.path, file.content, content)
    for each in values:
        facts: dict[str, Fact] = {"key": each.key, "op": each.op, "case": each.case}
        facts |= {"before": shown(each.key, each.before), "after": shown(each.key, each.after)}
        yield Reason("earned_rescaled_said", {**facts, "file": place(file.path, settings.root)})


def _scaled(mine: Earned, change: Change, run: str, today: str) -> Earned:
    after = float(f"{change.after:.4g}")
    with speaking(ENGLISH):
        why = sentence(Reason("earned_rescaled", change.why.facts))
    return dataclasses.replace(
        mine,
        value=after,
        before=mine.value,
        after=after,
        bound=after,
        predicted=None,
        date=today,
        runs=1,
        first=run,
        last=run,
        rescaled=run,
        why=why,
    )


def _misses(run: HistoryRun, change: Change, own: float | None) -> bool:
    """Whether the kernel that was accepted does not reach what a person wrote."""
    case = figures.cases(run, Suite.PERFORMANCE).get(change.case)
    key = next(each for each in KEYS if each.name == change.key)
    figure = key.figure(case) if case else None
    return figure is not None and own is not None and stricter(change.key, own, figure)


def _kept_target(settings: Settings, change: Change, own: float | None) -> Reason:
    facts: dict[str, Fact] = {"key": change.key, "op": change.op, "case": change.case}
    where = origin(settings.thresholds, change.op, change.case, change.key, settings.root)
    facts |= {"value": shown(change.key, own), "scaled": shown(change.key, change.after), "where": str(where)}
    return Reason("earned_kept_target", facts)
