"""Changes of thresholds: a quarter of the gap, only ever tighter, each with its reason and its runs."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from perfci.core.model import Fact, Reason, Suite
from perfci.extensions.common.accepted_runs import HistoryCase, HistoryRun
from perfci.extensions.history.ratchet import figures, noise
from perfci.extensions.history.ratchet.figures import KEYS, FigureSeries, Key
from perfci.extensions.history.ratchet.noise import FLOOR, NULLS, RATE
from perfci.extensions.history.ratchet.prediction import RUNS
from perfci.extensions.history.series import select_environment
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.layers import TAU, is_stricter
from perfci.thresholds.limits import Thresholds

STEP = 0.25  # share of the gap that one step closes

WORTHWHILE = 0.005
"""Least change, as a share of tau or of the room that a bound leaves, that is worth a line in a diff."""

LOOSEST = math.log(4)
"""Room, log scale, beyond which a bound is of no use yet: of few runs, or of a figure that moves with its boards."""


@dataclass(frozen=True)
class Tighter:
    """A threshold of one case that is to become another."""

    op: str
    case: str
    key: str
    before: float | None  # in force now. None: none was set
    after: float
    bound: float  # where the steps would end by what is known now
    why: Reason
    runs: tuple[str, ...]  # ids of the runs that it was learnt from
    predicted: float  # false alarms a case check afterwards
    suite: Suite = Suite.PERFORMANCE


def propose(history: Sequence[HistoryRun], limits: Thresholds, op: str, *, family: int) -> tuple[Tighter, ...]:
    """Thresholds earned by an op's accepted runs, in order, for the newest's cases. family: cases a run may duel."""
    steps = []
    for suite in (Suite.PERFORMANCE, Suite.ACCURACY) if history else ():
        for case in figures.list_cases(history[-1], suite):
            if suite is Suite.PERFORMANCE:
                steps.append(_tighten_tau(history, limits, op, case, family))
            for key in KEYS:
                series = figures.read_series(history, suite, case, key)
                if (suite is Suite.PERFORMANCE or key.error) and len(series.values) >= RUNS:
                    steps.append(tighten_figure(series, key, _find_before(limits, op, case, key), op, case, suite))
    return tuple(change for change in steps if change is not None)


def rescale_targets(limits: Thresholds, op: str, accepted: Mapping[str, float], run: str) -> tuple[Tighter, ...]:
    """Targets of speed, as tight after an accepted loss as before. accepted: case -> duelled slow-down, log scale."""
    steps = []
    for case, shift in accepted.items():
        for key in KEYS if shift > 0 else ():
            before = _find_before(limits, op, case, key) if key.more_is_better else None
            if before is not None:
                after = before * math.exp(-shift)
                facts: dict[str, Fact] = {"op": op, "case": case, "run": run, "key": key.name, "before": before}
                why = Reason("ratchet_rescaled", {**facts, "after": after, "change": math.expm1(shift)})
                steps.append(Tighter(op, case, key.name, before, after, after, why, (run,), key.chance))
    return tuple(steps)


def _tighten_tau(history: Sequence[HistoryRun], limits: Thresholds, op: str, case: str, family: int) -> Tighter | None:
    # The A/A duels of this environment, whatever epoch they are of: a loss changes a kernel, not its noise.
    duels = [
        (run.run, performance.null)
        for run in select_environment(history)
        if (performance := _find_performance(run, case))
    ]
    nulls = [(run, null) for run, duel in duels for null in noise.select_usable([duel])]
    if len(nulls) < NULLS:
        return None
    scales = noise.bound_scales([null for _, null in nulls])
    limit, timer = limits.for_case(op, case), history[-1].environment.timer
    # Of the kernel now: the median of the last runs.
    lengths = [performance.kernel_us.median_us for run in history if (performance := _find_performance(run, case))]
    length = statistics.median(lengths[-5:])
    before = limit.tau_at(length)
    floor = max(FLOOR, limit.floor(timer) / length)
    bound = noise.find_least_tau(scales, family, limit.alpha, floor, min(before, CaseThresholds().tau_at(length)))
    if bound is None or (after := step(before, bound)) is None:
        return None
    rates = noise.predict_rates(after, scales, family, limit.alpha)
    if rates.alarms > RATE:
        return None
    facts: dict[str, Fact] = {
        "op": op, "case": case, "nulls": scales.nulls, "bound": 100 * bound, "before": 100 * before,
        "after": 100 * after, "block": 100 * scales.upper.block, "process": 100 * scales.upper.process,
        "alarms": 100 * rates.alarms, "undecided": 100 * rates.undecided, "more": rates.more, "blocks": rates.blocks,
        "seen": rates.seen, "floor": 100 * floor, "family": family,
    }  # fmt: skip
    runs = tuple(run for run, _ in nulls)
    return Tighter(op, case, TAU, before, after, bound, Reason("ratchet_tau", facts), runs, rates.alarms)


def _find_performance(run: HistoryRun, case: str) -> HistoryCase | None:
    performance = figures.list_cases(run, Suite.PERFORMANCE).get(case)
    return performance if isinstance(performance, HistoryCase) else None


def tighten_figure(
    series: FigureSeries, key: Key, before: float | None, op: str = "", case: str = "", suite: Suite = Suite.PERFORMANCE
) -> Tighter | None:
    """The next step of one threshold. None if it is as tight as its runs bear."""
    next_run = series.prediction(key)
    room = next_run.bound(key.chance) - next_run.centre
    if room > LOOSEST:
        return None
    bound = key.value(next_run.centre + max(room, key.least), next_run.centre)
    usual = key.value(next_run.centre, next_run.centre)
    after: float | None
    if before is None:
        first = key.value(next_run.centre + max(room, key.least) / STEP, next_run.centre)
        after = _round(first, not key.more_is_better)
    elif not is_stricter(key.name, bound, before) or (after := step(before, bound, abs(bound - usual))) is None:
        return None
    chance = next_run.exceeded(key.place(after, next_run.centre))
    facts: dict[str, Fact] = {
        "op": op, "case": case, "key": key.name, "runs": len(series.runs), "boards": len(set(series.boards)),
        "before": before, "after": after, "bound": bound, "usual": usual, "chance": 100 * chance,
    }  # fmt: skip
    why = Reason("ratchet_growth" if key.growth else "ratchet_figure", facts)
    return Tighter(op, case, key.name, before, after, bound, why, series.runs, chance, suite)


def step(before: float, bound: float, room: float | None = None) -> float | None:
    """A quarter of the way, rounded back to four digits. None if it is not worth a line, measured by the room."""
    gap = bound - before
    if abs(gap) * STEP < WORTHWHILE * (before if room is None else room):
        return None
    after = _round(before + STEP * gap, gap < 0)
    return after if after != before and (after < before) == (gap < 0) else None


def _round(value: float, up: bool) -> float:
    """To four digits, for people who read the file."""
    digits = 3 - math.floor(math.log10(abs(value)))
    scaled = value * 10.0**digits
    return round((math.ceil if up else math.floor)(scaled) / 10.0**digits, max(digits, 0))


def _find_before(limits: Thresholds, op: str, case: str, key: Key) -> float | None:
    """The value in force. None for a threshold that is not set, or that files do not know."""
    before: float | None = getattr(limits.for_case(op, case), key.name, None)
    return before
