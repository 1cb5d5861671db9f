"""The head of every report, and its summary: what a reader on a phone needs, in a handful of lines."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import starmap
from statistics import geometric_mean

from perfci.core import units
from perfci.core.environment import UNTOLD
from perfci.core.model import Fact, Gate, Judgement, Judgements, Reason, Run, Suite, Verdict
from perfci.core.wording import join, say, sentence
from perfci.measure.closeness import times_allowed
from perfci.report import means, rows, words
from perfci.report.ceilings import WorkingPoint, find_points
from perfci.report.frame import ArmSpread, Clocks
from perfci.report.steps import KEY, make_steps
from perfci.report.text import code, phrase, plain, strong
from perfci.report.view import Head, NextStep, make_table
from perfci.statistics.exact import average_ratios

ODD = frozenset({"thermal", "power_brake", "hw_slowdown"})
"""Reasons for a low clock that are no part of an ordinary run, as the power cap is."""

LEAD = 240  # characters of a reason in the first line
LEAST = 0.001  # share of what is allowed below which an error is not shown
CHANGED = 7  # most changed lines in the head, the names of files included

_OTHER_TIMES = frozenset({"peak_memory_grew", *(f"duel_{what}_slower" for what in ("span", "host", "sustained"))})
"""Reasons for REGRESSED that are not about device time."""


def make_head(run: Run | None, judgements: Judgements) -> Head:
    """Returns the head. Cases of an op with one verdict and one cause share a row."""
    groups: dict[object, list[rows.VerdictRow]] = {}
    for row in rows.make_rows(judgements):
        if row.aloud or row.verdict is Verdict.IMPROVED:
            why, cause = row.first.reasons[:1], _find_cause(row.first)
            kind = why[0].kind if why and _has_cases(row) and not _find_changes([row]) else ""
            of_cause = cause and (*cause.facts.items(),)
            key = (
                row.op,
                rows.is_model(row.op) and row.case,
                row.first.target,
                row.verdict,
                row.gate,
                row.suite,
                kind,
                of_cause,
            )
            groups.setdefault(key, []).append(row)
    ordered = list(groups.values())
    for group in ordered:
        group.sort(key=_rate, reverse=True)
    order = [Verdict.WRONG, Verdict.ERROR, *Verdict]
    ordered.sort(key=lambda group: (group[0].rank, order.index(group[0].verdict), not group[0].case))
    counts = Counter((row.op, row.suite, row.target) for row in judgements.rows if row.case)
    totals = [counts[group[0].op, group[0].suite, group[0].first.target] for group in ordered]
    wheres = list(starmap(_locate, zip(ordered, totals, strict=True)))
    table = make_table(
        "verdict | where | was: | now: | change:",
        ((group[0].marked, where, *_compare(group)) for group, where in zip(ordered, wheres, strict=True)),
    )
    first = _describe(ordered[0], totals[0]) if ordered else ""
    steps: Sequence[NextStep] = ()
    if run and ordered and ordered[0][0].aloud:
        lead = ordered[0][0].first
        case = lead.reasons[0].facts.get("case") if lead.suite is Suite.ACCURACY and lead.reasons else None
        steps = make_steps(run, Judgements((replace(lead, case=lead.case or (str(case) if case else None)),)))
    return Head(
        sentences=(
            *([strong(first)] if first else []),
            *(plain(sentence(note)) for note in judgements.notes if note.kind in rows.MODEL),
            _describe_gate(judgements),
        ),
        table=table,
        gates=tuple(group[0].gate for group in ordered),
        reasons=tuple(_explain(group, where, first) for group, where in zip(ordered, wheres, strict=True)),
        step=next((step for step in steps if not step.command.startswith(KEY)), None),
        changes=_list_changes(run, ordered[0][0]) if run and ordered and ordered[0][0].gate is not Gate.OK else (),
    )


def _list_changes(run: Run, row: rows.VerdictRow) -> tuple[str, ...]:
    """The first lines by which the op of the gravest row differs from its base's."""
    base = next((op.base for op in run.plan.ops if op.op == row.op), None)
    return base.lines[:CHANGED] if base else ()


def _find_cause(row: Judgement) -> Reason | None:
    """The likely cause that the judge found, or the pattern of wrong answers."""
    kinds = ("cause_", "pattern_") if row.verdict is Verdict.WRONG else ("cause_",)
    return next((reason for reason in row.reasons if reason.kind.startswith(kinds)), None)


def _rate(row: rows.VerdictRow) -> float:
    """How much a row matters beside others of its group."""
    change, seen = rows.find_change(row.first), row.first.comparison
    if row.verdict is Verdict.TOO_SLOW:
        return -seen.speedup.value if seen and seen.speedup else -math.inf
    return (-1 if row.verdict is Verdict.IMPROVED else 1) * change.value if change else -math.inf


def _locate(group: Sequence[rows.VerdictRow], count: int) -> str:
    """The op, and how many of its cases."""
    first = group[0]
    of = _count(group, count) if _has_cases(first) else ""
    return " ".join((code(first.op), *filter(None, [say(", ").join(filter(None, (plain(_describe_part(first)), of)))])))


def _has_cases(row: rows.VerdictRow) -> bool:
    """Whether it is about some of its op's cases: those that compile alike share a row."""
    return bool(row.case or (row.suite is Suite.COMPILED and row.first.case))


def _describe_part(row: rows.VerdictRow) -> str:
    """What of its op it is about, without the cases."""
    compiled = row.suite is Suite.COMPILED
    return say("compiled for {target}", target=row.first.target) if compiled else row.about


def _count(group: Sequence[rows.VerdictRow], count: int) -> str:
    gathered = sum(row.gathered for row in group)
    if rows.is_model(group[0].op):
        return say("a step")
    if gathered < count:
        return say("{count} of {of:case|cases}", count=gathered, of=count)
    return say("all {count} cases", count=count) if count > 1 else say("its only case")


def _compare(group: Sequence[rows.VerdictRow]) -> tuple[str, str, str]:
    """The times before and now of the case that changed most, and by how much all of them did."""
    first, spans = group[0].first, _find_changes(group)
    seen, number = first.comparison, "-"
    if spans:
        number = _write_span(spans, signed=True)
    elif first.verdict is Verdict.WRONG and math.isfinite(times := min(map(times_allowed, first.reasons))):
        number = say("{times:n}x what is allowed", times=times)
    elif first.verdict is Verdict.TOO_SLOW and first.reasons[0].kind == "bandwidth_low":
        number = say("{share:%} of the copy", share=first.reasons[0].facts["share"])
    elif first.verdict is Verdict.TOO_SLOW and first.reasons[0].kind == "compile_too_slow":
        number = say("first call {seconds:n} s", seconds=first.reasons[0].facts["seconds"])
    elif first.verdict is Verdict.TAIL and seen and seen.tail:
        number = say("mean {change:+%}", change=seen.tail.mean)
    elif first.verdict is Verdict.TOO_SLOW and seen and seen.speedup:
        number = words.write_ratio(seen.speedup.value)
    before = (seen.base_us if seen.duel else seen.baseline_us) if seen and spans else None
    now = seen.kernel_us if seen and first.verdict is not Verdict.WRONG else None
    return units.time(before), units.time(now), number


def _find_changes(group: Sequence[rows.VerdictRow]) -> list[float]:
    """Changes of device time, if the verdict is about that."""
    first = group[0].first
    timed = first.verdict in {Verdict.REGRESSED, Verdict.IMPROVED, Verdict.EXPECTED}
    if not timed or (first.verdict is Verdict.REGRESSED and first.reasons[0].kind in _OTHER_TIMES):
        return []
    return [change.value for row in group if (change := rows.find_change(row.first))]


def _write_span(changes: Sequence[float], *, signed: bool = False) -> str:
    """Writes how far changes reach: 11 to 17 %, of a single one 4.1 %, or with their signs."""
    sign = "+" if signed else ""
    values = sorted(changes if signed else map(abs, changes))
    coarse, fine = (
        dict.fromkeys(f"{100 * value:{sign}.{digits}f}" for value in (values[0], values[-1])) for digits in (0, 1)
    )
    ends = coarse if len(coarse) > 1 and min(map(abs, values)) >= 0.0195 else fine
    return f"{words.write_range(*ends) if len(ends) > 1 else next(iter(ends))} %"


def _describe(group: Sequence[rows.VerdictRow], count: int) -> str:
    """What happened, how much, in how many cases, and why, in a sentence or two."""
    row, cause, changes = group[0], _find_cause(group[0].first), _find_changes(group)
    since = ""
    if cause and cause.kind == "cause_since":
        since = say(", since {name:say} went from {before} to {after}{more}", **cause.facts)
    elif cause and cause.kind == "cause_with":
        since = say(", with {name:say} {after} instead of {before}{more}", **cause.facts)
    cases = _count(group, count)
    facts: dict[str, Fact] = {"op": plain(row.op, 80), "cases": cases}
    if changes and row.case:
        facts |= {"span": _write_span(changes), "since": plain(since)}
        if row.verdict is Verdict.IMPROVED:
            return say("{op} is {span} faster in {cases}{since}.", **facts)
        return say("{op} is {span} slower in {cases}{since}.", **facts)
    if cause and row.verdict is Verdict.WRONG:
        return plain(sentence(cause))
    about = _describe_part(row) if row.about != say("whole op") else ""
    op = " ".join(filter(None, (plain(row.op, 80), plain(about))))
    where = say(" in {cases}", cases=cases) if _has_cases(row) else ""
    # The worst check matters more than how many failed.
    reasons = [reason for reason in row.first.reasons if reason.kind != "accuracy_failed"] or row.first.reasons
    why = plain(sentence(reasons[0]), LEAD) if reasons else ""
    return say("{op}: {verdict}{where}. {why}", op=op, verdict=row.verdict, where=where, why=why)


def _explain(group: Sequence[rows.VerdictRow], where: str, told: str) -> str:
    """The cause of a row of the table, unless it is shown already, and the reason of its gravest case."""
    first, cause = group[0], _find_cause(group[0].first)
    why = plain(first.sentence)
    if first.case:
        case = code(first.case)
        alone = len(group) == 1
        why = say("{op}: {told}", op=case, told=why) if alone else say("Most in {case}: {why}", case=case, why=why)
    cause_text = plain(sentence(cause)) if cause else ""
    why = join([cause_text, why] if cause_text and cause_text != told else [why])
    return say("{verdict} {where}: {why}", verdict=first.marked, where=where, why=why)


def _describe_gate(judgements: Judgements) -> str:
    """What the gate does, and the verdicts that there are."""
    counts = rows.count_all(judgements)
    if not counts.verdicts:
        return phrase("**Nothing was judged.**")
    fine, warns = say("The gate is open, nothing failed and nothing warns"), say("The gate is open, with warnings")
    opening = {Gate.OK: fine, Gate.WARNS: warns, Gate.FAILS: say("The gate fails")}[counts.gate]
    facts: dict[str, Fact] = {"code": rows.EXIT_CODES[counts.gate], "tally": rows.write_tally(counts.verdicts)}
    ops = say("{count:op|ops}", count=counts.ops)
    return say("{opening} (exit code {code}): {tally}, in {ops}.", opening=opening, ops=ops, **facts)


def summarise(run: Run, judgements: Judgements, clocks: Clocks, spreads: Sequence[ArmSpread]) -> tuple[str, ...]:
    """Returns what all cases come to, with the best and the worst, and what makes the run unlike others."""
    points = [*find_points(run.ops, spreads, judgements.rows, run.limits)]
    return (
        *_describe_accuracy(run), *_describe_means(judgements.rows), *_describe_ceilings(points),
        *_describe_oddities(run, clocks),
    )  # fmt: skip


def _describe_accuracy(run: Run) -> Iterator[str]:
    """Returns how many checks pass, and which of those is nearest to what is allowed."""
    made = [(op.op, check) for op in run.ops for check in op.accuracy if not check.unchecked]
    passed = [(op, check) for op, check in made if not check.failure]
    if not made:
        return
    checks = say("{count:accuracy check|accuracy checks}", count=len(made))
    text = phrase("**Accuracy**: {passed} of {checks} pass.", passed=len(passed), checks=checks)
    shares = [(check.errors.of_allowed if check.errors else None, op, check) for op, check in passed]
    large = [(share, op, check) for share, op, check in shares if share and share >= LEAST]
    if large:
        share, op, check = max(large, key=lambda one: one[0])
        where, values = f"{code(op)} {code(check.case)}", plain(check.values)
        text += say(" Nearest to what is allowed: {share:%} at {where}, {values} values.", share=share, where=where,
                    values=values)  # fmt: skip
    yield text


def _describe_means(judged: Sequence[Judgement]) -> Iterator[str]:
    """Returns the mean over all cases. The table of speedups has those of each op."""
    if speedups := means.find_speedups(judged):
        ends = [(one.ratio.value, one.row.op, one.row.case or "") for one in speedups]
        yield phrase(
            "**Speedup** over the reference, geometric mean of {count:case|cases}: {mean}{ends}.",
            count=len(speedups), mean=words.write_speedup(average_ratios([one.ratio for one in speedups])),
            ends=_tell_ends(ends, words.write_ratio),
        )  # fmt: skip


def _describe_ceilings(points: Sequence[WorkingPoint]) -> Iterator[str]:
    """Returns which share of its ceiling a kernel reaches in the mean."""
    if shares := [(one.share, one.op, one.case.case) for one in points if one.share]:
        yield phrase(
            "**Share of the ceiling**, what a copy or a matrix product reaches in this run, geometric mean of "
            "{count:case|cases}: {mean:%}{ends}.",
            count=len(shares), mean=geometric_mean(share for share, *_ in shares),
            ends=_tell_ends(shares, units.percent),
        )  # fmt: skip


def _tell_ends(ends: Sequence[tuple[float, str, str]], write: Callable[[float], str]) -> str:
    """The best kernel and the one that is furthest from it, each with its op and case. Empty if there is only one."""
    if len(ends) < 2:
        return ""
    (least, *worst), (most, *best) = (end(ends, key=lambda one: one[0]) for end in (min, max))
    places = {"best": " ".join(map(code, best)), "worst": " ".join(map(code, worst))}
    return say("; best {most} at {best}, lowest {least} at {worst}", most=write(most), least=write(least), **places)


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
