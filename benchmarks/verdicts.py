"""How often perfci's verdicts are wrong, and what they find, compared with other tools on the same launches.

    python benchmarks/verdicts.py [--quick] [--peers FOLDER] [--out docs/how-good-is-perfci.md]

Every check is a whole duel: stopped, tested, adjusted for 30 cases and answered by the functions that perfci itself
uses. Slow-downs are planted exactly. The tables are printed as Markdown; with --out they replace the part between
the two marks of that page, and the plot is written beside it. All seeds are fixed.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import peers
import resampling
import side_by_side
import simulation
from cells import EFFECTS, PROMISES, VARIANTS, Cell, Played, all_played, length_class, promised, recordings, variant
from duels import FAMILY, LIMITS, NOTHING, Tally, play, tally
from screen_on_traces import upper_bound
from tables import (
    HEAD,
    Marks,
    alarms,
    by_length,
    costs,
    disjoint,
    effects,
    percent,
    planted,
    row,
    sections_text,
    sights,
    table,
    total,
)

from perfci.statistics import duel_rule

MARKS = Marks("benchmarks/verdicts.py")

HALF_EFFECTS = tuple(effect / 2 for effect in EFFECTS)

BUFFERS = {"shared": "Arms that share their buffers", "own": "Arms with buffers of their own"}

BIASED = {"bias": math.log1p(0.015), "chance": 0.1}
"""One process in ten has an arm that is slower for as long as it lives."""


@dataclass(frozen=True)
class Size:
    """How many checks are made; a multiple of the family if there is no effect."""

    null: int
    """unchanged, a recorded case"""
    planted: int
    """a recorded case and effect"""
    simulated_null: int
    """a trouble and length"""
    simulated: int
    """a trouble, length and effect"""
    pairs: int
    """that other tools see too, a recorded case and effect"""
    neighbour: int
    """a recorded case and experiment"""


FULL = Size(null=1800, planted=2000, simulated_null=600, simulated=200, pairs=120, neighbour=1200)
QUICK = Size(null=60, planted=20, simulated_null=30, simulated=4, pairs=4, neighbour=30)


# --- resampled --------------------------------------------------------------------------------------------------------


def resampled(size: Size, planted: Sequence[float], share: float = 1.0) -> list[Cell]:
    return [
        Cell(source, number, effect, size.planted if effect else size.null, share)
        for source in BUFFERS
        for number in range(len(recordings(source)))
        for effect in planted
    ]


def resampled_text(played: Played, cells: Sequence[Cell]) -> str:
    parts = []
    for source, name in BUFFERS.items():
        parts += [f"{name}:", effects(by_length(played, [cell for cell in cells if cell.source == source]))]
    return "\n\n".join(parts)


SHARES = (1.0, 0.8, 0.7, 0.6, 0.5)


def tightenings(size: Size) -> list[Cell]:
    """Unchanged kernels, and those slower by twice as much of tau as they are judged by."""
    return [
        Cell(source, number, effect, size.neighbour, share)
        for source in BUFFERS
        for number, recording in enumerate(recordings(source))
        for share in SHARES
        for effect in (0.0, share * promised(recording.base_us))
    ]


def tightenings_text(played: Played, cells: Sequence[Cell]) -> str:
    rows = []
    for source, length, share in dict.fromkeys((cell.source, cell.length, cell.share) for cell in cells):
        slice_cells = [cell for cell in cells if (cell.source, cell.length, cell.share) == (source, length, share)]
        same, slower = (
            total(played[cell] for cell in slice_cells if (cell.effect > 0) == slow) for slow in (False, True)
        )
        promise = planted(round(share * PROMISES[length], 6))
        counts = [f"{same.alarms} of {same.checks:,}", costs(same)[0], promise, *sights(slower)[2:]]
        rows.append([source, length, planted(round(share * PROMISES[length] / 2, 6)), *counts])
    head = ("buffers", "kernel", "tau", "alarms", "blocks to clear", "slow-down", "REGRESSED", "nominal 95 % bound")
    return table(head, rows)


# --- simulated --------------------------------------------------------------------------------------------------------


def simulated(size: Size) -> list[Cell]:
    return [
        Cell(trouble, number, effect, size.simulated if effect else size.simulated_null)
        for trouble in simulation.TROUBLES
        for number in range(len(simulation.LENGTHS_US))
        for effect in EFFECTS
    ]


def simulated_text(played: Played, cells: Sequence[Cell]) -> str:
    lengths = [f"{planted(promised(us))} of {us:g} us" for us in simulation.LENGTHS_US]
    rows = []
    for trouble in simulation.TROUBLES:
        of_trouble = [cell for cell in cells if cell.source == trouble]
        same = total(played[cell] for cell in of_trouble if not cell.effect)
        seen = [sights(played[cell]) for cell in of_trouble if cell.effect == promised(cell.base_us)]
        rows.append([trouble, *alarms(same)[:2], costs(same)[0], *(f"{count} of {many}" for many, count, *_ in seen)])
    return table(("trouble", "unchanged: checks", "alarms", "blocks", *lengths), rows)


# --- live -------------------------------------------------------------------------------------------------------------


def live_text(duels: Sequence[resampling.Live]) -> str:
    if not duels:
        return f"None is recorded yet: `benchmarks/traces/{resampling.LIVE}` is missing."
    parts = ["As they were measured:", effects(_live(duels))]
    if whole := [duel for duel in duels if duel.complete and duel.factor == 1]:
        slowed = [replace(duel, effect=effect) for effect in EFFECTS for duel in whole]
        parts += [f"With slow-downs planted in the {len(whole)} that hold all their blocks:", effects(_live(slowed))]
    parts.append(strays_text([duel for duel in duels if duel.factor == 1], resampling.live(changed=True)))
    return "\n\n".join(parts)


LAST_FOR_BIAS = "20261121T170103Z-46a14e"
"""The last run with processes that were looked at when `looks.BIAS` was set."""


def strays_text(unchanged: Sequence[resampling.Live], changed: Sequence[resampling.Live]) -> str:
    """How far processes stray, compared with the bias that the rule allows."""
    before, after = [], []
    for duel in unchanged:
        (before if duel.run <= LAST_FOR_BIAS else after).extend(_strays(duel))
    rows = [
        ["unchanged kernels, from 0", "to set BIAS", *_strayed(before)],
        ["unchanged kernels, from 0", "later", *_strayed(after)],
        [
            "changed kernels, from the duel's other processes",
            "later",
            *_strayed([s for d in changed for s in _strays(d)]),
        ],
    ]
    head = ("medians of processes", "recorded", "processes", "largest over 40 us", "largest up to 40 us")
    beyond = f"beyond BIAS, {percent(math.expm1(duel_rule.BIAS))}"
    with variant("24 blocks decide without regard to bias"):
        alarmed = sum(one.alarms for one in _live(unchanged).values())
    return (
        f"{table((*head, beyond, 'nominal 95 % bound'), rows)}\n\n"
        f"With a BIAS of 0 the rule raises {alarmed} alarms in the {len(unchanged)} live duels of unchanged kernels."
    )


def _strays(duel: resampling.Live) -> list[tuple[float, float]]:
    """(length, log stray) of each process: from 0 if the kernel is unchanged, else from the blocks of the others."""
    medians = [statistics.median(process) for process in duel.found]
    if not duel.changed:
        return [(duel.base_us, abs(median)) for median in medians]
    if len(duel.found) < 3:  # of two either may be the one that strays
        return []
    others = [
        statistics.median(shift for other in duel.found if other is not process for shift in other)
        for process in duel.found
    ]
    return [(duel.base_us, abs(median - rest)) for median, rest in zip(medians, others, strict=True)]


def _strayed(strays: Sequence[tuple[float, float]]) -> list[str]:
    if not strays:
        return ["0", "-", "-", "-", "-"]
    largest = [max((stray for us, stray in strays if (us > 40) == long), default=None) for long in (True, False)]
    beyond = sum(stray > duel_rule.BIAS for _, stray in strays)
    return [
        f"{len(strays)}",
        *("-" if stray is None else percent(math.expm1(stray)) for stray in largest),
        f"{beyond}, {percent(beyond / len(strays))}",
        f"at most {percent(upper_bound(beyond, len(strays)))}",
    ]


def _live(duels: Sequence[resampling.Live]) -> dict[tuple[str, float], Tally]:
    """(class of length, slow-down) -> tally; each duel counts as one of 30 cases."""
    live: dict[tuple[str, float], Tally] = {}
    for duel in duels:
        key = length_class(duel.base_us), duel.factor * (1 + duel.effect) - 1
        live[key] = live.get(key, NOTHING) + tally(play([duel], LIMITS, FAMILY, duel.timer))
    return dict(sorted(live.items()))


# --- neighbours -------------------------------------------------------------------------------------------------------

CONDITIONS: Mapping[str, tuple[str, Mapping[str, float]]] = {
    "own buffers": ("own", {}),
    "shared": ("shared", {}),
    "biased processes": ("shared", BIASED),
}


def neighbours(size: Size) -> list[Cell]:
    return [
        Cell(source, number, effect, size.neighbour, variant=name, **trouble)
        for name in VARIANTS
        for source, trouble in CONDITIONS.values()
        for number, recording in enumerate(recordings(source))
        for effect in (0.0, promised(recording.base_us))
    ]


def neighbours_text(played: Played, cells: Sequence[Cell]) -> str:
    rows = []
    for name in VARIANTS:
        same, slower = (
            [_under(played, cells, name, what, planted) for what in CONDITIONS] for planted in (False, True)
        )
        counts = [f"{one.alarms} of {one.checks:,}" for one in same]
        rows.append([name, *counts, *(sights(one)[2] for one in slower), costs(same[1])[0], costs(slower[1])[0]])
    head = [f"{what}, {name}" for what in ("alarms", "promise seen") for name in CONDITIONS]
    return table(("rule", *head, "blocks to clear", "blocks to REGRESSED"), rows)


def _under(played: Played, cells: Sequence[Cell], name: str, condition: str, planted: bool) -> Tally:
    source, trouble = CONDITIONS[condition]
    asked = (name, source, trouble.get("chance", 0.0), planted)
    return total(played[one] for one in cells if (one.variant, one.source, one.chance, one.effect > 0) == asked)


# --- the whole --------------------------------------------------------------------------------------------------------


def headline(played: Played, sources: Mapping[str, Sequence[Cell]], live: Sequence[resampling.Live]) -> str:
    rows = []
    for name, cells in sources.items():
        same = [cell for cell in cells if not cell.effect]
        rows.append(_headline(f"unchanged, {name}", total(played[cell] for cell in same), 0.0, same))
    if unchanged := [duel for duel in live if duel.factor == 1]:
        rows.append(_headline("unchanged, live", total(_live(unchanged).values()), 0.0, ()))
    for name, cells in sources.items():
        seen = by_length(played, cells)
        for length, effect in reversed(PROMISES.items()):
            slowed = cells[0].share * effect
            alike = [cell for cell in cells if (cell.length, cell.effect) == (length, slowed)]
            if alike:
                rows.append(_headline(f"{planted(slowed)}, {length}, {name}", seen[length, slowed], slowed, alike))
    return table(("kernel", *HEAD[:4], "95 % bound by disjoint duels", *HEAD[4:]), rows)


def _headline(name: str, tally: Tally, effect: float, cells: Sequence[Cell]) -> list[str]:
    """A row. The checks of `cells` share recorded blocks, all others have their own."""
    checked = row(tally, effect)
    recorded = (recordings("own")[cell.number] for cell in cells if cell.source in BUFFERS)
    blocks = sum(len(process) for recording in recorded for process in recording.processes)
    return [name, *checked[:4], disjoint(tally, blocks, effect) if blocks else checked[3], *checked[4:]]


DETAILS = (
    "Resampled from recorded launches",
    "The same with half of tau",
    "How small tau could be",
    "Simulated, all troubles together",
)
"""Tables that are printed, and not put on the page: "In short" has their ends."""


def run(size: Size, folder: Path | None, picture: Path | None, workers: int) -> dict[str, str]:
    """Makes all tables. folder: of other tools' environments; picture: path of the plot."""
    plain, halved = resampled(size, EFFECTS), resampled(size, HALF_EFFECTS, 0.5)
    troubled, tight, varied = simulated(size), tightenings(size), neighbours(size)
    results = all_played([*plain, *halved, *troubled, *tight, *varied], workers)
    live = resampling.live()
    tools, missing = peers.available(folder)
    beside = side_by_side.settings(size.pairs, tools)
    if picture:
        side_by_side.plot(beside, picture)
    sources = {f"{name} buffers": [cell for cell in plain if cell.source == name] for name in BUFFERS}
    sources["simulated"] = troubled
    sources |= {f"{name} buffers, half of tau": [cell for cell in halved if cell.source == name] for name in BUFFERS}
    return {
        "In short": headline(results, sources, live),
        "Resampled from recorded launches": resampled_text(results, plain),
        "The same with half of tau": resampled_text(results, halved),
        "How small tau could be": tightenings_text(results, tight),
        "Simulated": simulated_text(results, troubled),
        "Simulated, all troubles together": effects(by_length(results, troubled)),
        "Live on a device": live_text(live),
        "Other tools on the same launches": side_by_side.text(beside, tools, missing),
        "The rule and its neighbours": neighbours_text(results, varied),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few checks: shows that it works, says little")
    parser.add_argument("--peers", type=Path, metavar="FOLDER", help="keep environments with asv, pyperf, nvbench here")
    parser.add_argument("--out", type=Path, metavar="PAGE", help="page with the two marks; the plot goes beside it")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that play duels")
    options = parser.parse_args(arguments)
    started = time.perf_counter()
    size, picture = QUICK if options.quick else FULL, options.out and options.out.with_suffix(".png")
    sections = run(size, options.peers, picture, options.workers)
    if options.out:
        MARKS.written(options.out, sections_text(sections, DETAILS))
    print(sections_text(sections))
    print(f"\n{time.perf_counter() - started:.0f} s on {options.workers} processes", file=sys.stderr)


if __name__ == "__main__":
    main()
