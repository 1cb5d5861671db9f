"""Blocks and sessions: what is launched in which order, and what its records become."""

import functools
import math
import random
import secrets
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from perfci.core.errors import RecordsLostError
from perfci.core.model import ArmBlock, Block, DeviceState, Fact, Reason, choose_regime, is_peer, peer_arm
from perfci.core.model.measured import BASE, KERNEL, REFERENCE, Launch, Measured
from perfci.device.arrays import Inputs, leaves
from perfci.device.seam import WARMING, Session
from perfci.measure.baton import Baton
from perfci.measure.bench import Arm, Listener, Rig, Subject
from perfci.measure.host import is_compared, take_host_blocks, wants_host_block
from perfci.measure.inputs import call_fresh, flat, gather
from perfci.measure.outputs import wrong_output
from perfci.measure.power import is_held, measure_sustained
from perfci.statistics import duel_rule, exact, tail_rule
from perfci.thresholds.case import CaseThresholds

FIRST_BLOCKS = 8  # blocks of a case before its interval is looked at
MOST_BLOCKS = 24  # blocks of a case at most in one process
FEWEST_FOR_TARGET = 6  # blocks without which a speedup has no interval of 95 %

ENOUGH_WIDTH = 0.01
"""A case needs no more blocks once the interval of its kernel's time is narrower than this, log scale."""

SWEEPS_A_SESSION = 8
"""Blocks of every case in one profiler session: to stop one and to read its records costs some 30 ms."""

STAINED, STAINED_ROUNDS = 1, 3
"""Which of four blocks has rounds that leave no right answer in memory that is freed, and how many: in the others
values may change. More would cost more than a twentieth of the time."""

STAINS = 192, 320  # every how many elements, about, one is changed there: less than a program computes

BLOCK_WARMUP = 3  # launches of each arm on a block's fresh buffers before the first timed one

CLOCK_CALLS = 3  # calls in a row by the clock, behind the rounds of a process's first block of a case
CLOCK_US = 1000.0  # below it behind those of every block: a host that is disturbed only ever adds time

RETAKES_ALONE = 2
"""How often a block with records that were lost is taken again in a separate session, which has fewer to lose."""

FLUSH_US = 35.0  # What a flush costs of the budget, and what a pause before a warm launch does. Measured on an H200.
Plan = Sequence[tuple[Subject, int]]  # blocks to take, by case and index

# --- how many blocks --------------------------------------------------------------------------------------------------


def measure(bench: Rig, subjects: Sequence[Subject], heard: Listener) -> None:
    """Measure all subjects in turn, as far as time allows.

    Half of the first look's blocks come after the first ones of host time, so that it judges the whole of the process.
    """
    while not bench.late:
        goals = [(subject, _find_goal(bench, subject)) for subject in subjects]
        last = max((goal for _, goal in goals), default=0)
        begun = any(subject.begun for subject in subjects)
        if not begun and any(wants_host_block(bench, subject) for subject in subjects):
            last -= last // 2
        sweeps = [[subject for subject, goal in goals if subject.begun <= index < goal] for index in range(last)]
        plan = [(subject, index) for index, due in enumerate(sweeps) for subject in bench.order.sample(due, len(due))]
        if plan:
            take_blocks(bench, plan, heard)
        # Between sessions, since the op's process launches as well.
        if not take_host_blocks(bench, subjects) and not plan:
            break
    for subject in subjects:
        if subject.limited_us and subject.blocks and not subject.broken and not bench.late:
            inputs = bench.make_inputs(bench.suite_of(subject), subject.params, bench.draw_seed(subject.case, "alone"))
            arms = {arm.arm: arm for arm in _list_arms(bench, subject, inputs)}
            measure_sustained(bench, subject, arms, functools.partial(_blame, bench, subject))


NextTurn = Callable[[], tuple[int, Sequence[str], Sequence[str]]]
"""Returns a block's index, the cases to take it of, and those of which another process takes its meanwhile."""


def measure_in_turns(
    bench: Rig, subjects: Sequence[Subject], heard: Listener, next_turn: NextTurn, baton: Baton
) -> None:
    """Measure in turns with another process, until a turn has no cases."""
    while (turn := next_turn())[1]:
        index, cases, shared = turn
        chosen = [subject for subject in subjects if subject.case in cases]
        # The same order in both processes, of which one may have further cases.
        chosen.sort(key=lambda one: random.Random(f"{bench.seed}/{bench.process}/{index}/{one.case}").random())
        first = bench.comes_first(index)
        for subject in chosen:
            subject.baton = baton if baton.by_round and subject.case in shared else None
        if shared and not baton.by_round:
            baton.begin(1, first=first)
        if chosen:
            take_blocks(bench, [(subject, index) for subject in chosen], heard)
        if shared and not baton.by_round:
            baton.finish(first=first)


def is_short(bench: Rig, subject: Subject) -> bool:
    """Whether the time was up before a case had its blocks. Those that only a larger budget buys do not count."""
    if not bench.late or subject.broken:
        return False
    if is_compared(bench, subject) and wants_host_block(bench, subject):
        return True
    return not bench.skips(subject) and subject.begun < (
        _find_goal(bench, subject) if subject.duelled else FIRST_BLOCKS
    )


def find_duel_goal(
    blocks: Sequence[Block], limits: CaseThresholds, timer: str | None, process: int, *, ratios: bool = False
) -> int:
    """Returns the blocks of both arms that a duel should have by its next look, or as many as it has if it is over.

    A speedup target and peers (`ratios`) need an interval too, and put the first look off.
    """
    first = FEWEST_FOR_TARGET if ratios or limits.speedup is not None else duel_rule.FIRST
    if process > 0:
        return duel_rule.BLOCKS
    # Blocks at a clock that the power limit holds down are taken again, once.
    first = min(first + sum(block.held for block in blocks), 2 * first)
    if len(blocks) < first:
        return first
    blocks = choose_regime(blocks)
    shifts = [block.shifts[f"{KERNEL}/{BASE}"] for block in blocks]
    allowed = limits.allowed(statistics.median(block.arms[BASE].time.median_us for block in blocks), timer)
    tail = tail_rule.find_tail(blocks, seen := duel_rule.look([shifts], allowed))
    rulings = (duel_rule.early(shifts, allowed), tail_rule.answer(tail, seen) if tail else None)
    return duel_rule.next_early(len(blocks)) if duel_rule.Ruling.OPEN in rulings else len(blocks)


def _find_goal(bench: Rig, subject: Subject) -> int:
    """Blocks that a case should have after the next session, or as many as it has if it is done."""
    count = subject.begun
    if subject.broken or bench.skips(subject):
        return count
    if subject.duelled:
        limits = bench.limits.get(subject.case, CaseThresholds())
        ratios = bool(subject.facts.peers)
        return find_duel_goal(subject.blocks, limits, bench.device.timer, bench.process, ratios=ratios)
    if count < FIRST_BLOCKS:
        return FIRST_BLOCKS
    if bench.process > 0 or subject.spent_s >= bench.budget_s:
        return count
    interval = exact.location([math.log(block.arms[KERNEL].time.median_us) for block in subject.blocks])
    wide = interval.high - interval.low > ENOUGH_WIDTH
    return min(count + SWEEPS_A_SESSION, MOST_BLOCKS) if wide else count


# --- sessions ---------------------------------------------------------------------------------------------------------


def take_blocks(bench: Rig, plan: Plan, heard: Listener) -> None:
    """Take blocks in one session, and lost ones again."""
    if (lost := _list_lost(_run_session(bench, plan, heard))) and not bench.late:
        _run_session(bench, lost, heard)
    for subject, index in _list_lost(lost):
        block = [(subject, index)]
        for _ in range(RETAKES_ALONE):
            if _list_lost(block) and not bench.late:
                _run_session(bench, block, heard)
        if _list_lost(block):
            subject.failure, subject.raised = Reason("records_lost", {"case": subject.case}), True


def _list_lost(blocks: Plan) -> Plan:
    """Blocks that were not kept, of cases that nothing else is wrong with."""
    return [
        (subject, index)
        for subject, index in blocks
        if not subject.failure and all(block.index != index for block in subject.blocks)
    ]


@dataclass
class _QueuedBlock:
    """A block under way. Its times are known when its session has ended."""

    subject: Subject
    index: int
    started_s: float
    session: Session
    warm: bool  # each timed call follows untimed ones
    order: list[str] = field(default_factory=list)  # arms in the order of their timed launches
    arm: str = REFERENCE  # the one that runs, make_inputs being the reference's
    seed: int = 0  # of the values that its inputs hold
    renewed: Mapping[str, int] = field(default_factory=dict)
    """the first launch of kernel and reference for which they hold other values than before"""
    whole: bool = True  # False if an arm raised on the way
    state: DeviceState = field(default_factory=DeviceState)
    rest_us: float = 0.0  # before each launch


def _run_session(bench: Rig, plan: Plan, heard: Listener) -> Plan:
    """Returns the blocks in which no arm raised."""
    queued: list[_QueuedBlock] = []
    try:
        with bench.device.session() as session:
            # In their order, at least one, until the time is up.
            for subject, index in plan:
                if subject.broken or (queued and bench.late):
                    if baton := subject.take_baton():  # the other process waits for its part
                        baton.begin(1, first=bench.comes_first(index))
                        baton.leave()
                    continue
                queued.append(_queue_block(bench, session, subject, index))
                # If a peer raised, the block is taken once more without it.
                while not queued[-1].whole and is_peer(queued[-1].arm):
                    queued.append(_queue_block(bench, session, subject, index))
        launches = iter(session.launches())
        for block in queued:
            _read_block(bench, block, launches, heard)
    except RecordsLostError:
        pass  # which of the session's blocks the missing record belongs to is not known
    return [(block.subject, block.index) for block in queued if block.whole]


# --- one block --------------------------------------------------------------------------------------------------------


def _queue_block(bench: Rig, session: Session, subject: Subject, index: int) -> _QueuedBlock:
    """Queue one block: fresh buffers, warm-up, rounds."""
    bench.step(subject.case)
    started_s = time.monotonic() - bench.run_started
    subject.begun = max(subject.begun, index + 1)
    warm = bench.suite_of(subject).cache == "warm"
    block = _QueuedBlock(subject, index, started_s, session, warm, rest_us=subject.rest_us)
    first, baton = bench.comes_first(index), subject.take_baton()
    try:
        if baton:
            baton.begin(subject.rounds, first=first)
        _launch_all(bench, block, baton)
        if baton:
            bench.device.synchronize()
            baton.finish(first=first)
    except Exception as error:
        if baton:
            baton.leave()
        _blame(bench, subject, block.arm, error)
        session.pause()
        block.whole = False
    state = bench.device.state()
    if foreign := state.foreign_processes:
        # A process that takes turns with this one is not foreign.
        state = replace(state, foreign_processes=max(foreign - bench.partners(), 0))
    block.state = state
    return block


def _launch_all(bench: Rig, block: _QueuedBlock, baton: Baton | None) -> None:
    """Warm up, then the rounds of one block. The output of one round is verified, which is chosen after its launch."""

    def hand_over() -> None:
        if baton:
            bench.device.synchronize()
            baton.swap()
            block.subject.rounds = baton.rounds

    subject = block.subject
    suite, seed = bench.suite_of(subject), bench.draw_seed(subject.case, block.index)
    padding = bench.device.pad(seed)
    inputs, block.seed = bench.make_inputs(suite, subject.params, seed), seed
    arms = _list_arms(bench, subject, inputs)
    arrays, mutated = bench.device.arrays, {name: inputs[name] for name in suite.mutates or ()}
    given = arrays.copies(mutated)  # what every launch begins with
    stride = 1 if baton else subject.stride
    for turn in range(BLOCK_WARMUP):
        for arm in arms:
            if turn == 0 or stride == 1 or arm.arm != REFERENCE:
                block.arm = arm.arm
                output = arm()
                if turn == BLOCK_WARMUP - 1 and block.index % duel_rule.FIRST == STAINED:
                    _stain(bench, block, output, inputs)
                del output
    hand_over()
    renewed, stained = (
        choose(bench, subject, block.index) for choose in (_choose_renewed_round, _choose_stained_round)
    )
    # Every third first launch on other values is verified. Else one that returns anything could hide that it remembers.
    last = subject.rounds if renewed is None or secrets.randbelow(3) else renewed
    kept, candidates, untimed = None, 0, list[Any]()
    for turn in range(subject.rounds):
        if turn == renewed:
            block.session.aside()
            untimed, candidates = _refill(bench, block, arms, seed), 0
            if mutated:
                untimed, given = [], arrays.copies(mutated)
        candidates += 1
        launched = arms if turn % stride == 0 or turn == renewed else [arm for arm in arms if arm.arm != REFERENCE]
        for arm in bench.order.sample(launched, len(launched)):
            block.arm = arm.arm
            if mutated:
                block.session.aside()
                arrays.refill(mutated, given)
            output = block.session.launch(arm, warm=block.warm, rest_us=subject.rest_us)
            block.order.append(arm.arm)
            # Each round since the values changed is equally likely to be the one, and no kernel can know which it is.
            chosen = turn == stained if stained is not None else turn <= last and secrets.randbelow(candidates) == 0
            if arm.arm == KERNEL and chosen:
                kept = output
                if mutated:
                    block.session.aside()
                    kept = list(arrays.copies(dict(enumerate(gather(output, inputs, [*mutated])))).values())
            if stained is not None and stained - STAINED_ROUNDS < turn <= stained:
                _stain(bench, block, output, [inputs, *flat(kept)])
            # Freed before the next launch, so that every launch draws its output from the same pool.
            del output
        hand_over()
    block.session.pause()
    if bench.as_base:
        return
    if block.index == 0 or subject.wall_us < CLOCK_US:
        block.arm, calls = KERNEL, Arm(KERNEL, suite.kernel, inputs)
        subject.wall_us = min(subject.wall_us, 1e6 * bench.device.window_s(calls, CLOCK_CALLS) / CLOCK_CALLS)
    block.arm = REFERENCE
    arrays.refill(mutated, given)
    if renewed is not None:  # to make the inputs again for every block would cost more than it could show
        subject.failure = subject.failure or _find_changed(bench, block, inputs)
    _verify_outputs(bench, block, inputs, (*untimed, kept))
    del padding


def _verify_outputs(bench: Rig, block: _QueuedBlock, inputs: Inputs, outputs: Sequence[Any]) -> None:
    """Compare a block's outputs with the reference's. The first that is wrong ends the case."""
    subject, suite, arrays = block.subject, bench.suite_of(block.subject), bench.device.arrays
    # To look at all errors of a large output takes longer than its launches. Whether it is right is always looked at.
    errors = None if block.index else subject.errors
    right: Sequence[Any] = ()
    if bench.base and subject.duelled and errors is None:  # what the base answers counts as right: it is the judge's
        block.arm = BASE
        right = call_fresh(bench.base.kernel, inputs, arrays, suite.mutates or ())
        block.arm = REFERENCE
    for output in outputs:
        failure = wrong_output(suite, arrays, subject.params, inputs, output, errors, subject.dtypes, right)
        subject.failure = subject.failure or failure


def _stain(bench: Rig, block: _QueuedBlock, output: Any, held: Any) -> None:
    """Change a few elements of an output that goes.

    Else a launch could find the right answer in the memory that it is given next, of this arm or another, and skip its
    work. Code on a device knows neither which elements are changed nor which launch is verified.
    held: what stays as it is, such as the inputs.
    """
    arrays, step = bench.device.arrays, STAINS[0] + secrets.randbelow(STAINS[1] - STAINS[0])
    block.session.aside()
    for array in filter(arrays.is_array, flat(output)):
        if not any(arrays.overlap(array, other) for other in filter(arrays.is_array, leaves(held))):
            size = math.prod(arrays.facts(array).shape)
            arrays.stain(array, secrets.randbelow(min(step, max(size, 1))), step)


def _list_arms(bench: Rig, subject: Subject, inputs: Inputs) -> list[Arm]:
    """Kernel and base share the block's inputs. Separate buffers would bias one of them for a whole process."""
    suite = bench.suite_of(subject)
    if bench.as_base:  # with the reference, so that the base is as often as head the first after a change of process
        return [Arm(BASE, suite.kernel, inputs), Arm(REFERENCE, suite.reference, inputs)]
    arms = [Arm(KERNEL, suite.kernel, inputs), Arm(REFERENCE, suite.reference, inputs)]
    if subject.duelled and bench.base:
        arms.insert(bench.process % 2, Arm(BASE, bench.base.kernel, inputs))
    return arms + [Arm(peer_arm(name), function, inputs) for name, function in subject.peers.items()]


def _choose_renewed_round(bench: Rig, subject: Subject, index: int) -> int | None:
    """Returns the round before which values change, by the block's seed, so that a base in another process agrees."""
    if index % duel_rule.FIRST == duel_rule.FIRST - 1:
        return subject.rounds - 1
    drawn = random.Random(bench.draw_seed(subject.case, f"{index}/renewed")).randrange(subject.rounds)
    return {0: 0, duel_rule.FIRST // 2: drawn}.get(index)


def _choose_stained_round(bench: Rig, subject: Subject, index: int) -> int | None:
    """Returns the last round with stained memory: its output is verified. By the block's seed too."""
    drawn = random.Random(bench.draw_seed(subject.case, f"{index}/stained")).randrange(subject.rounds)
    return drawn if index % duel_rule.FIRST == STAINED else None


def _refill(bench: Rig, block: _QueuedBlock, arms: Sequence[Arm], seed: int) -> list[Any]:
    """Put other values into the same buffers, so that an answer remembered from a launch before is wrong.

    If the cache is warm, a kernel could do the work in the untimed calls. So the values change before the last of them.
    """
    under_test = next((arm for arm in arms if arm.arm == KERNEL), arms[0])
    block.arm = REFERENCE
    fresh = bench.make_inputs(bench.suite_of(block.subject), block.subject.params, seed ^ 1)
    block.arm = under_test.arm
    for _ in range(WARMING if block.warm else 0):
        under_test()
    if bench.device.arrays.refill(under_test.inputs, fresh):
        block.seed, block.renewed = seed ^ 1, {arm: block.order.count(arm) for arm in (KERNEL, REFERENCE)}
    del fresh
    return [under_test()] if block.warm else []


def _find_changed(bench: Rig, block: _QueuedBlock, inputs: Inputs) -> Reason | None:
    """Inputs that the launches have changed. None if `make_inputs` gives other values for the same seed."""
    subject, arrays = block.subject, bench.device.arrays

    def differ(left: Inputs, right: Inputs) -> list[str]:
        return [
            name for name, value in left.items() if arrays.is_array(value) and not arrays.same_bits(value, right[name])
        ]

    def make() -> Inputs:
        return bench.make_inputs(bench.suite_of(subject), subject.params, block.seed)

    made = make()
    changed = differ(inputs, made)
    if not changed or differ(made, make()):
        return None
    return Reason("input_changed", {"case": subject.case, "inputs": ", ".join(changed)})


def _blame(bench: Rig, subject: Subject, arm: str, error: Exception) -> None:
    """Leave the case without its base or peer if that raised. Kernel and reference end it."""
    if is_peer(arm):
        name = next(name for name in subject.peers if peer_arm(name) == arm)
        subject.drop_peer(name, bench.explain_peer(subject.case, name, error))
    elif arm == BASE and subject.facts.base is not None:
        subject.drop_base(bench.explain(subject.case, error, "base_raised"))
    else:
        kind = "reference_raised" if arm == REFERENCE else "kernel_raised"
        subject.failure, subject.raised = bench.explain(subject.case, error, kind), True


# --- what its launches took -------------------------------------------------------------------------------------------


def _read_block(bench: Rig, queued: _QueuedBlock, launches: Iterator[Launch], heard: Listener) -> None:
    """Keep a block, unless launches of an arm have no record though others have one."""
    by_arm: dict[str, list[Launch]] = {}
    for arm in queued.order:
        by_arm.setdefault(arm, []).append(next(launches))
    subject = queued.subject
    if not queued.whole:
        return
    _drop_idle_peers(bench, subject, by_arm)
    more, pause_us = (WARMING, FLUSH_US) if queued.warm else (0, 0.0)
    # What peers take comes on top of the budget: a case gets the blocks that it would have without them.
    counted = [launch for arm, many in by_arm.items() if not is_peer(arm) for launch in many]
    beside_us = FLUSH_US + pause_us + queued.rest_us
    subject.spent_s += sum((1 + more) * launch.time_us + beside_us for launch in counted) / 1e6
    recorded = {arm: sum(launch.time_us > 0 for launch in many) for arm, many in by_arm.items()}
    for arm in (arm for arm, count in recorded.items() if not count):
        if any(arm in block.arms for block in subject.blocks):
            return
        if arm != BASE or subject.facts.base is None:
            subject.failure = Reason("nothing_launched", {"case": subject.case, "arm": arm})
            return
        subject.drop_base(Reason("base_idle", {"case": subject.case}))
        del by_arm[BASE]
    if any(recorded[arm] < len(many) for arm, many in by_arm.items()):
        return
    if any(launch.elsewhere for launch in by_arm.get(KERNEL, ())):
        subject.suspect(Reason("other_stream", {"case": subject.case}))
    if fallen := next((launch.fell_back for launch in by_arm.get(KERNEL, ()) if launch.fell_back), None):
        subject.suspect(Reason("fell_back", {"case": subject.case, "operation": fallen}))
    factor = 1.0
    if bench.planted and KERNEL in by_arm:
        # The kernel is its base in a self-check, so its length will do if the base runs in another process.
        base_us = statistics.median(launch.time_us for launch in by_arm.get(BASE, by_arm[KERNEL]))
        limits = bench.limits.get(subject.case, CaseThresholds())
        factor = 1 + bench.planted * limits.allowed(base_us, bench.device.timer)
    times = {
        arm: tuple(launch.time_us * (factor if arm == KERNEL else 1.0) for launch in many)
        for arm, many in by_arm.items()
    }
    if queued.renewed and not queued.warm and KERNEL in times:
        extra = [math.log(times[arm][at] / statistics.median(times[arm])) for arm, at in queued.renewed.items()]
        subject.renewals.append(extra[0] - extra[1])
    others = [*(arm for arm in (REFERENCE, BASE) if arm in times), *filter(is_peer, times)] if KERNEL in times else []
    launched = [launch for many in by_arm.values() for launch in many]
    clocks = [launch.clock_mhz for launch in launched if launch.clock_mhz is not None]
    clock_mhz = statistics.fmean(clocks) if clocks else None
    block = Block(
        index=queued.index,
        process=bench.process,
        started_s=round(queued.started_s, 3),
        arms={arm: _summarise_arm(times[arm], many) for arm, many in by_arm.items()},
        shifts={f"{KERNEL}/{other}": exact.launch_shift(times[KERNEL], times[other]) for other in others},
        state=queued.state,
        clock_mhz=clock_mhz,
        held=is_held(bench, subject, launched, clock_mhz, queued.rest_us),
    )
    subject.blocks.append(block)
    if bench.repeated:
        block = replace(block, arms={arm: replace(seen, host_us=None) for arm, seen in block.arms.items()})
    heard(Measured(subject.case, block, times))


def _drop_idle_peers(bench: Rig, subject: Subject, by_arm: dict[str, list[Launch]]) -> None:
    """A peer that did nothing on the device has no time. Its block counts without it."""
    for name in list(subject.peers):
        many = by_arm.get(peer_arm(name), [])
        if not all(launch.time_us > 0 for launch in many):
            facts: dict[str, Fact] = {"op": bench.op, "peer": name, "case": subject.case}
            subject.drop_peer(name, Reason("peer_idle", facts))
    timed = {peer_arm(name) for name in subject.peers}
    for arm in [arm for arm in by_arm if is_peer(arm) and arm not in timed]:
        del by_arm[arm]


def _summarise_arm(times_us: Sequence[float], launches: Sequence[Launch]) -> ArmBlock:
    counts = [launch.activities for launch in launches if launch.activities is not None]
    spans = [launch.span_us for launch in launches if launch.span_us is not None]
    hosts = [launch.host_us for launch in launches if launch.host_us is not None]
    modes = exact.modes(times_us)
    return ArmBlock(
        time=exact.summary(times_us),
        span_us=statistics.median(spans) if spans else None,
        host_us=statistics.median(hosts) if hosts else None,
        activities=max(counts, default=None),
        modes_us=modes if len(modes) > 1 else (),
    )
