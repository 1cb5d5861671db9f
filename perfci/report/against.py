"""The part of an op's section about the base revision: duels with their numbers, and what the change does."""

import math
from collections.abc import Iterator, Sequence

from perfci.core import units
from perfci.core.model import BaseArm, Judgement, Look, OpRun, PlannedBase, Suite
from perfci.core.wording import join, say, sentence
from perfci.report import rows, words
from perfci.report.text import code, list_some, mark_verdict, phrase, plain
from perfci.report.view import Section, Table, make_table
from perfci.statistics import duel_rule, exact

FILES = 8  # most files named one by one
CASES = 3  # most cases named one by one if they share a line


def make_parts(op: OpRun, base: PlannedBase | None, judged: Sequence[Judgement]) -> Iterator[Section]:
    """Returns the tables of duels, of host times and of changes. Each is empty if there is nothing to report."""
    name = plain(op.op, 80)
    if base and base.apart:
        how = say("Kernel and base took turns block by block, each in a separate process.")
        how = join([how, plain(sentence(base.apart))])
    else:
        how = say("Kernel and base were launched in turn, in one process and on the same inputs.")
    change = phrase(
        "*Change* is the centre of the blocks' shifts with its 95 % interval. With fewer than six blocks the range "
        "spans them all, at the confidence given."
    )
    yield Section(say("{op}: against the base", op=name), (join([how, change]),), table=tabulate_duels(judged))
    alone = phrase(
        "Kernels that reach the board's power limit if they are launched back to back: what each gets with the device "
        "to itself. Side by side they are timed at the free clock."
    )
    yield Section(say("{op}: at the power limit", op=name), (alone,), table=tabulate_sustained(judged))
    note = say(
        "How long a call keeps the host, of many in a row, and what each takes in such a loop: the greater of host and "
        "device time, without a flush in between. The share is that of the host in it."
    )
    yield Section(say("{op}: host time", op=name), (note,), table=tabulate_hosts(judged))
    alike: dict[str, list[str]] = {}
    for case in op.performance:
        if case.base and (texts := describe_base(case.base)):
            alike.setdefault(plain(join(texts), 1500), []).append(code(case.case))
    table = make_table("case | against the base's call", ((list_some(alike[text], CASES), text) for text in alike))
    yield Section(say("{op}: what changed", op=name), table=table)


def tabulate_hosts(judged: Sequence[Judgement]) -> Table:
    """Returns a table with a row a case with a measured host time."""
    shown = []
    for row in judged:
        if (seen := row.comparison) and (now := seen.host) and row.suite is Suite.PERFORMANCE:
            base, look = seen.base_host, seen.duel_host
            shown.append((
                code(row.case or ""),
                *map(units.time, (base.host_us if base else None, now.host_us)),
                write_change(look) if look else "-",
                units.percent(math.expm1(look.tau)) if look else "-",
                f"{look.blocks} / {look.processes}" if look else "-",
                *map(units.time, (base.loop_us if base else None, now.loop_us)),
                units.percent(min(now.host_us / now.loop_us, 1.0)),
            ))  # fmt: skip
    heads = (
        "case | base: | kernel: | change | allowed: | blocks / processes: | loop of the base: | loop: | host's share:"
    )
    return make_table(heads, shown)


def describe_files(base: PlannedBase | None) -> str:
    """Returns a sentence with the files in which the op differs from the base's. Empty if there is none."""
    if base is None or not base.changed:
        return ""
    return say("Files that differ from the base's: {files}.", files=list_some(list(map(code, base.changed)), FILES))


def tabulate_duels(judged: Sequence[Judgement]) -> Table:
    """Returns a table with a row a case that was timed side by side with its base."""
    shown = []
    for row in judged:
        seen = row.comparison
        if row.suite is not Suite.PERFORMANCE or seen is None or seen.duel is None:
            continue
        look, medians = seen.duel, seen.duel.medians
        # Looks at one process can only clear. They test nothing.
        tested = look.processes >= min(duel_rule.FINAL) and row.p_adjusted is not None
        shown.append((
            code(row.case or ""),
            mark_verdict(row.verdict),
            units.time(seen.base_us),
            units.time(seen.kernel_us),
            write_change(look),
            units.percent(math.expm1(look.tau)),
            str(look.blocks),
            str(look.processes),
            ", ".join(units.percent(math.expm1(one), signed=True) for one in medians) if len(medians) > 1 else "-",
            units.percent(seen.tail.mean, signed=True) if seen.tail else "-",
            write_change(seen.duel_span) if seen.duel_span else "-",
            units.significant(row.p_adjusted or 0.0) if tested else "-",
        ))  # fmt: skip
    heads = (
        "case | verdict | base: | kernel: | change | allowed: | blocks: | processes: | by process | change of mean: | "
        "span | p slower (adjusted):"
    )
    return make_table(heads, shown)


def tabulate_sustained(judged: Sequence[Judgement]) -> Table:
    """Returns a table with a row an arm of each case with a kernel at the power limit."""
    names = {"kernel": say("kernel"), "reference": say("reference"), "base": say("base")}
    shown = []
    for row in judged:
        for figure in row.comparison.sustained if row.comparison else ():
            watts = 1e6 * figure.joules / figure.us if figure.joules else None
            shown.append((
                code(row.case or ""),
                names.get(figure.arm) or code(figure.arm),
                units.time(figure.us),
                words.write_number(figure.clock_mhz),
                words.write_number(watts),
                words.write_number(figure.joules),
                words.write_number(figure.gflops_per_watt),
            ))  # fmt: skip
    return make_table("case | arm | sustained: | clock, MHz: | power, W: | energy a call, J: | GFLOP/s per W:", shown)


def write_change(look: Look) -> str:
    """Writes the centre with its interval, as ratios - 1, and the confidence if it is not 95 %."""
    change = exact.to_ratio(look.shift)
    value, low, high = (units.percent(one, signed=True) for one in (change.value, change.low, change.high))
    short = f"; {100 * change.confidence:.0f} %" if change.confidence < rows.CONFIDENCE else ""
    return f"{value} ({words.write_range(low, high)}{short})"


def describe_base(base: BaseArm) -> tuple[str, ...]:
    """Returns what is known of a case's base, in sentences."""
    if base.failure:
        return (sentence(base.failure),)
    if base.same:
        return (say("The same files.") if base.changes else say("The same device work, launch for launch."),)
    return tuple(map(sentence, base.changes))
