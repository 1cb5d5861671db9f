"""What `perfci bisect` shows: each revision as it is tried, then the culprit, how sure it is, and how to look at it."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from rich.console import Console, RenderableType
from rich.text import Text

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import get_command, print_json, print_parts
from perfci.cli.progress import Progress
from perfci.cli.tables import STYLES, Shown, wrapped
from perfci.core import units
from perfci.core.model import Gate, Interval, Reason
from perfci.core.wording import say, sentence
from perfci.git.history import Commit, FileChange
from perfci.report.text import NAME_LIMIT, plain
from perfci.runs.bisect import Audience, Bisection, Culprit, bisect_op
from perfci.runs.bisect_revisions import BisectOptions
from perfci.runs.plan import Request
from perfci.statistics.bisection import Side, Step

ID = 10
"""Digits of a commit that are shown."""

_WORD, _CHANGE = 5, 29

_SIDE_STYLES = {
    Side.GOOD: STYLES[Gate.OK],
    Side.BAD: STYLES[Gate.FAILS],
    Side.PART: STYLES[Gate.WARNS],
    Side.SKIP: "dim",
}


def bisect(
    good: Annotated[str, options.argument("GOOD", "A revision at which the op was still fast, or right.")],
    bad: Annotated[str, options.argument("BAD", "A later one at which it no longer is.")],
    op: Annotated[str | None, options.option("--op", "The op to look at.", "none: give one", "OP")] = None,
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    budget: options.Budget = 1.0,
    seed: options.Seed = None,
    timer: options.Timer = "auto",
    first_parent: Annotated[
        bool, options.flag("--first-parent", "Try the main line only; a merge counts as a whole.")
    ] = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Find the commit between two revisions that made an op slower, or wrong, by duels, and say how sure that is."""
    json, where = output == "json", language.load(project)
    request = Request((), case, device, budget, seed, timer)
    # Of this file, as it is now: while something moves on a terminal, rich leads what is printed there.
    moving, out = Console(stderr=True), Console(file=sys.stdout)
    live = moving if json or out.is_terminal else out
    audience = Audience(
        lambda begun: print_parts(ends(begun), live), lambda *tried: print_parts(step_lines(*tried), live)
    )
    with Progress(moving) as progress:
        found = bisect_op(
            where, BisectOptions(op or "", good, bad, request, first_parent), get_command(), progress, audience
        )
    if json:
        print_json(to_json(found))
    else:
        print_parts(shown(found), out)
    return exit_code(found)


COMMANDS = {"bisect": bisect}


def exit_code(found: Bisection) -> Exit:
    """0 where every culprit is named, each one commit; 3 where there is nothing to find, or not one commit."""
    named = all(len(each.suspects) == 1 and each.confirmed is not False for each in found.culprits)
    return Exit.OK if found.culprits and named else Exit.WARNINGS


def shown(found: Bisection) -> Iterator[RenderableType]:
    """What came of it, for a terminal or a log; what was searched for and tried has been told by then."""
    if found.nothing:
        yield from ends(found)
        yield _sentence(found.nothing)
    for number, culprit in enumerate(found.culprits):
        yield Text()
        yield from _culprit(found, culprit, number)
    for reason in found.said:
        yield _sentence(reason)
    if found.others:
        yield Text(say("Also touched {op} in this range:", op=plain(found.op, NAME_LIMIT)), style="dim")
        yield from (Text(f"  {_title(each)}", style="dim") for each in found.others)


def to_json(found: Bisection) -> Mapping[str, Any]:
    """The same for programs; changes are ratios - 1, times microseconds."""
    return {
        "op": found.op,
        "good": _commit(found.good),
        "bad": _commit(found.bad),
        "commits": found.commits,
        "seed": found.seed,
        "device": found.device,
        "case": found.case,
        "change": found.first,
        "good_us": found.base_us,
        "slower": dict(found.slower),
        "failure": _reason(found.failure),
        "steps": [_json_step(step) for step in found.steps],
        "culprits": [_json_culprit(each) for each in found.culprits],
        "others": [_commit(each) for each in found.others],
        "said": [_reason(each) for each in (*found.before, *found.said)],
        "nothing": _reason(found.nothing),
        "resumed": found.resumed,
    }


def ends(found: Bisection) -> Iterator[RenderableType]:
    """Between which revisions what is searched for."""
    op = plain(found.op, NAME_LIMIT)
    yield Text(
        say(
            "{op} from {good} to {bad}: {count:commit|commits}, on {device}, seed {seed}",
            op=op,
            good=found.good.id[:ID],
            bad=found.bad.id[:ID],
            count=found.commits,
            device=plain(found.device or "-", NAME_LIMIT),
            seed=found.seed,
        )
    )
    if found.failure:
        yield Text(say("BAD fails:"), style=STYLES[Gate.FAILS])
        yield _sentence(found.failure)
    if found.first and found.case and not found.nothing:
        change = _ranged(found.first)
        case = plain(found.case, NAME_LIMIT)
        text = say("BAD is slower by {change} at {case}, which is followed", change=change, case=case)
        more = len(found.slower) - 1
        yield Text(text + (say("; other cases that are slower: {count}", count=more) if more else ""))
    for reason in found.before:
        yield _sentence(reason)
    if found.resumed:
        yield Text(
            say("What an earlier search, or an interrupted one, has found out is not measured again."), style="dim"
        )


def step_lines(step: Step, commit: Commit) -> Iterator[RenderableType]:
    """One revision that was tried: what it is, its change against GOOD, and why where that needs saying."""
    change = _ranged(_ratio(step.shift)) if step.shift and step.seen and step.seen.processes else ""
    words = {Side.GOOD: say("good"), Side.BAD: say("bad"), Side.PART: say("part"), Side.SKIP: say("skip")}
    line = Text(f"  {words[step.side]:<{_WORD}}", style=_SIDE_STYLES[step.side])
    line.append(f" {change:<{_CHANGE}} {_title(commit)}", style="")
    yield line
    if step.reason:
        yield _sentence(step.reason, " " * (2 + _WORD + 1))


def _culprit(found: Bisection, culprit: Culprit, number: int) -> Iterator[RenderableType]:
    if len(culprit.suspects) > 1:
        yield from _suspects(found, culprit)
        return
    (commit,) = culprit.suspects
    yield Text(_headline(found, culprit, number), style="bold red" if culprit.confirmed is not False else "bold yellow")
    yield Text(f"  {_title(commit)}")
    yield Text(
        "  " + say("by {author}, {date}", author=plain(commit.author, NAME_LIMIT), date=commit.date), style="dim"
    )
    for change in culprit.files:
        yield Text(f"  {_stat(change)}")
    if culprit.elsewhere:
        yield Text("  " + say("files that the op does not use: {count}", count=culprit.elsewhere), style="dim")
    yield from _sureness(found, culprit)
    for reason in culprit.said:
        yield _sentence(reason, "  ")
    yield from _look_at(found, commit)


def _headline(found: Bisection, culprit: Culprit, number: int) -> str:
    commit = culprit.suspects[0].id[:ID]
    if found.failure:
        return say("It failed first with {commit}", commit=commit)
    if culprit.confirmed is False:
        return say("Not confirmed: {commit}", commit=commit)
    change = culprit.own.value if culprit.own else culprit.change
    if len(found.culprits) == 1:
        return say("The culprit is {commit}: {change:+%}", commit=commit, change=change)
    return say(
        "Culprit {number} of {count} is {commit}: {change:+%}",
        number=number + 1,
        count=len(found.culprits),
        commit=commit,
        change=change,
    )


def _suspects(found: Bisection, culprit: Culprit) -> Iterator[RenderableType]:
    count = len(culprit.suspects)
    if found.failure:
        yield Text(
            say("It failed first with one of these {count:commit|commits}", count=count), style=STYLES[Gate.WARNS]
        )
    else:
        text = say(
            "{change:+%} came with these {count:commit|commits}, or one of them", change=culprit.change, count=count
        )
        yield Text(text, style=STYLES[Gate.WARNS])
    yield from (Text(f"  {_title(each)}") for each in culprit.suspects)
    yield Text(
        "  " + say("Those that could tell them apart could not be tried, or noise hid what they are."), style="dim"
    )
    yield from _sureness(found, culprit)


def _sureness(found: Bisection, culprit: Culprit) -> Iterator[RenderableType]:
    steps = len(found.steps)
    if culprit.sure is not None:
        sure = f"{100 * culprit.sure:.2f} %"
        yield Text("  " + say("sure to at least {sure}; revisions tried: {steps}", sure=sure, steps=steps))
    elif found.failure:
        yield Text("  " + say("every revision was given the same inputs, of seed {seed}", seed=found.seed))
    if culprit.own:
        own = _ranged(culprit.own)
        yield Text("  " + say("beside its own parent: {own}", own=own))
    for case, change in culprit.cases.items():
        if case != found.case:
            yield Text(f"    {_ranged(change)} {plain(case, NAME_LIMIT)}")


def _look_at(found: Bisection, commit: Commit) -> Iterator[RenderableType]:
    yield Text("  " + say("Look at it:"))
    yield Text(f"    git show {commit.id[:ID]}")
    if commit.parents:
        folder = f"../perfci-{commit.id[:ID]}"
        op = shlex.quote(found.op)
        yield Text(f"    git worktree add {folder} {commit.id[:ID]}")
        yield Text(f"    perfci check {op} --against {commit.parents[0][:ID]} --project {folder}")


def _title(commit: Commit) -> str:
    return f"{commit.id[:ID]} {plain(commit.title, 72)}".rstrip()


def _stat(change: FileChange) -> str:
    name = plain(change.name, NAME_LIMIT)
    if change.added is None or change.deleted is None:
        return say("{name} (no text)", name=name)
    return f"{name} +{change.added} -{change.deleted}"


def _ranged(change: Interval) -> str:
    texts = (units.percent(each, signed=True) for each in (change.value, change.low, change.high))
    return "{} ({} .. {})".format(*texts)


def _ratio(shift: Interval) -> Interval:
    return Interval(math.expm1(shift.value), math.expm1(shift.low), math.expm1(shift.high), shift.confidence)


def _sentence(reason: Reason, indent: str = "") -> RenderableType:
    text = plain(sentence(reason))
    return Shown(lambda width: [Text(line) for line in wrapped(text, indent, width)], lambda: wrapped(text, indent))


def _commit(commit: Commit) -> Mapping[str, Any]:
    return {
        "commit": commit.id,
        "parents": commit.parents,
        "author": commit.author,
        "date": commit.date,
        "title": commit.title,
    }


def _json_step(step: Step) -> Mapping[str, Any]:
    timed = step.seen is not None and bool(step.seen.processes)
    return {
        "commit": step.commit,
        "verdict": str(step.side),
        "change": _ratio(step.shift) if step.shift and timed else None,
        "blocks": step.seen.blocks if step.seen else 0,
        "processes": len(step.seen.processes) if step.seen else 0,
        "error": step.error,
        "reason": _reason(step.reason),
    }


def _json_culprit(culprit: Culprit) -> Mapping[str, Any]:
    return {
        "suspects": [_commit(each) for each in culprit.suspects],
        "change": culprit.change,
        "sure": culprit.sure,
        "own": culprit.own,
        "confirmed": culprit.confirmed,
        "cases": dict(culprit.cases),
        "files": [{"name": each.name, "added": each.added, "deleted": each.deleted} for each in culprit.files],
        "elsewhere": culprit.elsewhere,
        "said": [_reason(each) for each in culprit.said],
    }


def _reason(reason: Reason | None) -> Mapping[str, Any] | None:
    return {"kind": reason.kind, "facts": dict(reason.facts), "sentence": sentence(reason)} if reason else None
