"""The revisions between two ends of a search: written out and tried beside one another. All results are kept."""

from __future__ import annotations

import dataclasses
import math
import shutil
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import perfci
from perfci import git
from perfci.core import environment
from perfci.core.codec import decode, encode
from perfci.core.errors import PerfciError, StoredFileError, UsageError
from perfci.core.model import Base, DuelWhat, Fact, Need, Reason, Run, Suite
from perfci.core.settings import Settings
from perfci.core.wording import because
from perfci.git import Revision, history
from perfci.git.base import How
from perfci.git.checkout import materialise
from perfci.git.history import Commit, FileChange
from perfci.ops.discover import select
from perfci.ops.fingerprint.tree import Fingerprint, Tree
from perfci.runs import base as base_stage
from perfci.runs.base import BaseTree, move_settings
from perfci.runs.bench import LOGS, Bench
from perfci.runs.describe import describe_ops
from perfci.runs.plan import NOT_AGAINST, Against, Request, draw_seed, make_plan
from perfci.runs.record import ENDS_RUN, Recorder, new_run
from perfci.statistics.bisection import SAME, Rating, Shown
from perfci.store import launches
from perfci.store.files import write_atomically

FOLDER, STATE = "bisect", "state.json"
"""In the reports folder: what a search has found out so far, and the last revision's run and logs."""

OTHERS = 12
"""Most commits listed that touched the op too."""

MOST = 50.0
"""Log of a ratio of times beyond any that can be measured."""

T = TypeVar("T")

_BOTH = (Suite.ACCURACY, Suite.PERFORMANCE)
_SHIFT = "kernel/base"


@dataclass(frozen=True)
class BisectOptions:
    """What is to be found."""

    op: str
    good: str
    """revisions, as they were given"""
    bad: str
    request: Request = field(default_factory=Request)
    """--case, --device, --budget, --seed, --timer"""
    first_parent: bool = False
    """only commits of the main line are tried, each merge as a whole"""


@dataclass(frozen=True)
class TriedRevision:
    """What one revision showed beside another; kept on disk."""

    commit: str
    against: str | None
    """None if it was tried alone, for its answers"""
    failure: Reason | None = None
    """why nothing was timed"""
    wrong: bool | None = None
    """the failure is a wrong answer (True) or an error (False), None if it is neither"""
    duels: Mapping[str, tuple[tuple[float, ...], ...]] = field(default_factory=dict)
    """case -> d of each process's blocks, log scale"""
    same: tuple[str, ...] = ()
    """cases whose device work is the same"""
    failures: Mapping[str, Reason] = field(default_factory=dict)
    """case -> why it was not timed"""
    base_us: Mapping[str, float] = field(default_factory=dict)
    """case -> time of the other revision, median of blocks"""
    late: bool = False
    """the failure came up when the accuracy suite had passed"""
    device: str = ""
    timer: str | None = None

    def has(self, cases: Collection[str], processes: int) -> bool:
        """Whether this answers for the cases, as far as it can be answered."""
        done = {*self.same, *self.failures}
        return self.failure is not None or all(
            case in done or len(self.duels.get(case, ())) >= processes for case in cases
        )

    def see(self, case: str) -> Shown | Reason:
        """The duel of one case, or why there is none."""
        if self.failure:
            return self.failure
        if case in self.same:
            return SAME
        if self.duels.get(case):
            return Shown(self.duels[case])
        return self.failures.get(case) or Reason("bisect_no_case", {"case": case})


@dataclass(frozen=True)
class BisectState:
    """A search as it is kept on disk."""

    asked: Mapping[str, Fact]
    """the question: another one starts anew"""
    seed: int
    tried: tuple[TriedRevision, ...] = ()
    prints: Mapping[str, str] = field(default_factory=dict)
    """commit -> digest of the op's files, if these are all that counts"""
    format: int = 1


@dataclass
class _Open:
    """The run of the revision that was tried last, which further processes are added to."""

    commit: str
    against: str | None
    run: Run
    bench: Bench
    request: Request
    base: BaseTree | None


class Revisions:
    """The revisions between two ends, tried as they are asked for: a `bisection.World`."""

    def __init__(
        self, bench: Bench, settings: Settings, options: BisectOptions, command: str, ends: tuple[str, str]
    ) -> None:
        self._bench, self.settings, self._options, self._command = bench, settings, options, command
        self.op = options.op
        self.good, self.bad = ends
        self.case = ""
        """the case that is followed"""
        self.fails_by: TriedRevision | None = None
        """BAD's failure, if that is what is searched for"""
        self.said: list[Reason] = []
        self._commits: dict[str, Commit] = {}
        self._prints: dict[str, Fingerprint] = {}
        self._open: _Open | None = None
        self._path = bench.settings.reports / STATE
        self.state = self._read_state()
        self.resumed = bool(self.state.tried)

    # --- what is kept ---------------------------------------------------------------------------------------------

    def _read_state(self) -> BisectState:
        """The state on disk if it answers the same question."""
        options, request = self._options, self._options.request
        packages = environment.installed_versions(environment.PACKAGES)
        asked: dict[str, Fact] = {
            "op": options.op,
            "good": self.good,
            "bad": self.bad,
            "case": request.pattern,
            "device": request.device,
            "budget": request.budget_s,
            "timer": request.timer,
            "first_parent": options.first_parent,
            "perfci": perfci.__version__,
            "packages": ", ".join(f"{name} {version}" for name, version in sorted(packages.items())),
        }
        if self._path.exists():
            state = read_state(self._path)
            if state.asked == asked and request.seed in {None, state.seed}:
                return state
            self.said.append(Reason("bisect_anew", {"op": str(state.asked.get("op"))}))
        return BisectState(asked, draw_seed() if request.seed is None else request.seed)

    def _keep(self, tried: TriedRevision) -> TriedRevision:
        before = next((each.device for each in self.state.tried if each.device), tried.device)
        if tried.device and before != tried.device:
            raise UsageError("bisect_other_device", before=before, device=tried.device, path=str(self._path))
        others = [each for each in self.state.tried if (each.commit, each.against) != (tried.commit, tried.against)]
        self._save(dataclasses.replace(self.state, tried=(*others, tried)))
        return tried

    def _save(self, state: BisectState) -> None:
        self.state = state
        write_atomically(self._path, encode(state) + b"\n")

    # --- git ------------------------------------------------------------------------------------------------------

    def suspects(self, good: Collection[str], bad: str) -> Sequence[str]:
        """By git's own bisection, among the commits that touch the op's files if those are known."""
        root, first_parent, known = self.settings.root, self._options.first_parent, self._prints.values()
        paths = () if any(each.opaque for each in known) else self._list_files()
        found = history.list_halving(root, good, bad, paths, first_parent=first_parent)
        if isinstance(found, Reason) or not found:
            found = history.list_halving(root, good, bad, first_parent=first_parent)
        return require(found)

    def _list_files(self) -> tuple[str, ...]:
        """Files of the op in every revision that is known by now."""
        return tuple(sorted({name for each in self._prints.values() for name in each.files}))

    def commit(self, commit: str) -> Commit:
        """Its author, date and title."""
        if commit not in self._commits:
            self._commits[commit] = require(history.describe(self.settings.root, commit))
        return self._commits[commit]

    def count(self) -> int:
        """Commits of the range."""
        return require(
            history.count_between(self.settings.root, self.good, self.bad, first_parent=self._options.first_parent)
        )

    def list_changes(self, commit: Commit) -> tuple[tuple[FileChange, ...], int]:
        """What a commit changed of the op's files, and the number of other files that it changed."""
        changes, known = require(history.list_changes(self.settings.root, commit.id)), self._list_files()
        own = tuple(each for each in changes if each.name in known)
        return own, len(changes) - len(own)

    def list_others(self, named: Collection[str]) -> tuple[Commit, ...]:
        """Commits of the range that touched the op too, beside those named."""
        found = history.list_touching(self.settings.root, self.good, self.bad, self._list_files(), OTHERS + len(named))
        listed = () if isinstance(found, Reason) else found
        return tuple(each for each in listed if each.id not in named)[:OTHERS]

    # --- a revision's files ---------------------------------------------------------------------------------------

    def check_ends(self) -> None:
        """Raises UsageError if one of the ends lacks the op, or if both have the same files of it."""
        options = self._options
        for commit, name in ((self.bad, options.bad), (self.good, options.good)):
            if why := self._find_lack(require(self._write_out(commit))):
                why = because("bisect_end_lacks_op", why, revision=name)
                raise UsageError(why.kind, **why.facts)
        if self._prints[self.good].same_as(self._prints[self.bad]):
            raise UsageError("bisect_same_files", op=self.op, good=options.good, bad=options.bad)
        here = git.read(self.settings.root)
        if isinstance(here, Revision) and here.dirty and here.commit == self.bad:
            self.said.append(Reason("bisect_dirty"))

    def _find_lack(self, tree: Settings) -> Reason | None:
        """Why a revision has no such op."""
        try:
            chosen = select(tree, (self.op,))
        except PerfciError as error:
            return error.reason
        if len(chosen) > 1:
            return Reason("bisect_several_ops", {"name": self.op, "ops": ", ".join(op.op for op in chosen)})
        self.op = chosen[0].op
        return None

    def _write_out(self, commit: str) -> Settings | Reason:
        """A revision as a project of its own, which is judged by the work tree's thresholds."""
        folder, settings = self._bench.folder / "revisions" / commit, self.settings
        if folder.exists():
            root: Path | Reason = folder / require(history.find_prefix(settings.root))
        else:
            reports = settings.reports
            without = [reports.relative_to(settings.root).as_posix()] if reports.is_relative_to(settings.root) else []
            root = materialise(settings.root, commit, folder, without)
        if isinstance(root, Reason):
            shutil.rmtree(folder, ignore_errors=True)
            return root
        tree = dataclasses.replace(
            move_settings(settings, root), thresholds=settings.thresholds, reports=self._bench.settings.reports
        )
        if commit not in self._prints:
            self._prints[commit] = found = Tree(tree.root, tree.kernels).fingerprint(self.op)
            if not found.opaque:
                self._save(dataclasses.replace(self.state, prints={**self.state.prints, commit: found.digest}))
        return tree

    # --- trying ---------------------------------------------------------------------------------------------------

    def look(self, commit: str, processes: int) -> Shown | Reason:
        """The duel with GOOD in the case that is followed."""
        return self.try_commit(commit, self.good, (self.case,), processes).see(self.case)

    def note(self, commit: str) -> Reason | None:
        """Why it was not timed, None if it was."""
        tried = self._find_known(commit, None if self.fails_by else self.good, (self.case,))
        if tried is None or tried.commit == commit:
            same = tried is not None and self.case in tried.same
            return Reason("bisect_works_alike", {"commit": self.good[:10]}) if same else None
        return Reason("bisect_same_as", {"commit": tried.commit[:10]})

    def fails(self, commit: str) -> Rating | Reason:
        """Whether it fails as BAD does. The reason if it fails in another way."""
        tried, wanted = self.try_commit(commit, None), self.fails_by
        if tried.failure is None or wanted is None:
            return Rating.GOOD
        alike = tried.wrong is True or tried.failure.kind == (wanted.failure and wanted.failure.kind)
        return Rating.BAD if tried.wrong == wanted.wrong and alike else tried.failure

    def try_commit(
        self, commit: str, against: str | None, cases: tuple[str, ...] | None = None, processes: int = 1
    ) -> TriedRevision:
        """What a revision shows beside another one, measured unless it is known."""
        known = self._find_known(commit, against, cases or ())
        if known and known.has(cases or (), processes):
            return known
        tree = self._write_out(commit)
        if isinstance(tree, Reason):
            return self._keep(TriedRevision(commit, against, tree))
        known = self._find_known(commit, against, cases or ())  # its files are known now
        if known and known.has(cases or (), processes):
            return known
        if why := self._find_lack(tree):
            return self._keep(TriedRevision(commit, against, why))
        try:
            found = self._measure(commit, tree, against, cases, processes)
        except UsageError as error:  # no case fits, in this revision
            if commit == self.bad:
                raise
            return self._keep(TriedRevision(commit, against, error.reason))
        # Revisions are many, and each is a whole project.
        for folder in (self._bench.folder / "revisions").glob("*"):
            if folder.name not in {self.good, commit, against}:
                shutil.rmtree(folder, ignore_errors=True)
        return self._keep(found)

    def _find_known(self, commit: str, against: str | None, cases: tuple[str, ...]) -> TriedRevision | None:
        """An answer that was kept, of this revision or of one with the same files."""
        others = {*self._list_alike(against)} if against else {None}
        for each in self._list_alike(commit):
            if each in others and against:
                return TriedRevision(each, against, same=cases)
            found = next((one for one in self.state.tried if one.commit == each and one.against in others), None)
            if found:
                return found
        return None

    def _list_alike(self, commit: str) -> list[str]:
        """The revision itself, then those with the same files of the op, GOOD first."""
        prints = self.state.prints
        mine = prints.get(commit)
        order = dict.fromkeys((self.good, self.bad, *prints))
        return [commit, *(each for each in order if each != commit and mine and prints.get(each) == mine)]

    def _measure(
        self, commit: str, tree: Settings, against: str | None, cases: tuple[str, ...] | None, processes: int
    ) -> TriedRevision:
        opened = self._open
        if opened is None or (opened.commit, opened.against) != (commit, against) or not cases:
            opened = self._measure_first(commit, tree, against, cases)
        found = read_answer(opened.run, self.op, commit, against)
        if found.failure is None and cases and processes > 1:
            had = {case: len(found.duels[case]) for case in cases if case in found.duels}
            needs = [Need(self.op, case, processes - 1) for case, count in had.items() if count < processes]
            recorder = Recorder(opened.bench, opened.request, opened.run, opened.base)
            opened.run = recorder.record_again(needs) if needs else opened.run
            found = read_answer(opened.run, self.op, commit, against)
        self._open = opened
        return found

    def _measure_first(self, commit: str, tree: Settings, against: str | None, cases: tuple[str, ...] | None) -> _Open:
        """The first process of a revision, verified before it is timed."""
        shutil.rmtree(tree.reports / LOGS, ignore_errors=True)
        launches.clear_launches(tree.reports)
        bench = dataclasses.replace(self._bench, settings=tree, home=self.settings.root)
        base = BaseTree(Base(against, How.ASKED, against[:10]), require(self._write_out(against))) if against else None
        request = dataclasses.replace(
            self._options.request,
            ops=(self.op,),
            seed=self.state.seed,
            duel=DuelWhat.CHANGED if base else DuelWhat.NONE,
            suites=_BOTH if base or self.fails_by is None or self.fails_by.late else (Suite.ACCURACY,),
        )
        found = describe_ops(bench, request)
        planned = base_stage.plan_ops(bench, base, request, found.ops) if base else found.ops
        weighed = Against(base.base, DuelWhat.CHANGED) if base else NOT_AGAINST
        plan = make_plan(request, planned, found.device.kind, weighed, devices=found.devices)
        run = new_run(tree, plan, found.device, self._command)
        run = Recorder(bench, request, run, base).record(cases)
        end = next((op.failure for op in run.ops if op.failure and op.failure.kind in ENDS_RUN), None)
        if end:  # the device, not the revision
            raise PerfciError(end.kind, **end.facts)
        return _Open(commit, against, run, bench, request, base)


def read_answer(run: Run, op: str, commit: str, against: str | None) -> TriedRevision:
    """What a run of one op shows of its revision beside another."""
    planned = next(each for each in run.plan.ops if each.op == op)
    found = next((each for each in run.ops if each.op == op), None)
    tried = TriedRevision(commit, against, device=run.environment.device.name, timer=run.environment.timer)
    checks = found.accuracy if found else ()
    failed = sorted((check for check in checks if check.failure), key=lambda check: check.raised)
    if failed:
        return dataclasses.replace(tried, failure=failed[0].failure, wrong=not failed[0].raised)
    failure = planned.failure or (found.failure if found else Reason("worker_silent"))
    if failure or found is None:
        late = found is not None and {*planned.accuracy} <= {check.case for check in checks}
        return dataclasses.replace(tried, failure=failure, wrong=False, late=late)
    broken = sorted((case for case in found.performance if case.failure), key=lambda case: case.raised)
    if broken and len(broken) == len(found.performance):
        return dataclasses.replace(tried, failure=broken[0].failure, wrong=not broken[0].raised, late=True)
    if against and found.unmeasured:
        return dataclasses.replace(tried, failure=because("bisect_not_timed", found.unmeasured))
    if against and planned.base and planned.base.failure:
        return dataclasses.replace(tried, failure=because("bisect_ends_apart", planned.base.failure, op=op))

    duels: dict[str, tuple[tuple[float, ...], ...]] = {}
    base_us: dict[str, float] = {}
    same: list[str] = []
    failures: dict[str, Reason] = {}
    for case in found.performance:
        blocks = [block for block in case.blocks if _SHIFT in block.shifts]
        why = case.failure or (case.base.failure if case.base else Reason("bisect_no_case", {"case": case.case}))
        if why:
            failures[case.case] = why
        elif case.base and case.base.same:
            same.append(case.case)
        elif blocks:
            shifts: dict[int, list[float]] = {}
            for block in sorted(blocks, key=lambda each: each.process):
                shifts.setdefault(block.process, []).append(block.shifts[_SHIFT])
            duels[case.case] = tuple(map(tuple, shifts.values()))
            base_us[case.case] = statistics.median(block.arms["base"].time.median_us for block in blocks)
    return dataclasses.replace(tried, duels=duels, base_us=base_us, same=tuple(same), failures=failures)


def read_state(path: Path) -> BisectState:
    """The state in a file. Raises StoredFileError if it is damaged, or if no search can have written it."""
    try:
        state, why = decode(path.read_bytes(), BisectState), ""
    except (OSError, ValueError) as error:
        why = (error.strerror if isinstance(error, OSError) else str(error)) or "unreadable"
        raise StoredFileError("bisect_state_damaged", path=str(path), why=why.rstrip(".")) from error
    duels = [processes for tried in state.tried for processes in tried.duels.values()]
    if not all(processes and all(processes) for processes in duels):
        why = "a duel without blocks"
    elif not all(abs(shift) < MOST for processes in duels for process in processes for shift in process):
        why = "a shift that no kernel has"
    elif not all(0 < base_us < math.inf for tried in state.tried for base_us in tried.base_us.values()):
        why = "a time that is none"
    if why:
        raise StoredFileError("bisect_state_damaged", path=str(path), why=why)
    return state


def require(found: T | Reason) -> T:
    """What git or the disk gave. Raises PerfciError if it gave a reason instead."""
    if isinstance(found, Reason):
        raise PerfciError(found.kind, **found.facts)
    return found
