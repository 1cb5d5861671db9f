"""Host time: how long a call keeps the host, and what a loop of calls takes, of cases with a short device time.

A turn is so many calls in a row of one arm, timed from outside, in the op's process if it has one. In a block of
host time the arms take turns in random order. Nothing is flushed, and nothing compiles or is called for the first time.
"""

import functools
import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace

from perfci.core.errors import HandoverError
from perfci.core.model import HostArm, HostBlock, because
from perfci.core.model.measured import BASE, KERNEL
from perfci.measure.bench import Arm, MakeCalls, Rig, Subject
from perfci.statistics import duel_rule
from perfci.thresholds.case import CaseThresholds

LIMIT_US = 100.0  # device time from which on the host's is hidden behind it
NEAR = 1.2  # times the limit: a later process looks at what the first one looked at

TURNS = 6  # of each arm in a block. What disturbs a host only ever adds time, so the shortest counts
HOST_US, LOOP_US = 700.0, 2000.0  # a turn should take so long until its calls have returned, and at most so long in all
MOST_LAUNCHES = 512  # in a turn: a device's queue holds 1,024, and beyond that a call waits for the device
UNKNOWN_LAUNCHES = 8  # a call queues, at a guess, if it could not be captured
ATTEMPTS = 3  # at a block with turns that have enough calls
WARMING = 3  # calls of an arm before its first turn of a block
EMPTY_TURNS = 3  # without calls. The shortest is what asking another process takes
LEAST_US = 1e-3  # of a call: noise must not make it nothing


def take_host_blocks(bench: Rig, subjects: Sequence[Subject]) -> bool:
    """Take a block of host time of every case that wants one, as far as time allows. Returns whether any did."""
    wanting = [subject for subject in subjects if wants_host_block(bench, subject)]
    for subject in wanting:
        if not bench.late:
            bench.step(subject.case)
            _take_block(bench, subject)
            if not subject.blocks and subject.host and not may_show(bench, subject):
                subject.host, subject.hidden = [], True
    return bool(wanting)


def may_show(bench: Rig, subject: Subject) -> bool:
    """Whether a case's host time may show beside its device time."""
    limit_us = LIMIT_US * (NEAR if bench.process else 1.0)
    timed = [block.arms[arm] for block in subject.blocks for arm in (KERNEL, BASE) if arm in block.arms]
    if timed:
        return min(arm.time.median_us for arm in timed) < limit_us
    if subject.host:  # it was not timed. Calls that are bound by the host hide how long the device takes
        seen = subject.host[-1].arms[KERNEL]
        return seen.loop_us < limit_us or seen.host_us > seen.loop_us / 2
    return subject.wall_us < limit_us * (10 if bench.skips(subject) else 3)


def is_compared(bench: Rig, subject: Subject) -> bool:
    """Whether a case's host time is compared with its base's. That of the same files is not."""
    base = subject.facts.base
    duels = bench.base is not None and bench.base.differs and bench.base.plan.duels
    return duels and base is not None and base.failure is None and subject.facts.unhosted is None


def wants_host_block(bench: Rig, subject: Subject) -> bool:
    """Whether a case lacks blocks of host time: those of a duel's looks, or the first ones to show what there is."""
    compared, count = is_compared(bench, subject), len(subject.host)
    if subject.broken or subject.hidden or not may_show(bench, subject):
        return False
    if bench.process:
        return compared and count < duel_rule.BLOCKS
    if not compared or count < duel_rule.FIRST:
        return count < duel_rule.FIRST
    if count not in duel_rule.EARLY:  # on the way to the next look
        return count < duel_rule.BLOCKS
    limits = bench.limits.get(subject.case, CaseThresholds())
    tau = limits.allowed_host(statistics.median(block.arms[BASE].host_us for block in subject.host))
    ruling = duel_rule.early([block.shift or 0.0 for block in subject.host], tau)
    return ruling is duel_rule.Ruling.OPEN and count < duel_rule.BLOCKS


def _take_block(bench: Rig, subject: Subject) -> None:
    """Take one block. A kernel that raises ends the case, a base the comparison with it."""
    suite, index = bench.suite_of(subject), len(subject.host)
    seed, running = bench.draw_seed(subject.case, f"host {index}"), KERNEL
    order, turns, empty = random.Random(seed), dict[str, MakeCalls](), {}
    functions = {KERNEL: suite.kernel}
    if bench.base and is_compared(bench, subject):
        # As on the device: the arm that is called first changes from process to process.
        base_first = bench.process % 2 == 1
        functions = {BASE: bench.base.kernel, **functions} if base_first else {**functions, BASE: bench.base.kernel}
    try:
        inputs = bench.make_inputs(suite, subject.params, seed)
        for running, function in functions.items():
            open_calls = bench.callers.get(running)
            here = functools.partial(bench.device.turn_s, Arm(running, function, inputs))
            turn = turns[running] = open_calls(inputs) if open_calls else here
            turn(WARMING)
            empty[running] = [min(seconds) for seconds in zip(*(turn(0) for _ in range(EMPTY_TURNS)), strict=True)]
        for _ in range(ATTEMPTS):
            calls, times = subject.turn_calls, dict[str, list[tuple[float, ...]]]()
            for running in (arm for _ in range(TURNS) for arm in order.sample([*turns], len(turns))):
                took = zip(turns[running](calls), empty[running], strict=True)
                us = tuple(max(1e6 * (seconds - least) / calls, LEAST_US) for seconds, least in took)
                times.setdefault(running, []).append(us)
            arms = {arm: HostArm(*map(min, zip(*many, strict=True))) for arm, many in times.items()}
            subject.turn_calls = min(_count_calls(subject, arm) for arm in arms.values())
            if calls >= subject.turn_calls / 2:
                break
    except HandoverError as error:  # the arm's process is lost
        if running != BASE:
            raise
        subject.facts = replace(subject.facts, unhosted=because("unhosted", error.reason, case=subject.case))
    except Exception as error:
        why = bench.explain(subject.case, error, "base_raised" if running == BASE else "kernel_raised")
        if running == BASE:
            subject.facts = replace(subject.facts, unhosted=because("unhosted", why, case=subject.case))
        else:
            subject.failure, subject.raised = why, True
    else:
        shift = math.log(arms[KERNEL].host_us / arms[BASE].host_us) if BASE in arms else None
        subject.host.append(HostBlock(index, bench.process, calls, arms, shift))


def _count_calls(subject: Subject, arm: HostArm) -> int:
    """Calls that a turn should have."""
    identity = subject.facts.identity
    launches = UNKNOWN_LAUNCHES if identity is None or identity.unknown else max(len(identity.operations), 1)
    return max(round(min(HOST_US / arm.host_us, LOOP_US / arm.loop_us, MOST_LAUNCHES / launches)), 1)
