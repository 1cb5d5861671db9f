"""Two workers, one a revision, that take each block together: for revisions that one process cannot hold apart.

They hand the device to each other after every round (`perfci.measure.baton`), so that both see the same clock: a block
later it may be another one by a tenth. The referee pairs their blocks up. No look before the final ones clears a duel.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from perfci.core.model import BaseArm, Block, Identity, PerformanceCase, Reason, because
from perfci.core.model.measured import BASE, KERNEL, Measured
from perfci.core.stages import OF_BASE
from perfci.measure.blocks import FIRST_BLOCKS
from perfci.ops.identity import DuelPlan
from perfci.statistics import duel_rule, exact
from perfci.worker.process import Running, Working, start_worker
from perfci.worker.protocol import Doing, Finished, Holding, Message, Prepared, Timing, Turn, TurnAsked
from perfci.worker.tasks import Measure, WorkerEnvironment

HEAD = "head"
OTHER = {HEAD: BASE, BASE: HEAD}

BEGIN = -1  # number of the base's turn that takes no block: it asks whether it may use the device


@dataclass(frozen=True)
class PairSide:
    """One worker of the pair."""

    task: Measure
    around: WorkerEnvironment


def working_in_turns(head: PairSide, base: PairSide, plan: DuelPlan, heard: Callable[[Message], None]) -> Working:
    """Run both to their end, and leave the waiting to the caller, as `working` does. Returns why head's failed.

    A base that fails leaves head's cases unpaired.
    """
    referee = Referee(head.task, plan, heard)
    with ExitStack() as stack:
        ends = [stack.enter_context(end) for end in socket.socketpair(type=socket.SOCK_SEQPACKET)]

        def start(side: PairSide) -> Running:
            with ends.pop() as end:  # the worker's from then on: it ends with the worker
                task = replace(side.task, baton=end.fileno())
                return stack.enter_context(start_worker(task, side.around, (end.fileno(),)))

        workers = {HEAD: start(head)}
        # A base that knows that there are no more turns is heard to its end, for why cases failed.
        while not (workers[HEAD].over and (BASE not in workers or workers[BASE].over or not referee.dismissed)):
            yield [worker for worker in workers.values() if not worker.over]
            for side, worker in workers.items():
                for message in worker.hear():
                    referee.hear(side, message)
                if worker.over:
                    referee.note_end(side, worker.failure)
            if referee.ready and BASE not in workers:
                workers[BASE] = start(base)
            for side, turn in referee.turns():
                workers[side].answer(turn)
        referee.close()
        return workers[HEAD].failure


@dataclass
class _Duel:
    """One case of both sides."""

    prepared: dict[str, PerformanceCase] = field(default_factory=dict)
    taken: dict[str, dict[int, Measured]] = field(default_factory=lambda: {HEAD: {}, BASE: {}})
    finished: dict[str, PerformanceCase] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)  # of both arms
    arm: BaseArm | None = None
    passed_on: bool = False  # head's facts were passed on

    @property
    def duelled(self) -> bool:
        """Whether base is still timed too."""
        return self.arm is not None and self.arm.duelled and self.arm.failure is None


class Referee:
    """Hears both workers, and decides which one has the turn."""

    def __init__(self, task: Measure, plan: DuelPlan, heard: Callable[[Message], None]) -> None:
        """`task`: head's."""
        self._task, self._plan, self._heard = task, plan, heard
        self._next = {HEAD: 0, BASE: BEGIN}  # number of the turn that a side waits for, or will
        self._waiting: set[str] = set()
        self._ended: dict[str, Reason | None] = {}
        self._duels: dict[str, _Duel] = {}
        self._turns: list[tuple[str, ...]] = []
        self._timers: dict[str, str | None] = {HEAD: None, BASE: None}
        self._short: tuple[str, ...] = ()  # cases that would have got further blocks, had there been time
        self.ready = False  # head holds the device
        self.dismissed = False  # base knows that there are no more turns

    def hear(self, side: str, message: Message) -> None:
        """Take a worker's message: cases and blocks are held until both sides have theirs, the rest is passed on."""
        match message:
            case TurnAsked():
                self._waiting.add(side)
            case Prepared(case):
                self._duels.setdefault(case.case, _Duel()).prepared[side] = case
            case Measured(name, block, _):
                duel = self._duels[name]
                duel.taken[side][block.index] = message
                head, base = (duel.taken[arm].get(block.index) for arm in (HEAD, BASE))
                if head and base:
                    merged = _merge(head, base)
                    duel.blocks.append(merged.block)
                    self._heard(merged)
                elif head and not duel.duelled:
                    self._heard(head)
            case Finished(case):
                self._duels[case.case].finished[side] = case
            case Timing(timer):
                self._timers[side] = timer
                if side == HEAD:
                    self._heard(message)
            case Holding():
                self.ready |= side == HEAD
            case Doing() as step:
                self._heard(replace(step, stage=f"{step.stage}{OF_BASE}") if side == BASE else step)
            case _ if side == HEAD:
                self._heard(message)

    def turns(self) -> Iterator[tuple[str, Turn]]:
        """Yields the turns that may be taken now, each once."""
        while side := next((side for side in sorted(self._waiting) if self._may_go(side)), None):
            self._waiting.remove(side)
            number = self._next[side]
            self._next[side] += 1
            cases = self._list_cases(side, number)
            yield side, Turn(number, cases, tuple(case for case in cases if self._duels[case].duelled))

    def note_end(self, side: str, failure: Reason | None) -> None:
        """Note that a side has ended, by itself or not. The duels that a base leaves open go on without it."""
        if side in self._ended:
            return
        self._ended[side] = failure
        self._waiting.discard(side)
        if side == BASE and failure and self._turns:
            for case in self._turns[-1]:
                duel = self._duels[case]
                whole = len(duel.blocks) == len(self._turns)
                if duel.duelled and not (whole and not self._wants(case, duel, len(self._turns))):
                    self._give_up(duel, because("base_died", failure, case=case))

    def close(self) -> None:
        """Pass on what was held: cases that were prepared, and how each ended."""
        for case, duel in self._duels.items():
            base = duel.finished.get(BASE)
            why = _blame_base(base, case) if base and base.failure else None
            if why and duel.arm and duel.arm.duelled:
                self._give_up(duel, why)
            if HEAD in duel.prepared and not duel.passed_on:
                self._pass_on(duel)
            if HEAD in duel.finished:
                head = replace(duel.finished[HEAD], base=duel.arm)
                if why and why.kind == "records_lost" and not head.failure:
                    head = replace(head, failure=why, raised=True)
                self._heard(Finished(head, case in self._short))

    def _may_go(self, side: str) -> bool:
        """Whether the other side is ready for the same turn, or has been given it."""
        number, other = self._next[side], OTHER[side]
        last = 0 <= number < len(self._turns) and not self._turns[number]
        if other in self._ended or last or (side == HEAD and self.dismissed):
            return True
        ready = other in self._waiting and self._next[other] == max(number, 0)
        return ready or (number != BEGIN and self._next[other] > number)

    def _list_cases(self, side: str, number: int) -> tuple[str, ...]:
        """Cases to take a block of. A base has none if it is not timed."""
        if number == BEGIN:
            return ()
        if number == 0 and not self._turns:
            # Both sides have prepared all cases.
            for case, duel in self._duels.items():
                if HEAD in duel.prepared:
                    duel.arm = self._compare(case, duel) if case in self._plan.cases else None
                    self._pass_on(duel)
        if number == len(self._turns):
            wanted = tuple(case for case, duel in self._duels.items() if self._wants(case, duel, number))
            if self._task.until_s is not None and time.time() >= self._task.until_s:
                self._short, wanted = wanted, ()
            self._turns.append(wanted)
        cases = self._turns[number]
        if side == BASE:
            cases = tuple(case for case in cases if self._duels[case].duelled)
            self.dismissed = self.dismissed or not cases
        return cases

    def _wants(self, case: str, duel: _Duel, number: int) -> bool:
        """Whether a case gets block `number`. One without a base gets a first look."""
        if HEAD not in duel.prepared or duel.prepared[HEAD].failure or len(duel.taken[HEAD]) < number:
            return False
        if duel.duelled and len(duel.taken[BASE]) < number:
            # The reason is known when it has ended.
            self._give_up(duel, Reason("worker_silent"))
        if duel.duelled:  # no look before the final ones could clear it
            return number < duel_rule.BLOCKS
        return number < FIRST_BLOCKS and not self._plan.skips(duel.arm)

    def _compare(self, case: str, duel: _Duel) -> BaseArm:
        """The base before timing: whether it is the same, and whether it is timed."""
        base, head, died = duel.prepared.get(BASE), duel.prepared[HEAD], self._ended.get(BASE)
        if base is None or died:
            return BaseArm(failure=because("base_died", died or Reason("worker_silent"), case=case))
        if base.failure:
            return BaseArm(failure=_blame_base(base, case))
        before, after = base.identity or Identity(), head.identity or Identity()
        if self._plan.by_identity and before.inputs != after.inputs and not head.failure:
            return BaseArm(failure=Reason("base_inputs_differ", {"case": case}))
        if self._timers[BASE] != self._timers[HEAD]:
            facts = {"timer": self._timers[HEAD], "base_timer": self._timers[BASE]}
            return BaseArm(failure=Reason("base_other_timer", {"case": case, **facts}))
        arm = self._plan.compare(case, before, after, base.peak_bytes)
        return replace(arm, turns=arm.duelled)

    def _give_up(self, duel: _Duel, why: Reason) -> None:
        """Time the base no more: head's blocks that wait for it are passed on as they are."""
        alone = [block for index, block in duel.taken[HEAD].items() if index not in duel.taken[BASE]]
        alone = alone if duel.duelled else []
        if duel.arm:
            duel.arm = replace(duel.arm, failure=why)
        for block in alone:
            self._heard(block)

    def _pass_on(self, duel: _Duel) -> None:
        duel.passed_on = True
        self._heard(Prepared(replace(duel.prepared[HEAD], base=duel.arm)))


def _blame_base(base: PerformanceCase, case: str) -> Reason:
    """The base's failure, as one that leaves head without a base."""
    why = base.failure or Reason("worker_silent")
    if why.kind == "records_lost":
        return why
    if why.kind == "nothing_launched":
        return Reason("base_idle", {"case": case})
    return Reason("base_raised", {**why.facts, "case": case}) if base.raised else because("base_wrong", why, case=case)


def _merge(head: Measured, base: Measured) -> Measured:
    """One block of both: the launches of each, the shift between them, and whatever disturbed either."""
    launches = {**head.launches_us, BASE: base.launches_us[BASE]}
    states = head.block.state, base.block.state
    foreign = [state.foreign_processes for state in states if state.foreign_processes is not None]
    state = replace(
        head.block.state,
        throttle=tuple(dict.fromkeys(reason for state in states for reason in state.throttle)),
        foreign_processes=max(foreign, default=None),
    )
    block = replace(
        head.block,
        arms={**head.block.arms, BASE: base.block.arms[BASE]},
        shifts={**head.block.shifts, f"{KERNEL}/{BASE}": exact.launch_shift(launches[KERNEL], launches[BASE])},
        state=state,
    )
    return Measured(head.case, block, launches)
