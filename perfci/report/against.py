"""The part of an op's section about the base revision: duels with their numbers, and what the change does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from perfci.core import units
from perfci.core.model import BaseArm, Gate, Judgement, Judgements, Look, OpRun, PlannedBase, Run, Suite
from perfci.core.wording import say, sentence
from perfci.report import rows, words
from perfci.report.text import code, list_some, phrase, plain, strong
from perfci.report.view import Part, Table, make_table
from perfci.statistics import duel_rule, power
from perfci.statistics.power import Noise
from perfci.thresholds.limits import Thresholds

DUEL = "kernel/base"

MOST_NOISE = 32
"""Most cases of a run whose smallest visible slow-down is worked out, the gravest first: each takes some 40 ms."""

FILES = 8
"""Most files named one by one."""

CASES = 3
"""Most cases named one by one if they share a line."""

Noises = Mapping[tuple[str, str], Noise]
"""by op and case"""


def measure_noises(run: Run, judgements: Judgements) -> Noises:
    """What the duelled cases' blocks show about the measurement, if they have enough blocks for a look."""
    stated = (note.facts.get("alpha") for note in judgements.notes if note.kind == "how_duelled")
    alpha = next((float(alpha) for alpha in stated if alpha), Thresholds().alpha)
    blocks = {(op.op, case.case): case.blocks for op in run.ops for case in op.performance}
    found: dict[tuple[str, str], Noise] = {}
    for row in sorted(judgements.rows, key=lambda row: rows.rank(row.verdict)):
        key, duel = (row.op, row.case or ""), row.comparison.duel if row.comparison else None
        shifts = [block.shifts[DUEL] for block in blocks.get(key, ()) if DUEL in block.shifts]
        if duel and len(shifts) >= duel_rule.FIRST and len(found) < MOST_NOISE:
            found[key] = power.noise(shifts, math.expm1(duel.tau), alpha, run.plan.duel_family)
    return found


def make_parts(op: OpRun, base: PlannedBase | None, judged: Sequence[Judgement], noises: Noises) -> tuple[Part, ...]:
    """The table of duels and that of changes, each empty if there is nothing to report."""
    name = plain(op.op, 80)
    if base and base.apart:
        notes = [say("Kernel and base took turns block by block, each in a process of its own.")]
        notes.append(plain(sentence(base.apart)))
    else:
        notes = [say("Kernel and base were launched in turn, in one process and on the same inputs.")]
    notes.append(
        phrase(
            "*Change* is the centre of the blocks' shifts with its 95 % interval; of fewer than six blocks the range "
            "spans them all, at the confidence given. *Spread* is the standard deviation of the shift from block to "
            "block; *would show* is the smallest slow-down that a whole duel with this spread finds in 95 of 100 tries."
        )
    )
    if len(noises) >= MOST_NOISE:
        notes.append(
            say("It is worked out for {count:case|cases} of the run, the gravest verdicts first.", count=MOST_NOISE)
        )
    return (
        Part(say("{op}: against the base", op=name), " ".join(notes), _tabulate_duels(judged, noises)),
        Part(say("{op}: what changed", op=name), "", _tabulate_changes(op)),
    )


def describe_files(base: PlannedBase | None) -> str:
    """A sentence with the files in which the op differs from the base's. Empty if there is none."""
    if base is None or not base.changed:
        return ""
    return say("Files that differ from the base's: {files}.", files=list_some(list(map(code, base.changed)), FILES))


def _tabulate_duels(judged: Sequence[Judgement], noises: Noises) -> Table:
    shown = []
    for row in judged:
        seen = row.comparison
        if row.suite is not Suite.PERFORMANCE or seen is None or seen.duel is None:
            continue
        look, noise = seen.duel, noises.get((row.op, row.case or ""))
        tested = look.processes >= min(duel_rule.FINAL) and row.p_adjusted is not None
        would_show = units.percent(noise.smallest) if noise else "-"
        if noise and noise.smallest is None:
            would_show = say("above {change:%}", change=math.expm1(power.STEPS[-1] * look.tau))
        shown.append((
            code(row.case or ""),
            str(row.verdict) if row.verdict.gate is Gate.OK else strong(row.verdict),
            units.time(seen.base_us),
            units.time(seen.kernel_us),
            write_change(look),
            units.percent(math.expm1(look.tau)),
            str(look.blocks),
            str(look.processes),
            write_processes(look) if look.processes > 1 else "-",
            write_change(seen.duel_span) if seen.duel_span else "-",
            units.significant(row.p_adjusted or 0.0) if tested else "-",
            units.percent(noise.spread) if noise else "-",
            would_show,
        ))  # fmt: skip
    heads = (
        "case | verdict | base: | kernel: | change | allowed: | blocks: | processes: | by process | span | "
        "p slower (adjusted): | spread: | would show:"
    )
    return make_table(heads, shown).without_empty()


def write_change(look: Look) -> str:
    """The centre with its interval, as ratios - 1, and the confidence if it is not 95 %."""
    found = rows.to_ratio(look.shift)
    value, low, high = (units.percent(one, signed=True) for one in (found.value, found.low, found.high))
    short = f"; {100 * found.confidence:.0f} %" if found.confidence < rows.CONFIDENCE else ""
    return f"{value} ({words.write_range(low, high)}{short})"


def write_processes(look: Look) -> str:
    """Each process's own median, in their order."""
    return ", ".join(units.percent(math.expm1(median), signed=True) for median in look.medians)


def _tabulate_changes(op: OpRun) -> Table:
    """Cases that changed alike share a line."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for case in op.performance:
        if case.base:
            alike.setdefault(describe_base(case.base), []).append(code(case.case))
    shown = ((list_some(cases, CASES), plain(" ".join(texts), 1500)) for texts, cases in alike.items() if texts)
    return make_table("case | against the base's call", shown)


def describe_base(base: BaseArm) -> tuple[str, ...]:
    """What is known of a case's base, in sentences."""
    if base.failure:
        return (sentence(base.failure),)
    if base.same:
        return (say("The same device work, launch for launch."),)
    return tuple(map(sentence, base.changes))
