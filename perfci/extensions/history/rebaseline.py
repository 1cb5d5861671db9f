"""Fresh runs of a changed environment in the place of the stored baselines: what moved is shown, then recorded.

If the reference moved too, the environment did it. If the kernel moved alone, the case stays until it is named.
"""

import math
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from perfci import store
from perfci.core.environment import REFERENCE_PACKAGES, differences, find_newest
from perfci.core.errors import PerfciError, UsageError
from perfci.core.model.baseline import Baseline, BaselineCase, BaselineRun, Step, StepCase, StepSide
from perfci.core.model.basics import Fact, Interval, Reason
from perfci.core.model.place import Difference
from perfci.core.model.run import PlannedOp, Run
from perfci.core.settings import Settings
from perfci.extensions.common import history
from perfci.extensions.history.accepting import Limits, make_line
from perfci.git.command import git, parse_commit
from perfci.judge import judge
from perfci.ops.discover import pick
from perfci.report.text import list_some
from perfci.runs.accept import Evidence, accept
from perfci.runs.accept_runs import read_stored
from perfci.runs.effective_thresholds import in_force
from perfci.runs.rules import list_known_ops
from perfci.statistics import exact
from perfci.store.files import held, write_together
from perfci.thresholds.limits import Thresholds

MOST_FILES = 3  # most files named in a sentence

STEP_PACKAGES = ("torch", "triton", "pytorch-triton", "torch-npu", "triton-ascend")  # that a step names


@dataclass(frozen=True)
class RebaselineOptions:
    """How to treat what moved."""

    write: bool = False
    why: str = ""  # what changed around the kernels, for anyone who reads the baseline later
    included: tuple[str, ...] = ()  # ops that are taken even if their kernels moved alone or their files changed too
    dirty: bool = False  # runs of a work tree with uncommitted changes are taken too


@dataclass(frozen=True)
class CaseMove:
    """How far one case moved. Changes are ratios - 1 with their intervals, plus is slower."""

    case: str
    kernel: Interval
    reference: Interval
    before_us: float  # medians of the kernel's block medians
    after_us: float
    unexplained: bool  # the kernel moved and its reference did not, or not that far


@dataclass(frozen=True)
class Rebaselined:
    """One op compared with its stored baseline across a change of the environment."""

    op: str
    differs: tuple[Difference, ...] = ()  # of any of the cases, those fields first that may move a number
    cases: tuple[CaseMove, ...] = ()  # those with an environment that is another now
    taken: tuple[str, ...] = ()  # case ids with numbers that are stored anew, or would be by --write
    withheld: tuple[Reason, ...] = ()  # why cases, or the op, stay as they were although the environment changed
    said: tuple[Reason, ...] = ()  # what else people should know
    failure: Reason | None = None  # why its file could not be read or written, and so nothing of it changed
    path: Path | None = None  # the file that was written
    baseline: Baseline | None = None  # to be written


# --- what moved -------------------------------------------------------------------------------------------------------


def survey(old: Baseline, new: Baseline, limits: Limits) -> Rebaselined:
    """Moves between a stored baseline and fresh runs of one environment. limits: of what counts as moved."""
    stored = {case.case: case for case in old.cases}
    moves, withheld, said = [], [], []
    differs: dict[Difference, None] = {}
    same = False
    for case in new.cases:
        before = stored.get(case.case)
        if before and before.cache != case.cache:
            facts = {"case": case.case, "stored": before.cache, "cache": case.cache}
            withheld.append(Reason("rebaseline_other_cache", facts))
        elif before and before.blocks and case.blocks:
            then = [run.environment for run in _find_sources(old, {case.case})]
            # The present runs are of one environment but for their boards: only a new board counts.
            found = [
                difference
                for run in _find_sources(new, {case.case})
                for difference in differences(then, run.environment)
            ]
            if any(differ.moves for differ in found):
                differs |= dict.fromkeys(found)
                moves.append(_measure_move(before, case, found, limits, new.timer))
            else:
                same = True
    if same and not moves:
        said.append(Reason("rebaseline_same"))
    if added := [case.case for case in new.cases if case.case not in stored]:
        said.append(Reason("rebaseline_new_cases", {"count": len(added), "case": added[0]}))
    ranked = tuple(sorted(differs, key=lambda differ: not differ.moves))
    return Rebaselined(new.op, ranked, tuple(moves), withheld=tuple(withheld), said=tuple(said))


def _find_sources(baseline: Baseline, cases: Collection[str]) -> list[BaselineRun]:
    """The runs that the blocks of these cases are from."""
    used = {block.run for case in baseline.cases if case.case in cases for block in case.blocks}
    return [run for run in baseline.runs if run.id in used]


def _measure_move(
    old: BaselineCase, new: BaselineCase, differs: Sequence[Difference], limits: Limits, timer: str
) -> CaseMove:
    def compare(now_us: Sequence[float], before_us: Sequence[float]) -> Interval:
        return exact.to_ratio(exact.pairs(np.log(now_us), np.log(before_us)).shift())

    kernels = [[block.kernel_us for block in case.blocks] for case in (new, old)]
    kernel = compare(*kernels)
    reference = compare(*([block.reference_us for block in case.blocks] for case in (new, old)))
    after_us, before_us = map(statistics.median, kernels)
    limit = limits(new.case)
    moved_, other, allowed = math.log1p(kernel.value), math.log1p(reference.value), math.log1p(limit.margin)
    packages = {f"packages.{name}" for name in REFERENCE_PACKAGES}
    if abs(before_us * kernel.value) <= limit.floor(timer):
        explained = True
    elif any(differ.field in packages for differ in differs):
        # A reference of another version explains less: only a kernel that moved as far as it did.
        explained = abs(moved_) <= allowed or abs(moved_ - other) <= allowed
    else:
        # A kernel follows what slows its reference with a weight from 0 to 1.5, as in the screen.
        followed = exact.MAX_WEIGHT * other
        explained = min(0.0, followed) - allowed <= moved_ <= max(0.0, followed) + allowed
    return CaseMove(new.case, kernel, reference, before_us, after_us, unexplained=not explained)


def add_step(old: Baseline, new: Baseline, seen: Rebaselined, taken: Collection[str], date: str, why: str) -> Baseline:
    """The stored baseline with the fresh blocks of the cases taken, and a step that records it. Pure."""
    fresh = {case.case: case for case in new.cases if case.case in taken}
    cases = tuple(fresh.get(case.case, case) for case in old.cases)
    used = {block.run for case in cases for block in case.blocks}
    sources = {run.id: run for run in (*old.runs, *new.runs)}
    before, after = (_describe_side(_find_sources(baseline, taken)) for baseline in (old, new))
    differs = tuple(differ for differ in seen.differs if differ.moves)
    moved = [move for move in seen.cases if move.case in taken]
    shifts = tuple(StepCase(move.case, move.kernel.value, move.reference.value) for move in moved)
    step = Step(date, why, before, after, differs, shifts)
    runs = tuple(run for run in sources.values() if run.id in used)
    return replace(old, runs=runs, cases=cases, steps=(*old.steps, step))


def _describe_side(runs: Sequence[BaselineRun]) -> StepSide:
    """The values of the newest run stand for all but what may differ from run to run."""
    newest = find_newest(runs).environment
    ids, device = tuple(run.id for run in runs), newest.device
    commits = tuple(dict.fromkeys(run.environment.commit for run in runs if run.environment.commit))
    boards = tuple(dict.fromkeys(run.environment.device.uuid for run in runs if run.environment.device.uuid))
    packages = {name: newest.packages[name] for name in STEP_PACKAGES if name in newest.packages}
    return StepSide(ids, commits, boards, device.driver, device.runtime, newest.python, packages)


# --- op by op ---------------------------------------------------------------------------------------------------------


def rebaseline_runs(
    runs: Sequence[Run], settings: Settings, names: Sequence[str], options: RebaselineOptions
) -> list[Rebaselined]:
    """Compares fresh runs with the stored baselines, op by op, and stores what the environment moved on request.

    If an op's file cannot be read or written, the others are done all the same. Raises UsageError for runs that do not
    go together, for ops that they do not hold, and for a request to write without a reason.
    """
    if options.write and not options.why.strip():
        raise UsageError("rebaseline_without_why")
    measured = list(dict.fromkeys(op.op for run in runs for op in run.ops))
    chosen = pick(measured, names, "op_not_in_run")
    included = pick(measured, options.included, "op_not_in_run") if options.included else []
    options = replace(options, included=tuple(included))
    rules = in_force(settings, runs[-1].environment, runs[-1].created, list_known_ops(settings)).limits
    key = runs[0].environment.device.key
    planned = {op.op: op for run in runs for op in run.plan.ops}
    stored: dict[str, Baseline | Reason | None] = {}
    for op in measured:
        try:
            stored[op] = read_stored(settings, planned.get(op, PlannedOp(op)), runs[0])
        except PerfciError as error:
            stored[op] = error.reason
    readable = {op: baseline for op, baseline in stored.items() if isinstance(baseline, Baseline)}
    evidence = [(run, judge(run, readable, rules)) for run in runs]
    # All is weighed before anything is written: what is refused is refused with nothing done.
    ready = [_weigh(op, evidence, stored[op], rules, settings, options) for op in chosen]
    if not options.write:
        return ready
    return _write(ready, evidence, settings, key)


def _weigh(
    op: str,
    evidence: Sequence[Evidence],
    old: Baseline | Reason | None,
    rules: Thresholds,
    settings: Settings,
    options: RebaselineOptions,
) -> Rebaselined:
    """An op's moves, and those that are taken. Only if named: changed files, and cases of a kernel that moved alone."""
    fresh = accept(op, evidence, dirty=options.dirty)
    new = fresh.baseline
    if isinstance(old, Reason):
        return Rebaselined(op, failure=old)
    if old is None:
        device = evidence[0][0].environment.device
        folders = sorted({path.parent.name for path in settings.baselines.glob(f"*/{op}.json")} - {device.key})
        stored = {"device": device.key, "name": device.name, "stored": ", ".join(folders)}
        why = Reason("rebaseline_new_device", stored) if folders else Reason("rebaseline_no_baseline")
        return Rebaselined(op, said=(why,))
    if new is None:
        return Rebaselined(op, withheld=fresh.refused)
    if old.timer != new.timer:
        timers = {"op": op, "stored": old.timer, "timer": new.timer}
        return Rebaselined(op, withheld=(Reason("rebaseline_other_timer", timers),))
    seen = survey(old, new, lambda case: rules.for_case(op, case))
    held = [*fresh.refused, *seen.withheld]
    if not seen.cases:
        return replace(seen, withheld=tuple(held))
    sources = _find_sources(old, {move.case for move in seen.cases})
    commits = [find_newest(runs).environment.commit for runs in (sources, new.runs)]
    changed = _list_changed_files(settings.kernels, op, *commits)
    if changed and op not in options.included:
        files = {"op": op, "commit": (commits[0] or "")[:10], "files": list_some(changed, MOST_FILES)}
        return replace(seen, withheld=(Reason("rebaseline_code_changed", files), *held))
    alone = [move for move in seen.cases if move.unexplained and op not in options.included]
    if alone:
        # The case that moved most beside its reference stands for all of them.
        worst = max(alone, key=lambda move: abs(move.kernel.value - move.reference.value))
        facts: dict[str, Fact] = {"op": op, "count": len(alone), "case": worst.case}
        facts |= {"change": worst.kernel.value, "reference_change": worst.reference.value}
        # The commit of the newest run that the cases' blocks are from, if it measured that and nothing else.
        sources = _find_sources(old, {move.case for move in alone})
        newest = find_newest(sources).environment
        kind = "rebaseline_unexplained_nowhere"
        if newest.commit and not newest.dirty:
            kind, facts = "rebaseline_unexplained", {**facts, "commit": newest.commit[:10]}
        held.insert(0, Reason(kind, facts))
    taken = tuple(move.case for move in seen.cases if move not in alone)
    date = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    stepped = add_step(old, new, seen, taken, date, options.why.strip()) if taken else None
    return replace(seen, taken=taken, withheld=tuple(held), baseline=stepped)


def _list_changed_files(kernels: Path, op: str, *commits: str | None) -> list[str]:
    """Returns the files of an op's folder that differ between two commits. Empty also if git does not know them."""
    present = [commit for name in commits if name and (commit := parse_commit(kernels, name))]
    if len(present) < len(commits):
        return []
    changed_files = git(kernels, "diff", "--name-only", *present, "--", f":(glob)**/{op}/**")
    return changed_files.splitlines() if isinstance(changed_files, str) else []


def _write(
    ready: Sequence[Rebaselined], evidence: Sequence[Evidence], settings: Settings, key: str
) -> list[Rebaselined]:
    """Writes the baselines of all ops, and a line of history a run, oldest first. Nothing if an op failed.

    A damaged history is noted, and the step stays. Raises StoredFileError.
    """
    if any(one.failure for one in ready):
        return [replace(one, taken=()) for one in ready]
    clean = [pair for pair in evidence if not pair[0].environment.dirty]
    clean.sort(key=lambda pair: pair[0].created)
    rebaselined, files = list[Rebaselined](), dict[Path, bytes]()
    with held(store.baseline_path(settings.baselines, key, "any").parent):
        for one in ready:
            if one.baseline is None:
                rebaselined.append(one)
                continue
            path, content = store.encode_baseline(one.baseline, settings.baselines)
            lines = [make_line(one.op, *pair, one.taken, stored=one.baseline) for pair in clean]
            said: tuple[Reason, ...] = ()
            try:
                files |= history.extend_history(settings.baselines, key, one.op, filter(None, lines))
            except PerfciError as error:
                said = (error.reason,)
            files[path] = content
            rebaselined.append(replace(one, path=path, said=(*one.said, *said)))
        write_together(files)
    return rebaselined
