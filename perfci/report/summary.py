"""The executive summary: what a reader on a phone has to know, in at most a handful of lines of facts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from perfci.core import units
from perfci.core.environment import UNTOLD
from perfci.core.model import Fact, Gate, Judgement, Judgements, Run, Verdict
from perfci.core.wording import say
from perfci.measure.closeness import times_allowed
from perfci.report import means, rows, words
from perfci.report.frame import Clocks
from perfci.report.text import code, list_some, phrase, plain

ODD = frozenset({"thermal", "power_brake", "hw_slowdown"})
"""Reasons for a low clock that are no part of an ordinary run, as the power cap is."""

OPS = 8
"""Ops above which the means of the lowest and the highest stand for all."""

_UNPROVEN = (Verdict.INCONCLUSIVE, Verdict.DRIFTED, Verdict.STALE, Verdict.SUSPECT)
_RANKED = (Verdict.REGRESSED, Verdict.TOO_SLOW, Verdict.WRONG)
"""Verdicts of which one case may be worse than another."""


def summarise(run: Run, judgements: Judgements, clocks: Clocks) -> tuple[str, ...]:
    """The bullets, each with its numbers."""
    judged = judgements.rows
    failing = [row for row in judged if row.gate is Gate.FAILS]
    counts = rows.count_verdicts(rows.make_rows(judgements))
    lines = []
    if what := "; ".join(_describe_worst(verdict, counts[verdict], found) for verdict, found in _group(failing)):
        lines.append(phrase("**Fails**: {what}.", what=what))
    if what := _count(judged, _UNPROVEN):
        lines.append(phrase("**Unproven**: {what}.", what=what))
    if what := _count(judged, (Verdict.REMOVED,)):
        lines.append(phrase("**Gone**: {what}.", what=what))
    lines += filter(None, (_describe_faster(judged), _describe_accepted(judged), _describe_speedup(judged)))
    if what := "; ".join(_find_oddities(run, clocks)):
        lines.append(phrase("**Take care**: {what}.", what=what))
    return tuple(lines)


def _group(judged: Iterable[Judgement]) -> Iterator[tuple[Verdict, list[Judgement]]]:
    groups: dict[Verdict, list[Judgement]] = {}
    for row in judged:
        groups.setdefault(row.verdict, []).append(row)
    return ((verdict, groups[verdict]) for verdict in Verdict if verdict in groups)


def _describe_worst(verdict: Verdict, count: int, found: Sequence[Judgement]) -> str:
    where = _locate(max(found, key=_rate))
    if len(found) == 1:
        return say("1 {verdict}, {where}", verdict=verdict, where=where)
    if verdict not in _RANKED:
        return say("{count} {verdict}, the first {where}", count=count, verdict=verdict, where=where)
    return say("{count} {verdict}, the worst {where}", count=count, verdict=verdict, where=where)


def _rate(row: Judgement) -> tuple[bool, float]:
    """How bad a row is beside others of its verdict. A case ranks before its op as a whole."""
    if row.verdict is Verdict.WRONG:
        return row.case is not None, times_allowed(row.reasons[0])
    if row.verdict is Verdict.REGRESSED:
        return True, _change(row)
    if row.verdict is Verdict.TOO_SLOW:
        speedup = row.comparison.speedup if row.comparison else None
        return True, -speedup.value if speedup else -math.inf
    return row.case is not None, 0.0


def _change(row: Judgement) -> float:
    found = rows.find_change(row)
    return found.value if found else -math.inf


def _locate(row: Judgement) -> str:
    """Op, target and case of a row, and the number that matters."""
    about = say("compiled for {target}", target=plain(row.target)) if row.target else ""
    return " ".join(part for part in (code(row.op), about, code(row.case or ""), _find_number(row)) if part)


def _find_number(row: Judgement) -> str:
    if row.verdict in {Verdict.REGRESSED, Verdict.IMPROVED, Verdict.EXPECTED} and rows.find_change(row):
        return units.percent(_change(row), signed=True)
    if row.verdict is Verdict.WRONG and math.isfinite(times := times_allowed(row.reasons[0])):
        return say("off by {times:n} times what is allowed", times=times)
    if row.verdict is not Verdict.TOO_SLOW:
        return ""
    first = row.reasons[0]
    if first.kind == "bandwidth_low":
        return say("{share:%} of the copy", share=first.facts["share"])
    if first.kind == "compile_too_slow":
        return say("first call {seconds:n} s", seconds=first.facts["seconds"])
    speedup = row.comparison.speedup if row.comparison else None
    return words.write_ratio(speedup.value) if speedup else ""


def _count(judged: Sequence[Judgement], verdicts: Sequence[Verdict]) -> str:
    """How many of each, and of which ops."""
    shown = []
    for verdict, found in _group(judged):
        if verdict in verdicts:
            where = list_some([code(op) for op in dict.fromkeys(row.op for row in found)], 2)
            shown.append(say("{count} {verdict} ({where})", count=len(found), verdict=verdict, where=where))
    return ", ".join(shown)


def _describe_faster(judged: Sequence[Judgement]) -> str:
    found = [row for row in judged if row.verdict is Verdict.IMPROVED]
    if not found:
        return ""
    best = min(found, key=lambda row: change.value if (change := rows.find_change(row)) else math.inf)
    if len(found) == 1:
        return phrase("**Faster**: 1 case, {where}.", where=_locate(best))
    return phrase("**Faster**: {count} cases, most of all {where}.", count=len(found), where=_locate(best))


def _describe_accepted(judged: Sequence[Judgement]) -> str:
    found = [row for row in judged if row.verdict is Verdict.EXPECTED]
    if not found:
        return ""
    worst = _locate(max(found, key=_change))
    return phrase("**Slower as expected**: {count}, the most {where}.", count=len(found), where=worst)


def _describe_speedup(judged: Sequence[Judgement]) -> str:
    """Over all cases, and op by op, or from the lowest to the highest."""
    every = means.average_all(judged)
    if every is None:
        return ""
    ranked = sorted(means.average_ops(judged).items(), key=lambda item: item[1].speedup.value)
    ops = [f"{code(op)} {words.write_ratio(one.speedup.value)}" for op, one in ranked]
    facts: dict[str, Fact] = {"speedup": words.write_speedup(every.speedup), "count": every.cases}
    if every.cases == 1:
        return phrase("**Speedup** over the reference: {speedup}.", **facts)
    if len(ops) == 1:
        return phrase("**Speedup** over the reference, geometric mean of {count} cases: {speedup}.", **facts)
    if len(ops) <= OPS:
        return phrase(
            "**Speedup** over the reference, geometric mean of {count} cases: {speedup}; by op {ops}.",
            ops=", ".join(ops), **facts,
        )  # fmt: skip
    return phrase(
        "**Speedup** over the reference, geometric mean of {count} cases: {speedup}; by op from {lowest} to {highest}.",
        lowest=ops[0], highest=ops[-1], **facts,
    )  # fmt: skip


def _find_oddities(run: Run, clocks: Clocks) -> Iterator[str]:
    """What makes this run unlike others."""
    if run.stopped:
        yield say("stopped early by {signal}", signal=plain(run.stopped))
    if run.environment.dirty:
        yield say("the work tree had uncommitted changes")
    if names := sorted(set(run.environment.variables) - set(UNTOLD)):
        yield say("set in the environment: {names}", names=", ".join(map(code, names)))
    for why, count in clocks.throttle:
        if why in ODD:
            facts: dict[str, Fact] = {"why": plain(why), "count": count, "blocks": clocks.blocks}
            yield say("{why} held the clock down in {count} of {blocks:block|blocks}", **facts)
    if clocks.foreign_processes and clocks.foreign_processes[1]:
        yield say("up to {count} processes of others on the device", count=f"{clocks.foreign_processes[1]:.0f}")
    boards = {block.board for op in run.ops for case in op.performance for block in case.blocks} - {None}
    if len(run.plan.boards) > 1:
        yield say("measured on {count} boards side by side", count=len(run.plan.boards))
    elif boards:
        yield say("some blocks were measured on another board")
