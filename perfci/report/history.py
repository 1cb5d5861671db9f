"""The History section of an op: last accepted medians against this run, creep, and what moved the numbers between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfci.core import units
from perfci.core.environment import told
from perfci.core.model import OpRun, Reason, Run
from perfci.core.wording import say, sentence
from perfci.report import past as pasts
from perfci.report import words
from perfci.report.past import Mark, Past, Trail
from perfci.report.text import code, inline
from perfci.report.view import History, Picture, Table
from perfci.statistics import changepoints
from perfci.statistics.changepoints import Cause, Change

TOLD = 5
"""Most cases of which a sentence is told."""

MARKS = 12
"""Most marks in the table; of more the newest."""

NAMED = 2
"""Most cases that a mark names with their steps."""


def section(op: OpRun, run: Run, past: Past | None, pictures: Sequence[Picture] = ()) -> History | None:
    """What the accepted runs say beside this one; None where no history has any of its cases."""
    if past is None:
        return None
    name = inline(op.op, 80)
    if past.damage:
        return History(
            damage=say(
                "The history of {op} is not shown, since it is damaged: {why}", op=name, why=_sentence(past.damage)
            )
        )
    shown = pasts.trails(op, run, past)
    if not shown:
        return None
    marks = pasts.marks(past, shown)
    return History(
        title=_title(shown, past, run),
        lines=tuple(_lines(shown, past)),
        said=tuple(_said(op.op, shown)),
        pictures=tuple(pictures),
        pictures_note=drawn_note(sum(picture.shows for picture in pictures), len(shown)),
        table=_table(shown),
        marks=_marks(marks[-MARKS:]) if marks else None,
        marks_note=say("Earlier marks are left out: {count}.", count=len(marks) - MARKS) if len(marks) > MARKS else "",
    )


def _sentence(reason: Reason) -> str:
    return inline(sentence(reason))


# --- sentences --------------------------------------------------------------------------------------------------------


def _title(shown: Sequence[Trail], past: Past, run: Run) -> str:
    parts = [words.accepted_runs(len(past.runs)), words.since(pasts.since_s(past, run))]
    crept, stepped = sum(trail.crept for trail in shown), sum(trail.unexplained for trail in shown)
    if crept:
        parts.append(say("crept: {cases}", cases=words.cases(crept)))
    if stepped:
        parts.append(say("slower since a step that nothing explains: {cases}", cases=words.cases(stepped)))
    return say("History: {what}", what=", ".join(filter(None, parts)))


def _lines(shown: Sequence[Trail], past: Past) -> Iterator[str]:
    first, last = past.runs[0], past.runs[-1]
    ends = {"first": inline(first.created[:10], 16), "last": inline(last.created[:10], 16)}
    if len(past.runs) == 1:
        yield say("One run was accepted, on {last}.", last=ends["last"])
    else:
        yield say("{runs} from {first} to {last}.", runs=words.accepted_runs(len(past.runs)), **ends)
    if last.environment.commit:
        yield say("The last one is of {commit}.", commit=code(last.environment.commit[:12]))
    if past.accepted:
        yield say("This run was accepted itself: what stands here is what came before it.")
    anchored = [trail.past for trail in shown if trail.past.creep]
    releases = dict.fromkeys(each.release for each in anchored if each.release)
    if releases:
        name = ", ".join(map(code, releases))
        yield say("Creep: the last 5 accepted runs against the anchor, 10 runs about {release}.", release=name)
    elif anchored:
        yield say("Creep: the last 5 accepted runs against the anchor, the first 10 of this environment.")
    else:
        yield say("Too few runs of this environment, since the release or an accepted loss, for creep.")


def _said(op: str, shown: Sequence[Trail]) -> Iterator[str]:
    """Creep, and steps for the worse that nothing explains, each with what to do next; the largest first."""
    grave = sorted((trail for trail in shown if trail.crept or trail.unexplained), key=lambda trail: trail.rank)
    for trail in grave[:TOLD]:
        steps = [each for each in trail.past.changes if each.unexplained]
        # A creep shows as several steps, of which none did it.
        reason = trail.past.said if trail.past.said and len(steps) != 1 else changepoints.told_of(steps[-1], op)
        yield _sentence(reason)
    if len(grave) > TOLD:
        rest = words.cases(len(grave) - TOLD)
        yield say("Alike: {cases} more; `perfci history --drift --op {op}` tells of each.", cases=rest, op=op)


def drawn_note(drawn: int, count: int) -> str:
    """Which cases are drawn, where it is not all of them."""
    if not drawn or drawn == count:
        return ""
    return say(
        "Drawn are {drawn} of {count} cases: those that crept or stepped, then those that moved most.",
        drawn=drawn, count=count,
    )  # fmt: skip


# --- cases ------------------------------------------------------------------------------------------------------------


def _table(shown: Sequence[Trail]) -> Table:
    columns = (
        say("case"), say("accepted runs"), say("last accepted"), say("this run"), say("change"), say("anchor"),
        say("creep"), say("told from"),
    )  # fmt: skip
    return Table(columns, tuple(map(_row, shown)), frozenset(columns[1:]))


def _row(trail: Trail) -> tuple[str, ...]:
    creep = trail.past.creep
    return (
        code(trail.case),
        str(trail.runs),
        units.time(trail.last_us),
        units.time(trail.now_us),
        signed(trail.change),
        units.time(trail.anchor_us),
        f"**{signed(creep.change)}**" if creep and creep.found else signed(creep.change if creep else None),
        signed(creep.threshold if creep else None),
    )


def signed(ratio: float | None) -> str:
    """A change; without a sign where it is nothing.

    >>> signed(0.0213), signed(-0.0001), signed(None)
    ('+2.1 %', '0.0 %', '-')
    """
    if ratio is not None and abs(ratio) < 0.0005:
        return units.percent(0.0)
    return units.percent(ratio, signed=True)


# --- marks ------------------------------------------------------------------------------------------------------------


def _marks(found: Sequence[Mark]) -> Table:
    columns = (say("mark"), say("date"), say("between"), say("what explains it"), say("steps of the kernel"))
    return Table(columns, tuple(map(_mark, found)))


def _mark(mark: Mark) -> tuple[str, ...]:
    before, after = pasts.commits(mark)
    between = say("{before} and {after}", before=code(before), after=code(after))
    return mark.name, inline(mark.after.created[:10], 16), between, "; ".join(_explained(mark)), _steps(mark.changes)


def _explained(mark: Mark) -> Iterator[str]:
    if mark.fields:
        why = f" ({inline(mark.recorded)})" if mark.recorded else ""
        yield say("environment: {fields}", fields=inline(mark.fields)) + why
    if mark.why:
        yield say("a loss was accepted: {why}", why=inline(mark.why))
    causes = dict.fromkeys(_cause(change) for change in mark.changes)
    if not mark.fields and not mark.why:
        yield from causes


def _cause(change: Change) -> str:
    if change.since is not None:
        return say("accepted since: {why}", why=inline(change.since))
    known = {
        Cause.ACCEPTED: lambda: say("a loss was accepted: {why}", why=inline(change.why or "")),
        Cause.ENVIRONMENT: lambda: say("environment: {fields}", fields=inline(told(change.moved))),
        Cause.BOARD: lambda: say("other boards"),
        Cause.REFERENCE: lambda: say("the reference moved, too or alone"),
    }
    return known.get(change.cause, lambda: _own(change))()


def _own(change: Change) -> str:
    if change.size.value < 0:
        return say("nothing known: the kernel became faster")
    return say("nothing known: the kernel") if change.lasting else say("nothing known, and it went back")


def _steps(changes: Sequence[Change]) -> str:
    """Of a few cases each, of many how far they moved."""
    told = [
        say("{case}: {change} ({low} to {high})", case=code(each.case), change=signed(each.size.value),
            low=signed(each.size.low), high=signed(each.size.high))
        for each in changes[:NAMED]
    ]  # fmt: skip
    rest = changes[NAMED:]
    if rest:
        sizes = [each.size.value for each in rest]
        low, high = signed(min(sizes)), signed(max(sizes))
        told.append(say("{cases} more, from {low} to {high}", cases=words.cases(len(rest)), low=low, high=high))
    return "; ".join(told) or "-"
