"""Two workers, one a revision, that take turns block by block: for revisions that one process cannot hold apart.

Block 0 is taken by head and then by base, block 1 by base and then by head, and so on (ABBA), so that a drift of the
device meets both alike. The base is let onto the device only when head has it and has prepared its cases. The referee
pairs their blocks up, and ends a case's duel as soon as a look clears it.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from perfci.core.model import BaseArm, Block, DeviceState, DuelWhat, Identity, PerformanceCase, Reason
from perfci.core.wording import caused
from perfci.measure.bench import BASE, KERNEL
from perfci.measure.blocks import FIRST_BLOCKS, duel_goal
from perfci.ops import identity
from perfci.statistics import exact
from perfci.thresholds.limits import CaseThresholds
from perfci.worker.parent import Running, WorkerEnvironment, Working, finished, started
from perfci.worker.protocol import Finished, Job, Measured, Message, Prepared, Ready, Step, Turn, TurnAsked

HEAD = "head"
OTHER = {HEAD: BASE, BASE: HEAD}

BEGIN = -1
"""Number of the base's turn that takes no block: it asks whether it may use the device."""


@dataclass(frozen=True)
class Side:
    """One worker of the pair."""

    job: Job
    around: WorkerEnvironment


@dataclass(frozen=True)
class Rules:
    """What is duelled, and for how long."""

    cases: tuple[str, ...]
    """cases that both revisions have"""
    duel: DuelWhat
    process: int
    limits: Mapping[str, CaseThresholds]
    by_identity: bool
    """False where the two run with different toolchains, so that the same identity would prove nothing"""
    audit: tuple[str, ...] = ()
    skip_unchanged: bool = True
    """what is unchanged and not duelled is not timed at all"""
    until_s: float | None = None
    """when no further turn is given, seconds since the epoch"""
    ratios: bool = False
    """peers are timed too, and every case gets the blocks that an interval takes"""


def run_pair(head: Side, base: Side, rules: Rules, heard: Callable[[Message], None]) -> Reason | None:
    """Run both to their ends; gives why head's failed as a whole. A base that fails leaves head's cases unpaired.

    Whatever interrupts this call kills both workers first. Both live no longer than it.
    """
    return finished(pairing(head, base, rules, heard))


def pairing(head: Side, base: Side, rules: Rules, heard: Callable[[Message], None]) -> Working:
    """As `run_pair`, but leaves the waiting to whoever goes on with it; both workers are killed where it is closed."""
    referee = Referee(rules, heard)
    with ExitStack() as stack:
        workers = {HEAD: stack.enter_context(started(head.job, head.around))}
        while not _over(workers, referee):
            yield tuple(workers.values())
            for side, worker in workers.items():
                _hear(side, worker, referee)
            if referee.ready and BASE not in workers:
                workers[BASE] = stack.enter_context(started(base.job, base.around))
            for side, turn in referee.turns():
                workers[side].tell(turn)
        referee.close()
        return workers[HEAD].failure


def _hear(side: str, worker: Running, referee: Referee) -> None:
    for message in worker.hear():
        referee.hear(side, message)
    if worker.over:
        referee.gone(side, worker.failure)


def _over(workers: Mapping[str, Running], referee: Referee) -> bool:
    """Head is done; a base that was told that there are no more turns is heard to its end, for why cases failed."""
    base = workers.get(BASE)
    return workers[HEAD].over and (base is None or base.over or not referee.dismissed)


@dataclass
class _Duel:
    """One case of both sides."""

    met: dict[str, PerformanceCase] = field(default_factory=dict)
    taken: dict[str, dict[int, Measured]] = field(default_factory=lambda: {HEAD: {}, BASE: {}})
    finished: dict[str, PerformanceCase] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    """of both arms"""
    arm: BaseArm | None = None
    told: bool = False
    """head's facts were passed on"""

    @property
    def duelled(self) -> bool:
        """Whether base is timed too, still."""
        return self.arm is not None and self.arm.duelled and self.arm.failure is None


class Referee:
    """Hears both workers; says whose turn it is."""

    def __init__(self, rules: Rules, heard: Callable[[Message], None]) -> None:
        self._rules = rules
        self._heard = heard
        self._next = {HEAD: 0, BASE: BEGIN}
        """number of the turn that a side waits for, or will"""
        self._waiting: set[str] = set()
        self._gone: dict[str, Reason | None] = {}
        self._duels: dict[str, _Duel] = {}
        self._turns: list[tuple[str, ...]] = []
        self._timers: dict[str, str | None] = {HEAD: None, BASE: None}
        self._short: frozenset[str] = frozenset()
        """cases that would have got further blocks, had there been time"""
        self.ready = False
        """head holds the device"""
        self.dismissed = False
        """base was told that there are no more turns"""

    def hear(self, side: str, message: Message) -> None:
        """Take what a worker says: cases and blocks are held until both sides have theirs, the rest is passed on."""
        match message:
            case TurnAsked():
                self._waiting.add(side)
            case Prepared(case):
                self._duels.setdefault(case.case, _Duel()).met[side] = case
            case Measured(name, block, _):
                self._duels[name].taken[side][block.index] = message
                self._pair_up(self._duels[name], block.index)
            case Finished(case):
                self._duels[case.case].finished[side] = case
            case Ready(_, timer):
                self._timers[side] = timer or self._timers[side]
                if side == HEAD:
                    self.ready = True
                    self._heard(message)
            case Step() as step:
                where = f"{step.stage} of the base" if side == BASE else step.stage
                self._heard(dataclasses.replace(step, stage=where))
            case _ if side == HEAD:
                self._heard(message)

    def turns(self) -> Iterator[tuple[str, Turn]]:
        """Turns that are to be taken now, each given once."""
        while side := next((side for side in sorted(self._waiting) if self._may_go(side)), None):
            self._waiting.remove(side)
            number = self._next[side]
            self._next[side] += 1
            yield side, Turn(number, self._cases(side, number))

    def gone(self, side: str, failure: Reason | None) -> None:
        """A side has ended, by itself or not. The duels that a base leaves open go on without it."""
        if side in self._gone:
            return
        self._gone[side] = failure
        self._waiting.discard(side)
        if side == BASE and failure and self._turns:
            for case in self._turns[-1]:
                duel = self._duels[case]
                whole = len(duel.blocks) == len(self._turns)
                if duel.duelled and not (whole and not self._wants(case, duel, len(self._turns))):
                    self._give_up(duel, caused("base_died", failure, case=case))

    def close(self) -> None:
        """Tell what was held: cases that were prepared, and how each ended."""
        for case, duel in self._duels.items():
            why = self._lost(case, duel)
            if why and duel.arm and duel.arm.duelled:
                self._give_up(duel, why)
            if HEAD in duel.met and not duel.told:
                self._tell(duel)
            if HEAD in duel.finished:
                finished = dataclasses.replace(duel.finished[HEAD], base=duel.arm)
                if why and why.kind == "records_lost" and not finished.failure:
                    finished = dataclasses.replace(finished, failure=why, raised=True)
                self._heard(Finished(finished, case in self._short))

    # --- whose turn it is ---------------------------------------------------------------------------------------------

    def _may_go(self, side: str) -> bool:
        """Whether the other has taken its block where it comes first in this turn, and both all blocks before."""
        number, other = self._next[side], OTHER[side]
        if other in self._gone or self._is_last(number) or (side == HEAD and self.dismissed):
            return True
        reached = self._next[other] if other in self._waiting else BEGIN - 1
        if number == BEGIN:
            return reached >= 0
        goes_first = (side == HEAD) == ((number + self._rules.process) % 2 == 0)
        return reached == (number if goes_first else number + 1)

    def _is_last(self, number: int) -> bool:
        return 0 <= number < len(self._turns) and not self._turns[number]

    def _cases(self, side: str, number: int) -> tuple[str, ...]:
        """Cases to take a block of; a base has none where it is not timed."""
        if number == BEGIN:
            return ()
        if number == len(self._turns):
            self._turns.append(self._decided(number))
        cases = self._turns[number]
        if side == BASE:
            cases = tuple(case for case in cases if self._duels[case].duelled)
            self.dismissed = self.dismissed or not cases
        return cases

    def _decided(self, number: int) -> tuple[str, ...]:
        """What the next turn is about; before the first one both sides have prepared all cases."""
        if number == 0:
            for case, duel in self._duels.items():
                if HEAD in duel.met:
                    duel.arm = self._arm(case, duel) if case in self._rules.cases else None
                    self._tell(duel)
        wanted = tuple(case for case, duel in self._duels.items() if self._wants(case, duel, number))
        if wanted and self._rules.until_s is not None and time.time() >= self._rules.until_s:
            self._short = frozenset(wanted)
            return ()
        return wanted

    def _wants(self, case: str, duel: _Duel, number: int) -> bool:
        """Whether a case gets block `number`; one without an opponent gets a first look."""
        if HEAD not in duel.met or duel.met[HEAD].failure or len(duel.taken[HEAD]) < number:
            return False
        if duel.duelled and len(duel.taken[BASE]) < number:
            # Why is known when it has ended.
            self._give_up(duel, Reason("worker_silent"))
        if duel.duelled:
            limits = self._rules.limits.get(case, CaseThresholds())
            timer, ratios = self._timers[HEAD], self._rules.ratios
            return number < duel_goal(duel.blocks, limits, timer, self._rules.process, ratios=ratios)
        skipped = duel.arm is not None and duel.arm.same is True and self._rules.skip_unchanged
        return number < FIRST_BLOCKS and not skipped

    # --- head against base --------------------------------------------------------------------------------------------

    def _arm(self, case: str, duel: _Duel) -> BaseArm:
        base = duel.met.get(BASE)
        died = self._gone.get(BASE)
        if base is None or died:
            return BaseArm(failure=caused("base_died", died or Reason("worker_silent"), case=case))
        before, after = base.identity or Identity(), duel.met[HEAD].identity or Identity()
        if base.failure:
            return BaseArm(failure=_of_base(base, case))
        if self._rules.by_identity and before.inputs != after.inputs and not duel.met[HEAD].failure:
            return BaseArm(failure=Reason("base_inputs_differ", {"case": case}))
        if self._timers[BASE] != self._timers[HEAD]:
            facts = {"timer": self._timers[HEAD], "base_timer": self._timers[BASE]}
            return BaseArm(failure=Reason("base_other_timer", {"case": case, **facts}))
        same = identity.same(before, after) if self._rules.by_identity else None
        changes = identity.changes(before, after) if self._rules.by_identity else (Reason("toolchain_differs"),)
        wanted = same is not True or self._rules.duel is DuelWhat.ALL or case in self._rules.audit
        return BaseArm(
            identity=None if same else before,
            same=same,
            changes=() if same else changes,
            duelled=wanted and self._rules.duel is not DuelWhat.NONE,
            peak_bytes=base.peak_bytes,
        )

    def _pair_up(self, duel: _Duel, index: int) -> None:
        """Pass a block on as soon as both sides have taken it; at once where there is no opponent."""
        head, base = duel.taken[HEAD].get(index), duel.taken[BASE].get(index)
        if head and base:
            merged = _merged(head, base)
            duel.blocks.append(merged.block)
            self._heard(merged)
        elif head and not duel.duelled:
            self._heard(head)

    def _give_up(self, duel: _Duel, why: Reason) -> None:
        """The base is timed no more: head's blocks that wait for it are told as they are."""
        left = _unpaired(duel) if duel.duelled else []
        if duel.arm:
            duel.arm = dataclasses.replace(duel.arm, failure=why)
        for block in left:
            self._heard(block)

    def _lost(self, case: str, duel: _Duel) -> Reason | None:
        """Why the base's kernel was timed to no end, as it said itself."""
        base = duel.finished.get(BASE)
        return _of_base(base, case) if base and base.failure else None

    def _tell(self, duel: _Duel) -> None:
        duel.told = True
        self._heard(Prepared(dataclasses.replace(duel.met[HEAD], base=duel.arm)))


def _of_base(base: PerformanceCase, case: str) -> Reason:
    """The base's failure, as one that leaves head without an opponent."""
    why = base.failure or Reason("worker_silent")
    if why.kind == "records_lost":
        return why
    if why.kind == "nothing_launched":
        return Reason("base_idle", {"case": case})
    return Reason("base_raised", {**why.facts, "case": case}) if base.raised else caused("base_wrong", why, case=case)


def _unpaired(duel: _Duel) -> list[Measured]:
    return [block for index, block in duel.taken[HEAD].items() if index not in duel.taken[BASE]]


def _merged(head: Measured, base: Measured) -> Measured:
    """One block of both: the launches of each, and the shift between them."""
    launches = {**head.launches_us, **base.launches_us}
    shift = exact.launch_shift(launches[KERNEL], launches[BASE])
    block = dataclasses.replace(
        head.block,
        arms={**head.block.arms, BASE: base.block.arms[BASE]},
        shifts={**head.block.shifts, f"{KERNEL}/{BASE}": shift},
        state=_worse(head.block.state, base.block.state),
    )
    return Measured(head.case, block, launches)


def _worse(head: DeviceState, base: DeviceState) -> DeviceState:
    """Head's readings, with whatever held the device down or disturbed it while either side was timed."""
    foreign = [state.foreign_processes for state in (head, base) if state.foreign_processes is not None]
    return dataclasses.replace(
        head,
        throttle=tuple(dict.fromkeys((*head.throttle, *base.throttle))),
        foreign_processes=max(foreign, default=None),
    )
