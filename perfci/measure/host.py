"""Host time: how long a call keeps the host, and what a loop of calls takes, of cases whose device time is short.

A turn is so many calls in a row of one arm, timed from outside, in the op's own process if it has one. In a block of
host time the arms take turns in random order. Nothing is flushed, and nothing compiles or is called for the first time.
"""

from __future__ import annotations

import functools
import random
import statistics
from collections.abc import Sequence
from contextlib import ExitStack

from perfci.core.model import DuelWhat, HostArm, HostBlock
from perfci.core.wording import because
from perfci.measure.bench import BASE, KERNEL, Arm, BaseLostError, MakeCalls, Rig, Subject
from perfci.statistics import duel_rule, exact
from perfci.thresholds.limits import CaseThresholds

LIMIT_US = 100.0  # device time from which on the host's is hidden behind it

NEAR = 1.2  # times the limit: a later process looks at what the first one looked at

TURNS = 4  # of each arm in a block
HOST_S, LOOP_S = 0.7e-3, 2e-3  # a turn should take so long until its calls have returned, and at most so long in all
MOST_LAUNCHES = 512  # in a turn: a device's queue holds 1,024, and beyond that a call waits for the device
UNKNOWN_LAUNCHES = 8  # a call queues, at a guess, if it could not be captured
ENOUGH = 0.2  # share of a turn's time from which on it can be told how many calls it should have
WARMING = 3  # calls of an arm before its first turn of a block
EMPTY_TURNS = 3  # without calls. The shortest is what asking another process takes
LEAST_US = 1e-3  # of a call: noise must not make it nothing


def take_host_blocks(bench: Rig, subjects: Sequence[Subject]) -> bool:
    """Take a block of host time of every case that wants one, as far as time allows. Returns whether any did."""
    wanting = [subject for subject in subjects if _wants_block(bench, subject)]
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
    known = bench.base is not None and bench.base.differs and bench.base.plan.duel is not DuelWhat.NONE
    return known and base is not None and base.failure is None and subject.facts.unhosted is None


def _wants_block(bench: Rig, subject: Subject) -> bool:
    count, compared = len(subject.host), is_compared(bench, subject)
    if (
        subject.broken
        or bench.as_base
        or subject.hidden
        or not may_show(bench, subject)
        or (bench.process and not compared)
    ):
        return False
    if bench.process or count < duel_rule.FIRST or not compared:
        return count < (duel_rule.BLOCKS if bench.process else duel_rule.FIRST)
    both = [block for block in subject.host if block.shift is not None]
    limits = bench.limits.get(subject.case, CaseThresholds())
    tau = limits.allowed_host(statistics.median(block.arms[BASE].host_us for block in both))
    cleared = duel_rule.early([block.shift or 0.0 for block in both], tau) is duel_rule.Ruling.CLEARED
    return not cleared and count < duel_rule.SECOND


def _take_block(bench: Rig, subject: Subject) -> None:
    """Take one block. A kernel that raises ends the case, a base the comparison with it."""
    suite, index = bench.suite_of(subject), len(subject.host)
    seed, running = bench.draw_seed(subject.case, f"host {index}"), KERNEL
    order, times = random.Random(seed), dict[str, list[tuple[float, float]]]()
    try:
        functions = {KERNEL: suite.kernel}
        if bench.base and is_compared(bench, subject):
            functions[BASE] = bench.base.kernel
        inputs = bench.make_inputs(suite, subject.params, seed)
        with ExitStack() as stack:
            turns, empty = dict[str, MakeCalls](), {}
            for running, function in functions.items():
                open_calls = bench.callers.get(running)
                here = functools.partial(bench.device.turn_s, Arm(running, function, inputs))
                turn = turns[running] = stack.enter_context(open_calls(inputs)) if open_calls else here
                turn(WARMING)
                empty[running] = [min(each) for each in zip(*(turn(0) for _ in range(EMPTY_TURNS)), strict=True)]
                if not subject.host:
                    found = _choose_calls(turn, empty[running], MOST_LAUNCHES // _count_launches(subject))
                    subject.turn_calls = min(found, subject.turn_calls or found)
            calls = subject.turn_calls
            for running in (arm for _ in range(TURNS) for arm in order.sample([*turns], len(turns))):
                took = zip(turns[running](calls), empty[running], strict=True)
                host_us, loop_us = (max(1e6 * (each - least) / calls, LEAST_US) for each, least in took)
                times.setdefault(running, []).append((host_us, loop_us))
    except BaseLostError as error:
        subject.end_comparison(because("unhosted", error.reason, case=subject.case))
    except Exception as error:
        if running == BASE:
            why = bench.explain(subject.case, error, "base_raised")
            subject.end_comparison(because("unhosted", why, case=subject.case))
        else:
            subject.failure, subject.raised = bench.explain(subject.case, error), True
    else:
        arms = {arm: HostArm(*map(statistics.median, zip(*each, strict=True))) for arm, each in times.items()}
        hosts = [[host_us for host_us, _ in times[arm]] for arm in (KERNEL, BASE) if arm in times]
        shift = exact.launch_shift(*hosts) if len(hosts) > 1 else None
        subject.host.append(HostBlock(index, bench.process, calls, arms, shift))


def _choose_calls(turn: MakeCalls, empty: Sequence[float], most: int) -> int:
    """How many calls a turn should have: more and more are made until they take a good part of its time."""
    calls = 1
    while True:
        took = map(min, turn(calls), turn(calls))  # of two, as a hiccup would leave too few calls
        host_s, loop_s = (max(each - least, 1e-9) for each, least in zip(took, empty, strict=True))
        share = max(host_s / HOST_S, loop_s / LOOP_S)
        if share > ENOUGH or calls >= most:
            return max(min(round(calls / share), most), 1)
        calls = min(4 * calls, most)


def _count_launches(subject: Subject) -> int:
    """What a call queues, at a guess if it could not be captured."""
    identity = subject.facts.identity
    return UNKNOWN_LAUNCHES if identity is None or identity.unknown else max(len(identity.operations), 1)
