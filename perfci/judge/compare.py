"""Hold every performance case of a run against its base and its stored baseline: numbers only, no verdicts.

One block is one observation. A duel is the shifts between kernel and base, block by block (`duel_rule`). The screen
corrects the kernel for what the reference shows of the device's clock, y = log t_kernel - beta (log t_reference - its
baseline mean), and tests y against the baseline's with the margin inside the null hypothesis, each process of the run
by itself.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfci.core.environment import REFERENCE_PACKAGES, differences
from perfci.core.model import (
    ArmBlock,
    Baseline,
    BaselineBlock,
    BaselineCase,
    Block,
    Comparison,
    Difference,
    Environment,
    Interval,
    Look,
    PeerArm,
    PeerFigure,
    PerformanceCase,
    PlannedOp,
    Reason,
    Run,
    Screen,
    Suite,
    board_key,
    peer_arm,
)
from perfci.statistics import boards, duel_rule, exact
from perfci.statistics.exact import Floats
from perfci.thresholds.limits import CaseThresholds, Thresholds

KERNEL, REFERENCE, BASE = "kernel", "reference", "base"
SPEEDUP, DUEL = f"{KERNEL}/{REFERENCE}", f"{KERNEL}/{BASE}"

RANGE = (0.05, 0.95)
"""Quantiles of the baseline's reference blocks between which the run shares its thermal regime."""

NEAR = 0.01
"""How far beyond that range, as a ratio, the reference may lie in the same regime: boards of a model differ by this."""

LARGEST_REGIME = math.log(1980 / 1470)
"""Largest thermal effect seen, log: from an H200's free clock to its lowest at the power cap. It bounds what another
regime can do where the reference cannot tell, because it was itself replaced."""


def compare(run: Run, baselines: Mapping[str, Baseline], thresholds: Thresholds) -> tuple[Comparison, ...]:
    """One comparison a performance case of the run's plan and of its ops' baselines, in that order.

    baselines: op -> what is stored for it, of whatever device and timer; whether it can speak is found out here.
    """
    if Suite.PERFORMANCE not in run.plan.suites:
        return ()
    return tuple(
        comparison for op in run.plan.ops for comparison in _with_expected(run, op, baselines.get(op.op), thresholds)
    )


def _with_expected(run: Run, op: PlannedOp, baseline: Baseline | None, thresholds: Thresholds) -> Iterator[Comparison]:
    """Each comparison, with what it would be were as much allowed as each of its case's expected entries says."""
    wider = {
        up_to: {seen.case: seen for seen in _compare_op(run, op, baseline, replace(thresholds, up_to=up_to))}
        for up_to in {entry.up_to for entry in thresholds.expected(op.op)}
    }
    for seen in _compare_op(run, op, baseline, thresholds):
        entries = thresholds.expected(op.op, seen.case) if wider else ()
        yield replace(seen, within=tuple(wider[entry.up_to][seen.case] for entry in entries)) if entries else seen


def _compare_op(run: Run, op: PlannedOp, baseline: Baseline | None, thresholds: Thresholds) -> Iterator[Comparison]:
    measured = {case.case: case for found in run.ops if found.op == op.op for case in found.performance}
    stored = {case.case: case for case in baseline.cases if case.blocks} if baseline else {}
    differing = _differing(run.environment, baseline)
    for case in dict.fromkeys((*op.performance, *measured, *stored)):
        blocks = _timed(measured.get(case))
        limits = thresholds.for_case(op.op, case)
        differs = differing(stored[case]) if case in stored and blocks else ()
        base = _dueled(_speed(op.op, case, blocks, stored.get(case), differs), blocks, limits, run.environment.timer)
        base = replace(base, peers=_peers(measured.get(case), blocks))
        if baseline is None or not blocks:
            yield base
        elif stale := (
            _another_device(run.environment, baseline)
            or _another_case(op, case, stored, run.plan.filter)
            or _another_cache(measured[case], stored.get(case))
        ):
            yield replace(base, stale=stale)
        elif case not in stored:
            yield base
        else:
            before = stored[case].blocks
            vouches = _same_packages(run.environment, baseline, before)
            on = {known.id: known.environment.device.uuid for known in baseline.runs}
            here = replace(limits, margin=max(limits.margin, _unseen(blocks, before, on, run.environment)))
            yield _screened(base, blocks, before, vouches, here)


def _timed(case: PerformanceCase | None) -> tuple[Block, ...]:
    """The blocks that count: those in which both arms were timed."""
    return tuple(block for block in case.blocks if {KERNEL, REFERENCE} <= block.arms.keys()) if case else ()


def _speed(
    op: str, case: str, blocks: Sequence[Block], stored: BaselineCase | None, differs: tuple[Difference, ...]
) -> Comparison:
    """What needs no test: medians, and the speedup over the blocks of all processes, first look and later ones."""
    shifts = [block.shifts[SPEEDUP] for block in blocks if SPEEDUP in block.shifts]
    before = stored.blocks if stored else ()
    return Comparison(
        op=op,
        case=case,
        known=stored is not None,
        measured=bool(blocks),
        speedup=_speedup(shifts) if shifts else None,
        kernel_us=_median(block.arms[KERNEL].time.median_us for block in blocks),
        reference_us=_median(block.arms[REFERENCE].time.median_us for block in blocks),
        baseline_us=_median(block.kernel_us for block in before),
        activities=_median(block.arms[KERNEL].activities for block in blocks),
        baseline_activities=_median(block.activities for block in before),
        differs=differs,
    )


def _dueled(seen: Comparison, blocks: Sequence[Block], limits: CaseThresholds, timer: str | None) -> Comparison:
    """The duel of kernel and base, process by process, over the blocks in which both were timed."""
    both = [block for block in blocks if DUEL in block.shifts]
    base_us = _median(block.arms[BASE].time.median_us for block in both)
    if base_us is None:
        return seen
    duel = duel_rule.look(_by_process(both, lambda block: block.shifts[DUEL]), limits.allowed(base_us, timer))
    return replace(seen, duel=duel, duel_span=_span_duel(both, limits), base_us=base_us)


def _span_duel(blocks: Sequence[Block], limits: CaseThresholds) -> Look | None:
    """The same of the spans, where a launch is more than one kernel's own time; the floor is part of its tau."""
    arms = [(block.arms[KERNEL], block.arms[BASE]) for block in blocks]
    spans = [(kernel.span_us, base.span_us) for kernel, base in arms]
    single = all(arm.activities == 1 for pair in arms for arm in pair)
    if single or any(not kernel or not base for kernel, base in spans):
        return None
    base_us = statistics.median(base for _, base in spans if base)
    tau = max(limits.span_margin, limits.span_floor_us / base_us)
    return duel_rule.look(_by_process(blocks, _span_shift), tau)


def _span_shift(block: Block) -> float:
    return math.log((block.arms[KERNEL].span_us or 1.0) / (block.arms[BASE].span_us or 1.0))


def _by_process(blocks: Sequence[Block], quantity: Callable[[Block], float]) -> list[list[float]]:
    found: dict[int, list[float]] = {}
    for block in blocks:
        found.setdefault(block.process, []).append(quantity(block))
    return [found[process] for process in sorted(found)]


def _speedup(shifts: Sequence[float]) -> Interval:
    """Reference / kernel of the blocks' kernel/reference shifts: the ends change places."""
    d = exact.location(shifts)
    return Interval(math.exp(-d.value), math.exp(-d.high), math.exp(-d.low), d.confidence)


def _peers(case: PerformanceCase | None, blocks: Sequence[Block]) -> tuple[PeerFigure, ...]:
    """Each peer over the blocks in which it was timed beside the kernel, as the speedup is told."""
    return tuple(_peer(peer, blocks) for peer in case.peers) if case and blocks else ()


def _peer(peer: PeerArm, blocks: Sequence[Block]) -> PeerFigure:
    arm = peer_arm(peer.name)
    pair = f"{KERNEL}/{arm}"
    shifts = [block.shifts[pair] for block in blocks if pair in block.shifts]
    us = _median(block.arms[arm].time.median_us for block in blocks if arm in block.arms)
    return PeerFigure(peer.name, us, _speedup(shifts) if shifts else None, peer.failure)


def _median(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return statistics.median(numbers) if numbers else None


# --- what a baseline cannot speak about -------------------------------------------------------------------------------


def _another_device(environment: Environment, baseline: Baseline) -> Reason | None:
    if baseline.device != environment.device.key:
        return Reason("stale_device", {"stored": baseline.device, "device": environment.device.key})
    if baseline.timer != environment.timer:
        return Reason("stale_timer", {"stored": baseline.timer, "timer": environment.timer})
    return None


def _another_case(op: PlannedOp, case: str, stored: Mapping[str, BaselineCase], pattern: str | None) -> Reason | None:
    """A case that the baseline has in other clothes: with a dtype that is no longer planned, or another case list."""
    if case in stored or not stored:
        return None
    gone = [known for known in stored if known not in op.performance]
    twin = next((known for known in gone if _without_dtype(known) == _without_dtype(case)), None)
    if twin is not None and pattern is None:
        return Reason("stale_dtype", {"case": case, "stored": twin})
    if len(gone) == len(stored) and pattern is None:
        return Reason("stale_cases", {"case": case, "stored": next(iter(stored)), "count": len(stored)})
    return None


def _another_cache(case: PerformanceCase, stored: BaselineCase | None) -> Reason | None:
    if stored is None or stored.cache == case.cache:
        return None
    return Reason("stale_cache", {"stored": stored.cache, "cache": case.cache})


def _without_dtype(case: str) -> tuple[str, ...]:
    return tuple(part for part in case.split(",") if not part.startswith("dtype="))


def _differing(now: Environment, baseline: Baseline | None) -> Callable[[BaselineCase], tuple[Difference, ...]]:
    """What differs from the runs that a case's blocks come from; of another device model everything may."""

    @functools.cache
    def between(runs: frozenset[str]) -> tuple[Difference, ...]:
        if baseline is None or baseline.device != now.device.key:
            return ()
        return differences([run.environment for run in baseline.runs if run.id in runs], now)

    return lambda case: between(frozenset(block.run for block in case.blocks))


def _same_packages(now: Environment, baseline: Baseline, blocks: Sequence[BaselineBlock]) -> bool:
    runs = {block.run for block in blocks}
    then = {_reference_packages(run.environment) for run in baseline.runs if run.id in runs}
    return then == {_reference_packages(now)}


def _reference_packages(environment: Environment) -> tuple[str | None, ...]:
    return tuple(environment.packages.get(name) for name in REFERENCE_PACKAGES)


# --- the screen -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Stored:
    """One quantity of a case's baseline, ready to be held against; logarithms of block medians."""

    kernel: Floats
    reference: Floats
    weight: exact.Weight
    vouches: bool
    """the reference's packages are those of now, so that its time tells of the clock"""

    @classmethod
    def of(cls, kernel_us: Sequence[float], blocks: Sequence[BaselineBlock], vouches: bool) -> _Stored:
        kernel, reference = np.log(kernel_us), np.log([block.reference_us for block in blocks])
        weight = exact.control_weight(kernel, reference, [block.run for block in blocks])
        return cls(kernel, reference, weight if vouches else replace(weight, beta=0.0), vouches)


@dataclass(frozen=True)
class _Look:
    """One process's blocks; logarithms of block medians."""

    process: int
    kernel: Floats
    reference: Floats

    def pairs(self, stored: _Stored, beta: float) -> exact.Pairs:
        """Differences of y, now against before; the baseline's mean of the reference cancels out."""
        return exact.pairs(self.kernel - beta * self.reference, stored.kernel - beta * stored.reference)


@dataclass(frozen=True)
class _Regime:
    """What the reference says about the device's clock, and what follows for the test."""

    same: bool
    allowance: float
    """added to the margin, log"""


def _regime(look: _Look, stored: _Stored, limits: CaseThresholds) -> _Regime:
    """Whether the look's median reference lies in the baseline's range; beyond it only gross changes are visible.

    A kernel follows the clock with a weight from 0 (bound by memory) to 1.5, and a baseline from another regime does
    not know which. So there a change must show under both ends, and by more: the margin grows by `regime`.
    """
    low, high = exact.quantiles(stored.reference, RANGE)
    reference = _middle(look.reference)
    beyond = max(low - reference, reference - high, 0.0)
    if beyond <= NEAR:
        return _Regime(True, exact.MAX_WEIGHT * beyond)
    if stored.vouches:
        return _Regime(False, math.log1p(limits.regime))
    return _Regime(False, math.log1p(limits.regime) + LARGEST_REGIME)


def _unseen(
    blocks: Sequence[Block], before: Sequence[BaselineBlock], on: Mapping[str, str | None], now: Environment
) -> float:
    """What the boards of a model differ by, as a ratio, where a block comes from one that the baseline has not seen.

    on: board of each run of the baseline. 0 where all are known, or a board's UUID is not.
    """
    by_board: dict[str, list[float]] = {}
    for block in before:
        by_board.setdefault(board_key(on[block.run] or ""), []).append(math.log(block.kernel_us))
    measured = {board_key(block.board or now.device.uuid or "") for block in blocks}
    known = "" in by_board or "" in measured or measured <= by_board.keys()
    return 0.0 if known else math.expm1(boards.room(by_board))


def _screened(
    base: Comparison, blocks: Sequence[Block], before: Sequence[BaselineBlock], vouches: bool, limits: CaseThresholds
) -> Comparison:
    stored = _Stored.of([block.kernel_us for block in before], before, vouches)
    taken = _looks(blocks, lambda arm: arm.time.median_us)
    regimes = [_regime(look, stored, limits) for look in taken]
    screens = [_screen(look, stored, regime, limits.margin) for look, regime in zip(taken, regimes, strict=True)]
    left = [screen for screen, regime in zip(screens, regimes, strict=True) if not regime.same]
    return replace(
        base,
        screens=tuple(screens),
        spans=_spans(blocks, before, vouches, regimes, limits),
        alone=_alone(taken, stored, limits) if left else (),
        stale=_left_range(left[0], stored) if left else None,
    )


def _alone(taken: Sequence[_Look], stored: _Stored, limits: CaseThresholds) -> tuple[Screen, ...]:
    """The kernel's own time, which moves with the clock: it tells drift, where the reference moved too, never blame."""
    plain = replace(stored, weight=replace(stored.weight, beta=0.0))
    return tuple(_screen(look, plain, _Regime(True, 0.0), limits.margin) for look in taken)


def _spans(
    blocks: Sequence[Block],
    before: Sequence[BaselineBlock],
    vouches: bool,
    regimes: Sequence[_Regime],
    limits: CaseThresholds,
) -> tuple[Screen, ...]:
    """The same test of the launches' spans, where they are known and are more than one kernel's own time."""
    arms = [block.arms[KERNEL] for block in blocks]
    spans = [block.span_us for block in before]
    if any(arm.span_us is None for arm in arms) or None in spans or all(arm.activities == 1 for arm in arms):
        return ()
    stored = _Stored.of([span for span in spans if span is not None], before, vouches)
    taken = _looks(blocks, lambda arm: arm.span_us or arm.time.median_us)
    return tuple(_screen(look, stored, regime, limits.span_margin) for look, regime in zip(taken, regimes, strict=True))


def _looks(blocks: Sequence[Block], quantity: Callable[[ArmBlock], float]) -> list[_Look]:
    """The blocks by process, the first look first."""
    by_process: dict[int, list[Block]] = {}
    for block in blocks:
        by_process.setdefault(block.process, []).append(block)
    return [
        _Look(
            process,
            np.log([quantity(block.arms[KERNEL]) for block in group]),
            np.log([block.arms[REFERENCE].time.median_us for block in group]),
        )
        for process, group in sorted(by_process.items())
    ]


def _screen(look: _Look, stored: _Stored, regime: _Regime, margin: float) -> Screen:
    """Test one process's blocks against the baseline's; in another regime a change must show under both weights."""
    threshold = math.log1p(margin) + regime.allowance
    shown = look.pairs(stored, stored.weight.beta)
    blind = stored.vouches and not regime.same
    tests = [look.pairs(stored, beta) for beta in (0.0, exact.MAX_WEIGHT)] if blind else [shown]
    shift = shown.shift()
    change = Interval(math.expm1(shift.value), math.expm1(shift.low), math.expm1(shift.high), shift.confidence)
    before_us = math.exp(_middle(stored.kernel))
    return Screen(
        process=look.process,
        blocks=look.kernel.size,
        baseline_blocks=stored.kernel.size,
        change=change,
        p_slower=max(test.p_above(threshold) for test in tests),
        p_faster=max(test.p_below(-threshold) for test in tests),
        beta=stored.weight.beta,
        correlation=stored.weight.correlation,
        margin=math.expm1(threshold),
        difference_us=before_us * change.value,
        reference_change=math.expm1(_middle(look.reference) - _middle(stored.reference)),
        smallest_p=exact.smallest_p(look.kernel.size, stored.kernel.size),
    )


def _middle(values: Floats) -> float:
    """Their median; numpy's own takes ten times as long on a few blocks."""
    return float(statistics.median(values.tolist()))


def _left_range(screen: Screen, stored: _Stored) -> Reason:
    low, high = map(math.exp, exact.quantiles(stored.reference, RANGE))
    reference_us = math.exp(_middle(stored.reference)) * (1 + screen.reference_change)
    facts = {
        "reference_us": reference_us,
        "low_us": low,
        "high_us": high,
        "margin": screen.margin,
        "change": screen.change.value,
    }
    return Reason("stale_regime" if stored.vouches else "stale_packages", facts)
