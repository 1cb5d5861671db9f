"""From runs that people looked at to stored baselines and lines of history, op by op."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfci import store
from perfci.core.errors import UsageError
from perfci.core.model import (
    Baseline,
    Epoch,
    Expected,
    Fact,
    HistoryRun,
    Judgement,
    PlannedOp,
    Reason,
    Run,
    Verdict,
)
from perfci.core.renames import baseline_of
from perfci.core.settings import Settings
from perfci.ops.spec import matches
from perfci.runs.accept import SLOWER, Acceptance, Evidence, accept, refusals
from perfci.runs.decide import decide
from perfci.runs.effective_thresholds import by_files, unrelaxed
from perfci.runs.losses import losses
from perfci.runs.tightening import rescale, shift_of
from perfci.store.history import append_history, check_history, held, history_path, read_history, with_names_of_now
from perfci.store.past.lines import line
from perfci.thresholds.limits import Thresholds


@dataclass(frozen=True)
class _Wishes:
    """How people want runs accepted."""

    add: bool
    dirty: bool
    slower: str | None
    """why a loss is accepted; None where none is"""
    pattern: str | None

    def asks(self, case: str) -> bool:
        return matches(case, self.pattern)


@dataclass(frozen=True)
class _Ready:
    """An op that is weighed: what is to be stored of it."""

    answer: Acceptance
    lines: tuple[HistoryRun, ...] = ()


def accept_runs(
    runs: Sequence[Run],
    settings: Settings,
    names: Sequence[str],
    *,
    add: bool,
    dirty: bool,
    slower: str | None = None,
    pattern: str | None = None,
) -> list[Acceptance]:
    """Make baselines of runs and store them, op by op, with a line of history a run; what is refused is said.

    A loss that nobody agreed on is refused, however it came about: REGRESSED, TOO_SLOW, slower than the stored
    baseline where that could not speak, or crept since the history's first runs. `slower` is the reason for which such
    cases, and no others, are accepted: their history begins an epoch. `pattern` chooses cases.

    All ops are weighed before anything is written. Raises UsageError for an empty reason, where no case fits, where
    none is slower, and as `accept` does; StoredFileError for files that cannot be read or written.
    """
    if slower is not None and not slower.strip():
        raise UsageError("accept_without_why")
    wishes = _Wishes(add, dirty, slower, pattern)
    # By the files: what was allowed on a command line agrees to no loss.
    evidence = [(run, decide(by_files(run), settings)) for run in runs]
    measured = list(dict.fromkeys(op.op for run in runs for op in run.ops))
    _refuse_nothing(runs, wishes, measured)
    limits = unrelaxed(settings, runs[-1])
    key = runs[0].environment.device.key
    with held(history_path(settings.baselines, key, "any").parent):
        ready = [_weighed(op, evidence, settings, limits, wishes) for op in (names or measured)]
        if slower is not None and not any(one.answer.accepted or one.answer.refused for one in ready):
            raise UsageError("accept_none_slower", runs=", ".join(run.id for run in runs))
        for one in ready:
            if one.answer.baseline:
                store.write_baseline(one.answer.baseline, settings.baselines)
    noted = [_noted(one, settings, key) for one in ready]
    return [_rescaled(one, lines.lines, evidence, settings) for one, lines in zip(noted, ready, strict=True)]


def note(op: str, lines: Sequence[HistoryRun], settings: Settings, key: str) -> tuple[Reason, ...]:
    """Put lines into an op's history; gives what was repaired there. Raises StoredFileError."""
    return tuple(reason for each in lines for reason in append_history(settings.baselines, key, op, each).repairs)


def past(op: str, runs: Sequence[Run], settings: Settings) -> tuple[Baseline | None, tuple[HistoryRun, ...]]:
    """What is stored of an op and its history, under the names that the runs' cases have.

    Raises StoredFileError where either is damaged, so that nothing is accepted that could not be noted.
    """
    key, planned = runs[0].environment.device.key, _planned(op, runs)
    names = [name for name in (op, planned.renamed_from) if name]
    paths = {name: store.baseline_path(settings.baselines, key, name) for name in names}
    stored = {name: store.read_baseline(path) for name, path in paths.items() if path.exists()}
    check_history(settings.baselines, key, op)
    history = read_history(settings.baselines, key, op, formerly=planned.renamed_from)
    return baseline_of(planned, stored), with_names_of_now(history.runs, planned.renamed)


def _planned(op: str, runs: Sequence[Run]) -> PlannedOp:
    return next((each for run in reversed(runs) for each in run.plan.ops if each.op == op), PlannedOp(op))


def _refuse_nothing(runs: Sequence[Run], wishes: _Wishes, measured: Sequence[str]) -> None:
    cases = {case.case for run in runs for op in run.ops for case in op.performance}
    if wishes.pattern is not None and not any(map(wishes.asks, cases)):
        raise UsageError("no_case_fits", pattern=wishes.pattern, ops=", ".join(measured))


def _noted(ready: _Ready, settings: Settings, key: str) -> Acceptance:
    said = note(ready.answer.op, ready.lines, settings, key)
    return dataclasses.replace(ready.answer, said=(*ready.answer.said, *said))


def _rescaled(
    answer: Acceptance, lines: Sequence[HistoryRun], evidence: Sequence[Evidence], settings: Settings
) -> Acceptance:
    """Targets that were earned are as tight for the accepted kernel as they were for the one before."""
    said: tuple[Reason, ...] = ()
    for each in lines:
        rows = [row for run, found in evidence if run.id == each.run for row in found.rows if row.op == answer.op]
        shifts = {
            row.case: shift_of(row.comparison)
            for row in rows
            if row.case and each.epoch and row.case in each.epoch.cases
        }
        known = {case: shift for case, shift in shifts.items() if shift is not None}
        said += rescale(settings, answer.op, each, known) if known else ()
    return dataclasses.replace(answer, said=(*answer.said, *said)) if said else answer


def _weighed(op: str, evidence: Sequence[Evidence], settings: Settings, limits: Thresholds, wishes: _Wishes) -> _Ready:
    """What of an op is accepted, and the lines that say so."""
    runs = [run for run, _ in evidence]
    fresh = accept(op, evidence, dirty=wishes.dirty)
    existing, known = past(op, runs, settings)
    earlier = [run for run in known if run.run not in {each.id for each in runs}]
    lost = losses(fresh.baseline, existing, known, lambda case: limits.for_case(op, case)) if fresh.baseline else {}
    slow = {**lost, **refusals(op, evidence, SLOWER)}
    if wishes.slower is not None:
        return _losing(op, evidence, existing, wishes, slow)
    agreed, spent = _agreed(op, evidence, earlier)
    slow |= {case: _spent(op, case, *spent[case]) for case in spent if case in slow}
    withheld = {case: reason for case, reason in slow.items() if case not in agreed}
    only = None if wishes.pattern is None else [case for case in _cases(op, runs) if wishes.asks(case)]
    answer = accept(op, evidence, existing, add=wishes.add, dirty=wishes.dirty, only=only, withheld=withheld)
    whys = {case: entry.why for case, entry in agreed.items() if case in answer.accepted}
    return _with_lines(answer, evidence, whys, wishes)


def _losing(
    op: str,
    evidence: Sequence[Evidence],
    existing: Baseline | None,
    wishes: _Wishes,
    slow: Mapping[str, Reason],
) -> _Ready:
    """The cases that are slower beyond doubt, for the reason given; all others stay as they were, and that is said."""
    assert wishes.slower is not None
    why = wishes.slower.strip()
    asked = [case for case in _cases(op, [run for run, _ in evidence]) if wishes.asks(case)]
    excused = {row.case for row in _excused(op, evidence)}
    only = [case for case in asked if case in slow or case in excused]
    answer = accept(op, evidence, existing, add=wishes.add, dirty=wishes.dirty, only=only)
    left = len(asked) - len(only)
    said = (Reason("accept_not_slower", {"op": op, "count": left}),) if left and only else ()
    answer = dataclasses.replace(answer, said=said)
    return _with_lines(answer, evidence, dict.fromkeys(answer.accepted, why), wishes)


def _excused(op: str, evidence: Sequence[Evidence]) -> list[Judgement]:
    rows = (row for _, judgements in evidence for row in judgements.rows)
    return [row for row in rows if row.op == op and row.verdict is Verdict.EXPECTED]


def _agreed(
    op: str, evidence: Sequence[Evidence], known: Sequence[HistoryRun]
) -> tuple[dict[str, Expected], dict[str, tuple[Expected, HistoryRun]]]:
    """Cases whose loss an entry agrees to, and those of which the entry was used up by an earlier epoch.

    Else every merge request could lose as much again as the same entry allows.
    """
    agreed: dict[str, Expected] = {}
    spent: dict[str, tuple[Expected, HistoryRun]] = {}
    for row in _excused(op, evidence):
        if row.case is None or row.expected is None:
            continue
        used = next((run for run in reversed(known) if _tells(run.epoch, row.case, row.expected.why)), None)
        if used:
            spent[row.case] = row.expected, used
        else:
            agreed[row.case] = row.expected
    return {case: entry for case, entry in agreed.items() if case not in spent}, spent


def _tells(epoch: Epoch | None, case: str, why: str) -> bool:
    return epoch is not None and case in epoch.cases and why in epoch.why


def _spent(op: str, case: str, entry: Expected, used: HistoryRun) -> Reason:
    facts: dict[str, Fact] = {
        "op": op,
        "case": case,
        "why": entry.why,
        "run": used.run,
        "file": entry.file,
        "line": entry.line,
    }
    return Reason("accept_entry_spent", facts)


def _cases(op: str, runs: Sequence[Run]) -> list[str]:
    """Ids of the runs' performance cases of an op, each once, in order."""
    found = (case.case for run in runs for each in run.ops if each.op == op for case in each.performance)
    return list(dict.fromkeys(found))


def _with_lines(answer: Acceptance, evidence: Sequence[Evidence], whys: Mapping[str, str], wishes: _Wishes) -> _Ready:
    """The lines of history, oldest run first; a loss begins its epoch with the first run that has the case."""
    lines, begun = [], set[str]()
    ordered = sorted(evidence, key=lambda each: each[0].created)
    dirty = [run for run, _ in ordered if run.environment.dirty]
    for run, judgements in ordered:
        if run in dirty:
            continue
        cases = tuple(case for case in _cases(answer.op, [run]) if case in whys and case not in begun)
        epoch = Epoch("; ".join(dict.fromkeys(whys[case] for case in cases)), cases) if cases else None
        found = line(answer.op, run, judgements, answer.accepted, epoch)
        if found and (answer.accepted or wishes.slower is None):
            lines.append(found)
            begun |= set(found.epoch.cases) if found.epoch else set()
    said = (Reason("accept_dirty_unkept", {"run": dirty[0].id}),) if dirty and answer.accepted else ()
    return _Ready(dataclasses.replace(answer, said=(*answer.said, *said)), tuple(lines))
