"""Kernels at the power limit: which reach it, how they are timed at the free clock, and what they sustain.

Two arms that take turns at the limit share one lowered clock, which hides most of a difference. So the device does
light work before each launch, just long enough for the clock to stay up. What a user's loop gets at the limit is
another question: each arm has the device to itself then, in turns long enough for clock and power to settle.
"""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence

from perfci.core.model import SustainedTurn, choose_regime
from perfci.core.model.measured import BASE, KERNEL, REFERENCE, Launch
from perfci.measure.bench import Arm, Rig, Subject
from perfci.statistics import duel_rule
from perfci.thresholds.case import CaseThresholds

HELD = 0.97  # share of the free clock below which a board is held down by its power limit
LEAST_US = 20.0  # shorter launches leave too much idle time between them to reach the limit
PROBE_S = 0.12  # of load before the clock is read: an H200's limit acts after 30 to 80 ms

REST = 2.4
"""Rest by launch time, for each part by which the free clock exceeds the held one. Matmuls that make an H200's clock
fall to 1,410 and 1,470 of 1,980 MHz need rests of 0.5 to 1 times their time."""

MORE_REST, MOST_REST = 1.5, 3.0  # factor by which rests grow if the clock falls all the same, and their limit by launch
MARK_US = 5.0  # shortest rest: long enough to show the clock within 1 %
WAITED = 0.25  # of the time the host has to wait for the device, or its hiccups would be the kernel's
RESTED = 0.02  # below it the host is slower, so that the device rests between launches anyway
TURN_S = 0.3  # of an arm alone, the second half of which counts


def find_rest(bench: Rig, subject: Subject, call: Arm) -> None:
    """Find out whether a kernel reaches the power limit alone, and how long the device rests before launches."""
    free, device = bench.device.free_mhz, bench.device
    if free is None or subject.wall_us < LEAST_US or subject.broken or bench.skips(subject):
        return
    subject.rest_us = MARK_US
    if device.sustain(call, PROBE_S / 8).waited < RESTED:
        return
    alone = device.sustain(call, PROBE_S)
    if alone.clock_mhz and alone.clock_mhz < HELD * free:
        subject.limited_us = alone.us if alone.waited > WAITED else None
        subject.rest_us = max(REST * (free / alone.clock_mhz - 1) * subject.wall_us, MARK_US)


def is_held(bench: Rig, subject: Subject, launches: Sequence[Launch], clock_mhz: float | None, rest_us: float) -> bool:
    """Whether the limit held the clock down in a block with these rests. If so, those that follow have longer ones."""
    held = clock_mhz is not None and bench.device.free_mhz is not None and clock_mhz < HELD * bench.device.free_mhz
    if held:
        mean_us = statistics.fmean(launch.time_us for launch in launches)
        longer_us = min(max(MORE_REST * rest_us, 0.5 * mean_us), MOST_REST * mean_us)
        subject.rest_us = max(subject.rest_us, longer_us)
    return held


def measure_sustained(
    bench: Rig, subject: Subject, arms: Mapping[str, Arm], blame: Callable[[str, Exception], None]
) -> None:
    """Give each arm turns alone, in the order A B B A. Pairs follow one another, as the duel of sustained speed has it.

    blame: called with the arm that raised, and what.
    """

    def take_turns(*names: str) -> bool:
        for name in names:
            if bench.late or subject.broken or name not in arms:
                return False
            bench.step(subject.case)
            try:
                figures = bench.device.sustain(arms[name], TURN_S)
            except Exception as error:
                blame(name, error)
                return False
            turn = SustainedTurn(name, bench.process, figures.us, figures.clock_mhz, figures.joules)
            subject.sustained.append(turn)
        return True

    base = subject.facts.base
    if base and base.same:
        return
    # The first turn of all brings the board to the temperature and power that the others have. It does not count.
    if not take_turns(REFERENCE):
        return
    subject.sustained.clear()
    if not take_turns(REFERENCE, *(() if subject.duelled else (KERNEL,))) or not subject.duelled:
        return
    limits = bench.limits.get(subject.case, CaseThresholds())
    goal = duel_rule.FIRST if not bench.process else duel_rule.WHOLE
    shifts = list[float]()
    while len(shifts) < goal:
        if not take_turns(*((BASE, KERNEL) if (len(shifts) + bench.process) % 2 else (KERNEL, BASE))):
            return
        pair = {turn.arm: turn.us for turn in subject.sustained[-2:]}
        shifts.append(math.log(pair[KERNEL] / pair[BASE]))
        if len(shifts) == goal and not bench.process:
            tau = limits.allowed(pair[BASE], bench.device.timer)
            cleared = duel_rule.early(shifts, tau) is duel_rule.Ruling.CLEARED
            goal = goal if cleared or not _is_cleared(bench, subject, limits) else duel_rule.next_early(goal)


def _is_cleared(bench: Rig, subject: Subject, limits: CaseThresholds) -> bool:
    """Whether the free clock's duel shows no loss: if it does, the sustained speed decides nothing."""
    blocks = [block for block in choose_regime(subject.blocks) if f"{KERNEL}/{BASE}" in block.shifts]
    if not blocks:
        return False
    tau = limits.allowed(blocks[0].arms[BASE].time.median_us, bench.device.timer)
    return duel_rule.early([block.shifts[f"{KERNEL}/{BASE}"] for block in blocks], tau) is not duel_rule.Ruling.OPEN
