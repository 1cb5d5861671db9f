"""The summary: what a reader on a phone has to know, in a handful of lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from perfci.core import units
from perfci.core.environment import UNTOLD
from perfci.core.model import Gate, Judgement, Judgements, Run, Suite, Verdict
from perfci.core.wording import say
from perfci.measure.closeness import times_allowed
from perfci.report import means, rows, words
from perfci.report.frame import Clocks
from perfci.report.text import code, list_some, phrase, plain
from perfci.statistics.exact import average_ratios

ODD = frozenset({"thermal", "power_brake", "hw_slowdown"})
"""Reasons for a low clock that are no part of an ordinary run, as the power cap is."""


def summarise(run: Run, judgements: Judgements, clocks: Clocks) -> tuple[str, ...]:
    """Returns the items of the summary, each with its numbers."""
    verdicts, averages = _describe_verdicts(judgements), _describe_means(judgements.rows)
    return (*verdicts, *averages, *_describe_oddities(run, clocks))


def _describe_verdicts(judgements: Judgements) -> Iterator[str]:
    """Returns a line a group of verdicts: how many of each, and the worst of them, or the best of what is faster."""
    counts = rows.count_verdicts(rows.make_rows(judgements))
    groups: dict[str, dict[Verdict, list[Judgement]]] = {}
    for row in sorted(judgements.rows, key=lambda row: list(Verdict).index(row.verdict)):
        expected = row.verdict is Verdict.EXPECTED and row.gate is Gate.OK and row.suite is not Suite.SUITES
        title = {Gate.FAILS: say("Fails"), Gate.WARNS: say("Warns"), Gate.OK: ""}[row.gate]
        title = say("Slower as expected") if expected else say("Faster") if row.verdict is Verdict.IMPROVED else title
        groups.setdefault(title, {}).setdefault(row.verdict, []).append(row)
    for title in (say("Fails"), say("Warns"), say("Faster"), say("Slower as expected")):
        parts = []
        for verdict, alike in groups.get(title, {}).items():
            where = list_some([_locate(max(alike, key=_rate)), *[""] * (counts[verdict] - 1)], 1)
            parts.append(say("{count} {verdict}: {where}", count=counts[verdict], verdict=verdict, where=where))
        if parts:
            yield phrase("**{title}**: {what}.", title=title, what="; ".join(parts))


def _rate(row: Judgement) -> tuple[bool, float]:
    """Returns how much a row matters beside others of its verdict. A case ranks before its op as a whole."""
    change, speedup = rows.find_change(row), row.comparison.speedup if row.comparison else None
    if row.verdict is Verdict.WRONG:
        return row.case is not None, times_allowed(row.reasons[0])
    if row.verdict is Verdict.TOO_SLOW:
        return row.case is not None, -speedup.value if speedup else -math.inf
    sign = -1 if row.verdict is Verdict.IMPROVED else 1
    return row.case is not None, sign * change.value if change else -math.inf


def _locate(row: Judgement) -> str:
    """Returns op, target and case of a row, and the number that matters."""
    number, change, speedup = "", rows.find_change(row), row.comparison.speedup if row.comparison else None
    if row.verdict is Verdict.WRONG and math.isfinite(times := times_allowed(row.reasons[0])):
        number = say("off by {times:n} times what is allowed", times=times)
    elif row.verdict is Verdict.TOO_SLOW and row.reasons[0].kind == "bandwidth_low":
        number = say("{share:%} of the copy", share=row.reasons[0].facts["share"])
    elif row.verdict is Verdict.TOO_SLOW and row.reasons[0].kind == "compile_too_slow":
        number = say("first call {seconds:n} s", seconds=row.reasons[0].facts["seconds"])
    elif row.verdict is Verdict.TAIL and row.comparison and row.comparison.tail:
        number = say("mean {change:+%}", change=row.comparison.tail.mean)
    elif row.verdict is Verdict.TOO_SLOW and speedup:
        number = words.write_ratio(speedup.value)
    elif row.verdict in {Verdict.REGRESSED, Verdict.IMPROVED, Verdict.EXPECTED} and change:
        number = units.percent(change.value, signed=True)
    target = say("compiled for {target}", target=plain(row.target)) if row.target else ""
    return " ".join(part for part in (code(row.op), target, code(row.case or ""), number) if part)


def _describe_means(judged: Sequence[Judgement]) -> Iterator[str]:
    """Returns the means over all cases, with the worst of them. The table of speedups has those of each op."""
    if speedups := means.find_speedups(judged):
        worst = min(speedups, key=lambda one: one.ratio.value)
        yield phrase(
            "**Speedup** over the reference, geometric mean of {count:case|cases}: {mean}; lowest {worst} at {where}.",
            count=len(speedups), mean=words.write_speedup(average_ratios([one.ratio for one in speedups])),
            worst=words.write_ratio(worst.ratio.value), where=f"{code(worst.row.op)} {code(worst.row.case or '')}",
        )  # fmt: skip
    if changes := means.find_changes(judged):
        worst = max(changes, key=lambda one: one.ratio.value)
        mean = average_ratios([one.ratio for one in changes])
        value, low, high = (words.write_change(end - 1) for end in (mean.value, mean.low, mean.high))
        yield phrase(
            "**Change** against the base, geometric mean of {count:case|cases}: {mean} ({interval}); slowest {worst} "
            "at {where}.",
            count=len(changes), mean=value, interval=words.write_range(low, high),
            worst=words.write_change(worst.ratio.value - 1), where=f"{code(worst.row.op)} {code(worst.row.case or '')}",
        )  # fmt: skip


def _describe_oddities(run: Run, clocks: Clocks) -> Iterator[str]:
    """Returns a line on what makes this run unlike others."""
    odd = []
    if run.stopped:
        odd.append(say("stopped early by {signal}", signal=plain(run.stopped)))
    if run.environment.dirty:
        odd.append(say("the work tree had uncommitted changes"))
    if names := sorted(set(run.environment.variables) - set(UNTOLD)):
        odd.append(say("set in the environment: {names}", names=", ".join(map(code, names))))
    for why, count in clocks.throttle:
        if why in ODD:
            blocks = say("{count} of {blocks:block|blocks}", count=count, blocks=clocks.blocks)
            odd.append(say("{why} held the clock down in {blocks}", why=plain(why), blocks=blocks))
    if clocks.foreign_processes and clocks.foreign_processes[1]:
        odd.append(say("up to {count} processes of others on the device", count=f"{clocks.foreign_processes[1]:.0f}"))
    boards = {block.board for op in run.ops for case in op.performance for block in case.blocks} - {None}
    if len(run.plan.boards) > 1 or boards:
        odd.append(say("measured on several boards"))
    if odd:
        yield phrase("**Take care**: {what}.", what="; ".join(odd))
