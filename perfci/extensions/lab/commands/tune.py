"""The output of `perfci tune`: each entry's best candidates, what failed, and the diff."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from rich.console import RenderableType
from rich.text import Text

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import Grid, Paragraph, print_found, relative
from perfci.cli.parsing import flag, option
from perfci.cli.progress import Progress
from perfci.core import units
from perfci.core.wording import say, sentence
from perfci.extensions.lab.tune.flow import Tuning, tune_op
from perfci.extensions.lab.tune.records import Attempt, Choice, Config, describe_config
from perfci.report.data import pick
from perfci.report.view import Table, make_table
from perfci.runs.plan import Request

BEST = 5  # candidates of an entry that are shown. The search's file has all


def tune(
    ops: options.Op = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    budget: Annotated[
        float,
        option(
            "--budget",
            "Seconds to measure: all; the next search goes on.",
            metavar="S",
            min=0.01,
            max=7 * 86400,
            group=options.MEASURED,
        ),
    ] = 600.0,
    write: Annotated[bool, flag("--write", "Write what is shown: the tuned file.")] = False,
    seed: options.Seed = None,
    timer: options.Timer = "auto",
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Search an op's configurations: a coarse grid, then steps around the best; checking never tunes."""
    where = language.load(project)
    request = Request((options.take_one(ops),), case, device, budget, seed, timer)
    with Progress() as progress:
        tuning = tune_op(where, request, progress, write=write)
    print_found(to_json(tuning), show_tuning(tuning), json=output == "json")
    return Exit.WARNINGS if tuning.late else Exit.OK


COMMANDS = {"tune": tune}


def show_tuning(tuning: Tuning) -> Iterator[RenderableType]:
    """The answer for a terminal or a log."""
    yield say("{op} on {device}, seed {seed}", op=tuning.op, device=tuning.device, seed=tuning.search.head.seed)
    if tuning.search.resumed:
        yield say("What an earlier search, or an interrupted one, has found out is not measured again.")
    for choice in tuning.choices:
        regime = choice.regime
        yield ""
        text = say("Entry {entry}: {count:case|cases}", entry=regime.label, count=len(regime.cases))
        yield Paragraph(text, style="bold")
        yield Paragraph(say("{tried} candidates tried, {failed} failed", tried=choice.tried, failed=choice.failed), 2)
        if (best := list_candidates(tuning, choice)).rows:
            yield Grid(best)
        failed = [
            (attempt.failure, _name(attempt.config)) for attempt in _list_tried(tuning, choice) if attempt.failure
        ]
        for kind, count in Counter(why.kind for why, _ in failed).most_common():
            example = next(say("{op}: {told}", op=name, told=sentence(why)) for why, name in failed if why.kind == kind)
            yield Paragraph(say("{count} failed: {example}", count=count, example=example), 2, "dim")
        yield Paragraph(_describe_choice(choice), 2)
    yield from map(sentence, tuning.notes)
    yield ""
    name = relative(tuning.file)
    for line in tuning.diff:
        yield Text(line, style="green" if line.startswith("+") else "red" if line.startswith("-") else "dim")
    if not tuning.diff:
        yield say("{file} stays as it is.", file=name)
    elif tuning.written:
        yield say("Written: {file}. Commit it with a word on what was measured.", file=name)
    else:
        yield say("Nothing was written: add --write to write {file}.", file=name)
    yield say("All candidates: {path}", path=relative(tuning.search.path))


def _describe_choice(choice: Choice) -> str:
    config, change = describe_config(choice.config), choice.change
    if not choice.changed:
        return say("stays as it is")
    if change is None:
        return say("takes {config}; what it had does not work here", config=config)
    facts = {"change": change.value, "low": change.low, "high": change.high}
    return say("takes {config}: {change:+%} (95 %: {low:+%} to {high:+%})", config=config, **facts)


def _list_tried(tuning: Tuning, choice: Choice) -> list[Attempt]:
    return [attempt for attempt in tuning.search.tried if attempt.regime == choice.regime.label]


def _name(config: Config | None) -> str:
    return describe_config(config) or say("what it takes today")


def list_candidates(tuning: Tuning, choice: Choice) -> Table:
    """The BEST candidates that were timed, the fastest first, each by its last and longest look."""
    attempts = _list_tried(tuning, choice)
    failed = {attempt.key for attempt in attempts if attempt.failure}
    last = {attempt.key: attempt for attempt in attempts if attempt.us and attempt.key not in failed}

    def find_shift(tried: Attempt) -> float:
        values = [shift for case in tried.shifts.values() for shift in case]
        return math.fsum(values) / len(values) if values else 0.0

    rows = []
    for attempt in sorted(last.values(), key=find_shift)[:BEST]:
        # No change is known if today's choice does not work here.
        change = "-" if attempt.anchor is not None else units.percent(math.expm1(find_shift(attempt)), signed=True)
        time = units.time(math.exp(math.fsum(map(math.log, attempt.us.values())) / len(attempt.us)))
        rows.append((change, time, _name(attempt.config)))
    return make_table("change: | time: | configuration", rows)


def to_json(tuning: Tuning) -> Mapping[str, Any]:
    """The same for programs; changes are ratios - 1, times microseconds."""
    return {
        **pick(tuning, "op device", seed=tuning.search.head.seed),
        "file": str(tuning.file),
        "entries": [
            {
                "entry": choice.regime.label,
                "cases": list(choice.regime.cases),
                "config": choice.config if choice.changed else choice.regime.current,
                **pick(choice, "changed change"),
                "candidates": [pick(attempt, "config stage us failure") for attempt in _list_tried(tuning, choice)],
            }
            for choice in tuning.choices
        ],
        "unserved": list(tuning.unserved),
        **pick(tuning, "diff written late", resumed=tuning.search.resumed),
        "said": tuning.notes,
    }
