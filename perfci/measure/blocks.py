"""Blocks and sessions: what is launched in which order, and what its records become."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from perfci.core.errors import RecordsLostError
from perfci.core.model import ArmBlock, Block, DeviceState, Fact, Reason, is_peer, peer_arm
from perfci.device.seam import WARMING, Inputs, Launch, Session
from perfci.measure.bench import BASE, KERNEL, REFERENCE, Arm, Bench, Heard, Subject
from perfci.measure.inputs import bound_inputs
from perfci.measure.outputs import checked_output
from perfci.statistics import duel_rule, exact
from perfci.thresholds.limits import CaseThresholds

FIRST_BLOCKS = 8
"""Blocks of a case before its interval is looked at."""

MOST_BLOCKS = 24
"""Blocks of a case at most in one process."""

FEWEST_FOR_TARGET = 6
"""Blocks without which a speedup has no interval of 95 %."""

ENOUGH_WIDTH = 0.01
"""A case needs no more blocks once the interval of its kernel's time is narrower than this, log scale."""

SWEEPS_A_SESSION = 8
"""Blocks of every case in one profiler session: to stop one and to read its records costs some 30 ms."""

BLOCK_WARMUP = 3
"""Launches of each arm on a block's fresh buffers before the first timed one."""

RETAKES_ALONE = 2
"""How often a block whose records were lost is taken again in a session of its own, which has fewer to lose."""

FLUSH_US = 35.0
"""What a flush costs of the budget, and what a pause before a warm launch does; measured on an H200."""


@dataclass(frozen=True)
class Taken:
    """A block that waits for its session to end, when its times are known."""

    subject: Subject
    index: int
    started_s: float
    order: tuple[str, ...]
    state: DeviceState
    whole: bool
    """False where an arm raised on the way"""
    again: bool = False
    """that arm was a peer: the block is taken once more without it"""


def measure(bench: Bench, subjects: Sequence[Subject], heard: Heard) -> float:
    """Measure all subjects in turn, as far as time allows; gives the seconds in which the device was at work."""
    busy_s = 0.0
    while not bench.settings.late and (plan := _plan(bench, subjects)):
        busy_s += session(bench, plan, heard)
    return busy_s


def short(bench: Bench, subject: Subject) -> bool:
    """Whether the time was up before a case had its blocks; those that only a larger budget buys are no loss."""
    if not bench.settings.late or subject.broken or _skipped(bench, subject):
        return False
    return subject.begun < (_goal(bench, subject) if subject.duelled else FIRST_BLOCKS)


def _plan(bench: Bench, subjects: Sequence[Subject]) -> list[tuple[Subject, int]]:
    """The next session's blocks, sweep by sweep over all cases that want one, in random order."""
    goals = [(subject, _goal(bench, subject)) for subject in subjects]
    last = max((goal for _, goal in goals), default=0)
    sweeps = [[subject for subject, goal in goals if subject.begun <= index < goal] for index in range(last)]
    return [(subject, index) for index, due in enumerate(sweeps) for subject in bench.order.sample(due, len(due))]


def _goal(bench: Bench, subject: Subject) -> int:
    """Blocks that a case should have had after the next session; as many as it has where it is done."""
    count = subject.begun
    if subject.broken or _skipped(bench, subject):
        return count
    if subject.duelled:
        limits = bench.limits.get(subject.case, CaseThresholds())
        ratios = bool(subject.facts.peers)
        return duel_goal(subject.blocks, limits, bench.device.timer, bench.settings.process, ratios=ratios)
    if count < FIRST_BLOCKS:
        return FIRST_BLOCKS
    if bench.settings.process > 0 or subject.spent_s >= bench.settings.budget_s:
        return count
    interval = exact.location([math.log(block.arms[KERNEL].time.median_us) for block in subject.blocks])
    wide = interval.high - interval.low > ENOUGH_WIDTH
    return min(count + SWEEPS_A_SESSION, MOST_BLOCKS) if wide else count


def _skipped(bench: Bench, subject: Subject) -> bool:
    """Proven unchanged, and nobody asked for its time."""
    base = subject.facts.base
    unchanged = base is not None and base.same is True and not base.duelled
    return unchanged and bench.opponent is not None and bench.opponent.skip_unchanged


def duel_goal(
    blocks: Sequence[Block], limits: CaseThresholds, timer: str | None, process: int, *, ratios: bool = False
) -> int:
    """Blocks of both arms that a duel should have had by its next look; as many as it has where it is over.

    The first process stops at a look that clears the case, most at the first one; a later one was asked for all of its
    blocks. A speedup target has questions of its own, and puts the first look off, as peers do (`ratios`): what is told
    of them has an interval too.
    """
    first = FEWEST_FOR_TARGET if ratios or limits.speedup is not None else duel_rule.FIRST
    if process > 0:
        return duel_rule.BLOCKS
    if len(blocks) < first:
        return first
    shifts = [block.shifts[f"{KERNEL}/{BASE}"] for block in blocks]
    allowed = limits.allowed(statistics.median(block.arms[BASE].time.median_us for block in blocks), timer)
    cleared = duel_rule.early(shifts, allowed) is not duel_rule.Answer.OPEN
    return len(blocks) if cleared else max(len(blocks), duel_rule.SECOND)


def session(bench: Bench, plan: Sequence[tuple[Subject, int]], heard: Heard) -> float:
    """One session of the timer over blocks of subjects; gives the seconds in which the device was at work.

    Blocks whose records were lost are taken again: all in one session, then each in a session of its own. A case that
    loses one each time gets no more blocks.
    """
    busy_s, taken = _session(bench, plan, heard)
    if (lost := _lost(taken)) and not bench.settings.late:
        busy_s += _session(bench, lost, heard)[0]
    for subject, index in _lost(lost):
        block = [(subject, index)]
        for _ in range(RETAKES_ALONE):
            if _lost(block) and not bench.settings.late:
                busy_s += _session(bench, block, heard)[0]
        if _lost(block):
            subject.failure, subject.raised = Reason("records_lost", {"case": subject.case}), True
    return busy_s


def _lost(blocks: Sequence[tuple[Subject, int]]) -> list[tuple[Subject, int]]:
    """Those that were not kept, of cases that nothing else is wrong with."""
    return [
        (subject, index)
        for subject, index in blocks
        if not subject.failure and all(block.index != index for block in subject.blocks)
    ]


def _session(
    bench: Bench, plan: Sequence[tuple[Subject, int]], heard: Heard
) -> tuple[float, list[tuple[Subject, int]]]:
    """The seconds in which the device was at work, and the blocks in which no arm raised."""
    queued: list[Taken] = []
    busy_s = 0.0
    try:
        with bench.device.session() as opened:
            queued.extend(_queued(bench, opened, plan))
        launches = iter(opened.launches())
        for taken in queued:
            _read(bench, taken, launches, heard)
        busy_s = opened.busy_s()
    except RecordsLostError:
        pass  # which of the session's blocks the missing record belongs to cannot be told
    return busy_s, [(taken.subject, taken.index) for taken in queued if taken.whole]


def _queued(bench: Bench, session: Session, plan: Sequence[tuple[Subject, int]]) -> Iterator[Taken]:
    """The blocks of a session, in their order, until the time is up; one at least."""
    late = False
    for subject, index in plan:
        if not subject.failure and not late:
            taken = _block(bench, session, subject, index)
            yield taken
            while taken.again:
                taken = _block(bench, session, subject, index)
                yield taken
            late = bench.settings.late


def _block(bench: Bench, session: Session, subject: Subject, index: int) -> Taken:
    """Queue one block: fresh buffers, warm-up, rounds."""
    bench.step(subject.case)
    started_s = time.time() - bench.settings.run_started
    subject.begun = max(subject.begun, index + 1)
    launches = _Launches(session, warm=bench.suite.cache == "warm")
    try:
        _launch_all(bench, subject, index, launches)
    except Exception as error:
        _blame(bench, subject, launches.arm, error)
        session.pause()
        launches.whole = False
    again = not launches.whole and is_peer(launches.arm)
    return Taken(subject, index, started_s, tuple(launches.order), _state(bench), launches.whole, again)


class _Launches:
    """A block's launches: what was launched, and the arm under way."""

    def __init__(self, session: Session, *, warm: bool) -> None:
        self.session = session
        self.warm = warm
        """each timed call follows untimed ones of its own"""
        self.order: list[str] = []
        self.arm = REFERENCE
        """whose code runs; make_inputs is the reference's"""
        self.whole = True

    def untimed(self, arm: Arm) -> Any:
        """Call without timing; gives its result."""
        self.arm = arm.arm
        return arm()

    def time(self, arm: Arm) -> Any:
        """Time one call; gives its result."""
        self.arm = arm.arm
        output = self.session.launch(arm, warm=self.warm)
        self.order.append(arm.arm)
        return output


def _blame(bench: Bench, subject: Subject, arm: str, error: Exception) -> None:
    """A base that raises leaves its case without an opponent, a peer without itself; kernel and reference end it.

    Raises PeerLostError where a peer took the device with it.
    """
    base = subject.facts.base
    if is_peer(arm):
        name = next(name for name in subject.peers if peer_arm(name) == arm)
        subject.drop_peer(name, bench.peer_raised(subject.case, name, error))
    elif arm == BASE and base is not None:
        failed = replace(base, failure=bench.base_raised(subject.case, error))
        subject.facts = replace(subject.facts, base=failed)
    else:
        kind = "reference_raised" if arm == REFERENCE else "kernel_raised"
        subject.failure, subject.raised = bench.raised(subject.case, error, kind), True


def _state(bench: Bench) -> DeviceState:
    """The device's state; a process that takes turns with this one is no stranger."""
    state = bench.device.state()
    foreign = state.foreign_processes
    known = bench.settings.partners
    return replace(state, foreign_processes=max(foreign - known, 0)) if foreign and known else state


def _launch_all(bench: Bench, subject: Subject, index: int, launches: _Launches) -> None:
    """Warm up, then the rounds of one block; the output of one of them is verified where it is its turn."""
    seed = bench.seed(subject.case, index)
    padding = bench.device.pad(seed)
    inputs = bound_inputs(bench.suite, subject.params, bench.device.arrays.device, seed)
    arms = _arms(bench, subject, inputs)
    for arm in arms * BLOCK_WARMUP:
        launches.untimed(arm)
    kept: list[Any] = []
    kept_round = _verified_round(bench, subject, index)
    for turn in range(subject.rounds):
        if turn == kept_round:
            launches.session.aside()
            kept += _refilled(bench, subject, arms, seed, launches)
        for arm in bench.order.sample(arms, len(arms)):
            output = launches.time(arm)
            if turn == kept_round and arm.arm == KERNEL:
                kept.append(output)
            # Freed before the next launch, so that every launch draws its output from the same pool.
            del output
    launches.session.pause()
    if kept_round is not None and not bench.settings.as_base:
        launches.arm = REFERENCE
        _verify(bench, subject, inputs, kept)
    del padding


def _verify(bench: Bench, subject: Subject, inputs: Inputs, kept: Sequence[Any]) -> None:
    """Hold outputs against the reference: the first that is wrong ends the case, and all tell how exact it is."""
    for output in kept:
        seen = checked_output(bench.suite, bench.device.arrays, subject.params, inputs, output)
        subject.failure = subject.failure or seen.failure
        if seen.errors:
            subject.errors.append(seen.errors)


def _arms(bench: Bench, subject: Subject, inputs: Inputs) -> list[Arm]:
    """Kernel and base share the block's inputs: buffers of their own would bias one of them for a whole process."""
    if bench.settings.as_base:
        return [Arm(BASE, bench.suite.kernel, inputs)]
    arms = [Arm(KERNEL, bench.suite.kernel, inputs), Arm(REFERENCE, bench.suite.reference, inputs)]
    if subject.duelled and bench.opponent:
        arms.insert(bench.settings.process % 2, Arm(BASE, bench.opponent.kernel, inputs))
    return arms + [Arm(peer_arm(name), function, inputs) for name, function in subject.peers.items()]


def _refilled(bench: Bench, subject: Subject, arms: Sequence[Arm], seed: int, launches: _Launches) -> list[Any]:
    """Put other values into the same buffers, so that an answer remembered from a launch before is wrong.

    A timed warm call follows others on the same values: a kernel could do the work there, and hand its answer back when
    it is timed. So once more such calls are made, all untimed, and the values change before the last; gives its output.
    """
    under_test = next((arm for arm in arms if arm.arm == KERNEL), arms[0])
    fresh = bound_inputs(bench.suite, subject.params, bench.device.arrays.device, seed ^ 1)
    for _ in range(WARMING if launches.warm else 0):
        launches.untimed(under_test)
    bench.device.arrays.refill(under_test.inputs, fresh)
    del fresh
    return [launches.untimed(under_test)] if launches.warm else []


def _verified_round(bench: Bench, subject: Subject, index: int) -> int | None:
    """The round whose output is verified: the very first, one at random, and the last of every fourth block.

    It follows from the block's seed, so that a base in another process changes its values at the same place.
    """
    if index % duel_rule.FIRST == duel_rule.FIRST - 1:
        return subject.rounds - 1
    drawn = Random(bench.seed(subject.case, f"{index}/verified")).randrange(subject.rounds)
    return {0: 0, duel_rule.FIRST // 2: drawn}.get(index)


def _read(bench: Bench, taken: Taken, launches: Iterator[Launch], heard: Heard) -> None:
    """Keep a block, unless launches of an arm have no record though others have one."""
    by_arm: dict[str, list[Launch]] = {}
    for arm in taken.order:
        by_arm.setdefault(arm, []).append(next(launches))
    subject = taken.subject
    if not taken.whole:
        return
    _drop_idle_peers(bench, subject, by_arm)
    more, pause_us = (WARMING, FLUSH_US) if bench.suite.cache == "warm" else (0, 0.0)
    # What peers take comes on top of the budget: a case gets the blocks that it would have without them.
    counted = [launch for arm, many in by_arm.items() if not is_peer(arm) for launch in many]
    spent_us = ((1 + more) * launch.time_us + FLUSH_US + pause_us for launch in counted)
    subject.spent_s += sum(spent_us) / 1e6
    recorded = {arm: sum(launch.time_us > 0 for launch in many) for arm, many in by_arm.items()}
    for arm in (arm for arm, count in recorded.items() if not count):
        if any(arm in block.arms for block in subject.blocks):
            return
        if arm != BASE or subject.facts.base is None:
            subject.failure = Reason("nothing_launched", {"case": subject.case, "arm": arm})
            return
        base = replace(subject.facts.base, failure=Reason("base_idle", {"case": subject.case}))
        subject.facts = replace(subject.facts, base=base)
        del by_arm[BASE]
    if any(recorded[arm] < len(many) for arm, many in by_arm.items()):
        return
    if any(launch.elsewhere for launch in by_arm.get(KERNEL, ())):
        subject.suspect(Reason("other_stream", {"case": subject.case}))
    if fallen := next((launch.fell_back for launch in by_arm.get(KERNEL, ()) if launch.fell_back), None):
        subject.suspect(Reason("fell_back", {"case": subject.case, "operation": fallen}))
    factor = _planted(bench, subject, by_arm)
    times = {arm: _times(many, factor if arm == KERNEL else 1.0) for arm, many in by_arm.items()}
    block = Block(
        index=taken.index,
        process=bench.settings.process,
        started_s=round(taken.started_s, 3),
        arms={arm: _arm_block(times[arm], many) for arm, many in by_arm.items()},
        shifts=_shifts(times),
        state=taken.state,
    )
    subject.blocks.append(block)
    heard(subject.case, block, times)


def _drop_idle_peers(bench: Bench, subject: Subject, by_arm: dict[str, list[Launch]]) -> None:
    """A peer that did nothing on the device has no time; its block counts without it."""
    for name in list(subject.peers):
        many = by_arm.get(peer_arm(name), [])
        if not all(launch.time_us > 0 for launch in many):
            facts: dict[str, Fact] = {"op": bench.settings.op, "peer": name, "case": subject.case}
            subject.drop_peer(name, Reason("peer_idle", facts))
    timed = {peer_arm(name) for name in subject.peers}
    for arm in [arm for arm in by_arm if is_peer(arm) and arm not in timed]:
        del by_arm[arm]


def _planted(bench: Bench, subject: Subject, by_arm: Mapping[str, Sequence[Launch]]) -> float:
    """By what a self-check makes the kernel slower: so many times what is allowed at the base's length, exactly.

    The kernel is its own base in a self-check, so its length will do where the base runs in another process.
    """
    if not bench.settings.planted or KERNEL not in by_arm:
        return 1.0
    base_us = statistics.median(launch.time_us for launch in by_arm.get(BASE, by_arm[KERNEL]))
    limits = bench.limits.get(subject.case, CaseThresholds())
    return 1 + bench.settings.planted * limits.allowed(base_us, bench.device.timer)


def _times(launches: Sequence[Launch], factor: float) -> tuple[float, ...]:
    return tuple(launch.time_us * factor for launch in launches)


def _shifts(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Of the kernel against every other arm."""
    if KERNEL not in times:
        return {}
    others = [*(arm for arm in (REFERENCE, BASE) if arm in times), *filter(is_peer, times)]
    return {f"{KERNEL}/{other}": exact.launch_shift(times[KERNEL], times[other]) for other in others}


def _arm_block(times_us: Sequence[float], launches: Sequence[Launch]) -> ArmBlock:
    counts = [launch.activities for launch in launches if launch.activities is not None]
    modes = exact.modes(times_us)
    return ArmBlock(
        time=exact.summary(times_us),
        span_us=_median([launch.span_us for launch in launches]),
        host_us=_median([launch.host_us for launch in launches]),
        activities=max(counts, default=None),
        modes_us=modes if len(modes) > 1 else (),
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None
