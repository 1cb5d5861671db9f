"""Changes of thresholds: a quarter of the gap, only ever tighter, each with its reason and its runs."""

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfci.core.model import Fact, HistoryAccuracy, Reason, Suite
from perfci.core.model.measured import from_memory
from perfci.extensions.common.accepted_runs import HistoryCase, HistoryRun, HistoryStored
from perfci.extensions.history.ratchet import noise, prediction
from perfci.extensions.history.ratchet.noise import FLOOR, NULLS, RATE
from perfci.extensions.history.ratchet.prediction import RUNS, Prediction
from perfci.extensions.history.series import select_environment, select_epoch
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.layers import STORED_KEYS, TAU, is_stricter
from perfci.thresholds.limits import Thresholds

FIGURES = 10  # figures of a case that may gate and share its rate of false alarms

REPEATED = 2.5
"""What only ever tightening costs: so much more often than one bound is the tightest of all bounds so far passed."""

CHANCE = RATE / FIGURES / REPEATED  # chance with which the next accepted run may lie beyond a bound
CONFIRMED = RATE / 4  # the same if two fresh processes have to agree before anything is blamed

ROUNDOFF = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Of 1, by dtype: errors below it are no worse than exact ones."""

COMPILES_S = 0.01
"""A first call that took less found its kernel compiled: no compiler is so fast. It means nothing for the next run."""

Case = HistoryCase | HistoryAccuracy | HistoryStored


@dataclass(frozen=True)
class Key:
    """A threshold that is learnt from a figure."""

    name: str  # as in threshold files
    field: str | None = None  # of a case, with dots. None: the threshold's name
    least: float = 0.01  # room, log scale, that even a figure that never moved gets
    more_is_better: bool = False
    growth: bool = False  # the threshold is a growth against a base or baseline, ratio, not the figure itself
    confirmed: bool = False
    """nothing is blamed before two fresh processes agree: runs are nearly normal, and the bound is by moments"""
    tails: int = 8  # of the robust bound that the others have: degrees of freedom
    board: float = 0.0  # prior standard deviation between boards, log scale
    error: bool = False  # of accuracy cases too; 0 is a figure like any other
    zero: float | None = None
    """what a figure below it counts as, so that one of exactly 0 has a logarithm. None: by the case's roundoff"""
    held: Callable[[HistoryRun, Case], bool] | None = None
    """whether the threshold is held for such a case at all. None: for every case"""

    @property
    def chance(self) -> float:
        """With which the next accepted run may lie beyond its bound."""
        return CONFIRMED if self.confirmed else CHANCE

    def figure(self, case: Case) -> float | None:
        """Its figure of a case: above 0, or None if the run lacks it. Of an error 0 too."""
        # What is stored is far less exact than what is computed, and has limits of its own.
        if isinstance(case, HistoryStored) != (self.name in STORED_KEYS):
            return None
        value: Any = case
        for part in (self.field or self.name).split("."):
            value = getattr(value, part, None)
        return None if value is None else float(value)

    def worse(self, value: float) -> float:
        """A figure as predictions have it: log scale, more is worse."""
        return -math.log(value) if self.more_is_better else math.log(value)

    def value(self, worse: float, centre: float) -> float:
        """The threshold at such a place; `centre` is where the figure is."""
        if self.growth:
            return math.expm1(worse - centre)
        return math.exp(-worse if self.more_is_better else worse)

    def place(self, value: float, centre: float) -> float:
        """The reverse of `value`."""
        return centre + math.log1p(value) if self.growth else self.worse(value)


def _is_from_memory(run: HistoryRun, case: Case) -> bool:
    return isinstance(case, HistoryCase) and from_memory(case.bytes_moved, case.cache, run.environment.device.l2_bytes)


def _has_compiled(_: HistoryRun, case: Case) -> bool:
    return isinstance(case, HistoryCase) and case.compile_s is not None and case.compile_s >= COMPILES_S


KEYS = (
    Key("speedup", least=0.01, more_is_better=True, confirmed=True, board=0.006),
    Key("bandwidth_share", least=0.01, more_is_better=True, confirmed=True, board=0.004, held=_is_from_memory),
    Key("span_margin", "span_us", least=0.02, growth=True, confirmed=True, board=0.004),
    Key("peak_memory", "peak_bytes", least=0.01, growth=True),
    Key("rsd", least=0.1),
    Key("compile_s", least=0.25, tails=4, held=_has_compiled),
    Key("mean_abs", "errors.mean_abs", least=0.1, error=True),
    Key("rmse", "errors.rmse", least=0.1, error=True),
    Key("p99_abs", "errors.p99_abs", least=0.1, error=True),
    Key("max_abs", "errors.max_abs", least=0.1, tails=6, error=True),
    Key("stored_p99", "errors.p99_abs", least=0.1, error=True),
    Key("clip_ratio", least=0.5, error=True, zero=1e-3),
    Key("divergence", least=0.5, error=True, zero=1e-2),
)
"""Bounds are by moments if fresh processes confirm a blame. Compilation and the largest error have heavy tails."""


@dataclass(frozen=True)
class FigureSeries:
    """One figure of a case over the runs that count."""

    values: tuple[float, ...]  # log scale, more is worse
    boards: tuple[str | None, ...]
    runs: tuple[str, ...]  # ids

    def prediction(self, key: Key) -> Prediction:
        """Of the next run, in the form that the key asks for."""
        if key.confirmed:
            return prediction.predict_by_moments(self.values, self.boards, key.board)
        return prediction.predict_robustly(self.values, key.tails)


def list_cases(run: HistoryRun, suite: Suite) -> Mapping[str, Case]:
    """The cases of a run that were accepted, by id."""
    cases: Sequence[Case] = run.cases if suite is Suite.PERFORMANCE else (*run.accuracy, *run.stored)
    return {case.case: case for case in cases if case.case not in run.inconclusive}


def read_series(history: Sequence[HistoryRun], suite: Suite, case: str, key: Key) -> FigureSeries:
    """A figure over the runs of this environment and epoch that have it.

    An exact result, which has no logarithm, counts as the key's zero, else as the least error, else as the roundoff.
    """
    runs = select_epoch(select_environment(history), case)
    # Warm and cold times are never compared: the newest run that has the case decides which count.
    last = next((earlier for run in reversed(runs) if (earlier := list_cases(run, Suite.PERFORMANCE).get(case))), None)
    cache = last.cache if isinstance(last, HistoryCase) else None
    values = []
    for run in runs:
        known = list_cases(run, suite).get(case)
        if known is None or (isinstance(known, HistoryCase) and known.cache != cache):
            continue
        value = key.figure(known) if key.held is None or key.held(run, known) else None
        if value is not None and math.isfinite(value) and (value > 0 or key.error):
            values.append((value, run.environment.device.uuid, run.run))
    least = key.zero
    if least is None:
        named = dict(part.split("=", 1) for part in case.split(",") if "=" in part)
        roundoff = ROUNDOFF.get(named.get("dtype", ""))
        least = min((value for value, _, _ in values if value > 0), default=roundoff)
    if least is None or not values:
        return FigureSeries((), (), ())
    measured, boards, ids = zip(*values, strict=True)
    return FigureSeries(tuple(key.worse(max(value, least)) for value in measured), boards, ids)


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
        for case in list_cases(history[-1], suite):
            if suite is Suite.PERFORMANCE:
                steps.append(_tighten_tau(history, limits, op, case, family))
            for key in KEYS:
                series = read_series(history, suite, case, key)
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
    performance = list_cases(run, Suite.PERFORMANCE).get(case)
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
