"""The tasks of a run's workers, and what each of them runs in."""

import dataclasses
import shutil
from collections.abc import Collection
from pathlib import Path

from perfci.core import deadline
from perfci.core.files import read_regular
from perfci.core.model import UNTIMED, PlannedOp, Reason, Suite
from perfci.core.model.measured import BASE
from perfci.core.settings import Settings
from perfci.ops.backends import Interpreter, backend_of, find_kernel, is_kernel, name_of
from perfci.ops.discover import ops
from perfci.ops.identity import DuelPlan
from perfci.runs.base import BaseTree
from perfci.runs.bench import Bench, WorkerPlace, list_files, make_environment, move_path, plan_opening
from perfci.runs.effective_thresholds import of_run
from perfci.runs.needed import place_needed
from perfci.runs.plan import Request, draw_seed
from perfci.runs.record import Record
from perfci.store.files import write_atomically
from perfci.worker.pair import PairSide
from perfci.worker.tasks import (
    NOTHING_PLANTED,
    BaseFiles,
    Host,
    Measure,
    OpFiles,
    Place,
    Plant,
    Serve,
    WorkerEnvironment,
)

SPLIT = frozenset({"cuda", "cpu", "fake"})  # devices with calls that can be handed to another process

AFTER_S = 1.0  # seconds after head's end that its base is ended


class Tasks:
    """Makes tasks from the run as it stands."""

    def __init__(
        self, bench: Bench, request: Request, record: Record, tree: BaseTree | None, rules: Settings, plant: Plant
    ) -> None:
        """`rules`: settings of the project with the rules that judge."""
        self._bench, self._settings, self._request = bench, bench.settings, request
        self._record, self._tree, self._plant = record, tree, plant
        folders, before = ops(bench.settings), tree.ops if tree else ()
        self._files = {file.op: file for file in list_files(folders)}
        self._base_files = {file.op: file for file in list_files(before)}
        self._backends, self._base_backends = ({op.op: op.backend for op in some} for some in (folders, before))
        self._limits = of_run(record.run, rules).limits

    def measure(self, op: str, process: int = 0, cases: tuple[str, ...] | None = None) -> Measure:
        """An op's task in a separate process. cases: None for all."""
        run, settings = self._record.run, self._settings
        plan, planned = run.plan, self._record.planned(op)
        base = self._find_base(planned)
        # Drawn anew, so that no op finds it in the plan, or in what was saved of the processes before.
        seed = plan.seed if plan.seed_given else draw_seed()
        # One timer a run: once an op was timed, the others take the same one, or fail if they cannot.
        timer = run.environment.timer or self._request.timer
        return Measure(
            place=place_needed(self._bench, settings, (self._files[op],), self._list_peers(self._files, op)),
            opening=plan_opening(settings, plan.device, seed, timer, process),
            suites=plan.suites,
            pattern=plan.filter,
            cases=planned.performance if cases is None else cases,
            renamed=planned.base.renamed if planned.base else {},
            budget_s=plan.budget_s,
            run_started=self._record.began,
            base=base,
            cache=planned.base.cache if base and planned.base and base.judges else None,
            ceilings=self._record.ceilings,
            limits={case: self._limits.for_case(op, case) for case in planned.performance},
            plant=self._plant,
            peers=plan.peers and not process,
        )

    def measure_first(self, planned: PlannedOp, cases: tuple[str, ...] | None) -> Measure:
        """The task of an op's first process. cases: None for all that are planned."""
        plan = self._record.run.plan
        unchanged = plan.skip_unchanged and planned.base is not None and planned.base.same
        chosen = planned.audit if unchanged else None
        task = self.measure(planned.op, cases=chosen if cases is None else cases)
        return dataclasses.replace(task, suites=(Suite.PERFORMANCE,)) if unchanged else task

    def on_base(self, task: Measure) -> Measure:
        """The same task on the base's files."""
        assert task.base is not None
        base, here = task.base, task.place
        before = base.op if base.op != task.op else None
        place = Place(
            (OpFiles(task.op, base.folder, before),), base.shared_folder, base.root, here.head_root or here.root
        )
        return dataclasses.replace(task, place=place)

    def _list_peers(self, files: Collection[str], op: str) -> list[str]:
        """The other backends of an op among these files, if they are timed beside its first one."""
        wanted = self._record.run.plan.peers and op == name_of(op)
        return [key for key in files if wanted and name_of(key) == op != key]

    def _find_base(self, op: PlannedOp) -> BaseFiles | None:
        """A worker's view of the base. Nothing if the op cannot be compared with it, or nothing of it is used."""
        plan, base = self._record.run.plan, op.base
        files = self._base_files.get(base.op or op.op) if base else None
        if self._tree is None or base is None or files is None:
            return None
        # Suites are compared although the kernels cannot be called alike.
        compares = not base.same and self._tree.base.suites and not base.unjudged
        judges = compares and not base.failure
        if base.failure and not (compares and base.failure.kind == "base_signature"):
            return None
        if plan.device in UNTIMED and not compares:
            return None
        place = place_needed(self._bench, self._tree.settings, (files,), self._list_peers(self._base_files, files.op))
        return BaseFiles(
            op=files.op,
            folder=place.ops[0].folder,
            shared_folder=place.shared_folder,
            root=place.root,
            plan=DuelPlan(
                () if base.failure else tuple(case for case in op.performance if case in base.performance),
                plan.duel,
                op.audit,
                plan.skip_unchanged,
                self._tree.base.python is None,
                base.same,
            ),
            differs=not base.same,
            compares=compares,
            judges=judges,
        )

    # --- a process for the judge, and one for the op's code -------------------------------------------------------

    def can_judge_apart(self, task: Measure) -> bool:
        """Whether the base's suites can judge the op's kernel from another process."""
        tree, run = self._tree, self._record.run
        device, here = run.plan.device, run.environment
        if tree and tree.base.python:
            # Another Triton's binaries can be launched from the base's process, but not another torch.
            same = tree.base.commit == here.commit and tree.base.packages.get("torch") == here.packages.get("torch")
            if not same or device != "cuda":
                return False
        other = self._bench.find_interpreter(self._backends[task.op], device)
        torch = other.versions.get("torch") if isinstance(other, Interpreter) else here.packages.get("torch")
        if device == "cuda" and torch != here.packages.get("torch"):
            return False
        return bool(task.base and task.base.judges and tree and device in SPLIT)

    def judge(self, task: Measure) -> tuple[Measure, WorkerEnvironment]:
        """The task of the process that has the base's suites, and nothing of the op under test but answers."""
        assert task.base is not None
        planned, judge = task.base.plan.cases, self.on_base(task)
        around, there = (self.around(task, of_base=True, judges=judges) for judges in (True, False))
        reported = self._record.list_reported(task.op) if task.process else {}
        return dataclasses.replace(
            judge,
            cases=tuple(case for case in task.cases or () if case in planned and case not in reported),
            host=_host(task, self.around(dataclasses.replace(task, base=None)), task.opening.arm),
            base_host=_host(judge, there, BASE),
            calls_there=there.python != around.python,
        ), around

    def find_rest(self, planned: PlannedOp, task: Measure, refused: dict[str, Reason]) -> Measure | None:
        """The task of what only the op's process can do: its suites, and cases that the judge's left out."""
        assert planned.base is not None
        assert task.base is not None
        new = [case for case in planned.performance if case not in planned.base.performance]
        refused |= dict.fromkeys(new, Reason("case_is_new"))
        refused |= self._record.list_reported(task.op) if task.process else {}
        stored = planned.stored and Suite.ACCURACY in task.suites
        checks = not task.process and (changes_suites(planned) or stored)
        cases = tuple(case for case in task.cases or () if case in refused)
        if not checks and not (cases and Suite.PERFORMANCE in task.suites):
            return None
        suites = task.suites if checks else (Suite.PERFORMANCE,)
        return dataclasses.replace(time_all(task, cases), suites=suites, cases=cases, remaining=True)

    def compare_suites(self, planned: PlannedOp, task: Measure) -> tuple[Measure, WorkerEnvironment] | None:
        """The task of a process that compares suites, with the base's kernel in the place of head's. None: nothing to.

        It works on a copy of the base's project with head's suites.
        """
        assert self._tree is not None
        assert task.base is not None
        op, base = planned.op, task.base
        name = name_of(op)
        files = [f"{name}_{part}.py" for part in ("accuracy", "baseline", "performance")]
        if planned.base is None or not {Path(file).name for file in planned.base.changed}.intersection(files):
            return None
        root = self._bench.folder / "suites" / op
        shutil.rmtree(root, ignore_errors=True)  # of an attempt before
        shutil.copytree(base.root, root, symlinks=True)
        folder, shared = (move_path(path, base.root, root) for path in (base.folder, base.shared_folder))
        for file in files:
            path = task.folder / file
            inside = path.resolve().is_relative_to(task.place.root.resolve())
            write_atomically(folder / file, read_regular(path.resolve() if inside else path))  # which reads no link
        lent = base.op if planned.base.lent else None
        if base.op not in {op, lent}:
            kernel = find_kernel(base.op, folder)
            text = read_regular(kernel) + f"\n{name} = {name_of(base.op)}\n".encode()
            write_atomically(folder / f"{name}_{backend_of(kernel)}.py", text)
        head_root = task.place.head_root or task.place.root
        compare = dataclasses.replace(
            task,
            place=Place((OpFiles(op, folder, lent),), shared, root, head_root),
            opening=dataclasses.replace(task.opening, lock=False),
            suites=(),
            remaining=True,
            peers=False,
        )
        device, backend = self._record.run.plan.device, self._base_backends[base.op]
        place = WorkerPlace(f"{op}-suites", device, root, None, 0, 1, task.until_s, base.root, backend)
        return compare, make_environment(self._bench, place)

    # --- a process for each revision ----------------------------------------------------------------------------------

    def pair(self, task: Measure) -> tuple[PairSide, PairSide, DuelPlan]:
        """Both sides of a pair, and what they duel about."""
        assert task.base is not None
        base, planned = task.base, self._record.planned(task.op)
        # Head's process has the base's suites too. It does not call the base's kernel.
        judged, cache = base if base.compares else None, task.cache or planned.cache
        peers, by_round = task.peers and bool(planned.peers), self._record.run.plan.device in SPLIT
        head = dataclasses.replace(task, base=judged, cache=cache, peers=peers, by_round=by_round)
        cases = tuple(case for case in base.plan.cases if case in (task.cases or ()))
        other = dataclasses.replace(
            self.on_base(dataclasses.replace(head, base=base)),
            base=None,
            suites=(Suite.PERFORMANCE,),
            cases=cases,
            opening=dataclasses.replace(head.opening, arm=BASE, lock=False),
            peers=False,
            plant=NOTHING_PLANTED,
        )
        sides = PairSide(head, self.around(task)), PairSide(other, self.around(task, of_base=True))
        return *sides, dataclasses.replace(base.plan, cases=cases)

    def around(self, task: Measure, *, of_base: bool = False, judges: bool = False) -> WorkerEnvironment:
        """The surroundings of an op's worker, or of the base's beside it. judges: of the judge's, in this Python."""
        limit, plan, until_s = self._request.deadline, self._record.run.plan, None
        tree = self._tree if of_base else None
        if limit is not None and task.until_s is not None:
            # A worker that does not end is ended. Its base follows a moment later, or it would be to blame.
            until_s = task.until_s + deadline.wind_down(limit) + (AFTER_S if tree else 0.0)
        place = WorkerPlace(
            f"{task.op}-base" if tree else task.op,
            plan.device,
            task.base.root if of_base and task.base else task.place.root,
            tree.base.python if tree else None,
            task.process,
            plan.devices,
            until_s,
            None if of_base or not task.base else task.base.root,
            "" if judges else self._base_backends[task.base.op] if tree and task.base else self._backends[task.op],
        )
        return make_environment(self._bench, place)


def time_all(task: Measure, cases: Collection[str] | None = None) -> Measure:
    """The task, with every case timed beside the base: that one does the base's work would be the op's word alone.

    cases: those that are.
    """
    if task.base is None:
        return task
    shared = tuple(case for case in task.base.plan.cases if cases is None or case in cases)
    plan = dataclasses.replace(task.base.plan, cases=shared, audit=shared)
    return dataclasses.replace(task, base=dataclasses.replace(task.base, plan=plan))


def _host(task: Measure, around: WorkerEnvironment, arm: str) -> Host:
    """The op's process. When the time is up it ends with the judge's."""
    opening = dataclasses.replace(task.opening, lock=False, seed=0, arm=arm)
    home = around.shown_from or around.folder
    around = dataclasses.replace(around, shown_from=home, until_s=None)
    return Host(Serve(place=task.place, opening=opening), around)


def changes_suites(planned: PlannedOp) -> bool:
    """Whether an op differs from its base in more than its kernel, what this alone needs, and its tuned files."""
    changed = set(planned.base.changed).difference(planned.base.of_kernel) if planned.base else ()
    return any(not is_kernel(file, planned.op) and Path(file).parent.name != "tuned" for file in changed)
