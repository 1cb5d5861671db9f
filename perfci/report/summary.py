"""The executive summary: what a reader on a phone has to know, in at most a handful of lines of facts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from perfci.core import units
from perfci.core.environment import UNTOLD
from perfci.core.model import Fact, Gate, Judgement, Judgements, Run, Verdict
from perfci.core.wording import say
from perfci.measure.closeness import times_allowed
from perfci.report import means, rows, words
from perfci.report.frame import Clocks
from perfci.report.text import code, inline

ODD = frozenset({"thermal", "power_brake", "hw_slowdown"})
"""Reasons for a low clock that are no part of an ordinary run; the power cap is."""

OPS = 8
"""Ops above which the means of the lowest and the highest stand for all."""

_UNPROVEN = (Verdict.INCONCLUSIVE, Verdict.DRIFTED, Verdict.STALE, Verdict.SUSPECT)


def summary(run: Run, judgements: Judgements, clocks: Clocks) -> tuple[str, ...]:
    """The bullets, each with its numbers; fewer where there is less to tell."""
    told = (_unproven, _removed, _faster, _accepted, _speedup)
    lines = (_fails(judgements), *(tell(judgements.rows) for tell in told), _odd(run, clocks))
    return tuple(line for line in lines if line)


# --- what fails -------------------------------------------------------------------------------------------------------


def _fails(judgements: Judgements) -> str:
    """Counts of what fails, and of each kind the worst."""
    failing = [row for row in judgements.rows if row.gate is Gate.FAILS]
    counts = rows.verdicts(rows.rows(judgements))
    told = [_worst(verdict, counts[verdict], found) for verdict, found in _by_verdict(failing)]
    return say("**Fails**: {what}.", what="; ".join(told)) if told else ""


def _by_verdict(judged: Iterable[Judgement]) -> Iterator[tuple[Verdict, list[Judgement]]]:
    groups: dict[Verdict, list[Judgement]] = {}
    for row in judged:
        groups.setdefault(row.verdict, []).append(row)
    return ((verdict, groups[verdict]) for verdict in Verdict if verdict in groups)


def _worst(verdict: Verdict, count: int, found: Sequence[Judgement]) -> str:
    row = max(found, key=_BADNESS.get(verdict, _none))
    where = f"{_where(row)} {_number(verdict, row)}".strip()
    if len(found) == 1:
        return say("1 {verdict}, {where}", verdict=verdict, where=where)
    if verdict not in _BADNESS:
        return say("{count} {verdict}, the first {where}", count=count, verdict=verdict, where=where)
    return say("{count} {verdict}, the worst {where}", count=count, verdict=verdict, where=where)


def _change(row: Judgement) -> float:
    found = rows.latest_change(row)
    return found.value if found else -math.inf


def _slowness(row: Judgement) -> float:
    speedup = row.comparison.speedup if row.comparison else None
    return -speedup.value if speedup else -math.inf


def _error(row: Judgement) -> tuple[bool, float]:
    """How far it is beyond what is allowed; a case before its op as a whole."""
    return row.case is not None, times_allowed(row.reasons[0])


def _none(row: Judgement) -> float:
    return 0.0 if row.case is None else 1.0


_BADNESS: dict[Verdict, Callable[[Judgement], float | tuple[bool, float]]] = {
    Verdict.REGRESSED: _change,
    Verdict.TOO_SLOW: _slowness,
    Verdict.WRONG: _error,
}


def _number(verdict: Verdict, row: Judgement) -> str:
    if verdict in {Verdict.REGRESSED, Verdict.IMPROVED, Verdict.EXPECTED} and rows.latest_change(row):
        return units.percent(_change(row), signed=True)
    if verdict is Verdict.TOO_SLOW:
        return _missed(row)
    times = times_allowed(row.reasons[0])
    if verdict is Verdict.WRONG and math.isfinite(times):
        return say("off by {times:n} times what is allowed", times=times)
    return ""


def _missed(row: Judgement) -> str:
    """The figure that is too slow: share of the bandwidth, first call, else the speedup."""
    first = row.reasons[0]
    if first.kind == "bandwidth_low":
        return say("{share:%} of the copy", share=first.facts["share"])
    if first.kind == "compile_too_slow":
        return say("first call {seconds:n} s", seconds=first.facts["seconds"])
    speedup = row.comparison.speedup if row.comparison else None
    return words.ratio(speedup.value) if speedup else ""


def _where(row: Judgement) -> str:
    about = say("compiled for {target}", target=inline(row.target)) if row.target else ""
    return " ".join(part for part in (code(row.op), about, code(row.case) if row.case else "") if part)


# --- the rest ---------------------------------------------------------------------------------------------------------


def _unproven(judged: Sequence[Judgement]) -> str:
    told = _counted(judged, _UNPROVEN)
    return say("**Unproven**: {what}.", what=told) if told else ""


def _removed(judged: Sequence[Judgement]) -> str:
    told = _counted(judged, (Verdict.REMOVED,))
    return say("**Gone**: {what}.", what=told) if told else ""


def _counted(judged: Sequence[Judgement], verdicts: Sequence[Verdict]) -> str:
    """How many of each, and of which ops."""
    return ", ".join(
        say("{count} {verdict} ({where})", count=len(found), verdict=verdict, where=_first(found))
        for verdict, found in _by_verdict(judged)
        if verdict in verdicts
    )


def _first(found: Sequence[Judgement]) -> str:
    """The ops of some rows, each once; a few by name."""
    names = list(dict.fromkeys(row.op for row in found))
    shown = ", ".join(code(name) for name in names[:2])
    return shown if len(names) <= 2 else say("{ops} and {count} more", ops=shown, count=len(names) - 2)


def _faster(judged: Sequence[Judgement]) -> str:
    found = [row for row in judged if row.verdict is Verdict.IMPROVED]
    if not found:
        return ""
    best = min(found, key=lambda row: change.value if (change := rows.latest_change(row)) else math.inf)
    where = f"{_where(best)} {_number(Verdict.IMPROVED, best)}".strip()
    if len(found) == 1:
        return say("**Faster**: 1 case, {where}.", where=where)
    return say("**Faster**: {count} cases, most of all {where}.", count=len(found), where=where)


def _accepted(judged: Sequence[Judgement]) -> str:
    found = [row for row in judged if row.verdict is Verdict.EXPECTED]
    if not found:
        return ""
    worst = max(found, key=_change)
    where = f"{_where(worst)} {_number(Verdict.EXPECTED, worst)}".strip()
    return say("**Slower as expected**: {count}, the most {where}.", count=len(found), where=where)


def _speedup(judged: Sequence[Judgement]) -> str:
    """Over all cases, and op by op, or from the lowest to the highest."""
    every, ops = means.overall(judged), means.by_op(judged)
    if every is None:
        return ""
    ranked = sorted(ops.items(), key=lambda item: item[1].speedup.value)
    told = [f"{code(op)} {words.ratio(one.speedup.value)}" for op, one in ranked]
    facts: dict[str, Fact] = {"speedup": words.speedup(every.speedup), "count": every.cases}
    if every.cases == 1:
        return say("**Speedup** over the reference: {speedup}.", **facts)
    if len(told) == 1:
        return say("**Speedup** over the reference, geometric mean of {count} cases: {speedup}.", **facts)
    if len(told) <= OPS:
        return say(
            "**Speedup** over the reference, geometric mean of {count} cases: {speedup}; by op {ops}.",
            ops=", ".join(told), **facts,
        )  # fmt: skip
    return say(
        "**Speedup** over the reference, geometric mean of {count} cases: {speedup}; by op from {lowest} to {highest}.",
        lowest=told[0], highest=told[-1], **facts,
    )  # fmt: skip


def _odd(run: Run, clocks: Clocks) -> str:
    told = list(_oddities(run, clocks))
    return say("**Take care**: {what}.", what="; ".join(told)) if told else ""


def _oddities(run: Run, clocks: Clocks) -> Iterator[str]:
    """What makes this run unlike others."""
    if run.stopped:
        yield say("stopped early by {signal}", signal=inline(run.stopped))
    if run.environment.dirty:
        yield say("the work tree had uncommitted changes")
    if names := sorted(set(run.environment.variables) - set(UNTOLD)):
        yield say("set in the environment: {names}", names=", ".join(map(code, names)))
    for why, count in clocks.throttle:
        if why in ODD:
            facts: dict[str, Fact] = {"why": inline(why), "count": count, "blocks": clocks.blocks}
            yield say("{why} held the clock down in {count} of {blocks:block|blocks}", **facts)
    if clocks.foreign_processes and clocks.foreign_processes[1]:
        yield say("up to {count} processes of others on the device", count=f"{clocks.foreign_processes[1]:.0f}")
    boards = {block.board for op in run.ops for case in op.performance for block in case.blocks} - {None}
    if len(run.plan.boards) > 1:
        yield say("measured on {count} boards side by side", count=len(run.plan.boards))
    elif boards:
        yield say("some blocks were measured on another board")
