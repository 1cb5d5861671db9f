"""Tallies as rows of Markdown tables."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cells import CLASSES, Cell, Played
from duels import NOTHING, Tally
from screen_on_traces import upper_bound

from perfci.statistics.duel_rule import Ruling

HEAD = ("checks", "REGRESSED", "rate", "nominal 95 % bound", "blocks", "device time")


@dataclass(frozen=True)
class Marks:
    """The lines of a page between which a benchmark puts its tables."""

    benchmark: str
    """its file, from the repository's root"""

    @property
    def begin(self) -> str:
        return f"<!-- made by {self.benchmark}: begin -->"

    @property
    def end(self) -> str:
        return f"<!-- made by {self.benchmark}: end -->"

    def written(self, page: Path, text: str) -> None:
        """Puts the tables between the page's marks. Raises ValueError if it has none."""
        before, begin, rest = page.read_text(encoding="utf-8").partition(self.begin)
        _, end, after = rest.partition(self.end)
        if not begin or not end:
            raise ValueError(f"{page} lacks the lines {self.begin} and {self.end}")
        page.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def sections_text(sections: Mapping[str, str], but: Collection[str] = ()) -> str:
    """Headings and their tables. but: headings that are left out, as on a page."""
    return "\n\n".join(f"### {title}\n\n{text}" for title, text in sections.items() if title not in but)


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def percent(rate: float) -> str:
    """Two digits after the point near 0 and 100 %, and never rounded to either."""
    value = 100 * rate
    if value in (0, 100):
        return f"{value:.0f} %"
    return f"{min(max(value, 0.01), 99.99):.2f} %" if value < 1 or value > 99 else f"{value:.1f} %"


def lower_bound(seen: float, checks: float) -> float:
    """Clopper and Pearson's one-sided 95 % lower bound of a rate."""
    from scipy.stats import beta  # which takes a second

    return float(beta.ppf(0.05, seen, checks - seen + 1)) if seen else 0.0


def alarms(tally: Tally) -> list[str]:
    """An unchanged kernel's row. IMPROVED counts as an alarm too."""
    bound = upper_bound(tally.alarms, tally.checks)
    return [f"{tally.checks:,}", f"{tally.alarms}", percent(tally.alarms / tally.checks), f"at most {percent(bound)}"]


def sights(tally: Tally) -> list[str]:
    """A slower kernel's row."""
    seen = tally.answers[Ruling.SLOWER]
    bound = lower_bound(seen, tally.checks)
    return [f"{tally.checks:,}", f"{seen:,}", percent(seen / tally.checks), f"at least {percent(bound)}"]


def disjoint(tally: Tally, recorded: int, effect: float) -> str:
    """The bound at this rate for as many duels as there are if no two of them share a recorded block."""
    checks = math.floor(recorded * tally.checks / tally.blocks)
    if effect:
        bound = lower_bound(checks * tally.answers[Ruling.SLOWER] / tally.checks, checks)
        return f"at least {percent(bound)} (of {checks})"
    return f"at most {percent(upper_bound(checks * tally.alarms / tally.checks, checks))} (of {checks})"


def costs(tally: Tally) -> list[str]:
    return [f"{tally.blocks / tally.checks:.1f}", f"{tally.device_ms / tally.checks:.0f} ms"]


def row(tally: Tally, effect: float) -> list[str]:
    return [*(sights(tally) if effect else alarms(tally)), *costs(tally)]


def planted(effect: float) -> str:
    return f"{100 * effect:g} %" if effect else "none"


def total(tallies: Iterable[Tally]) -> Tally:
    return sum(tallies, NOTHING)


def by_length(played: Played, cells: Iterable[Cell]) -> dict[tuple[str, float], Tally]:
    """(class of length, effect) -> tally, in this order."""
    result: dict[tuple[str, float], Tally] = {}
    for cell in cells:
        key = cell.length, cell.effect
        result[key] = result.get(key, NOTHING) + played[cell]
    order = list(CLASSES)
    return dict(sorted(result.items(), key=lambda item: (order.index(item[0][0]), item[0][1])))


def effects(tallies: dict[tuple[str, float], Tally]) -> str:
    """A row a class of length and slow-down."""
    rows = [[name, planted(effect), *row(one, effect)] for (name, effect), one in tallies.items()]
    return table(("kernel", "slow-down", *HEAD), rows)
