"""What accepted runs show of a case: creep since the last release, steps, and changes of the environment.

For `perfci history --drift`, for the History section of a report, and for a note on runs of the default branch.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfci import store
from perfci.core.environment import list_differences
from perfci.core.errors import StoredFileError
from perfci.core.model import UNTIMED, Bearing, Fact, HistoryRun, Judgements, OpRun, PlannedOp, Reason, Run, Step
from perfci.core.settings import Settings
from perfci.git.tags import Release, list_releases
from perfci.measure.lowprec.advice import add_history
from perfci.ops.spec import matches
from perfci.report.past import DAMAGE, CasePast, Past
from perfci.statistics import changepoints, drift
from perfci.statistics.changepoints import ChangePoint
from perfci.statistics.drift import Creep
from perfci.store.history import History, read_history, with_names_of_now
from perfci.store.past.series import environment_steps


@dataclass(frozen=True)
class CaseDrift:
    """What the accepted runs of a case show."""

    case: str
    runs: int
    creep: Creep | None
    """None if it has too few runs of this environment, since the release or since its last epoch"""
    release: str | None
    """about which the anchor lies, None: its first runs"""
    changes: tuple[ChangePoint, ...]
    few: bool
    """too few runs for any step"""

    @property
    def found(self) -> bool:
        """Whether it crept, or took a step for the worse that nothing explains."""
        return bool(self.creep and self.creep.found) or any(change.unexplained for change in self.changes)


@dataclass(frozen=True)
class EnvironmentChange:
    """A change of the environment between two runs, boards aside."""

    before: HistoryRun
    after: HistoryRun
    fields: str
    why: str | None = None
    """the reason that people recorded with a step of the baseline"""


def find_releases(
    history: Sequence[HistoryRun], where: Settings, named: str | None = None
) -> tuple[Release, ...] | Reason:
    """Releases about which an anchor may lie, the newest first."""
    commits = {run.environment.commit for run in history if run.environment.commit}
    return list_releases(where.root, commits, named, where.release_tags) if commits or named else ()


def find_drifts(found: History, known: Sequence[Release], pattern: str | None = None) -> tuple[CaseDrift, ...]:
    """Every case that the newest run has or left open, in its order."""
    alone = drift.by_case(found.runs)
    return tuple(find_drift(runs, case, known) for case, runs in alone.items() if matches(case, pattern))


def find_drift(history: Sequence[HistoryRun], case: str, known: Sequence[Release]) -> CaseDrift:
    """What the accepted runs of one case show. Their other cases do not count."""
    creep, release = find_creep(history, case, known)
    return CaseDrift(
        case=case,
        runs=sum(any(each.case == case for each in run.cases) for run in history),
        creep=creep,
        release=release,
        changes=changepoints.changes(history, case),
        few=changepoints.too_few(history, case),
    )


def find_creep(history: Sequence[HistoryRun], case: str, known: Sequence[Release]) -> tuple[Creep | None, str | None]:
    """Creep of a case, with the release about which the anchor lies."""
    return _since_release(lambda anchor: drift.creep(history, case, anchor), history, known)


def find_stored_drifts(
    history: Sequence[HistoryRun], known: Sequence[Release], pattern: str | None = None
) -> tuple[tuple[Creep, str | None], ...]:
    """Figures of tensors stored in low precision that crept, with the release about which each anchor lies."""
    cases = [each.case for each in history[-1].stored if matches(each.case, pattern)] if history else []
    found = []
    for case in cases:
        for figure in drift.STORED_ZEROS:

            def measure(anchor: str | None, case: str = case, figure: str = figure) -> Creep | None:
                return drift.stored_creep(history, case, figure, anchor)

            creep, release = _since_release(measure, history, known)
            if creep and creep.found:
                found.append((creep, release))
    return tuple(found)


def _since_release(
    measure: Callable[[str | None], Creep | None], history: Sequence[HistoryRun], known: Sequence[Release]
) -> tuple[Creep | None, str | None]:
    """Creep since the newest release that has runs enough about it and since it, else since the first runs.

    measure: the creep since a run, by its id, or since the first runs.
    """
    for release in known:
        held = [at for at, run in enumerate(history) if run.environment.commit in release.holds]
        # With all runs of one environment and epoch the anchor would begin half of its length before the last of these.
        if not held or len(history) < max(held[-1] - drift.ANCHOR // 2, 0) + drift.ANCHOR + drift.RECENT:
            continue
        last = history[held[-1]].run
        found = measure(last)
        # If the anchor is not about the release, the release is not in this environment or epoch.
        if found and last in found.anchor:
            return found, release.name
    return measure(None), None


def describe_creep(op: str, creep: Creep, history: Sequence[HistoryRun], release: str | None) -> Reason:
    """A creep in a sentence, with the command that finds more."""
    by_id = {run.run: run for run in history}
    first, last = (by_id[each].environment.commit for each in (creep.anchor[-1], creep.recent[0]))
    good, bad = (first or creep.anchor[-1])[: changepoints.DIGITS], (last or creep.recent[0])[: changepoints.DIGITS]
    what = ["--op", op, "--case", creep.case]
    command = (
        ["perfci", "bisect", *what, good, bad] if first and last and first != last else ["perfci", "history", *what]
    )
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
        "good": good,
        "bad": bad,
        "command": shlex.join(command),
    }
    return Reason("crept_since_release" if release else "crept", facts)


def describe_stored_creep(op: str, creep: Creep, history: Sequence[HistoryRun], release: str | None) -> Reason:
    """A creep of storage in a sentence."""
    facts = describe_creep(op, creep, history, release).facts
    return Reason("stored_crept", {**facts, "command": shlex.join(["perfci", "history", "--op", op])})


def read_steps(baselines: Path, found: History) -> tuple[Step, ...]:
    """The steps that `perfci accept --environment` recorded for an op. Empty if its baseline cannot be read."""
    try:
        path = store.baseline_path(baselines, found.device, found.op)
        return store.read_baseline(path).steps if path.is_file() else ()
    except StoredFileError:
        return ()


def list_environment_changes(found: History, recorded: Sequence[Step] = ()) -> Iterator[EnvironmentChange]:
    """Changes of the environment between two runs."""
    why = {run: step.why for step in recorded for run in step.after.run_ids}
    steps = environment_steps(found.runs)
    for before, after in zip(found.runs, found.runs[1:], strict=False):
        fields = [each for each in steps.get(after.run, ()) if each.bearing is not Bearing.BOARD]
        if fields:
            yield EnvironmentChange(before, after, list_differences(fields), why.get(after.run))


# --- for a run --------------------------------------------------------------------------------------------------------


def note_creep(run: Run, judgements: Judgements, rules: Settings) -> Judgements:
    """Judgements of a run of the default branch with a note if its ops have crept. The note fails nothing.

    A merge request gets none: the creep is not its own. Neither does a run of which the judge still wants more.
    """
    base = run.plan.base
    if judgements.needs or run.plan.device in UNTIMED or (base is not None and base.rules):
        return judgements
    crept = []
    for op in run.ops:
        try:
            history = read_history(rules.baselines, run.environment.device.key, op.op).runs
        except StoredFileError:  # `perfci history` reports it, and so does accepting a run
            continue
        if len(history) < drift.ANCHOR + drift.RECENT:
            continue
        found = find_releases(history, rules)
        known = () if isinstance(found, Reason) else found
        for case, runs in drift.by_case(history).items():
            creep, _ = find_creep(runs, case, known)
            if creep and creep.found:
                crept.append((op.op, creep))
        crept += [(op.op, creep) for creep, _ in find_stored_drifts(history, known)]
    if not crept:
        return judgements
    name, worst = max(crept, key=lambda each: each[1].change)
    facts: dict[str, Fact] = {"count": len(crept), "op": name, "case": worst.case, "change": worst.change}
    return dataclasses.replace(judgements, notes=(*judgements.notes, Reason("history_crept", facts)))


def beside_accepted(op: OpRun, run: Run, rules: Settings) -> OpRun:
    """The op with its stored tensors beside the history of the device model, from where the rules are read.

    A history that cannot be read changes nothing here: accepting and `perfci history` report it.
    """
    if not op.stored:
        return op
    try:
        history = read_history(rules.baselines, run.environment.device.key, op.op).runs
    except StoredFileError:
        return op
    earlier = [each for each in history if each.run != run.id]
    return dataclasses.replace(op, stored=tuple(add_history(found, earlier) for found in op.stored))


def read_pasts(run: Run, settings: Settings, rules: Settings) -> Mapping[str, Past]:
    """The histories of a run's ops by op, for its report. An op without a history is left out.

    settings: the project, whose releases git knows. rules: its baselines, which may be those of the base. Of a damaged
    history only the reason is given.
    """
    if run.plan.device in UNTIMED:
        return {}
    planned = {op.op: op for op in run.plan.ops}
    timed = [op for op in run.ops if op.performance]
    found = {op.op: _read_history(planned.get(op.op, PlannedOp(op.op)), run, rules) for op in timed}
    runs = [each for history in found.values() if isinstance(history, History) for each in history.runs]
    known = find_releases(runs, settings) if runs else ()  # asked once for all ops
    made = {op.op: _make_past(op, found[op.op], run, rules, () if isinstance(known, Reason) else known) for op in timed}
    return {op: past for op, past in made.items() if past is not None}


def _read_history(planned: PlannedOp, run: Run, rules: Settings) -> History | Reason:
    """A history under the present names, or why it is not to be relied on."""
    try:
        found = read_history(rules.baselines, run.environment.device.key, planned.op, formerly=planned.renamed_from)
        reason = next((problem for problem in found.problems if problem.kind in DAMAGE), None)
    except StoredFileError as error:
        reason = error.reason
    if reason is None:
        return dataclasses.replace(found, runs=with_names_of_now(found.runs, planned.renamed))
    # A report is read elsewhere: files by their place in the project.
    root, facts = f"{rules.root}/", reason.facts.items()
    shown = {name: value.replace(root, "") if isinstance(value, str) else value for name, value in facts}
    return dataclasses.replace(reason, facts=shown)


def _make_past(op: OpRun, found: History | Reason, run: Run, rules: Settings, known: Sequence[Release]) -> Past | None:
    if isinstance(found, Reason):
        return Past(damage=found)
    own = next((place for place, each in enumerate(found.runs) if each.run == run.id), None)
    runs = found.runs[:own]
    if not runs:
        return None
    cases = {}
    wanted = {case.case for case in op.performance}
    for case, alone in drift.by_case(runs).items():
        if case in wanted:
            seen = find_drift(alone, case, known)
            crept = seen.creep if seen.creep and seen.creep.found else None
            said = describe_creep(op.op, crept, runs, seen.release) if crept else None
            cases[case] = CasePast(seen.creep, seen.release, said, seen.changes)
    return Past(runs, cases, read_steps(rules.baselines, found), accepted=own is not None)
