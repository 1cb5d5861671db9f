"""The part of an op's section about the base revision: duels with their numbers, and what the change does."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from perfci.core import units, wording
from perfci.core.model import BaseArm, Judgement, Judgements, Look, OpRun, PlannedBase, Run, Suite
from perfci.core.wording import say
from perfci.report import rows, words
from perfci.report.speed import without_empty
from perfci.report.text import code, inline
from perfci.report.view import Part, Table
from perfci.statistics import duel_rule, power
from perfci.statistics.power import Noise
from perfci.thresholds.limits import Thresholds

DUEL = "kernel/base"

MOST_NOISE = 32
"""Most cases of a run whose smallest visible slow-down is worked out, the gravest first: each takes some 40 ms."""

FILES = 8
"""Most files named one by one."""

CASES = 3
"""Most cases named one by one where they share a line."""

Noises = Mapping[tuple[str, str], Noise]
"""by op and case"""


def noises(run: Run, judgements: Judgements) -> Noises:
    """What the duelled cases' blocks say about the measurement; of those with enough blocks for a look."""
    alpha = _alpha(judgements)
    blocks = {(op.op, case.case): case.blocks for op in run.ops for case in op.performance}
    found: dict[tuple[str, str], Noise] = {}
    for row in sorted(judgements.rows, key=lambda row: rows.rank(row.verdict)):
        key, duel = (row.op, row.case or ""), row.comparison.duel if row.comparison else None
        shifts = [block.shifts[DUEL] for block in blocks.get(key, ()) if DUEL in block.shifts]
        if duel and len(shifts) >= duel_rule.FIRST and len(found) < MOST_NOISE:
            found[key] = power.noise(shifts, math.expm1(duel.tau), alpha, run.plan.duel_family)
    return found


def _alpha(judgements: Judgements) -> float:
    """The chance of a false alarm that the duels were judged by, as their note has it."""
    told = (note.facts.get("alpha") for note in judgements.notes if note.kind == "how_duelled")
    return next((float(alpha) for alpha in told if alpha), Thresholds().alpha)


def parts(op: OpRun, base: PlannedBase | None, judged: Sequence[Judgement], found: Noises) -> tuple[Part, ...]:
    """The two tables, each empty where there is nothing to tell."""
    name = inline(op.op, 80)
    duelled = [row for row in judged if row.suite is Suite.PERFORMANCE and row.comparison and row.comparison.duel]
    few = [say("It is worked out for {count:case|cases} of the run, the gravest verdicts first.", count=MOST_NOISE)]
    notes = [*_how(base), _note(), *(few if len(found) >= MOST_NOISE else [])]
    return (
        Part(say("{op}: against the base", op=name), " ".join(notes), _duels(duelled, found)),
        Part(say("{op}: what changed", op=name), "", _changes(op)),
    )


def files(base: PlannedBase | None) -> str:
    """A sentence with the files in which the op differs from the base's; empty where there is none."""
    if base is None or not base.changed:
        return ""
    return say("Files that differ from the base's: {files}.", files=_listed(base.changed, FILES))


def _listed(names: Sequence[str], most: int) -> str:
    shown = ", ".join(code(name) for name in names[:most])
    return say("{names} and {count} more", names=shown, count=len(names) - most) if len(names) > most else shown


# --- duels ------------------------------------------------------------------------------------------------------------


def _how(base: PlannedBase | None) -> list[str]:
    """How kernel and base took turns."""
    if base and base.apart:
        apart = say("Kernel and base took turns block by block, each in a process of its own.")
        return [apart, inline(wording.sentence(base.apart))]
    return [say("Kernel and base were launched in turn, in one process and on the same inputs.")]


def _note() -> str:
    return say(
        "*Change* is the centre of the blocks' shifts with its 95 % interval; of fewer than six blocks the range spans "
        "them all, at the confidence given. *Spread* is the standard deviation of the shift from block to block; "
        "*would show* is the smallest slow-down that a whole duel with this spread finds in 95 of 100 tries."
    )


def _duels(duelled: Iterable[Judgement], found: Noises) -> Table:
    shown = tuple(_duel(row, found.get((row.op, row.case or ""))) for row in duelled)
    names, numbers, more = (say("case"), say("verdict")), (say("base"), say("kernel")), (say("change"),)
    counts = (say("allowed"), say("blocks"), say("processes"))
    spans, tests = (say("by process"), say("span")), (say("p slower (adjusted)"), say("spread"), say("would show"))
    columns = (*names, *numbers, *more, *counts, *spans, *tests)
    return without_empty(Table(columns, shown, frozenset({*numbers, *counts, *tests})))


def _duel(row: Judgement, noise: Noise | None) -> tuple[str, ...]:
    seen = row.comparison
    assert seen is not None
    assert seen.duel is not None
    look = seen.duel
    tested = look.processes >= min(duel_rule.FINAL) and row.p_adjusted is not None
    return (
        code(row.case or ""),
        rows.verdict_word(row.verdict),
        units.time(seen.base_us),
        units.time(seen.kernel_us),
        change(look),
        units.percent(math.expm1(look.tau)),
        str(look.blocks),
        str(look.processes),
        by_process(look) if look.processes > 1 else "-",
        change(seen.duel_span) if seen.duel_span else "-",
        units.significant(row.p_adjusted or 0.0) if tested else "-",
        units.percent(noise.spread) if noise else "-",
        _would_show(noise, look),
    )


def change(look: Look) -> str:
    """The centre with its interval, as ratios - 1; the confidence where it is not 95 %."""
    found = rows.as_ratio(look.shift)
    value, low, high = (units.percent(one, signed=True) for one in (found.value, found.low, found.high))
    ends = words.between(low, high)
    short = f"; {100 * found.confidence:.0f} %" if found.confidence < rows.CONFIDENCE else ""
    return f"{value} ({ends}{short})"


def by_process(look: Look) -> str:
    """Each process's own median, in their order."""
    return ", ".join(units.percent(math.expm1(median), signed=True) for median in look.medians)


def _would_show(noise: Noise | None, look: Look) -> str:
    if noise is None:
        return "-"
    if noise.smallest is None:
        return say("above {change:%}", change=math.expm1(power.STEPS[-1] * look.tau))
    return units.percent(noise.smallest)


# --- what changed -----------------------------------------------------------------------------------------------------


def _changes(op: OpRun) -> Table:
    """Cases that changed alike share a line."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for case in op.performance:
        if case.base:
            alike.setdefault(told(case.base), []).append(case.case)
    shown = tuple((_listed(cases, CASES), inline(" ".join(texts), 1500)) for texts, cases in alike.items() if texts)
    return Table((say("case"), say("against the base's call")), shown)


def told(base: BaseArm) -> tuple[str, ...]:
    """What is known of a case's base, in sentences."""
    if base.failure:
        return (wording.sentence(base.failure),)
    if base.same:
        return (say("The same device work, launch for launch."),)
    return tuple(wording.sentence(reason) for reason in base.changes)
