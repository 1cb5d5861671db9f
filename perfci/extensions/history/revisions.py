"""The revisions between two ends of a search: written out, and tried beside one another. All answers are remembered."""

import dataclasses
import shutil
import statistics
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from perfci.core.errors import GitError, PerfciError, UsageError
from perfci.core.model import Base, DuelWhat, Need, Reason, Run, Suite, because
from perfci.core.model.measured import DUEL, by_process
from perfci.core.settings import Settings
from perfci.extensions.common.strays import SAME, Shown
from perfci.extensions.history import commits
from perfci.extensions.history.commits import Commit
from perfci.git.base import How
from perfci.ops.discover import select
from perfci.ops.fingerprint.tree import Fingerprint, Tree
from perfci.runs import base as base_stage
from perfci.runs.base import BaseTree
from perfci.runs.bench import Bench
from perfci.runs.experiment import Experiment
from perfci.runs.plan import Request, draw_seed
from perfci.runs.record import ENDS_RUN

FOLDER = "bisect"  # in the reports folder: the last revision's run and logs
REVISIONS = "revisions"  # in the run's folder: those that are written out


class Rating(StrEnum):
    """The kind of a revision."""

    GOOD = "good"
    BAD = "bad"
    PART = "part"  # it carries a part of the loss
    SKIP = "skip"  # it cannot be tried, or noise hides what it is


@dataclass(frozen=True)
class BisectOptions:
    """The question of a search."""

    op: str
    good: str  # revisions, as they were given
    bad: str
    request: Request = field(default_factory=Request)  # --case, --device, --budget, --seed, --timer
    first_parent: bool = False  # only commits of the main line are tried, each merge as a whole


@dataclass(frozen=True)
class TriedRevision:
    """The answer of one revision beside another."""

    commit: str
    against: str | None  # None if it was tried alone, for its answers
    failure: Reason | None = None  # why nothing was timed
    wrong: bool | None = None  # the failure is a wrong answer (True) or an error (False), None if it is neither
    duels: Mapping[str, Shown] = field(default_factory=dict)  # by case
    same: tuple[str, ...] = ()  # cases with the same device work
    failures: Mapping[str, Reason] = field(default_factory=dict)  # case -> why it was not timed
    base_us: Mapping[str, float] = field(default_factory=dict)  # case -> time of the other revision, median of blocks
    late: bool = False  # the failure came up after the accuracy suite had passed
    device: str = ""
    timer: str | None = None

    def has(self, cases: Collection[str], processes: int) -> bool:
        """Returns whether this answers for the cases, as far as it can be answered."""
        open_cases = {*cases} - {*self.same, *self.failures}
        return self.failure is not None or all(
            case in self.duels and len(self.duels[case].processes) >= processes for case in open_cases
        )

    def see(self, case: str) -> Shown | Reason:
        """Returns the duel of one case, or why there is none."""
        if self.failure:
            return self.failure
        if case in self.same:
            return SAME
        return self.duels.get(case) or self.failures.get(case) or Reason("bisect_no_case", {"case": case})


class Revisions:
    """The revisions between two ends, tried as they are asked for: a `World` of the search."""

    def __init__(
        self, bench: Bench, settings: Settings, options: BisectOptions, command: str, ends: tuple[str, str]
    ) -> None:
        self._bench, self.settings, self._options, self._command = bench, settings, options, command
        self.op = options.op
        self.good, self.bad = ends
        seed = options.request.seed
        self.seed = draw_seed() if seed is None else seed
        self.case = ""  # the case that is followed
        self.fails_by: TriedRevision | None = None  # BAD's failure, if that is what is searched for
        self._tried: dict[tuple[str, str | None], TriedRevision] = {}
        self._prints: dict[str, Fingerprint] = {}
        self._trees: dict[str, BaseTree] = {}  # that are written out now
        self._open: tuple[str, str | None, Run, Experiment] | None = None  # of the revision tried last

    def suspects(self, good: Collection[str], bad: str) -> Sequence[str]:
        """Returns commits by git's bisection, those that touch the op's files if these are known."""
        root, first_parent = self.settings.root, self._options.first_parent
        paths = () if any(fingerprint.opaque for fingerprint in self._prints.values()) else self._list_files()
        halving = commits.list_halving(root, good, bad, paths, first_parent=first_parent)
        return halving or commits.list_halving(root, good, bad, first_parent=first_parent)

    def _list_files(self) -> tuple[str, ...]:
        """Files of the op in every revision that is known by now."""
        return tuple(sorted({name for fingerprint in self._prints.values() for name in fingerprint.files}))

    def describe(self, commit: str) -> Commit:
        """Returns a commit's author, date and title."""
        return commits.describe(self.settings.root, commit)

    def count(self) -> int:
        """Returns the number of commits between the ends."""
        first_parent = self._options.first_parent
        return commits.count_between(self.settings.root, self.good, self.bad, first_parent=first_parent)

    def list_changes(self, commit: str) -> tuple[str, ...]:
        """Returns the op's files that a commit changed."""
        files = self._list_files()
        return tuple(name for name in commits.list_changes(self.settings.root, commit) if name in files)

    def check_ends(self) -> None:
        """Raises UsageError if one of the ends lacks the op, or if both have the same files of it."""
        options = self._options
        for commit, name in ((self.bad, options.bad), (self.good, options.good)):
            if why := self._find_lack(self._write_out(commit).settings):
                why = because("bisect_end_lacks_op", why, revision=name)
                raise UsageError(why.kind, **why.facts)
        if self._prints[self.good].same_as(self._prints[self.bad]):
            raise UsageError("bisect_same_files", op=self.op, good=options.good, bad=options.bad)

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

    def _write_out(self, commit: str) -> BaseTree:
        """A revision as a project of its own, which is judged by the work tree's thresholds. Raises GitError."""
        if commit not in self._trees:
            written = base_stage.write_base(self._bench, Base(commit, How.AGAIN, commit[:10]), f"{REVISIONS}/{commit}")
            tree = dataclasses.replace(written.settings, thresholds=self.settings.thresholds)
            self._trees[commit] = dataclasses.replace(written, settings=tree)
            if commit not in self._prints:
                self._prints[commit] = Tree(tree.root, tree.kernels).fingerprint(self.op)
        return self._trees[commit]

    def look(self, commit: str, processes: int) -> Shown | Rating | Reason:
        """Returns the duel with GOOD, whether it fails as BAD does, or why it cannot be tried or fails otherwise."""
        wanted = self.fails_by
        if wanted is None:
            return self.try_commit(commit, self.good, (self.case,), processes).see(self.case)
        tried = self.try_commit(commit, None)
        if tried.failure is None:
            return Rating.GOOD
        alike = tried.wrong is True or tried.failure.kind == (wanted.failure and wanted.failure.kind)
        return Rating.BAD if tried.wrong == wanted.wrong and alike else tried.failure

    def note(self, commit: str) -> Reason | None:
        """Returns why a revision was not timed, None if it was."""
        tried = self._find_known(commit, None if self.fails_by else self.good, (self.case,))
        if tried is None or tried.commit == commit:
            same = tried is not None and self.case in tried.same
            return Reason("bisect_works_alike", {"commit": self.good[:10]}) if same else None
        return Reason("bisect_same_as", {"commit": tried.commit[:10]})

    def try_commit(
        self, commit: str, against: str | None, cases: tuple[str, ...] | None = None, processes: int = 1
    ) -> TriedRevision:
        """Returns what a revision shows beside another one, measured unless it is known."""
        try:
            for _ in range(2):  # the second time its files are known
                earlier = self._find_known(commit, against, cases or ())
                if earlier and earlier.has(cases or (), processes):
                    return earlier
                tree = self._write_out(commit).settings
            why = self._find_lack(tree)
            revision = TriedRevision(commit, against, why)
            if why is None:
                revision = self._measure(commit, tree, against, cases, processes)
        except (GitError, UsageError) as error:  # it cannot be written out, or no case fits in this revision
            if commit == self.bad:
                raise
            revision = TriedRevision(commit, against, error.reason)
        # Revisions are many, and each is a whole project, if it could be written out at all.
        for folder in (self._bench.folder / REVISIONS).glob("*"):
            if folder.name not in {self.good, commit, against} & self._trees.keys():
                shutil.rmtree(folder, ignore_errors=True)
                self._trees.pop(folder.name, None)
        self._tried[self._find_first_alike(commit), against and self._find_first_alike(against)] = revision
        return revision

    def _find_known(self, commit: str, against: str | None, cases: tuple[str, ...]) -> TriedRevision | None:
        """An answer of this revision, or of one with the same files."""
        one, other = self._find_first_alike(commit), against and self._find_first_alike(against)
        return TriedRevision(commit, against, same=cases) if one == other else self._tried.get((one, other))

    def _find_first_alike(self, commit: str) -> str:
        """The first revision with the same files of the op, the ends before all others. Else the revision itself."""
        mine = self._prints.get(commit)
        return next(
            (fingerprint for fingerprint, print_of in self._prints.items() if mine and mine.same_as(print_of)), commit
        )

    def _measure(
        self, commit: str, tree: Settings, against: str | None, cases: tuple[str, ...] | None, processes: int
    ) -> TriedRevision:
        opened = self._open
        if opened is None or opened[:2] != (commit, against) or not cases:
            opened = (commit, against, *self._measure_first(commit, tree, against, cases))
        *_, run, experiment = opened
        answer = read_answer(run, self.op, commit, against)
        if answer.failure is None and cases and processes > 1:
            had = {case: len(answer.duels[case].processes) for case in cases if case in answer.duels}
            needs = [Need(self.op, case, processes - 1) for case, count in had.items() if count < processes]
            if needs:
                run = experiment.record_again(run, needs)
                answer = read_answer(run, self.op, commit, against)
        self._open = (commit, against, run, experiment)
        return answer

    def _measure_first(
        self, commit: str, tree: Settings, against: str | None, cases: tuple[str, ...] | None
    ) -> tuple[Run, Experiment]:
        """The first process of a revision, verified before it is timed, and the experiment that adds further ones."""
        bench = dataclasses.replace(self._bench, settings=tree, home=self.settings.root)
        base = self._write_out(against) if against else None
        timed = base or self.fails_by is None or self.fails_by.late
        duel = DuelWhat.CHANGED if base else DuelWhat.NONE
        suites = (Suite.ACCURACY, Suite.PERFORMANCE) if timed else (Suite.ACCURACY,)
        request = dataclasses.replace(self._options.request, ops=(self.op,), seed=self.seed, duel=duel, suites=suites)
        experiment = Experiment.beside(bench, request, self._command, base)
        experiment.clear()
        described = experiment.describe()
        run = experiment.record(experiment.begin(experiment.plan(described), described.device), cases=cases)
        end = next((op.failure for op in run.ops if op.failure and op.failure.kind in ENDS_RUN), None)
        if end:  # the device, not the revision
            raise PerfciError(end.kind, **end.facts)
        return run, experiment


def read_answer(run: Run, op: str, commit: str, against: str | None) -> TriedRevision:
    """Returns what a run of one op shows of its revision beside another."""
    planned = next(planned_op for planned_op in run.plan.ops if planned_op.op == op)
    answer = next((outcome for outcome in run.ops if outcome.op == op), None)
    tried = TriedRevision(commit, against, device=run.environment.device.name, timer=run.environment.timer)
    checks = answer.accuracy if answer else ()
    failed = sorted((check for check in checks if check.failure), key=lambda check: check.raised)
    if failed:
        return dataclasses.replace(tried, failure=failed[0].failure, wrong=not failed[0].raised)
    failure = planned.failure or (answer.failure if answer else Reason("worker_silent"))
    if failure or answer is None:
        late = answer is not None and {*planned.accuracy} <= {check.case for check in checks}
        return dataclasses.replace(tried, failure=failure, wrong=False, late=late)
    broken = sorted((case for case in answer.performance if case.failure), key=lambda case: case.raised)
    if broken and len(broken) == len(answer.performance):
        return dataclasses.replace(tried, failure=broken[0].failure, wrong=not broken[0].raised, late=True)
    if against and answer.unmeasured:
        return dataclasses.replace(tried, failure=because("bisect_not_timed", answer.unmeasured))
    if against and planned.base and planned.base.failure:
        return dataclasses.replace(tried, failure=because("bisect_ends_apart", planned.base.failure, op=op))

    duels: dict[str, Shown] = {}
    base_us: dict[str, float] = {}
    same: list[str] = []
    failures: dict[str, Reason] = {}
    for case in answer.performance:
        blocks = [block for block in case.blocks if DUEL in block.shifts]
        why = case.failure or (case.base.failure if case.base else Reason("bisect_no_case", {"case": case.case}))
        if why:
            failures[case.case] = why
        elif case.base and case.base.same:
            same.append(case.case)
        elif blocks:
            shifts = by_process(blocks, [block.shifts[DUEL] for block in blocks])
            duels[case.case] = Shown(tuple(map(tuple, shifts.values())))
            base_us[case.case] = statistics.median(block.arms["base"].time.median_us for block in blocks)
    return dataclasses.replace(tried, duels=duels, base_us=base_us, same=tuple(same), failures=failures)
