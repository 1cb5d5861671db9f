"""Compares every performance case of a run with its base and its stored baseline: numbers only, no verdicts.

A block is an observation. A duel is its shifts between kernel and base (`duel_rule`). A screen tests each process's
y = log t_kernel - beta (log t_reference - its baseline mean), which corrects for the clock, against the baseline's y.
"""

from __future__ import annotations

import functools
import itertools
import math
import statistics
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from perfci.core.environment import REFERENCE_PACKAGES, differences
from perfci.core.model.baseline import Baseline, BaselineBlock, BaselineCase
from perfci.core.model.basics import Interval, Reason, Suite
from perfci.core.model.decision import Comparison, PeerFigure, Screen, SustainedFigure
from perfci.core.model.measured import (
    BASE,
    DUEL,
    KERNEL,
    REFERENCE,
    SPEEDUP,
    Block,
    HostArm,
    HostBlock,
    PerformanceCase,
    Summary,
    by_process,
    choose_regime,
    find_median,
    peer_arm,
)
from perfci.core.model.place import Difference, Environment, board_key
from perfci.core.model.run import PlannedOp, Run
from perfci.statistics import board_spread, duel_rule, exact, tail_rule
from perfci.statistics.exact import Floats
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import Thresholds

Key = tuple[str, str]  # op and case

RANGE = (0.05, 0.95)  # quantiles of the baseline's reference blocks between which the run shares its thermal regime

NEAR = 0.01
"""How far beyond that range, as a ratio, the reference may lie in the same regime: boards of a model differ by this."""

LARGEST_REGIME = math.log(1980 / 1470)
"""Largest thermal effect seen, log: an H200's free clock to its lowest at the power cap. For replaced references."""


def compare(
    run: Run, baselines: Mapping[str, Baseline], thresholds: Thresholds, ops: Container[str] | None = None
) -> Iterator[Comparison]:
    """One comparison a performance case of the plan and the baselines (by op). ops: those to compare, None for all."""
    if Suite.PERFORMANCE in run.plan.suites:
        for op in run.plan.ops:
            if ops is None or op.op in ops:
                yield from _compare_op(run, op, baselines.get(op.op), thresholds)


def _compare_op(run: Run, op: PlannedOp, baseline: Baseline | None, thresholds: Thresholds) -> Iterator[Comparison]:
    measured = {case.case: case for outcome in run.ops if outcome.op == op.op for case in outcome.performance}
    stored = {case.case: case for case in baseline.cases if case.blocks} if baseline else {}

    @functools.cache
    def differing(runs: frozenset[str]) -> tuple[Difference, ...]:
        """Differences from these runs. Nothing for a baseline of another device model."""
        if baseline is None or baseline.device != run.environment.device.key:
            return ()
        return differences([run.environment for run in baseline.runs if run.id in runs], run.environment)

    for case in dict.fromkeys((*op.performance, *measured, *stored)):
        timed, accepted = measured.get(case), stored.get(case)
        # The blocks that count are those in which both arms were timed.
        both = [block for block in timed.blocks if {KERNEL, REFERENCE} <= block.arms.keys()] if timed else []
        blocks = tuple(choose_regime(both))
        limits = thresholds.for_case(op.op, case)
        base = _describe(op.op, case, timed, blocks, accepted)
        if accepted and blocks:
            base = replace(base, differs=differing(frozenset(block.run for block in accepted.blocks)))
        apart = bool(timed and timed.base and timed.base.turns)
        base = _duel(base, blocks, limits, run.environment.timer, apart=apart)
        if timed and timed.sustained:
            base = _compare_sustained(base, timed, limits, run.environment.timer)
        if timed and timed.host:
            base = _duel_host(base, timed.host, limits)
        if timed is None or baseline is None or not blocks:
            yield base
        elif stale := _find_stale(run, op, timed, baseline, accepted):
            yield replace(base, stale=stale)
        elif accepted is None:
            yield base
        else:
            intensity = (timed.flops or 0) / (timed.bytes_moved or math.inf)
            yield _screen_case(base, blocks, accepted.blocks, run.environment, baseline, limits, intensity)


def _describe(
    op: str, case: str, timed: PerformanceCase | None, blocks: Sequence[Block], stored: BaselineCase | None
) -> Comparison:
    """Figures that need no test: medians, and the speedup over the blocks of all processes and looks."""
    before = stored.blocks if stored else ()
    peers = [(peer, peer_arm(peer.name)) for peer in timed.peers] if timed and blocks else []
    return Comparison(
        op=op, case=case, known=stored is not None, measured=bool(blocks), speedup=_speedup(blocks, SPEEDUP),
        kernel_us=_median_us(blocks, KERNEL), reference_us=_median_us(blocks, REFERENCE),
        baseline_us=find_median(block.kernel_us for block in before),
        clock_mhz=find_median(block.clock_mhz for block in blocks),
        activities=find_median(block.arms[KERNEL].activities for block in blocks),
        baseline_activities=find_median(block.activities for block in before),
        peers=tuple(
            PeerFigure(peer.name, _median_us(blocks, arm), _speedup(blocks, f"{KERNEL}/{arm}"), peer.failure)
            for peer, arm in peers
        ),
    )  # fmt: skip


def _speedup(blocks: Sequence[Block], pair: str) -> Interval | None:
    return find_speedup([block.shifts[pair] for block in blocks if pair in block.shifts])


def find_speedup(shifts: Sequence[float]) -> Interval | None:
    """The other arm's time / the kernel's, from the blocks' shifts of kernel/other: the ends change places."""
    if not shifts:
        return None
    d = exact.location(shifts)
    return Interval(math.exp(-d.value), math.exp(-d.high), math.exp(-d.low), d.confidence)


def _median_us(blocks: Sequence[Block], arm: str) -> float | None:
    return find_median(block.arms[arm].time.median_us for block in blocks if arm in block.arms)


def list_medians_again(blocks: Sequence[Block], quantities: Sequence[float | None]) -> list[float]:
    """Returns the median of a quantity in each fresh process. quantities: one a block, None if it does not have it."""
    medians = {process: find_median(values) for process, values in by_process(blocks, quantities).items()}
    return [median for process, median in medians.items() if process > 0 and median is not None]


def _duel(
    seen: Comparison, blocks: Sequence[Block], limits: CaseThresholds, timer: str | None, *, apart: bool
) -> Comparison:
    """The duels of kernel and base over the blocks with both: of time, and of spans if a launch is several kernels."""
    both = [block for block in blocks if DUEL in block.shifts]
    base_us = _median_us(both, BASE)
    if base_us is None:
        return seen
    shifts = by_process(both, [block.shifts[DUEL] for block in both])
    duel, duel_span = duel_rule.look(list(shifts.values()), limits.allowed(base_us, timer)), None
    duel = replace(duel, apart=True) if apart else duel
    arms = [(block.arms[KERNEL], block.arms[BASE]) for block in both]
    spans = [(kernel.span_us or 0.0, base.span_us or 0.0) for kernel, base in arms]
    if all(map(all, spans)) and any(arm.activities != 1 for pair in arms for arm in pair):
        tau = max(limits.span_margin, limits.span_floor_us / statistics.median(base for _, base in spans))
        shifts = by_process(both, [math.log(kernel / base) for kernel, base in spans])
        duel_span = replace(duel_rule.look(list(shifts.values()), tau), apart=apart)
    return replace(seen, duel=duel, duel_span=duel_span, tail=tail_rule.find_tail(both, duel), base_us=base_us)


def _compare_sustained(
    seen: Comparison, case: PerformanceCase, limits: CaseThresholds, timer: str | None
) -> Comparison:
    """Arms alone on the device, at its power limit."""
    figures = []
    for arm in dict.fromkeys(turn.arm for turn in case.sustained):
        turns = [turn for turn in case.sustained if turn.arm == arm]
        joules = find_median(turn.joules for turn in turns)
        per_watt = case.flops / joules / 1e9 if case.flops and joules else None
        us = statistics.median(turn.us for turn in turns)
        figures.append(SustainedFigure(arm, us, find_median(turn.clock_mhz for turn in turns), joules, per_watt))
    shifts: dict[int, list[float]] = {}
    taken = [turn for turn in case.sustained if turn.arm in {KERNEL, BASE}]
    for first, second in zip(taken[::2], taken[1::2], strict=False):
        pair = {turn.arm: turn.us for turn in (first, second)}
        if len(pair) == 2:
            shifts.setdefault(first.process, []).append(math.log(pair[KERNEL] / pair[BASE]))
    duel = None
    if shifts:
        base_us = next(figure.us for figure in figures if figure.arm == BASE)
        duel = duel_rule.look(list(shifts.values()), limits.allowed(base_us, timer))
    return replace(seen, sustained=tuple(figures), duel_sustained=duel)


def _duel_host(seen: Comparison, blocks: Sequence[HostBlock], limits: CaseThresholds) -> Comparison:
    """How long a call keeps the host: of the kernel, and the duel with the base's if both have host times."""

    def sum_up(arm: str, host_blocks: Sequence[HostBlock]) -> HostArm | None:
        arms = [block.arms[arm] for block in host_blocks if arm in block.arms]
        us = (statistics.median(getattr(arm, name) for arm in arms) for name in ("host_us", "loop_us") if arms)
        return HostArm(*us) if arms else None

    both = [block for block in blocks if block.shift is not None]
    host, base = sum_up(KERNEL, both or blocks), sum_up(BASE, both)
    if base is None:
        return replace(seen, host=host)
    shifts = by_process(both, [block.shift or 0.0 for block in both])
    look = duel_rule.look(list(shifts.values()), limits.allowed_host(base.host_us))
    return replace(seen, host=host, base_host=base, duel_host=replace(look, guard=duel_rule.HOST_BIAS))


@dataclass(frozen=True)
class Context:
    """A case as compared, and what it is judged by."""

    run: Run
    thresholds: Thresholds
    limits: CaseThresholds  # of this case. In the question what an expected entry would excuse, as wide as that entry
    comparison: Comparison
    same_files: bool = False  # the op's files are the base's

    @property
    def alpha(self) -> float:
        """Chance of any false alarm in a run."""
        return self.thresholds.alpha

    @property
    def floor_us(self) -> float:
        """Least difference that the run's timer can see."""
        return self.limits.floor(self.run.environment.timer)


def adjust(compared: Mapping[Key, Comparison], family: int, duels: int) -> Mapping[Key, Comparison]:
    """The comparisons with p values adjusted over the plan's families, each question with an alpha of its own.

    Those are first looks at the baseline, and duels as they stand, over the cases duelled (Holm).
    """
    changes: dict[Key, dict[str, Any]] = {key: {} for key in compared}
    for name in ("screens", "spans"):
        screens = {key: looks for key, comparison in compared.items() if (looks := getattr(comparison, name))}
        first = {key: looks[0] for key, looks in screens.items() if looks[0].process == 0}
        for key, seen in _apply_holm(first, family):
            changes[key][name] = (seen, *screens[key][1:])
    for name in ("duel", "duel_span", "duel_sustained", "duel_host"):
        looks = {key: look for key, comparison in compared.items() if (look := getattr(comparison, name))}
        for key, seen in _apply_holm(looks, duels):
            changes[key][name] = seen
    return {
        key: replace(comparison, **changes[key]) if changes[key] else comparison for key, comparison in compared.items()
    }


def _apply_holm(tested: Mapping[Key, Any], family: int) -> Iterator[tuple[Key, Any]]:
    """Yields looks, or screens, with their adjusted p values."""
    size = max(family, len(tested))
    slower, faster = (
        exact.holm([getattr(look, name) for look in tested.values()], size) for name in ("p_slower", "p_faster")
    )
    for (key, seen), p_slower, p_faster in zip(tested.items(), slower, faster, strict=True):
        yield key, replace(seen, adjusted_slower=p_slower, adjusted_faster=p_faster)


# --- what a baseline does not know ------------------------------------------------------------------------------------


def _find_stale(
    run: Run, op: PlannedOp, timed: PerformanceCase, baseline: Baseline, baseline_case: BaselineCase | None
) -> Reason | None:
    """Why the baseline is not of this case: another device, timer, cache, dtype, or another list of cases."""
    device, timer = run.environment.device.key, run.environment.timer
    if baseline.device != device:
        return Reason("stale_device", {"stored": baseline.device, "device": device})
    if baseline.timer != timer:
        return Reason("stale_timer", {"stored": baseline.timer, "timer": timer})
    if baseline_case is not None:
        differs = baseline_case.cache != timed.cache
        return Reason("stale_cache", {"stored": baseline_case.cache, "cache": timed.cache}) if differs else None
    if run.plan.filter is not None:
        return None

    def without_dtype(case: str) -> list[str]:
        return [part for part in case.split(",") if not part.startswith("dtype=")]

    stored = [case.case for case in baseline.cases if case.blocks]
    gone = [case for case in stored if case not in op.performance]
    if twin := next((case for case in gone if without_dtype(case) == without_dtype(timed.case)), None):
        return Reason("stale_dtype", {"case": timed.case, "stored": twin})
    if stored and len(gone) == len(stored):
        return Reason("stale_cases", {"case": timed.case, "stored": stored[0], "count": len(stored)})
    return None


# --- the screen -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stored:
    """One quantity of a case's baseline. Logarithms of block medians."""

    kernel: Floats
    reference: Floats
    weight: exact.Weight
    vouches: bool  # the reference's packages are those of now, so that its time shows the clock

    @classmethod
    def of(cls, kernel_us: Sequence[float], blocks: Sequence[BaselineBlock], vouches: bool) -> _Stored:
        kernel, reference = np.log(kernel_us), np.log([block.reference_us for block in blocks])
        weight = exact.control_weight(kernel, reference, [block.run for block in blocks])
        return cls(kernel, reference, weight if vouches else replace(weight, beta=0.0), vouches)


@dataclass(frozen=True)
class _Look:
    """One process's blocks. Logarithms of block medians."""

    process: int
    kernel: Floats
    reference: Floats

    def pairs(self, stored: _Stored, beta: float) -> exact.Pairs:
        """Differences of y, now against before. The baseline's mean of the reference cancels out."""
        return exact.pairs(self.kernel - beta * self.reference, stored.kernel - beta * stored.reference)


def _screen_case(
    base: Comparison,
    blocks: Sequence[Block],
    before: Sequence[BaselineBlock],
    now: Environment,
    baseline: Baseline,
    limits: CaseThresholds,
    intensity: float,
) -> Comparison:
    """The comparison with the tests of the kernel's time, of its span, and of the time with nothing corrected."""
    ids = {block.run for block in before}
    then = [run.environment.packages for run in baseline.runs if run.id in ids]
    same = all(packages.get(name) == now.packages.get(name) for packages in then for name in REFERENCE_PACKAGES)
    vouches = bool(then) and same
    margin = max(limits.margin, _allow_for_boards(blocks, before, baseline, now, intensity))
    stored = _Stored.of([block.kernel_us for block in before], before, vouches)
    looks = _looks(blocks, [block.arms[KERNEL].time.median_us for block in blocks])
    regimes = [_find_regime(look, stored, limits) for look in looks]
    screens = tuple(_screen(look, stored, margin, *regime) for look, regime in zip(looks, regimes, strict=True))

    spans: tuple[Screen, ...] = ()
    arms = [block.arms[KERNEL] for block in blocks]
    spans_before = [block.span_us for block in before if block.span_us is not None]
    spans_known = None not in [arm.span_us for arm in arms] and len(spans_before) == len(before)
    # A launch of one kernel has no other span than the kernel's time.
    if spans_known and any(arm.activities != 1 for arm in arms):
        span = _Stored.of(spans_before, before, vouches)
        screened = zip(_looks(blocks, [arm.span_us or arm.time.median_us for arm in arms]), regimes, strict=True)
        spans = tuple(_screen(look, span, limits.span_margin, *regime) for look, regime in screened)

    base = replace(base, screens=screens, spans=spans)
    left = next((screen for screen, (same, _) in zip(screens, regimes, strict=True) if not same), None)
    if left is None:
        return base
    # The kernel's time moves with the clock. If the reference moved too, it shows drift, and is never blamed.
    plain = replace(stored, weight=replace(stored.weight, beta=0.0))
    low, high = np.quantile(stored.reference, RANGE).tolist()
    facts = {
        "reference_us": math.exp(_middle(stored.reference)) * (1 + left.reference_change),
        "low_us": math.exp(low),
        "high_us": math.exp(high),
        "margin": left.margin,
        "change": left.change.value,
    }
    stale = Reason("stale_regime" if vouches else "stale_packages", facts)
    return replace(base, alone=tuple(_screen(look, plain, margin) for look in looks), stale=stale)


def _find_regime(look: _Look, stored: _Stored, limits: CaseThresholds) -> tuple[bool, float]:
    """Returns whether the look's median reference lies in the baseline's range, and what is added to the margin, log.

    Beyond it a kernel follows the clock with a weight from 0 (bound by memory) to 1.5: a change must show under both.
    """
    low, high = np.quantile(stored.reference, RANGE).tolist()
    reference = _middle(look.reference)
    beyond = max(low - reference, reference - high, 0.0)
    if beyond <= NEAR:
        return True, exact.MAX_WEIGHT * beyond
    return False, math.log1p(limits.regime) + (0.0 if stored.vouches else LARGEST_REGIME)


def _allow_for_boards(
    blocks: Sequence[Block], before: Sequence[BaselineBlock], baseline: Baseline, now: Environment, intensity: float
) -> float:
    """The ratio by which boards of a model differ. 0 if the baseline has seen all boards, or a UUID is not known."""
    on = {run.id: run.environment.device.uuid for run in baseline.runs}
    by_board: dict[str, list[float]] = {}
    for block in before:
        by_board.setdefault(board_key(on[block.run] or ""), []).append(math.log(block.kernel_us))
    measured = {board_key(block.board or now.device.uuid or "") for block in blocks}
    covered = "" in by_board or "" in measured or measured <= by_board.keys()
    return 0.0 if covered else math.expm1(board_spread.find_room(by_board, intensity))


def _looks(blocks: Sequence[Block], kernel_us: Sequence[float]) -> list[_Look]:
    times = [(kernel, block.arms[REFERENCE].time.median_us) for kernel, block in zip(kernel_us, blocks, strict=True)]
    return [
        _Look(process, np.log([kernel for kernel, _ in values]), np.log([reference for _, reference in values]))
        for process, values in by_process(blocks, times).items()
    ]


def _screen(look: _Look, stored: _Stored, margin: float, same: bool = True, allowance: float = 0.0) -> Screen:
    """Test one process's blocks against the baseline's. allowance: added to the margin, log."""
    threshold = math.log1p(margin) + allowance
    shown = look.pairs(stored, stored.weight.beta)
    blind = stored.vouches and not same
    tests = [look.pairs(stored, beta) for beta in (0.0, exact.MAX_WEIGHT)] if blind else [shown]
    change = exact.to_ratio(shown.shift())
    return Screen(
        process=look.process, blocks=look.kernel.size, baseline_blocks=stored.kernel.size, change=change,
        p_slower=max(test.p_above(threshold) for test in tests),
        p_faster=max(test.p_below(-threshold) for test in tests),
        beta=stored.weight.beta, correlation=stored.weight.correlation, margin=math.expm1(threshold),
        difference_us=math.exp(_middle(stored.kernel)) * change.value,
        reference_change=math.expm1(_middle(look.reference) - _middle(stored.reference)),
        smallest_p=exact.smallest_p(look.kernel.size, stored.kernel.size),
    )  # fmt: skip


def _middle(values: Floats) -> float:
    """Their median. Numpy's takes ten times as long on a few blocks."""
    return float(statistics.median(values.tolist()))


NOTHING_US = 1e-6  # below it two times are the same number, but for its last digits
ON_GRID = 1e-3  # of a step: how far a time may lie beside a multiple of it


def find_step(run: Run, floor_us: float) -> float:
    """Microseconds between two ticks of the run's timer. 0 if they are no more than the floor apart, or not seen.

    It is the smallest difference of two launches of an arm in one block, if all times are multiples of it.
    """
    step, seen = 0.0, set[float]()
    for times in _list_times(run):
        seen.update(times)
        steps = (high - low for low, high in itertools.pairwise(sorted(times)))
        for apart in (apart for apart in steps if apart > NOTHING_US):
            if apart <= floor_us:
                return 0.0
            step = min(step or apart, apart)
    return step if step and all(abs(us / step - round(us / step)) <= ON_GRID for us in seen) else 0.0


def _list_times(run: Run) -> Iterator[set[float]]:
    """The launches that are stored one by one, of each arm in each block."""
    if Suite.PERFORMANCE not in run.plan.suites:
        return
    for op in run.ops:
        for case in op.performance:
            for block in case.blocks:
                yield from (_pick(arm.time) for arm in block.arms.values())


def _pick(time: Summary) -> set[float]:
    return {time.min_us, time.max_us, *time.slowest_us}
