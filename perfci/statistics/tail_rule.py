"""The tail, which the median of launches does not see: few launches, blocks or processes that take far longer.

In a block of an unchanged kernel each arm could have been the other. So the logarithm of the ratio of the arms' means
is as likely above 0 as below, whatever its size, and so is that of their 90th percentiles. Blocks in which it is small
say nothing and are left out. Of the others Wilcoxon's signed-rank test asks whether the kernel is slower: given the
sizes, its null distribution is exact (Hollander, Wolfe, Chicken 2014, 3.1). The slow-down that the duel itself found is
taken out first. That shifts against the alarm.

A kernel has a tail if its mean costs more than tau beyond that, in as many processes as must agree in a duel. So it has
if the whole mean costs more than tau, which the same test asks of all blocks, and half of tau is beyond the duel's
slow-down: what the duel and the tail allow must not add up. LEVEL is of each test, not of a family: TAIL warns.
docs/how-good-is-perfci.md holds how often it errs (benchmarks/tails.py, benchmarks/clearing.py).

A mean within tau clears a case, if nothing hints at more. Where launches fall into levels, whose shares no median sees,
twice tau must also lie beyond what the noise of the mean leaves possible.
"""

import math
import statistics
from collections.abc import Sequence

import numpy as np

from perfci.core.model import BASE, DUEL, KERNEL, ArmBlock, Block, Look, Tail
from perfci.statistics import duel_rule, exact
from perfci.statistics.duel_rule import Ruling

LEVEL = 0.001
"""p of each test at either of the two last looks, of which an unchanged kernel has six."""

HINT = 0.25  # p up to which a fresh process is worth its time: two blocks at least, and all of them slower
DOUBT = 0.005  # the same of the first two tests when all blocks are spent
CLEAR = 0.75  # a mean that costs up to so many tau is no hint after the first process
PART = 0.5  # least part of tau by which a tail goes beyond the duel's slow-down
HALF = 0.5  # share of blocks with launches in levels, from which on no median shows what a kernel costs


def find_tail(blocks: Sequence[Block], seen: Look) -> Tail | None:
    """Sum up what the duel `seen` does not, of its blocks. None if they do not hold their slowest launches."""
    arms = [(block.arms[KERNEL], block.arms[BASE]) for block in blocks]
    high = [(kernel.time.p90_us, base.time.p90_us) for kernel, base in arms]
    means = [kernel.time.mean_us / base.time.mean_us for kernel, base in arms]
    p90s = [kernel / base for kernel, base in high if kernel and base]
    if len(p90s) < len(blocks):
        return None
    shift = max(seen.shift.value, 0.0)
    tested = []
    for ratios, least in ((means, seen.tau), (p90s, 2 * seen.tau)):
        beyond = [excess for excess in (math.log(ratio) - shift for ratio in ratios) if abs(excess) > least]
        tested.append(exact.signed_rank_p(beyond) if beyond else 1.0)
    by_process: dict[int, list[float]] = {}
    for block, mean in zip(blocks, means, strict=True):
        by_process.setdefault(block.process, []).append(mean)
    processes = [by_process[process] for process in sorted(by_process)]
    return Tail(
        statistics.fmean(means) - 1, tuple(statistics.fmean(process) - math.exp(shift) for process in processes),
        statistics.median(p90s) - 1, min(tested),
        *_count_slow(arms, shift, seen.tau), *_find_levels(blocks, seen.tau),
        p_mean=exact.signed_rank_p(np.log(means), seen.tau), reach=duel_rule.find_reach(processes),
        split=statistics.fmean(len(kernel.modes_us) > 1 for kernel, _ in arms),
    )  # fmt: skip


def answer(tail: Tail, seen: Look) -> Ruling:
    """Whether a kernel has a tail. OPEN: more blocks would decide. Only the last two looks of a duel give SLOWER."""
    tau, spent = math.expm1(seen.tau), seen.processes >= duel_rule.PROCESSES
    whole = np.array(seen.sizes) >= duel_rule.WHOLE
    beyond, cost = np.array(tail.costs), statistics.fmean(tail.costs, weights=seen.sizes)
    if np.count_nonzero(whole) >= min(duel_rule.FINAL):
        shift = math.expm1(max(seen.shift.value, 0.0))
        tests = ((tail.p, tau, beyond), (tail.p_mean, PART * tau, beyond + shift))
        if any(p <= LEVEL and cost > least and duel_rule.agree(costs, tau, whole) for p, least, costs in tests):
            return Ruling.SLOWER
    hinted = seen.blocks < duel_rule.BLOCKS or tail.p <= (DOUBT if spent else HINT) or tail.p_mean <= HINT
    allowed = CLEAR if seen.blocks <= duel_rule.BLOCKS else 1.0
    doubted = hinted and cost > PART * tau and tail.mean > allowed * tau
    unseen = tail.split >= HALF and tail.mean + tail.reach >= duel_rule.PROMISE * tau
    if not doubted and not unseen:
        return Ruling.CLEARED
    return Ruling.UNDECIDED if spent else Ruling.OPEN


def _count_slow(arms: Sequence[tuple[ArmBlock, ArmBlock]], shift: float, tau: float) -> tuple[float, float, float]:
    """Shares of the kernel's and the base's launches that are slow, and how many times the base's median those take."""
    usual = sorted(us / base.time.median_us for _, base in arms for us in base.time.slowest_us)
    launches = sum(base.time.launches for _, base in arms)
    limit = usual[max(-1 - launches // 100, -len(usual))] * math.exp(shift + 2 * tau)
    beyond = [us / base.time.median_us for kernel, base in arms for us in kernel.time.slowest_us]
    slow = [ratio for ratio in beyond if ratio > limit]
    count = 0.0
    for kernel, base in arms:
        time, least = kernel.time, limit * base.time.median_us
        # Where all launches that are stored are slow, the quantiles show how many others are at least.
        levels = ((time.p75_us, 0.25), (time.median_us, 0.5), (time.p25_us, 0.75), (time.min_us, 1.0))
        stored = sum(us > least for us in time.slowest_us)
        count += max([stored, *(part * time.launches for us, part in levels if us > least)])
    base_count = sum(ratio > limit for ratio in usual)
    total = sum(kernel.time.launches for kernel, _ in arms)
    return count / total, base_count / launches, statistics.median(slow) if slow else 1.0


def _find_levels(blocks: Sequence[Block], tau: float) -> tuple[float, int, int]:
    """By how much some blocks are slower than the others, if by more than twice tau, these, and whole processes."""
    if len(blocks) < exact.LEAST_FOR_LEVELS:
        return 0.0, 0, 0
    shifts = [block.shifts[DUEL] for block in blocks]
    usual = statistics.median(block.arms[BASE].time.median_us for block in blocks)
    levels = [math.log(us / usual) for us in exact.modes(usual * np.exp(shifts))]
    if len(levels) < 2 or levels[-1] - levels[-2] <= 2 * tau:
        return 0.0, 0, 0
    limit = (levels[-1] + levels[-2]) / 2
    slow = [shift > limit for shift in shifts]
    rest = statistics.median(shift for shift, is_slow in zip(shifts, slow, strict=True) if not is_slow)
    sides = {(block.process, is_slow) for block, is_slow in zip(blocks, slow, strict=True)}
    whole = len({process for process, _ in sides}) == len(sides)
    slower = sum(is_slow for _, is_slow in sides) if whole else 0
    return math.expm1(levels[-1] - rest), sum(slow), slower
