"""Slow drift: what no single merge request shows, from the accepted runs since the last release. Pure.

The median of the last 5 accepted runs is compared with that of 10 runs about the last release. These do not move, so
whatever the gate lets pass bit by bit adds up here. Runs that resemble the one before count for fewer. If the two parts
were measured on different boards, the difference between boards is allowed for. docs/how-thresholds-tighten.md
says what this sees and how rarely it errs.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfci.core.environment import unmixable
from perfci.core.model import Device, Environment, HistoryCase, HistoryRun
from perfci.statistics import boards

ANCHOR, RECENT = 10, 5
"""Accepted runs about the last release, and the last ones that are compared with them."""

RATE = 0.001
"""False alarms a case and accepted run, at most."""

LEAST = 0.0025
"""A smaller change, ratio, is never reported, however quiet the runs: no duel is asked to see less."""

KERNEL, SPEEDUP = "kernel_us", "speedup"

STORED_LEAST = 0.05
"""A smaller change, ratio, of a figure of storage in low precision is never reported: rounding may cause it."""

STORED_ZEROS: Mapping[str, float] = {"stored_p99": 1e-12, "clip_ratio": 1e-3, "divergence": 1e-2}
"""Figure of storage in low precision -> what a smaller one counts as, since below it nobody would act."""

_MOST = 50.0
"""Log scale: beyond it no ratio means anything."""

FACTORS: Mapping[int, float] = {
    15: 2.4100852232660674,
    20: 2.2940011571154715,
    30: 2.1883400909550854,
    50: 2.122435393263023,
    100: 2.0447392887308418,
}
"""Runs -> spreads that the shift of so many exceeds in half of RATE: what `simulated` gives in a second."""

_DOF, _DRAWS = 4, 100_000


@dataclass(frozen=True)
class Creep:
    """The last runs of a case against those about the last release."""

    case: str
    figure: str
    """kernel_us or speedup: the steadier of the two"""
    change: float
    """ratio - 1; plus is slower"""
    threshold: float
    """change beyond which it is reported"""
    spread: float
    """standard deviation of a run, log scale"""
    anchor: tuple[str, ...]
    """ids of the runs about the last release"""
    recent: tuple[str, ...]
    """ids of the last runs"""

    @property
    def found(self) -> bool:
        """Whether the case has become slower, bit by bit or at once."""
        return self.change > self.threshold


def same_environment(history: Sequence[HistoryRun]) -> tuple[HistoryRun, ...]:
    """The runs of the newest one's environment, boards aside: a new driver, torch or Triton starts anew."""
    return tuple(run for run in history if _together(run.environment, history[-1].environment))


def _together(one: Environment, other: Environment) -> bool:
    """Whether the numbers of two environments may be compared."""
    alike = (one.timer, one.python, one.packages, one.variables, _model(one.device)) == (
        other.timer, other.python, other.packages, other.variables, _model(other.device),
    )  # fmt: skip
    return alike or not unmixable(one, other)  # the first is quick, and there are a hundred runs a case


def _model(device: Device) -> tuple[object, ...]:
    """All that is known of a device but which board it is."""
    return tuple(value for name, value in vars(device).items() if name != "uuid")


def by_case(history: Sequence[HistoryRun]) -> Mapping[str, tuple[HistoryRun, ...]]:
    """Each case that the newest run has or left open, in its order, with the history of that case alone.

    What looks at a case goes through all cases of each run: of these histories that takes time by the number of runs.
    """
    if not history:
        return {}
    wanted = dict.fromkeys([*(case.case for case in history[-1].cases), *history[-1].inconclusive])
    known = [{case.case: case for case in run.cases} for run in history]
    return {
        name: tuple(
            replace(run, cases=(cases[name],) if name in cases else ())
            for run, cases in zip(history, known, strict=True)
        )
        for name in wanted
    }


def of_epoch(history: Sequence[HistoryRun], case: str) -> tuple[HistoryRun, ...]:
    """The runs from the last one on that began an epoch of the case. All if none did."""
    starts = [at for at, run in enumerate(history) if run.epoch and case in run.epoch.cases]
    return tuple(history[starts[-1] :]) if starts else tuple(history)


def creep(history: Sequence[HistoryRun], case: str, released: str | None = None) -> Creep | None:
    """Whether a case of the newest run's environment and epoch has crept; history: accepted runs in their order.

    released: id of the run of the last release. The 10 runs about it are the anchor, or the first 10 if there is none
    among them. Returns None if the anchor and the last 5 runs would overlap, or the newest run lacks the case.
    """
    known = [(run, found) for run in of_epoch(same_environment(history), case) if (found := _case(run, case))]
    if not known or known[-1][0] is not history[-1]:
        return None
    known = [(run, found) for run, found in known if found.cache == known[-1][1].cache]
    start = _start([run.run for run, _ in known], released)
    if start + ANCHOR + RECENT > len(known):
        return None
    cases, runs = [found for _, found in known], [run.run for run, _ in known[start:]]
    figure, values = min(_figures(cases[start:]).items(), key=lambda item: spread(item[1]))
    before = _figures(cases[:start]).get(figure, ())
    on = [found.board or run.environment.device.uuid for run, found in known[start:]]
    bound = threshold(values, on, cases[-1].kernel_us.median_us, before)
    return Creep(
        case,
        figure,
        math.expm1(shift(values)),
        max(LEAST, math.expm1(bound)),
        spread(values, correlation((*before, *values))),
        tuple(runs[:ANCHOR]),
        tuple(runs[-RECENT:]),
    )


def stored_creep(history: Sequence[HistoryRun], case: str, figure: str, released: str | None = None) -> Creep | None:
    """The same of a figure of a tensor that is stored in low precision: stored_p99, clip_ratio or divergence.

    Its inputs are those of a fixed seed, so a new driver or torch moves it only by computing otherwise, which is what
    this looks for: runs of all environments count. Figures below STORED_ZEROS count as that.
    """
    known = [(run, each) for run in history for each in run.stored if each.case == case]
    start = _start([run.run for run, _ in known], released)
    if not known or known[-1][0] is not history[-1] or start + ANCHOR + RECENT > len(known):
        return None
    known = known[start:]
    least = STORED_ZEROS[figure]
    seen = [each.errors.p99_abs or 0.0 if figure == "stored_p99" else getattr(each, figure) for _, each in known]
    values = [math.log(max(value, least)) for value in seen]
    least = max(STORED_LEAST, math.expm1(min(factor(len(values)) * spread(values), _MOST)))
    ids = [run.run for run, _ in known]
    return Creep(
        case, figure, math.expm1(shift(values)), least, spread(values), tuple(ids[:ANCHOR]), tuple(ids[-RECENT:])
    )


def shift(values: Sequence[float]) -> float:
    """Median of the last 5 values less that of the first 10."""
    return statistics.median(values[-RECENT:]) - statistics.median(values[:ANCHOR])


def threshold(
    values: Sequence[float], on: Sequence[str | None], kernel_us: float, before: Sequence[float] = ()
) -> float:
    """The shift, log scale, that an unchanged case exceeds in RATE at most.

    values, on: of the runs from the anchor on, and their boards. before: values of the runs before the anchor, which
    show how far a run resembles the one before it.
    """
    r = correlation((*before, *values))
    few = math.sqrt((_of_mean(RECENT, r) + _of_mean(ANCHOR, r)) / (_of_mean(RECENT, 0.0) + _of_mean(ANCHOR, 0.0)))
    return math.hypot(factor(len(values)) * spread(values, r) * few, _apart(on) * boards.usual_spread(kernel_us))


def spread(values: Sequence[float], r: float = 0.0) -> float:
    """Standard deviation of one run: from neighbours, whose differences no slow creep moves, or the anchor's own.

    The larger of the two, each from mean absolute deviations and scaled for normal values. If neighbours correlate
    by r, both differ by less than runs do.
    """
    steps = statistics.fmean(abs(after - before) for before, after in itertools.pairwise(values))
    centre = statistics.median(values[:ANCHOR])
    about = statistics.fmean(abs(value - centre) for value in values[:ANCHOR])
    about *= math.sqrt((1 - _of_mean(ANCHOR, 0.0)) / (1 - _of_mean(ANCHOR, r)))
    return max(steps / math.sqrt(2 * (1 - r)), about) * math.sqrt(math.pi / 2)


def correlation(values: Sequence[float]) -> float:
    """By how much a run resembles the one before it: 0 below two standard errors, 0.95 at most.

    From how much further values lie apart that are two apart: squared, 1 + r times as far. Neither a creep nor a few
    steps move that, since a common step is taken out and large ones count as 3 usual ones.
    """
    near, far = (_typical_step(values, apart) for apart in (1, 2))
    r = min((far / near) ** 2 - 1, 0.95) if near else 0.0
    return r if r > 2 / math.sqrt(len(values)) else 0.0


def _typical_step(values: Sequence[float], apart: int) -> float:
    steps = [after - before for before, after in zip(values, values[apart:], strict=False)]
    usual = statistics.median(steps)
    away = [abs(step - usual) for step in steps]
    most = 3 * statistics.median(away)
    return statistics.fmean(min(each, most) for each in away)


def _of_mean(count: int, r: float) -> float:
    """Variance of the mean of so many values in a row, neighbours of which correlate by r, over that of one."""
    return (count + 2 * sum((count - apart) * r**apart for apart in range(1, count))) / count**2


def factor(count: int) -> float:
    """Spreads that the shift of so many runs exceeds in half of RATE; of fewer than 15 runs there is none.

    The other half is for taking the steadier of two figures.
    Counts between the simulated ones take the smaller one's.
    """
    return FACTORS[max(each for each in FACTORS if each <= count)]


def simulated(length: int, draws: int = _DRAWS) -> float:
    """What FACTORS holds for so many runs, from series with tails of 4 degrees of freedom, drawn with a fixed seed."""
    values = np.random.default_rng((4, length)).standard_t(_DOF, (draws, length))
    anchor = values[:, :ANCHOR]
    centres = np.median(anchor, axis=1)
    steps = np.abs(np.diff(values, axis=1)).mean(axis=1) / math.sqrt(2)
    spreads = np.maximum(steps, np.abs(anchor - centres[:, None]).mean(axis=1)) * math.sqrt(math.pi / 2)
    away = (np.median(values[:, -RECENT:], axis=1) - centres) / spreads
    return float(np.quantile(away, 1 - RATE / 2))


def _start(runs: Sequence[str], released: str | None) -> int:
    """Where the anchor begins: half of its runs before the release, as far as there are any."""
    return max(runs.index(released) - ANCHOR // 2, 0) if released in runs else 0


def _figures(known: Sequence[HistoryCase]) -> Mapping[str, Sequence[float]]:
    """Log scale, more is slower."""
    found = {KERNEL: [math.log(case.kernel_us.median_us) for case in known]}
    shifts = [case.shift for case in known if case.shift is not None]
    return {**found, SPEEDUP: shifts} if len(shifts) == len(known) else found


def _apart(on: Sequence[str | None]) -> float:
    """Spreads between boards that the shift may have from them alone: by how far their shares differ.

    A board that most of the last runs are on has the whole of their median.
    """
    before, after = Counter(on[:ANCHOR]), Counter(on[-RECENT:])
    top, count = after.most_common(1)[0]
    shares = {board: float(board == top) if 2 * count > RECENT else after[board] / RECENT for board in {*on}}
    apart = math.hypot(*(share - before[board] / ANCHOR for board, share in shares.items()))
    return statistics.NormalDist().inv_cdf(1 - RATE) * apart


def _case(run: HistoryRun, case: str) -> HistoryCase | None:
    found = next((each for each in run.cases if each.case == case), None)
    return None if case in run.inconclusive else found
