"""Geometric mean speedups: of an op, and of all cases."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from statistics import NormalDist

from perfci.core.model import Interval, Judgement
from perfci.core.wording import say
from perfci.report import rows, words
from perfci.report.ceilings import find_unsound
from perfci.report.text import code
from perfci.report.view import Section, make_table


def average_speedups(speedups: Sequence[Interval]) -> Interval:
    """Geometric mean of speedups s_1 ... s_k with its 95 % interval: exp(m - L), exp(m), exp(m + H).

    m = (log s_1 + ... + log s_k) / k, the mean that does not depend on which of the two times is the unit (Fleming and
    Wallace, CACM 29(3), 1986). L = sqrt(l_1^2 + ... + l_k^2) / k of the half-widths l_i below each log s_i, and H alike
    above (JCGM 100:2008, 5.1.2), all scaled to 95 % first. Raises ValueError for none.
    """
    if not speedups:
        raise ValueError("the mean of no speedups")
    count = len(speedups)
    scales = [_quantile(rows.CONFIDENCE) / _quantile(one.confidence) for one in speedups]
    pairs = list(zip(scales, speedups, strict=True))
    middle = sum(math.log(one.value) for one in speedups) / count
    low = math.hypot(*(scale * math.log(one.value / one.low) for scale, one in pairs)) / count
    high = math.hypot(*(scale * math.log(one.high / one.value) for scale, one in pairs)) / count
    return Interval(math.exp(middle), math.exp(middle - low), math.exp(middle + high))


def _quantile(confidence: float) -> float:
    return NormalDist().inv_cdf(min(0.5 + confidence / 2, 1 - 1e-9))


def find_sound(judged: Iterable[Judgement]) -> dict[str, list[Interval]]:
    """Speedups by op, without those of cases that are WRONG, ERROR or SUSPECT, and of numbers that no ratio can be."""
    known = list(judged)
    bad = find_unsound(known)
    found: dict[str, list[Interval]] = {}
    for row in known:
        speedup = row.comparison.speedup if row.comparison else None
        if speedup and (row.op, row.case) not in bad and is_ratio(speedup):
            found.setdefault(row.op, []).append(speedup)
    return found


def is_ratio(speedup: Interval) -> bool:
    """Whether an interval is one of a ratio: finite, above 0, and of some confidence."""
    ends = (speedup.value, speedup.low, speedup.high)
    return all(math.isfinite(end) and end > 0 for end in ends) and 0 < speedup.confidence < 1


def compare_ops(judged: Sequence[Judgement]) -> Section | None:
    """One row an op. None if there are fewer than two ops, whose sections have the same."""
    found = find_sound(judged)
    if len(found) < 2:
        return None
    shown = []
    for op, speedups in found.items():
        ends = (words.write_ratio(end(one.value for one in speedups)) for end in (min, max))
        slower = sum(one.high < 1 for one in speedups)
        mean = words.write_speedup(average_speedups(speedups))
        shown.append((code(op), str(len(speedups)), mean, *ends, str(slower)))
    heads = "op | cases: | geometric mean speedup | lowest: | highest: | slower than the reference:"
    return Section(say("Speedup by op"), table=make_table(heads, shown))
