"""The output of `perfci bisect`: each revision as it is tried, then the culprit, how sure that is, where to look."""

import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from rich.console import Console, RenderableType
from rich.text import Text

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import STYLES, Paragraph, get_command, print_found, print_parts
from perfci.cli.parsing import flag, option
from perfci.cli.progress import Progress
from perfci.core import commands, units
from perfci.core.model import Fact, Gate, Interval
from perfci.core.wording import say
from perfci.extensions.history.bisect import Audience, Bisection, Culprit, Leg, bisect_op
from perfci.extensions.history.commits import Commit
from perfci.extensions.history.revisions import BisectOptions, Rating
from perfci.report.data import pick
from perfci.report.text import NAME_LIMIT, plain
from perfci.runs.plan import Request
from perfci.statistics.exact import to_ratio

ID = 10  # digits of a commit that are shown

_GATES = {Rating.GOOD: Gate.OK, Rating.BAD: Gate.FAILS, Rating.PART: Gate.WARNS}


def bisect(
    against: Annotated[str, options.compare_with("GOOD", "", "a revision at which the op was still fast, or right")],
    ops: options.Op = [],  # noqa: B006
    bad: Annotated[str, option("--bad", "A later revision, at which it no longer is.", metavar="BAD")] = "HEAD",
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    budget: options.Budget = 1.0,
    seed: options.Seed = None,
    timer: options.Timer = "auto",
    first_parent: Annotated[bool, flag("--first-parent", "Try the main line only; a merge counts as a whole.")] = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Find the commit between two revisions that made an op slower, or wrong, by duels, and say how sure that is."""
    json, where = output == "json", language.load(project)
    request = Request((), case, device, budget, seed, timer)
    # Of this file, as it is now: while something moves on a terminal, rich leads what is printed there.
    moving, out = Console(stderr=True), Console(file=sys.stdout)
    live = moving if json or out.is_terminal else out
    asked = BisectOptions(options.take_one(ops), against, bad, request, first_parent)
    audience = Audience(
        lambda begun: print_parts(show_ends(begun), live), lambda *tried: print_parts(show_step(*tried), live)
    )
    with Progress(moving) as progress:
        bisection = bisect_op(where, asked, get_command(), progress, audience)
    print_found(to_json(bisection), show_bisection(bisection), json=json, console=out)
    return get_exit_code(bisection)


COMMANDS = {"bisect": bisect}


def get_exit_code(bisection: Bisection) -> Exit:
    """0 if every culprit is named, each one commit; 3 if there is nothing to find, or not one commit."""
    named = all(len(culprit.suspects) == 1 and culprit.confirmed is not False for culprit in bisection.culprits)
    return Exit.OK if bisection.culprits and named else Exit.WARNINGS


def show_bisection(bisection: Bisection) -> Iterator[RenderableType]:
    """The result. The search itself has been shown by then."""
    if bisection.nothing:
        yield from show_ends(bisection)
        yield Paragraph(bisection.nothing)
    for number, culprit in enumerate(bisection.culprits):
        yield ""
        yield from _show_culprit(bisection, culprit, number)


def show_ends(bisection: Bisection) -> Iterator[RenderableType]:
    """Between which revisions perfci searches, and for what."""
    where = {
        "op": bisection.op,
        "good": bisection.good.id[:ID],
        "bad": bisection.bad.id[:ID],
        "device": bisection.device,
    }
    facts = {"count": bisection.commits, "seed": bisection.seed}
    yield say("{op} from {good} to {bad}: {count:commit|commits}, on {device}, seed {seed}", **where, **facts)
    if bisection.failure:
        yield Paragraph(say("BAD fails:"), style=STYLES[Gate.FAILS])
        yield Paragraph(bisection.failure)
    if bisection.first and bisection.case and not bisection.nothing:
        change = _write_range(bisection.first)
        yield say("BAD is slower by {change} at {case}, which is followed", change=change, case=bisection.case)


def show_step(step: Leg, commit: Commit) -> Iterator[RenderableType]:
    """One revision that was tried: what it is, its change against GOOD, and the reason if it needs one."""
    change = _write_range(to_ratio(step.shift)) if step.shift and step.seen and step.seen.processes else ""
    words = {Rating.GOOD: say("good"), Rating.BAD: say("bad"), Rating.PART: say("part"), Rating.SKIP: say("skip")}
    line = Text(f"  {words[step.side]:<5}", style=STYLES[_GATES[step.side]] if step.side in _GATES else "dim")
    yield line.append(f" {change:<29} {plain(_name_commit(commit), NAME_LIMIT)}", style="")
    if step.reason:
        yield Paragraph(step.reason, 8)


def _show_culprit(bisection: Bisection, culprit: Culprit, number: int) -> Iterator[RenderableType]:
    first, *others = culprit.suspects
    style = STYLES[Gate.WARNS if others or culprit.confirmed is False else Gate.FAILS]
    yield Paragraph(_write_headline(bisection, culprit, number), style=style)
    yield from (Paragraph(_name_commit(suspect), 2) for suspect in culprit.suspects)
    if others:
        text = say("Those that could tell them apart could not be tried, or noise hid what they are.")
        yield Paragraph(text, 2, "dim")
    else:
        yield Paragraph(say("by {author}, {date}", author=first.author, date=first.date), 2, "dim")
    yield from (Paragraph(name, 2) for name in culprit.files)
    if culprit.sure is not None:
        sure, steps = f"{100 * culprit.sure:.2f} %", len(bisection.steps)
        yield Paragraph(say("sure to at least {sure}; revisions tried: {steps}", sure=sure, steps=steps), 2)
    elif bisection.failure:
        yield Paragraph(say("every revision was given the same inputs, of seed {seed}", seed=bisection.seed), 2)
    if culprit.own:
        yield Paragraph(say("beside its parent: {own}", own=_write_range(culprit.own)), 2)
    yield from (Paragraph(reason, 2) for reason in culprit.said)
    if others:
        return
    yield Paragraph(say("Look at it:"), 2)
    yield Paragraph(f"git show {first.id[:ID]}", 4)
    if first.parents:
        folder = f"../perfci-{first.id[:ID]}"
        yield Paragraph(f"git worktree add {folder} {first.id[:ID]}", 4)
        against = ("--against", first.parents[0][:ID], "--project", folder)
        yield Paragraph(commands.write("check", bisection.op, *against), 4, folds=False)


def _write_headline(bisection: Bisection, culprit: Culprit, number: int) -> str:
    commit, count = culprit.suspects[0].id[:ID], len(culprit.suspects)
    change = culprit.own.value if culprit.own else culprit.change
    if count > 1 and bisection.failure:
        return say("It failed first with one of these {count:commit|commits}", count=count)
    if count > 1:
        return say("{change:+%} came with these {count:commit|commits}, or one of them", change=change, count=count)
    if bisection.failure:
        return say("It failed first with {commit}", commit=commit)
    if culprit.confirmed is False:
        return say("Not confirmed: {commit}", commit=commit)
    if len(bisection.culprits) == 1:
        return say("The culprit is {commit}: {change:+%}", commit=commit, change=change)
    facts: dict[str, Fact] = {
        "number": number + 1,
        "count": len(bisection.culprits),
        "commit": commit,
        "change": change,
    }
    return say("Culprit {number} of {count} is {commit}: {change:+%}", **facts)


def _name_commit(commit: Commit) -> str:
    return f"{commit.id[:ID]} {plain(commit.title, 72)}".rstrip()


def _write_range(change: Interval) -> str:
    texts = (units.percent(share, signed=True) for share in (change.value, change.low, change.high))
    return "{} ({} .. {})".format(*texts)


def to_json(bisection: Bisection) -> Mapping[str, Any]:
    """The same for programs; changes are ratios - 1, times microseconds."""

    def write_commit(commit: Commit) -> Mapping[str, Any]:
        return pick(commit, "parents author date title", commit=commit.id)

    def write_step(step: Leg) -> Mapping[str, Any]:
        timed = step.seen is not None and bool(step.seen.processes)
        return {
            **pick(step, "commit error reason"),
            "verdict": step.side,
            "change": to_ratio(step.shift) if step.shift and timed else None,
            "blocks": step.seen.blocks if step.seen else 0,
            "processes": len(step.seen.processes) if step.seen else 0,
        }

    def write_culprit(culprit: Culprit) -> Mapping[str, Any]:
        suspects = [write_commit(suspect) for suspect in culprit.suspects]
        files = [{"name": name} for name in culprit.files]
        return pick(culprit, "change sure own confirmed said", suspects=suspects, files=files)

    return {
        **pick(
            bisection, "op commits seed device case failure nothing", change=bisection.first, good_us=bisection.base_us
        ),
        "good": write_commit(bisection.good),
        "bad": write_commit(bisection.bad),
        "steps": [write_step(step) for step in bisection.steps],
        "culprits": [write_culprit(culprit) for culprit in bisection.culprits],
    }
