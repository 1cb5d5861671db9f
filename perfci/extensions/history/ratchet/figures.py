"""The figures of accepted runs that thresholds are learnt from, and how each is bounded."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfci.core.model import HistoryAccuracy, Suite
from perfci.extensions.common.accepted_runs import HistoryCase, HistoryRun, HistoryStored
from perfci.extensions.history.ratchet import prediction
from perfci.extensions.history.ratchet.noise import RATE
from perfci.extensions.history.ratchet.prediction import Prediction
from perfci.extensions.history.series import select_environment, select_epoch
from perfci.store.lines import from_memory
from perfci.thresholds.layers import STORED_KEYS

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
