"""The History section of an op: last accepted medians against this run, steps, and what moved the numbers between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perfci.core import units
from perfci.core.environment import list_differences
from perfci.core.model import OpRun, Run
from perfci.core.wording import say, sentence
from perfci.report import past as pasts
from perfci.report.past import Mark, Past, Trail
from perfci.report.text import code, plain
from perfci.report.view import Picture, Section, Table, make_table
from perfci.report.words import count_cases, write_change
from perfci.statistics import changepoints
from perfci.statistics.changepoints import Cause, ChangePoint

TOLD = 5
"""Most cases of which a sentence is shown."""

MARKS = 12
"""Most marks in the table: the newest."""

NAMED = 2
"""Most cases that a mark names with their steps."""


def make_section(op: OpRun, run: Run, past: Past | None, pictures: Sequence[Picture] = ()) -> Section | None:
    """What the accepted runs show beside this one. None if no history has any of its cases."""
    if past is None:
        return None
    if past.damage:
        name, why = plain(op.op, 80), plain(sentence(past.damage))
        damage = say("The history of {op} is not shown, since it is damaged: {why}", op=name, why=why)
        return Section(say("History"), lines=(damage,))
    shown = pasts.list_trails(op, run, past)
    if not shown:
        return None
    marks = pasts.find_marks(past, shown)
    left = len(marks) - MARKS
    note = say("Earlier marks are left out: {count}.", count=left) if left > 0 else ""
    parts = [say("{count:accepted run|accepted runs}", count=len(past.runs))]
    if stepped := sum(trail.unexplained for trail in shown):
        parts.append(say("slower since a step that nothing explains: {cases}", cases=count_cases(stepped)))
    rows = (
        (
            code(trail.case),
            str(trail.runs),
            units.time(trail.last_us),
            units.time(trail.now_us),
            write_change(trail.change),
        )
        for trail in shown
    )
    found = Section(say("Marks"), (note,) if note else (), table=tabulate_marks(marks[-MARKS:]))
    return Section(
        title=say("History: {what}", what=", ".join(parts)),
        texts=(" ".join(_describe_runs(past)),),
        lines=tuple(_describe_problems(op.op, shown)),
        pictures=tuple(pictures),
        pictures_note=describe_drawn(sum(picture.shows for picture in pictures), len(shown)),
        table=make_table("case | accepted runs: | last accepted: | this run: | change:", rows),
        parts=(found,) if found else (),
        folded=True,
    )


def _describe_runs(past: Past) -> Iterator[str]:
    first, last = past.runs[0], past.runs[-1]
    ends = {"first": plain(first.created[:10], 16), "last": plain(last.created[:10], 16)}
    if len(past.runs) == 1:
        yield say("One run was accepted, on {last}.", last=ends["last"])
    else:
        count = say("{count:accepted run|accepted runs}", count=len(past.runs))
        yield say("{runs} from {first} to {last}.", runs=count, **ends)
    if last.environment.commit:
        yield say("The last one is of {commit}.", commit=code(last.environment.commit[:12]))
    if past.accepted:
        yield say("This run was accepted itself: what stands here is what came before it.")


def _describe_problems(op: str, shown: Sequence[Trail]) -> Iterator[str]:
    """Steps for the worse that nothing explains, the newest of a case, each with what to do next."""
    grave = sorted((trail for trail in shown if trail.unexplained), key=lambda trail: trail.rank)
    for trail in grave[:TOLD]:
        newest = [each for each in trail.changes if each.unexplained][-1]
        yield plain(sentence(changepoints.describe_change(newest, op)))
    if len(grave) > TOLD:
        rest = count_cases(len(grave) - TOLD)
        yield say("Alike: {cases} more; `perfci history --drift --op {op}` lists them.", cases=rest, op=op)


def describe_drawn(drawn: int, count: int) -> str:
    """Which cases are drawn, if it is not all of them."""
    if not drawn or drawn == count:
        return ""
    return say(
        "Drawn are {drawn} of {count} cases: those that stepped, then those that moved most.",
        drawn=drawn, count=count,
    )  # fmt: skip


# --- marks ------------------------------------------------------------------------------------------------------------


def tabulate_marks(found: Sequence[Mark]) -> Table:
    """A row a mark."""
    rows = []
    for mark in found:
        before, after = pasts.write_commits(mark)
        between = say("{before} and {after}", before=code(before), after=code(after))
        why = "; ".join(_explain(mark))
        rows.append((mark.name, plain(mark.after.created[:10], 16), between, why, _write_steps(mark.changes)))
    return make_table("mark | date | between | what explains it | steps of the kernel", rows)


def _explain(mark: Mark) -> Iterator[str]:
    if mark.fields:
        why = f" ({plain(mark.recorded)})" if mark.recorded else ""
        yield say("environment: {fields}", fields=plain(mark.fields)) + why
    if mark.why:
        yield say("a loss was accepted: {why}", why=plain(mark.why))
    if not mark.fields and not mark.why:
        yield from dict.fromkeys(map(_describe_cause, mark.changes))


def _describe_cause(change: ChangePoint) -> str:
    if change.why is not None:
        return say("a loss was accepted: {why}", why=plain(change.why))
    if change.cause is Cause.ENVIRONMENT:
        return say("environment: {fields}", fields=plain(list_differences(change.moved)))
    if change.cause in {Cause.BOARD, Cause.REFERENCE}:
        return say("other boards") if change.cause is Cause.BOARD else say("the reference moved, too or alone")
    if change.size.value < 0:
        return say("nothing known: the kernel became faster")
    return say("nothing known: the kernel") if change.lasting else say("nothing known, and it went back")


def _write_steps(changes: Sequence[ChangePoint]) -> str:
    """Of a few cases each, of many how far they moved."""
    shown = []
    for each in changes[:NAMED]:
        size, low, high = (write_change(end) for end in (each.size.value, each.size.low, each.size.high))
        shown.append(say("{case}: {change} ({low} to {high})", case=code(each.case), change=size, low=low, high=high))
    if rest := [each.size.value for each in changes[NAMED:]]:
        low, high = write_change(min(rest)), write_change(max(rest))
        shown.append(say("{cases} more, from {low} to {high}", cases=count_cases(len(rest)), low=low, high=high))
    return "; ".join(shown) or "-"
