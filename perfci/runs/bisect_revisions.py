"""The revisions between two ends of a search: written out, tried beside one another, and what they said kept."""

from __future__ import annotations

import dataclasses
import math
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import perfci
from perfci import git
from perfci.core import environment
from perfci.core.codec import decode, encode
from perfci.core.errors import PerfciError, StoredFileError, UsageError
from perfci.core.model import Base, DuelWhat, Fact, Need, PerformanceCase, Reason, Run, Suite
from perfci.core.settings import Settings
from perfci.core.wording import caused
from perfci.git import Revision, history
from perfci.git.base import How
from perfci.git.checkout import materialise
from perfci.git.history import Commit, FileChange
from perfci.ops import fingerprint
from perfci.ops.discover import select
from perfci.ops.fingerprint.tree import Fingerprint, Tree
from perfci.runs import base as base_stage
from perfci.runs.base import BaseTree, moved
from perfci.runs.bench import LOGS, Bench
from perfci.runs.describe import describe_ops
from perfci.runs.plan import NOT_AGAINST, Against, Request, draw_seed, make_plan
from perfci.runs.record import ENDS_RUN, Recorder
from perfci.runs.rounds import new_run
from perfci.statistics.bisection import SAME, Seen, Side
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
class Tried:
    """What one revision showed beside another; kept on disk."""

    commit: str
    against: str | None
    """None where it was tried alone, for its answers"""
    failure: Reason | None = None
    """why nothing was timed"""
    wrong: bool | None = None
    """the failure is a wrong answer (True), or an error (False); None where it is neither, or there is none"""
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

    def seen(self, case: str) -> Seen | Reason:
        """The duel of one case, or why there is none."""
        if self.failure:
            return self.failure
        if case in self.same:
            return SAME
        if self.duels.get(case):
            return Seen(self.duels[case])
        return self.failures.get(case) or Reason("bisect_no_case", {"case": case})


@dataclass(frozen=True)
class State:
    """A search as it is kept on disk."""

    asked: Mapping[str, Fact]
    """what it answers: another question starts anew"""
    seed: int
    tried: tuple[Tried, ...] = ()
    prints: Mapping[str, str] = field(default_factory=dict)
    """commit -> digest of the op's files, where they tell all"""
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


class Ground:
    """The revisions between two ends, tried as they are asked for: a `bisect.World`."""

    def __init__(
        self, bench: Bench, settings: Settings, options: BisectOptions, command: str, good: str, bad: str
    ) -> None:
        self._bench = bench
        self.settings = settings
        self._command = command
        self.options = options
        self.op = options.op
        self.good = good
        self.bad = bad
        self.case = ""
        """the case that is followed"""
        self.fails_by: Tried | None = None
        """BAD's failure, where that is what is searched for"""
        self.commits: dict[str, Commit] = {}
        self.said: list[Reason] = []
        self._path = bench.settings.reports / STATE
        self.state = self._read()
        self.resumed = bool(self.state.tried)
        self._prints: dict[str, Fingerprint] = {}
        self._open: _Open | None = None

    # --- what is kept ---------------------------------------------------------------------------------------------

    def _read(self) -> State:
        """The state on disk, if it answers the same question."""
        asked, seed = self._asked(), self.options.request.seed
        if self._path.exists():
            state = kept_state(self._path)
            if state.asked == asked and seed in {None, state.seed}:
                return state
            self.said.append(Reason("bisect_anew", {"op": str(state.asked.get("op"))}))
        return State(asked, draw_seed() if seed is None else seed)

    def _asked(self) -> dict[str, Fact]:
        """All that the answers depend on."""
        options, request = self.options, self.options.request
        packages = environment.installed(environment.PACKAGES)
        return {
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

    def _keep(self, tried: Tried) -> None:
        before = next((each.device for each in self.state.tried if each.device), tried.device)
        if tried.device and before != tried.device:
            raise UsageError("bisect_other_device", before=before, device=tried.device, path=str(self._path))
        others = [each for each in self.state.tried if (each.commit, each.against) != (tried.commit, tried.against)]
        self._save(dataclasses.replace(self.state, tried=(*others, tried)))

    def _save(self, state: State) -> None:
        self.state = state
        write_atomically(self._path, encode(state) + b"\n")

    # --- git ------------------------------------------------------------------------------------------------------

    def suspects(self, good: Collection[str], bad: str) -> Sequence[str]:
        """By git's own bisection, among the commits that touch the op's files where those are known."""
        root, first_parent = self.settings.root, self.options.first_parent
        paths = self._paths()
        found = history.halving(root, good, bad, paths, first_parent=first_parent)
        if isinstance(found, Reason) or not found:
            found = history.halving(root, good, bad, first_parent=first_parent)
        return given(found)

    def _paths(self) -> tuple[str, ...]:
        """Files of the op in every revision known by now; none where any may have more than these."""
        known = list(self._prints.values())
        if not known or any(each.opaque for each in known):
            return ()
        return tuple(sorted({name for each in known for name in each.files}))

    def commit(self, commit: str) -> Commit:
        """As it presents itself."""
        if commit not in self.commits:
            self.commits[commit] = given(history.describe(self.settings.root, commit))
        return self.commits[commit]

    def count(self) -> int:
        """Commits of the range."""
        found = history.between(self.settings.root, self.good, self.bad, first_parent=self.options.first_parent)
        return given(found)

    def changed(self, commit: Commit) -> tuple[tuple[FileChange, ...], int]:
        """What a commit changed of the op's files, and how many other files."""
        all_changed = given(history.changes(self.settings.root, commit.id))
        known = {name for each in self._prints.values() for name in each.files}
        own = tuple(each for each in all_changed if each.name in known)
        return own, len(all_changed) - len(own)

    def others(self, named: Collection[str]) -> tuple[Commit, ...]:
        """Commits of the range that touched the op too, beside those named."""
        known = sorted({name for each in self._prints.values() for name in each.files})
        found = history.touching(self.settings.root, self.good, self.bad, known, OTHERS + len(named))
        listed = () if isinstance(found, Reason) else found
        return tuple(each for each in listed if each.id not in named)[:OTHERS]

    # --- a revision's files ---------------------------------------------------------------------------------------

    def check_ends(self) -> None:
        """Raises UsageError where one of the ends lacks the op, or both have the same files of it."""
        for commit, name in ((self.bad, self.options.bad), (self.good, self.options.good)):
            tree = given(self._tree(commit))
            if why := self._lacks(tree):
                why = caused("bisect_end_lacks_op", why, revision=name)
                raise UsageError(why.kind, **why.facts)
        if fingerprint.same(self._prints[self.good], self._prints[self.bad]):
            raise UsageError("bisect_same_files", op=self.op, good=self.options.good, bad=self.options.bad)
        here = git.read(self.settings.root)
        if isinstance(here, Revision) and here.dirty and here.commit == self.bad:
            self.said.append(Reason("bisect_dirty"))

    def _lacks(self, tree: Settings) -> Reason | None:
        """Why there is no such op in a revision."""
        try:
            chosen = select(tree, (self.op,))
        except PerfciError as error:
            return error.reason
        if len(chosen) > 1:
            return Reason("bisect_several_ops", {"name": self.op, "ops": ", ".join(op.op for op in chosen)})
        self.op = chosen[0].op
        return None

    def _tree(self, commit: str) -> Settings | Reason:
        """A revision written out, as a project of its own that is judged by the work tree's thresholds."""
        folder, settings = self._bench.folder / "revisions" / commit, self.settings
        reports = settings.reports
        without = [reports.relative_to(settings.root).as_posix()] if reports.is_relative_to(settings.root) else []
        root = self._root(folder) if folder.exists() else materialise(settings.root, commit, folder, without)
        if isinstance(root, Reason):
            shutil.rmtree(folder, ignore_errors=True)
            return root
        tree = dataclasses.replace(
            moved(settings, root), thresholds=settings.thresholds, reports=self._bench.settings.reports
        )
        if commit not in self._prints:
            self._print(commit, tree)
        return tree

    def _root(self, folder: Path) -> Path:
        prefix = given(history.prefix(self.settings.root))
        return folder / prefix if prefix else folder

    def _print(self, commit: str, tree: Settings) -> None:
        found = Tree(tree.root, tree.kernels).fingerprint(self.op)
        self._prints[commit] = found
        if not found.opaque:
            prints = {**self.state.prints, commit: found.digest}
            self._save(dataclasses.replace(self.state, prints=prints))

    def _drop(self, kept: Collection[str | None]) -> None:
        """Revisions are many, and each is a whole project."""
        for folder in (self._bench.folder / "revisions").glob("*"):
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)

    def _alike(self, commit: str) -> Iterator[str]:
        """The revision itself, then those with the same files of the op, GOOD first."""
        yield commit
        mine = self.state.prints.get(commit)
        order = dict.fromkeys((self.good, self.bad, *self.state.prints))
        yield from (each for each in order if each != commit and mine and self.state.prints.get(each) == mine)

    # --- trying ---------------------------------------------------------------------------------------------------

    def look(self, commit: str, processes: int) -> Seen | Reason:
        """The duel with GOOD in the case that is followed."""
        return self.tried(commit, self.good, (self.case,), processes).seen(self.case)

    def note(self, commit: str) -> Reason | None:
        """Why it was not timed, where it was not."""
        tried = self._known(commit, None if self.fails_by else self.good, (self.case,))
        if tried is None or tried.commit == commit:
            same = tried is not None and self.case in tried.same
            return Reason("bisect_works_alike", {"commit": self.good[:10]}) if same else None
        return Reason("bisect_same_as", {"commit": tried.commit[:10]})

    def fails(self, commit: str) -> Side | Reason:
        """Whether it fails as BAD does; the reason where it fails in another way."""
        tried, wanted = self.tried(commit, None), self.fails_by
        if tried.failure is None or wanted is None:
            return Side.GOOD
        alike = tried.wrong is True or tried.failure.kind == (wanted.failure and wanted.failure.kind)
        return Side.BAD if tried.wrong == wanted.wrong and alike else tried.failure

    def tried(
        self, commit: str, against: str | None, cases: tuple[str, ...] | None = None, processes: int = 1
    ) -> Tried:
        """What a revision shows beside another one, measured unless it is known."""
        if known := self._enough(commit, against, cases, processes):
            return known
        tree = self._tree(commit)
        if isinstance(tree, Reason):
            return self._kept_as(Tried(commit, against, tree))
        if known := self._enough(commit, against, cases, processes):
            return known
        if why := self._lacks(tree):
            return self._kept_as(Tried(commit, against, why))
        try:
            found = self._measured(commit, tree, against, cases, processes)
        except UsageError as error:  # no case fits, in this revision
            if commit == self.bad:
                raise
            return self._kept_as(Tried(commit, against, error.reason))
        self._drop({self.good, commit, against})
        return self._kept_as(found)

    def _kept_as(self, tried: Tried) -> Tried:
        self._keep(tried)
        return tried

    def _enough(self, commit: str, against: str | None, cases: tuple[str, ...] | None, processes: int) -> Tried | None:
        known = self._known(commit, against, cases or ())
        return known if known and known.has(cases or (), processes) else None

    def _known(self, commit: str, against: str | None, cases: tuple[str, ...]) -> Tried | None:
        """An answer kept, of this revision or of one with the same files; None where there is none."""
        others = {*self._alike(against)} if against else {None}
        for each in self._alike(commit):
            if each in others and against:
                return Tried(each, against, same=cases)
            found = next((one for one in self.state.tried if one.commit == each and one.against in others), None)
            if found:
                return found
        return None

    def _measured(
        self, commit: str, tree: Settings, against: str | None, cases: tuple[str, ...] | None, processes: int
    ) -> Tried:
        opened = self._open
        if opened is None or (opened.commit, opened.against) != (commit, against) or not cases:
            opened = self._start(commit, tree, against, cases)
        found = answer_of(opened.run, self.op, commit, against)
        if found.failure is None and cases and processes > 1:
            needs = [
                Need(self.op, case, processes - 1)
                for case in cases
                if case in found.duels and len(found.duels[case]) < processes
            ]
            recorder = Recorder(opened.bench, opened.request, opened.run, opened.base)
            opened.run = recorder.record_again(needs) if needs else opened.run
            found = answer_of(opened.run, self.op, commit, against)
        self._open = opened
        return found

    def _start(self, commit: str, tree: Settings, against: str | None, cases: tuple[str, ...] | None) -> _Open:
        """The first process of a revision, verified before it is timed."""
        shutil.rmtree(tree.reports / LOGS, ignore_errors=True)
        launches.clear_launches(tree.reports)
        bench = dataclasses.replace(self._bench, settings=tree, home=self.settings.root)
        other = given(self._tree(against)) if against else None
        base = BaseTree(Base(against, How.ASKED, against[:10]), other) if against and other else None
        request = dataclasses.replace(
            self.options.request,
            ops=(self.op,),
            seed=self.state.seed,
            duel=DuelWhat.CHANGED if base else DuelWhat.NONE,
            suites=_BOTH if base or self.fails_by is None or self.fails_by.late else (Suite.ACCURACY,),
        )
        found = describe_ops(bench, request)
        planned = base_stage.planned(bench, base, request, found.ops) if base else found.ops
        weighed = Against(base.base, DuelWhat.CHANGED) if base else NOT_AGAINST
        plan = make_plan(request, planned, found.device.kind, weighed, devices=found.devices)
        run = new_run(tree, plan, found.device, self._command)
        run = Recorder(bench, request, run, base).record(cases)
        end = next((op.failure for op in run.ops if op.failure and op.failure.kind in ENDS_RUN), None)
        if end:  # the device, not the revision
            raise PerfciError(end.kind, **end.facts)
        return _Open(commit, against, run, bench, request, base)


def answer_of(run: Run, op: str, commit: str, against: str | None) -> Tried:
    """What a run of one op says about its revision beside another."""
    planned = next(each for each in run.plan.ops if each.op == op)
    found = next((each for each in run.ops if each.op == op), None)
    tried = Tried(commit, against, device=run.environment.device.name, timer=run.environment.timer)
    failure = planned.failure or (found.failure if found else Reason("worker_silent"))
    checks = found.accuracy if found else ()
    failed = sorted((check for check in checks if check.failure), key=lambda check: check.raised)
    checked = found is not None and {*planned.accuracy} <= {check.case for check in checks}
    if failed:
        return dataclasses.replace(tried, failure=failed[0].failure, wrong=not failed[0].raised)
    if failure or found is None:
        return dataclasses.replace(tried, failure=failure, wrong=False, late=checked)
    broken = sorted((case for case in found.performance if case.failure), key=lambda case: case.raised)
    if broken and len(broken) == len(found.performance):
        return dataclasses.replace(tried, failure=broken[0].failure, wrong=not broken[0].raised, late=True)
    if against and found.unmeasured:
        return dataclasses.replace(tried, failure=caused("bisect_not_timed", found.unmeasured))
    if against and planned.base and planned.base.failure:
        return dataclasses.replace(tried, failure=caused("bisect_ends_apart", planned.base.failure, op=op))
    return _timed(tried, found.performance)


def _timed(tried: Tried, cases: Sequence[PerformanceCase]) -> Tried:
    duels: dict[str, tuple[tuple[float, ...], ...]] = {}
    base_us: dict[str, float] = {}
    same: list[str] = []
    failures: dict[str, Reason] = {}
    for case in cases:
        blocks = [block for block in case.blocks if _SHIFT in block.shifts]
        why = case.failure or (case.base.failure if case.base else Reason("bisect_no_case", {"case": case.case}))
        if why:
            failures[case.case] = why
        elif case.base and case.base.same:
            same.append(case.case)
        elif blocks:
            processes = sorted({block.process for block in blocks})
            duels[case.case] = tuple(
                tuple(block.shifts[_SHIFT] for block in blocks if block.process == process) for process in processes
            )
            base_us[case.case] = _median([block.arms["base"].time.median_us for block in blocks])
    return dataclasses.replace(tried, duels=duels, base_us=base_us, same=tuple(same), failures=failures)


def _median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def kept_state(path: Path) -> State:
    """The state in a file. Raises StoredFileError where it is none."""
    try:
        state = decode(path.read_bytes(), State)
        _refuse_empty(state)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise StoredFileError("bisect_state_damaged", path=str(path), why=(why or "unreadable").rstrip(".")) from error
    return state


def _refuse_empty(state: State) -> None:
    """Raises ValueError for duels that no search has written."""
    duels = [processes for tried in state.tried for processes in tried.duels.values()]
    if not all(processes and all(processes) for processes in duels):
        raise ValueError("a duel without blocks")
    if not all(abs(shift) < MOST for processes in duels for process in processes for shift in process):
        raise ValueError("a shift that no kernel has")
    if not all(0 < base_us < math.inf for tried in state.tried for base_us in tried.base_us.values()):
        raise ValueError("a time that is none")


def given(found: T | Reason) -> T:
    """What git or the disk gave; raises PerfciError where it gave a reason instead."""
    if isinstance(found, Reason):
        raise PerfciError(found.kind, **found.facts)
    return found
