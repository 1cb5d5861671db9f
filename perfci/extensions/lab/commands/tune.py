"""The output of `perfci tune`: each entry's best candidates, what failed, the diff, and what the model estimates."""

import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from rich.console import RenderableType
from rich.text import Text

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.options import argument, flag, option
from perfci.cli.output import Grid, Paragraph, print_found, print_lines, relative, write_json
from perfci.cli.progress import Progress
from perfci.core import units
from perfci.core.errors import UsageError
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.lab.tune.flow import Tuning, tune_on_cluster, tune_op
from perfci.extensions.lab.tune.records import Attempt, Config, describe_config, key
from perfci.extensions.lab.tune.search import Choice
from perfci.ops.discover import select
from perfci.report.data import pick
from perfci.report.markdown import write_table
from perfci.report.text import BLOCK_LIMIT, plain
from perfci.report.view import Table, make_table
from perfci.runs.nodes import choose_cluster
from perfci.runs.plan import Request
from perfci.store.files import write_atomically

BEST = 5  # Candidates of an entry on the terminal. The table beside the search's file lists all.
GOAL = 0.8  # share of the original speed that tuning for a lesser device is to bring back


def tune(
    ops: Annotated[
        list[str], argument("OP...", "The op, or a glob that fits it alone; on a cluster several.", options.REQUIRED)
    ] = [],  # noqa: B006
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
    device_spec: Annotated[
        str | None,
        option("--device-spec", "Tune by a model of kernels/_devices, such as low-bw.", "the device at hand", "NAME"),
    ] = None,
    write: Annotated[bool, flag("--write", "Write what is shown: the tuned file.")] = False,
    seed: options.Seed = None,
    timer: options.Timer = "auto",
    on: options.On = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Search an op's configurations: a coarse grid, then steps around the best; checking never tunes."""
    where = language.load(project)
    if not ops:
        options.take_one(ops)
    request = Request(tuple(ops), case, device, budget, seed, timer)
    if on and device_spec:
        raise UsageError("options_exclude", first="--on", second="--device-spec")
    if not device_spec and (cluster := choose_cluster(on, where)):
        return _tune_on_cluster(where, request, cluster, json=output == "json")
    with Progress() as progress:
        tuning = tune_op(where, request, progress, spec=device_spec, write=write)
    table = tuning.search.path.with_suffix(".md")
    write_atomically(table, write_candidates(tuning).encode())
    print_found(to_json(tuning), show_tuning(tuning, table), json=output == "json")
    return Exit.WARNINGS if tuning.late else Exit.OK


COMMANDS = {"tune": tune}


def _tune_on_cluster(where: Settings, request: Request, cluster: str, *, json: bool) -> int:
    """Print what nodes answered, op by op: in JSON a list. Ends with 1 if an op has no answer."""
    with Progress() as progress:
        words = options.list_typed("ops", "on", "project")
        answered, notes = tune_on_cluster(where, request, cluster, words, progress)
    answers = [answer.strip() for _, answer in answered.values()]
    if json:
        write_json(f"[{', '.join(answers)}]")
    elif answers:
        print_lines(*"\n\n".join(answers).splitlines())
    for note in notes:
        print(f"perfci: {plain(sentence(note), BLOCK_LIMIT)}", file=sys.stderr)
    if len(answered) < len(select(where, request.ops)):
        return Exit.PERFCI_FAILED
    return max(code for code, _ in answered.values())


def show_tuning(tuning: Tuning, table: Path) -> Iterator[RenderableType]:
    """The answer for a terminal or a log."""
    yield say("{op} on {device}, seed {seed}", op=tuning.op, device=tuning.device, seed=tuning.search.head.seed)
    yield from _describe_model(tuning)
    if tuning.search.resumed:
        yield say("What an earlier search, or an interrupted one, has found out is not measured again.")
    for choice in tuning.choices:
        regime = choice.regime
        yield ""
        text = say("Entry {entry}: {count:case|cases}", entry=regime.label, count=len(regime.cases))
        yield Paragraph(text, style="bold")
        yield Paragraph(say("{tried} candidates tried, {failed} failed", tried=choice.tried, failed=choice.failed), 2)
        if (best := list_candidates(tuning, choice, BEST)).rows:
            yield Grid(best)
        failed = [
            (attempt.failure, _name(attempt.config)) for attempt in _list_tried(tuning, choice) if attempt.failure
        ]
        for kind, count in Counter(why.kind for why, _ in failed).most_common():
            example = next(say("{op}: {told}", op=name, told=sentence(why)) for why, name in failed if why.kind == kind)
            yield Paragraph(say("{count} failed: {example}", count=count, example=example), 2, "dim")
        yield Paragraph(_describe_choice(choice), 2)
    if tuning.modelled:
        yield ""
        yield from _show_recovery(tuning)
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
    yield say("All candidates: {path}", path=relative(table))


def _describe_model(tuning: Tuning) -> list[str]:
    text = say("Static model, not measured: the times below are estimated from what the kernels compile to.")
    return [text] if tuning.spec else []


def _describe_choice(choice: Choice) -> str:
    config, change = describe_config(choice.config), choice.change
    if not choice.changed:
        return say("stays as it is")
    if change is None:
        return say("takes {config}; what it had does not work here", config=config)
    if change.low == change.high:
        return say("takes {config}: {change:+%}", config=config, change=change.value)
    facts = {"change": change.value, "low": change.low, "high": change.high}
    return say("takes {config}: {change:+%} (95 %: {low:+%} to {high:+%})", config=config, **facts)


def find_recovery(tuning: Tuning) -> Mapping[str, float]:
    """Modelled shares of the varied device's speed, untuned, tuned, roofline: geometric means of the cases that fit."""
    shares: dict[str, list[float]] = {"untuned": [], "tuned": [], "roofline": []}
    for choice in tuning.choices:
        us = {attempt.key: attempt.us for attempt in reversed(_list_tried(tuning, choice)) if attempt.us}
        today = us.get(key(None), {})
        best = us.get(key(choice.config), {}) if choice.changed else today
        for case in choice.regime.cases:
            modelled = tuning.modelled.get(case)
            if modelled is None or modelled.original_us is None or case not in best:
                continue
            shares["tuned"].append(modelled.original_us / best[case])
            shares["roofline"].append(modelled.original_floor_us / modelled.floor_us)
            if case in today:
                shares["untuned"].append(modelled.original_us / today[case])
    return {name: math.exp(math.fsum(map(math.log, ratios)) / len(ratios)) for name, ratios in shares.items() if ratios}


def _show_recovery(tuning: Tuning) -> Iterator[str]:
    shares, like = find_recovery(tuning), tuning.like
    if "untuned" in shares:
        untuned = shares["untuned"]
        yield say("Untuned {share:%} of the speed on {like} (static model, not measured)", share=untuned, like=like)
    if "tuned" not in shares:
        yield say("Nothing that was tried fits on {spec}.", spec=tuning.spec)
        return
    yield say("Tuned {share:%} of the speed on {like} (static model, not measured)", share=shares["tuned"], like=like)
    yield say("The roofline alone allows {share:%}.", share=shares["roofline"])
    if shares["tuned"] >= GOAL:
        yield say("The goal of {goal:%} is reached.", goal=GOAL)
    else:
        yield say("The goal of {goal:%} is not reached.", goal=GOAL)


def _list_tried(tuning: Tuning, choice: Choice) -> list[Attempt]:
    return [attempt for attempt in tuning.search.tried if attempt.regime == choice.regime.label]


def _name(config: Config | None) -> str:
    return describe_config(config) or say("what it takes today")


def list_candidates(tuning: Tuning, choice: Choice, most: int | None = None) -> Table:
    """The candidates that were timed, the fastest first, each by its last and longest look."""
    attempts = _list_tried(tuning, choice)
    failed = {attempt.key for attempt in attempts if attempt.failure}
    last = {attempt.key: attempt for attempt in attempts if attempt.us and attempt.key not in failed}

    def find_shift(tried: Attempt) -> float:
        values = [shift for case in tried.shifts.values() for shift in case]
        return math.fsum(values) / len(values) if values else 0.0

    rows = []
    for attempt in sorted(last.values(), key=find_shift)[:most]:
        # No change is known if today's choice does not work here.
        change = "-" if attempt.anchor is not None else units.percent(math.expm1(find_shift(attempt)), signed=True)
        time = units.time(math.exp(math.fsum(map(math.log, attempt.us.values())) / len(attempt.us)))
        rows.append((change, time, _name(attempt.config)))
    return make_table("change: | time: | configuration", rows)


def write_candidates(tuning: Tuning) -> str:
    """Markdown: every candidate of every entry, then those that failed."""
    parts = [f"# {say('Candidates of {op} on {device}', op=tuning.op, device=tuning.device)}"]
    parts += _describe_model(tuning)
    for choice in tuning.choices:
        failed = [
            (_name(attempt.config), sentence(attempt.failure))
            for attempt in _list_tried(tuning, choice)
            if attempt.failure
        ]
        parts += [f"## {choice.regime.label}", write_table(list_candidates(tuning, choice))]
        parts += [write_table(make_table("configuration | what happened", failed))] if failed else []
    return "\n\n".join(parts) + "\n"


def to_json(tuning: Tuning) -> Mapping[str, Any]:
    """The same for programs; changes are ratios - 1, times microseconds."""
    return {
        **pick(tuning, "op device", seed=tuning.search.head.seed),
        "file": str(tuning.file),
        "measured": tuning.spec is None,
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
        "recovery": dict(find_recovery(tuning)) if tuning.modelled else None,
        **pick(tuning, "diff written late", resumed=tuning.search.resumed),
        "said": tuning.notes,
    }
