"""`perfci ranks`: a group for each op and size, further groups while the judge lacks evidence, and the verdicts."""

import dataclasses
import math
import os
import shutil
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from perfci.core import deadline
from perfci.core.errors import DeviceError, UsageError
from perfci.core.model import Device, DuelWhat, PlannedOp, Reason, Verdict
from perfci.core.settings import ALL, ONE, Settings
from perfci.extensions.ranks import baselines
from perfci.extensions.ranks.boards import choose_boards, hold_boards, name_locks, turn
from perfci.extensions.ranks.declared import find_sizes
from perfci.extensions.ranks.records import (
    NO_MULTICAST,
    CasePrepared,
    ClocksCompared,
    GroupReady,
    LinksCounted,
    LinksMeasured,
    OpPlace,
    RanksBlock,
    RanksChecked,
)
from perfci.extensions.ranks.task import LeadRanks
from perfci.extensions.ranks.verdicts import CheckedCase, Measured, TimedCase, judge_check, judge_times
from perfci.ops.discover import OpFolder, select
from perfci.runs import base as bases
from perfci.runs.base import BaseTree, FoundBase
from perfci.runs.bench import (
    LOGS,
    VISIBLE,
    Bench,
    Listener,
    WorkerPlace,
    claim_bench,
    make_environment,
    name_devices,
    place_ops,
)
from perfci.runs.beside import fingerprint_both
from perfci.runs.boards import find_sick
from perfci.runs.describe import Described, OpSource, describe_sources
from perfci.runs.effective_thresholds import alpha_of
from perfci.runs.plan import Request, draw_seed
from perfci.thresholds import read as thresholds
from perfci.thresholds.case import CaseThresholds
from perfci.worker.answers import LATE
from perfci.worker.process import Running, Working, side_by_side, working
from perfci.worker.protocol import Doing, Message, Noted, Waiting
from perfci.worker.tasks import OpFiles

FOLDER = "ranks"  # in the reports folder: what the workers printed, and the answer

Job = tuple[OpFolder, PlannedOp, int]
"""An op, and how many ranks its groups have"""

NPU = "npu"
NO_PEER = frozenset({"cpu", "fake"})  # devices with as many boards as anybody wants


@dataclass(frozen=True)
class OpRanks:
    """One op in groups of one size."""

    op: str
    ranks: int
    checked: tuple[CheckedCase, ...] = ()
    timed: tuple[TimedCase, ...] = ()
    ready: GroupReady | None = None
    clocks: ClocksCompared | None = None  # of the first process
    links: LinksMeasured | None = None
    boards: tuple[tuple[str, ...], ...] = ()  # of each process, by rank
    failure: Reason | None = None  # why nothing, or not all, could be checked
    skipped: Reason | None = None  # why this size was not tried here
    undone: Reason | None = None  # why it came to no end: the time was up, or others held its boards

    @property
    def cases(self) -> tuple[CheckedCase | TimedCase, ...]:
        """Of both suites."""
        return (*self.checked, *self.timed)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """Of all cases of both suites."""
        return tuple(case.verdict for case in self.cases)


@dataclass(frozen=True)
class RanksResult:
    """The result."""

    device: Device
    seed: int
    base: str | None  # name of the revision that is compared with
    ops: tuple[OpRanks, ...]
    note: Reason | None = None  # why there is no base


@dataclass
class _Heard:
    """What the workers of one op have said."""

    ready: GroupReady | None = None
    clocks: ClocksCompared | None = None
    links: LinksMeasured | None = None
    counted: dict[str, LinksCounted] = field(default_factory=dict)
    checked: list[RanksChecked] = field(default_factory=list)
    prepared: dict[str, CasePrepared] = field(default_factory=dict)
    blocks: list[list[RanksBlock]] = field(default_factory=list)  # of each process
    boards: list[tuple[str, ...]] = field(default_factory=list)

    def hear(self, message: Message) -> None:
        match message:
            case GroupReady():
                self.ready = self.ready or message
                self.boards[-1] = message.boards
            case ClocksCompared():
                self.clocks = self.clocks or message
            case LinksMeasured():
                self.links = self.links or message
            case LinksCounted():
                self.counted[message.case] = message
            case RanksChecked():
                self.checked.append(message)
            case CasePrepared():
                first = self.prepared.get(message.case)
                if first is None or message.failure:
                    self.prepared[message.case] = message
            case RanksBlock():
                self.blocks[-1].append(message)


def check_ranks(
    settings: Settings, request: Request, listener: Listener, sizes: Sequence[int] = (), *, times: bool = True
) -> RanksResult:
    """Checks ops that say of ranks, in groups of each size, or of these sizes. times: whether they are timed too.

    Raises UsageError if no op says so, PerfciError if the device does not open.
    """
    kept = dataclasses.replace(settings, reports=settings.reports / FOLDER)
    shutil.rmtree(kept.reports / LOGS, ignore_errors=True)
    request = dataclasses.replace(request, seed=draw_seed() if request.seed is None else request.seed)
    folders = [op for op in select(settings, request.ops) if find_sizes(op) or request.ops]
    if not folders or not any(map(find_sizes, folders)):
        raise UsageError("ranks_none", folder=str(settings.kernels))
    folders = [op for op in folders if find_sizes(op)]
    jobs = [(folder, size) for folder in folders for size in (sizes or find_sizes(folder))]
    with claim_bench(kept, listener) as bench:
        described = describe_sources(bench, request, OpSource(bench.settings, folders))[0]
        found = bases.find(bench, request)
        results = check_groups(bench, request, found, described, jobs, times=times)
    base = found.tree.base.name if found.tree else None
    return RanksResult(described.device, request.seed or 0, base, results, found.against.note)


def check_groups(
    bench: Bench, request: Request, found: FoundBase, described: Described, jobs: Sequence[tuple[OpFolder, int]],
    *, times: bool = True,
) -> tuple[OpRanks, ...]:  # fmt: skip
    """Checks described ops beside a base, each in groups of one size."""
    planned = {op.op: op for op in described.ops}
    run = _Run(bench, request, described, found.tree, found.rules, times=times)
    return run.check_all([(folder, planned[folder.op], size) for folder, size in jobs])


class _Run:
    """All groups of a run."""

    def __init__(
        self,
        bench: Bench,
        request: Request,
        described: Described,
        tree: BaseTree | None,
        rules: Settings,
        *,
        times: bool,
    ) -> None:
        self._bench, self._request, self._described, self._tree = bench, request, described, tree
        self._rules, self._times = rules, times
        self._limits = thresholds.load(rules.thresholds, None, rules.root)
        self._alpha = alpha_of(rules, request.thresholds)
        self._kind = described.device.kind
        self._until_s = deadline.ends(request.deadline) if request.deadline else None

    def check_all(self, jobs: Sequence[Job]) -> tuple[OpRanks, ...]:
        """Do all jobs, side by side as far as boards were asked for, each group with boards of its own."""
        results, waiting = dict[int, OpRanks](), iter(enumerate(jobs))
        largest = max(size for _, _, size in jobs)

        def work_off(first: int) -> Iterator[Sequence[Running]]:
            for number, (folder, planned, size) in waiting:
                results[number] = yield from self._check(folder, planned, size, first)

        groups = len(self._list_boards()) // largest if self._request.devices not in {None, ONE} else 1
        side_by_side([work_off(largest * group) for group in range(min(max(groups, 1), len(jobs)))])
        return tuple(results[number] for number in range(len(jobs)))

    def _check(
        self, folder: OpFolder, planned: PlannedOp, size: int, first: int
    ) -> Generator[Sequence[Running], None, OpRanks]:
        """One op in groups of one size, on the boards from the first one on."""
        boards = [*range(size)] if self._kind in NO_PEER else self._list_boards()[first : first + size]
        if planned.failure:
            return OpRanks(folder.op, size, failure=planned.failure)
        if self._kind == NPU:  # its ranks would be of another backend, and it has another timer
            return OpRanks(folder.op, size, skipped=Reason("ranks_no_npu", {"ranks": size}))
        if len(boards) < size:
            return OpRanks(folder.op, size, skipped=Reason("ranks_few_boards", {"ranks": size, "boards": len(boards)}))
        uuids = [self._described.uuids[at] for at in boards if at < len(self._described.uuids)]
        locked = [] if self._kind in NO_PEER else name_locks(uuids)

        def wait(holder: str) -> None:
            self._bench.listener(Waiting(holder))

        settings, left_s = self._bench.settings, math.inf if self._until_s is None else self._until_s - time.time()
        try:
            with hold_boards(locked, settings.lock_folder, wait, min(settings.lock_wait_s, max(left_s, 0.0))):
                return (yield from self._measure(folder, planned, size, boards))
        except DeviceError as error:
            return OpRanks(folder.op, size, undone=error.reason)

    def _list_boards(self) -> list[int]:
        """Places of the host's boards that may be in groups, as they were asked for, without those put aside."""
        if self._kind in NO_PEER:
            return []
        names = name_devices(os.environ, self._kind, self._described.visible)
        whole = choose_boards(names, self._described.uuids, find_sick(self._rules))
        asked = (self._request.devices or ALL).split(",")
        return [at for at in whole if {*asked} & {ALL, ONE, str(at)}]

    def _measure(
        self, folder: OpFolder, planned: PlannedOp, size: int, boards: Sequence[int]
    ) -> Generator[Sequence[Running], None, OpRanks]:
        """Processes, until the judge has what it needs."""
        heard, failure = _Heard(), None
        limits = {case: self._limits.for_case(folder.op, case) for case in planned.performance}
        timed: list[TimedCase] = []
        wanted, process, open_cases = 1, 0, None
        while process < wanted and failure is None:
            heard.blocks.append([])
            heard.boards.append(())
            failure = yield from self._run_process(
                folder, size, turn(boards, process), process, open_cases, limits, heard.hear
            )
            process += 1
            timed = self._judge(folder, size, heard, limits)
            open_cases = tuple(case.case for case in timed if case.processes)
            wanted = process + max((case.processes for case in timed), default=0) if process >= wanted else wanted
        checked = tuple(judge_check(folder.op, one) for one in heard.checked)
        failure, undone = (None, failure) if failure and failure.kind == LATE else (failure, None)
        return OpRanks(
            folder.op, size, checked, tuple(timed), heard.ready, heard.clocks, heard.links,
            tuple(heard.boards), failure, undone=undone,
        )  # fmt: skip

    def _judge(
        self, folder: OpFolder, size: int, heard: _Heard, limits: Mapping[str, CaseThresholds]
    ) -> list[TimedCase]:
        same = self._has_same_files(folder)
        of_case = {
            case: tuple(tuple(one for one in blocks if one.case == case) for blocks in heard.blocks)
            for case in heard.prepared
        }
        measured = [
            Measured(prepared, of_case[case], size, same, heard.counted.get(case))
            for case, prepared in heard.prepared.items()
        ]
        judged = judge_times(folder.op, measured, limits, heard.links, self._alpha)
        baseline = baselines.read(self._rules.baselines, self._described.device.key, folder.op, size)
        return baselines.screen(folder.op, judged, measured, baseline, limits, self._alpha)

    def _run_process(
        self, folder: OpFolder, size: int, boards: Sequence[int], process: int, cases: tuple[str, ...] | None,
        limits: Mapping[str, CaseThresholds], hear: Listener,
    ) -> Working:  # fmt: skip
        bench, request = self._bench, self._request

        def heard(message: Message) -> None:
            hear(message)
            if isinstance(message, Doing | Noted):
                bench.listener(message)

        base = self._find_base(folder)
        beside = base.root if base else None
        place = WorkerPlace(f"{folder.op}-x{size}", self._kind, process=process, beside=beside, until_s=self._until_s)
        around = make_environment(bench, place)
        # With the variables of other workers, as on a CPU, it is forked from the process that has imported torch.
        variables = {**around.environment, **(NO_MULTICAST if self._kind == "cuda" else {})}
        if name := VISIBLE.get(self._kind):
            names = name_devices(os.environ, self._kind, self._described.visible)
            given = ",".join(names[at] if at < len(names) else str(at) for at in boards)
            variables[name] = given
        task = LeadRanks(
            place=place_ops(bench.settings, (OpFiles(folder.op, folder.folder),)),
            device=self._kind, ranks=size, seed=request.seed or 0, process=process,
            base=base, pattern=request.pattern, cases=cases, times=self._times,
            every=request.duel is DuelWhat.ALL, limit_s=bench.settings.time_limit_s, limits=limits,
            fake=bench.settings.fake,
        )  # fmt: skip
        # The group's limit comes first, and says more.
        around = dataclasses.replace(around, environment=variables, limit_s=2 * around.limit_s + 30)
        return (yield from working(task, around, heard))

    def _find_base(self, folder: OpFolder) -> OpPlace | None:
        """The op as of the base, if it has it and anything of it differs, or if all are compared."""
        tree = self._tree
        theirs = next((op for op in tree.ops if op.op == folder.op), None) if tree else None
        if tree is None or theirs is None or self._request.duel is DuelWhat.NONE:
            return None
        if self._has_same_files(folder) and self._request.duel is not DuelWhat.ALL:
            return None
        return OpPlace(folder.op, theirs.folder, tree.settings.kernels, tree.settings.root)

    def _has_same_files(self, folder: OpFolder) -> bool:
        """Whether the base has the op, in files of which none differs."""
        if self._tree is None:
            return False
        prints = fingerprint_both(self._tree, self._bench.settings, [folder.op]).get(folder.op)
        return prints is not None and prints[0].same_as(prints[1])
