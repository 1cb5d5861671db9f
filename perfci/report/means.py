"""Geometric means of speedups over cases."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from perfci.core.model import Interval, Judgement
from perfci.core.wording import say
from perfci.report import words
from perfci.report.ceilings import find_unsound
from perfci.report.text import code
from perfci.report.view import Section, make_table
from perfci.statistics.exact import average_ratios


@dataclass(frozen=True)
class Ratio:
    """One case's speedup."""

    row: Judgement
    ratio: Interval


def find_speedups(judged: Sequence[Judgement]) -> list[Ratio]:
    """Reference time / kernel time. Without cases that are WRONG, ERROR or SUSPECT, and what no ratio can be."""
    bad = find_unsound(judged)
    seen = ((row, row.comparison.speedup) for row in judged if row.comparison and (row.op, row.case) not in bad)
    return [Ratio(row, ratio) for row, ratio in seen if ratio and is_ratio(ratio)]


def is_ratio(speedup: Interval) -> bool:
    """Whether an interval is one of a ratio: finite, above 0, and of some confidence."""
    ends = (speedup.value, speedup.low, speedup.high)
    return all(math.isfinite(end) and end > 0 for end in ends) and 0 < speedup.confidence < 1


def compare_ops(judged: Sequence[Judgement]) -> Section | None:
    """One row an op. None if there are fewer than two ops, with sections that have the same."""
    ratios: dict[str, list[Ratio]] = {}
    for one in find_speedups(judged):
        ratios.setdefault(one.row.op, []).append(one)
    if len(ratios) < 2:
        return None
    shown = []
    for op, speedups in ratios.items():
        worst = min(speedups, key=lambda one: one.ratio.value)
        low, high = (words.write_ratio(end(one.ratio.value for one in speedups)) for end in (min, max))
        slower = sum(one.ratio.high < 1 for one in speedups)
        mean = words.write_speedup(average_ratios([one.ratio for one in speedups]))
        shown.append((code(op), str(len(speedups)), mean, low, code(worst.row.case or ""), high, str(slower)))
    heads = "op | cases: | geometric mean speedup | lowest: | lowest at | highest: | slower than the reference:"
    return Section(say("Speedup by op"), table=make_table(heads, shown))
