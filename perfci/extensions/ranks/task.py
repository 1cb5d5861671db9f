"""The worker that leads a group: it asks all ranks for the same, one thing after another, and sends what they answer.

A group that breaks costs the case at which it broke. Another group is started for the others.
"""

import random
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from perfci.core.codec import convert
from perfci.core.errors import PerfciError
from perfci.core.model import Reason
from perfci.extensions.ranks.group import BrokenGroupError, Group, Ranks, make_places
from perfci.extensions.ranks.records import (
    ALL,
    BASE,
    KERNEL,
    Answer,
    Ask,
    CasePrepared,
    ClocksCompared,
    GroupReady,
    LinksCounted,
    LinksMeasured,
    OpPlace,
    RankError,
    RankPlace,
    RanksBlock,
    RanksChecked,
)
from perfci.extensions.ranks.series import list_shifts, times_of
from perfci.extensions.ranks.virtual import VirtualRanks
from perfci.ops.spec import matches
from perfci.statistics import duel_rule
from perfci.thresholds.case import CaseThresholds
from perfci.worker.answers import Answers, Rule
from perfci.worker.protocol import Doing, MessageChannel, OpDone
from perfci.worker.tasks import Task

ACCURACY, MEASURE, START = "ranks accuracy", "ranks measure", "group"

ROUNDS, FEWEST_ROUNDS, MOST_ROUNDS = 12, 6, 24  # of a block: at first, and what its time may make of them
BLOCK_US, LAUNCH_US = 40_000.0, 260.0  # what a block should take, and what stands around each of its launches
BESIDE_ROUNDS, BESIDE_BLOCKS = 6, 6  # rounds and blocks of the first process with all other arms
ALONE_BLOCKS = 6  # blocks of a case that is not duelled
COUNT_TURNS, COUNT_LAUNCHES = 3, 4  # of kernel and base alone, while counters of links are read
RESTARTS = 8  # of a group: a process for each failing case, not for hundreds


@dataclass(frozen=True, kw_only=True)
class LeadRanks(Task):
    """Check an op on all ranks of a group, and time it beside its base."""

    performer = "perfci.extensions.ranks.task:lead"
    answers: ClassVar[Answers] = {
        **Task.answers,
        GroupReady: Rule(most=RESTARTS + 1),
        RanksChecked: Rule(lambda _, message: message.case),
        ClocksCompared: Rule(most=RESTARTS + 1),
        LinksMeasured: Rule(most=RESTARTS + 1),
        CasePrepared: Rule(lambda _, message: message.case, most=2),
        LinksCounted: Rule(lambda _, message: message.case),
        RanksBlock: Rule(lambda _, message: (message.case, message.index)),
        OpDone: Rule(),
    }
    last = (OpDone,)

    device: str
    ranks: int
    seed: int
    process: int = 0
    base: OpPlace | None = None
    pattern: str | None = None
    cases: tuple[str, ...] | None = None  # to time. None: all that fit the pattern
    times: bool = True  # whether anything is timed
    every: bool = False  # cases are duelled although their work is the same
    limit_s: float = 120.0
    limits: Mapping[str, CaseThresholds] = field(default_factory=dict)
    fake: Mapping[str, Any] = field(default_factory=dict)

    @property
    def roots(self) -> tuple[Path, ...]:
        """With the base's project."""
        return (*super().roots, *((self.base.root,) if self.base else ()))

    @property
    def head(self) -> OpPlace:
        """Where the op lives."""
        return OpPlace(self.op, self.folder, self.shared_folder, self.place.root)

    @property
    def timed(self) -> bool:
        """Whether there is a clock that says something of the op's speed."""
        return self.times and self.device != "cpu"


def lead(task: LeadRanks, channel: MessageChannel) -> None:
    """Start a group, and do the task."""
    with tempfile.TemporaryDirectory(prefix="group-") as folder:
        leader = _Leader(task, channel, Path(folder))
        try:
            leader.lead()
        finally:
            leader.end()
    channel.send(OpDone())


@dataclass
class _Timed:
    """A case that is under way."""

    prepared: CasePrepared
    duelled: bool
    rounds: int = ROUNDS
    blocks: list[RanksBlock] = field(default_factory=list)
    failed: bool = False


class _Leader:
    def __init__(self, task: LeadRanks, channel: MessageChannel, folder: Path) -> None:
        self._task, self._channel, self._folder = task, channel, folder
        self._group: Ranks | None = None
        self._groups = 0
        self._ready: GroupReady

    def lead(self) -> None:
        """Check, prepare, measure."""
        task = self._task
        self._start()
        if not task.process:
            self._each(ACCURACY, self._choose(self._ready.accuracy), self._check)
        if task.timed:
            self._compare_clocks()
            asked = self._choose(self._ready.performance) if task.cases is None else task.cases
            timed: list[_Timed] = []
            self._each(MEASURE, asked, lambda case: timed.append(self._prepare(case)))
            self._measure([case for case in timed if not case.failed])

    def end(self) -> None:
        """End the group."""
        if self._group:
            self._group.end()
            self._group = None

    # --- the group

    def _start(self) -> None:
        self.end()
        task, self._groups = self._task, self._groups + 1
        self._channel.send(Doing(START, task.op))
        if task.device == "fake":
            self._group = VirtualRanks(task.head, task.base, task.ranks, (task.seed, task.process), task.fake)
        else:
            folder = self._folder / str(self._groups)
            folder.mkdir()
            hears = task.timed and task.base is not None and not task.process and not task.every
            first = RankPlace(
                0, task.ranks, task.device, task.head, task.base, folder, folder, folder, task.limit_s, hears=hears
            )  # fmt: skip
            self._group = Group(make_places(first, range(task.ranks), folder), self._channel.stay_alive)
        bodies = self._ask(Ask("list"))
        listed = bodies[0]
        self._ready = GroupReady(
            listed["backend"], tuple(listed["accuracy"]), tuple(listed["performance"]),
            tuple(body["board"] for body in bodies),
        )  # fmt: skip
        self._channel.send(self._ready)

    def _ask(self, ask: Ask) -> Sequence[Mapping[str, Any]]:
        """Ask all ranks. Raises PerfciError if one of them failed, and BrokenGroupError if no group is left."""
        if self._group is None:
            if self._groups > RESTARTS:
                raise BrokenGroupError("ranks_gave_up", op=self._task.op, count=self._groups)
            self._start()
        assert self._group is not None
        try:
            answers = self._group.ask(ask)
        except BrokenGroupError:
            self.end()
            raise
        if failure := _find_failure(answers):
            if self._task.device == "cuda" or ask.do == "list":
                self.end()  # a device may be lost, and nothing tells
            raise PerfciError(failure.kind, **failure.facts)
        return [answer.body for answer in answers]

    def _choose(self, cases: Sequence[str]) -> list[str]:
        return [case for case in cases if matches(case, self._task.pattern)]

    def _each(self, stage: str, cases: Sequence[str], do: Callable[[str], None]) -> None:
        for done, case in enumerate(cases):
            self._channel.send(Doing(stage, self._task.op, case, done, len(cases)))
            do(case)

    # --- accuracy

    def _check(self, case: str) -> None:
        seed = self._draw(case, "accuracy")
        try:
            bodies = self._ask(Ask("check", case, seed))
        except PerfciError as error:
            self._channel.send(RanksChecked(case, seed, failure=error.reason))
            return
        errors = tuple(convert(body["error"], RankError) for body in bodies)
        first = bodies[0]
        self._channel.send(RanksChecked(case, seed, errors, first["rtol"], first["atol"], None, first["repeats"]))

    # --- times

    def _compare_clocks(self) -> None:
        stamps = [body["stamps_ns"] for body in self._ask(Ask("clocks"))]
        links = self._ask(Ask("links")) if not self._task.process else ()
        self._channel.send(compare_clocks(stamps))
        if links:
            slowest = min(body["link_gbs"] for body in links)
            self._channel.send(LinksMeasured(slowest, links[0]["bandwidth_gbs"], links[0]["tflops"]))

    def _prepare(self, case: str) -> _Timed:
        task = self._task
        try:
            bodies = self._ask(Ask("prepare", case, self._draw(case, "prepare")))
        except PerfciError as error:
            prepared = CasePrepared(case, failure=error.reason)
            self._channel.send(prepared)
            return _Timed(prepared, duelled=False, failed=True)
        first = bodies[0]
        unknown = next((body["unknown"] for body in bodies if body["unknown"]), None)
        prepared = CasePrepared(
            case, tuple(first["arms"]), tuple(bool(body["same"]) for body in bodies),
            convert(unknown, Reason) if unknown else None, None,
            first["sent_bytes"], first["moved_bytes"], first["flops"], first["dtype"],
            tuple(first["activations"]) if first["activations"] else None,
        )  # fmt: skip
        self._channel.send(prepared)
        return _Timed(prepared, duelled=BASE in prepared.arms and (task.every or not all(prepared.same)))

    def _measure(self, cases: Sequence[_Timed]) -> None:
        """Sweep over the cases that need further blocks until none does."""
        index = 0
        while due := [case for case in cases if not case.failed and self._wants(case)]:
            order = random.Random(f"{self._task.seed}/{self._task.process}/{index}").sample(due, len(due))
            for done, case in enumerate(order):
                self._channel.send(Doing(MEASURE, self._task.op, case.prepared.case, done, len(order)))
                try:
                    if case.duelled and not index and not self._task.process:
                        self._count_links(case.prepared.case)
                    self._take_block(case, index)
                except PerfciError as error:
                    case.failed = True
                    prepared = case.prepared
                    self._channel.send(CasePrepared(prepared.case, prepared.arms, failure=error.reason))
            index += 1

    def _wants(self, case: _Timed) -> bool:
        """Whether a case needs another block of this process."""
        count, process = len(case.blocks), self._task.process
        if not case.duelled:
            return not process and count < ALONE_BLOCKS
        if process or count < duel_rule.FIRST:
            return count < duel_rule.BLOCKS
        if count not in duel_rule.EARLY:
            return count < duel_rule.BLOCKS
        limits = self._task.limits.get(case.prepared.case, CaseThresholds())
        base_us = statistics.median(time for block in case.blocks for time in times_of(block, BASE, ALL))
        allowed = limits.allowed(base_us, "event")
        series = (list_shifts(case.blocks, rank) for rank in (ALL, *range(self._task.ranks)))
        is_open = any(duel_rule.early(shifts, allowed) is not duel_rule.Ruling.CLEARED for shifts in series)
        return is_open and count < duel_rule.BLOCKS

    def _take_block(self, case: _Timed, index: int) -> None:
        name = case.prepared.case
        order = tuple(self._order(case, index))
        bodies = self._ask(Ask("block", name, self._draw(name, index), order))
        times = {
            arm: tuple(
                tuple(us for us, at in zip(body["times_us"], order, strict=True) if at == arm) for body in bodies
            )
            for arm in dict.fromkeys(order)
        }
        counted = [body["sent_bytes"] for body in bodies]
        starts = [body["starts_ns"] for body in bodies]
        block = RanksBlock(
            name, index, times, max(compare_clocks(starts).spread_us) if starts[0] else None,
            tuple(counted) if all(count is not None for count in counted) else (),
        )  # fmt: skip
        case.blocks.append(block)
        median_us = statistics.median(times_of(block, KERNEL, ALL))
        of_arms = BLOCK_US / (2 if case.duelled else 1) / (median_us + LAUNCH_US)
        case.rounds = round(min(max(of_arms, FEWEST_ROUNDS), MOST_ROUNDS))
        self._channel.send(block)

    def _count_links(self, case: str) -> None:
        """Launch kernel and base by turns, alone: what each sends. Nothing without counters."""
        sent: dict[str, list[tuple[float, ...]]] = {KERNEL: [], BASE: []}
        for turn in range(COUNT_TURNS):
            for arm, turns in sent.items():
                bodies = self._ask(Ask("block", case, self._draw(case, turn), (arm,) * COUNT_LAUNCHES))
                counts = [body["sent_bytes"] for body in bodies]
                if None in counts:
                    return
                turns.append(tuple(count / COUNT_LAUNCHES for count in counts))
        self._channel.send(LinksCounted(case, tuple(sent[KERNEL]), tuple(sent[BASE])))

    def _order(self, case: _Timed, index: int) -> Iterator[str]:
        """Arms launch by launch: in each round all of them in random order, the same on all ranks."""
        draw = random.Random(f"{self._task.seed}/{self._task.process}/{case.prepared.case}/{index}")
        duelled = [KERNEL, BASE] if case.duelled else [KERNEL]
        beside = [arm for arm in case.prepared.arms if arm not in {KERNEL, BASE}]
        for turn in range(case.rounds):
            is_first = not self._task.process and index < BESIDE_BLOCKS and turn < BESIDE_ROUNDS
            arms = [*duelled, *(beside if is_first else ())]
            yield from draw.sample(arms, len(arms))

    def _draw(self, case: str, index: object) -> int:
        return random.Random(f"{self._task.seed}/{self._task.process}/{case}/{index}").getrandbits(31)


def _find_failure(answers: Sequence[Answer]) -> Reason | None:
    return next((answer.failure for answer in answers if answer.failure), None)


def compare_clocks(stamps_ns: Sequence[Sequence[int]]) -> ClocksCompared:
    """How far each rank's clock is ahead of the first one's, by what all show behind the same barriers.

    >>> compare_clocks([[0, 1000, 2000], [5000, 6000, 7100]])
    ClocksCompared(offset_us=(0.0, 5.0), spread_us=(0.0, 0.05))
    """
    differences = [[(at - first) / 1e3 for at, first in zip(stamps, stamps_ns[0], strict=True)] for stamps in stamps_ns]
    quartiles = [statistics.quantiles(of_rank, n=4, method="inclusive") for of_rank in differences]
    offsets = tuple(middle for _, middle, _ in quartiles)
    return ClocksCompared(offsets, tuple(round((high - low) / 2, 6) for low, _, high in quartiles))
