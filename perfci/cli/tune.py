"""What `perfci tune` shows: each entry's best candidates, what failed, the diff, and what the model says."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console, RenderableType
from rich.text import Text

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import print_json, print_parts, relative
from perfci.cli.progress import Progress
from perfci.core import units
from perfci.core.wording import say, sentence
from perfci.lab.tune import records
from perfci.lab.tune.records import Attempt, Config, key
from perfci.lab.tune.search import Choice
from perfci.report.text import NAME_LIMIT, plain
from perfci.runs.tuning import TuneOptions, Tuning, tune_op
from perfci.store.files import write_atomically

BEST = 5
"""Candidates of an entry on the terminal. The table beside the search's state lists all."""

GOAL = 0.8
"""Share of the original speed that tuning for a lesser device is to bring back."""


def tune(
    op: Annotated[str, options.argument("OP", "The op whose configurations are searched.")],
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    budget: Annotated[
        float,
        options.option(
            "--budget", "Seconds that this call searches; the next goes on.", metavar="S", min=0.01, max=7 * 24 * 3600
        ),
    ] = 600.0,
    device_spec: Annotated[
        str | None,
        options.option(
            "--device-spec",
            "Tune by a static model for a device that is not here: a file of kernels/_devices, such as low-bw.",
            "the device at hand",
            "NAME",
        ),
    ] = None,
    write: Annotated[bool, options.flag("--write", "Write the tuned file instead of showing the diff.")] = False,
    seed: options.Seed = None,
    timer: options.Timer = "auto",
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Search an op's configurations: a coarse grid, then steps around the best; checking never tunes."""
    where = language.load(project)
    wanted = TuneOptions(op, case, device, budget, seed, timer, device_spec, write)
    with Progress() as progress:
        found = tune_op(where, wanted, progress)
    table = found.state.with_suffix(".md")
    write_atomically(table, _table(found).encode())
    if output == "json":
        print_json(to_json(found))
    else:
        print_parts(shown(found, table), Console(file=sys.stdout))
    return exit_code(found)


COMMANDS = {"tune": tune}


def exit_code(found: Tuning) -> Exit:
    """0 if the search came to its end, 3 if it has to go on."""
    return Exit.WARNINGS if found.late else Exit.OK


def shown(found: Tuning, table: Path) -> Iterator[RenderableType]:
    """The answer for a terminal or a log."""
    yield Text(
        say(
            "{op} on {device}, seed {seed}", op=plain(found.op, NAME_LIMIT), device=plain(found.device), seed=found.seed
        )
    )
    if found.spec:
        yield Text(say("Static model, not measured: the times below are estimated from what the kernels compile to."))
    if found.resumed:
        yield Text(say("What an earlier search, or an interrupted one, has found out is not measured again."))
    for choice in found.choices:
        yield Text()
        yield from _entry(found, choice)
    if found.modelled:
        yield Text()
        yield from _recovery(found)
    for reason in found.said:
        yield Text(sentence(reason))
    yield Text()
    yield from _file(found)
    yield Text(say("All candidates: {path}", path=relative(table)))


def _entry(found: Tuning, choice: Choice) -> Iterator[Text]:
    regime = choice.regime
    yield Text(
        say("Entry {entry}: {count:case|cases}", entry=plain(regime.label), count=len(regime.cases)), style="bold"
    )
    ranked = _ranked(found, choice)
    yield Text("  " + say("{tried} candidates tried, {failed} failed", tried=choice.tried, failed=choice.failed))
    for tried in ranked[:BEST]:
        yield Text(f"  {_change(tried):>9}  {_times(tried):>10}  {_name(tried)}")
    for kind, count, example in _failures(found, choice):
        yield Text("  " + say("{count} failed: {example}", count=count, example=_shortened(example, kind)), style="dim")
    yield Text("  " + _verdict(choice))


def _verdict(choice: Choice) -> str:
    if not choice.changed:
        return say("stays as it is")
    config = plain(records.describe_config(choice.config))
    if choice.change is None:
        return say("takes {config}; what it had does not work here", config=config)
    change = choice.change
    if change.low == change.high:
        return say("takes {config}: {change:+%}", config=config, change=change.value)
    return say(
        "takes {config}: {change:+%} (95 %: {low:+%} to {high:+%})",
        config=config,
        change=change.value,
        low=change.low,
        high=change.high,
    )


def _file(found: Tuning) -> Iterator[Text]:
    name = relative(found.file)
    if not found.diff:
        yield Text(say("{file} stays as it is.", file=name))
        return
    for line in found.diff:
        yield Text(line, style="green" if line.startswith("+") else "red" if line.startswith("-") else "dim")
    if found.written:
        yield Text(say("Written: {file}. Commit it with a word on what was measured.", file=name))
    else:
        yield Text(say("Nothing was written: add --write to write {file}.", file=name))


def recovery(found: Tuning) -> Mapping[str, float]:
    """Shares of the original speed, geometric means over the cases that have all three: untuned, tuned, roofline.

    original: that of the device that the description varies, by the same model. A case is missing from untuned where
    what it has today does not fit on the described device.
    """
    shares: dict[str, list[float]] = {"untuned": [], "tuned": [], "roofline": []}
    for choice in found.choices:
        today = _us(found, choice, None)
        best = _us(found, choice, choice.config) if choice.changed else today
        for case in choice.regime.cases:
            modelled = found.modelled.get(case)
            if modelled is None or modelled.original_us is None or case not in best:
                continue
            shares["tuned"].append(modelled.original_us / best[case])
            shares["roofline"].append(modelled.original_floor_us / modelled.floor_us)
            if case in today:
                shares["untuned"].append(modelled.original_us / today[case])
    return {name: math.exp(math.fsum(map(math.log, each)) / len(each)) for name, each in shares.items() if each}


def _recovery(found: Tuning) -> Iterator[Text]:
    shares, like = recovery(found), plain(found.like or "")
    if "untuned" in shares:
        yield Text(
            say(
                "Untuned {share:%} of the speed on {like} (static model, not measured)",
                share=shares["untuned"],
                like=like,
            )
        )
    if "tuned" not in shares:
        yield Text(say("Nothing that was tried fits on {spec}.", spec=plain(found.spec or "")))
        return
    yield Text(
        say("Tuned {share:%} of the speed on {like} (static model, not measured)", share=shares["tuned"], like=like)
    )
    yield Text(say("The roofline alone allows {share:%}.", share=shares["roofline"]))
    if shares["tuned"] >= GOAL:
        yield Text(say("The goal of {goal:%} is reached.", goal=GOAL))
    elif shares["roofline"] < GOAL:
        yield Text(
            say(
                "The goal of {goal:%} is not reached, and no configuration could: the device itself is slower by more.",
                goal=GOAL,
            )
        )
    else:
        yield Text(say("The goal of {goal:%} is not reached.", goal=GOAL))


def to_json(found: Tuning) -> Mapping[str, Any]:
    """The same for programs; changes are ratios - 1, times microseconds."""
    return {
        "op": found.op,
        "device": found.device,
        "seed": found.seed,
        "file": str(found.file),
        "measured": found.spec is None,
        "entries": [_json_entry(found, choice) for choice in found.choices],
        "unserved": list(found.unserved),
        "recovery": dict(recovery(found)) if found.modelled else None,
        "diff": list(found.diff),
        "written": found.written,
        "late": found.late,
        "resumed": found.resumed,
        "said": [{"kind": each.kind, "text": sentence(each)} for each in found.said],
    }


def _json_entry(found: Tuning, choice: Choice) -> Mapping[str, Any]:
    known = [each for each in found.tried if each.regime == choice.regime.label]
    return {
        "entry": choice.regime.label,
        "cases": list(choice.regime.cases),
        "config": choice.config if choice.changed else choice.regime.current,
        "changed": choice.changed,
        "change": choice.change,
        "candidates": [
            {
                "config": each.config,
                "stage": each.stage,
                "us": dict(each.us),
                "failure": each.failure and {"kind": each.failure.kind, "text": sentence(each.failure)},
            }
            for each in known
        ],
    }


# --- candidates -------------------------------------------------------------------------------------------------------


def _ranked(found: Tuning, choice: Choice) -> list[Attempt]:
    """Candidates that were timed, the fastest first. Each by its last and longest look."""
    last: dict[str, Attempt] = {}
    failed = {each.key for each in found.tried if each.regime == choice.regime.label and each.failure}
    for each in found.tried:
        if each.regime == choice.regime.label and each.us and each.key not in failed:
            last[each.key] = each
    return sorted(last.values(), key=_shift)


def _shift(tried: Attempt) -> float:
    values = [each for case in tried.shifts.values() for each in case]
    return math.fsum(values) / len(values) if values else 0.0


def _change(tried: Attempt) -> str:
    """Against today's choice. Nothing if that does not work here."""
    if tried.anchor is not None:
        return ""
    return units.percent(math.expm1(_shift(tried)), signed=True)


def _times(tried: Attempt) -> str:
    """Geometric mean over its cases."""
    return units.time(math.exp(math.fsum(map(math.log, tried.us.values())) / len(tried.us)))


def _name(tried: Attempt) -> str:
    return plain(records.describe_config(tried.config)) or say("what it takes today")


def _us(found: Tuning, choice: Choice, config: Config | None) -> Mapping[str, float]:
    wanted = key(config)
    mine = (each for each in found.tried if each.regime == choice.regime.label and each.key == wanted)
    return next((each.us for each in mine if each.us), {})


def _failures(found: Tuning, choice: Choice) -> list[tuple[str, int, Attempt]]:
    failed = [each for each in found.tried if each.regime == choice.regime.label and each.failure]
    kinds = Counter(each.failure.kind for each in failed if each.failure)
    first = {each.failure.kind: each for each in reversed(failed) if each.failure}
    return [(kind, count, first[kind]) for kind, count in kinds.most_common()]


def _shortened(tried: Attempt, kind: str) -> str:
    text = sentence(tried.failure) if tried.failure else kind
    return plain(f"{_name(tried)}: {text}", 300)


def _table(found: Tuning) -> str:
    """Markdown: every candidate of every entry."""
    title = say("Candidates of {op} on {device}", op=found.op, device=found.device)
    lines = [f"# {title}", ""]
    if found.spec:
        lines += [
            say("Static model, not measured: the times below are estimated from what the kernels compile to."),
            "",
        ]
    heads = (
        say("change"),
        say("time"),
        say("configuration"),
        say("registers"),
        say("shared memory"),
        say("what happened"),
    )
    for choice in found.choices:
        lines += [
            f"## {plain(choice.regime.label)}",
            "",
            _row(heads),
            _row(["---:", "---:", "---", "---:", "---:", "---"]),
        ]
        lines += [
            _row([_change(t), _times(t), _name(t), _count(t.registers), _size(t.shared_bytes), ""])
            for t in _ranked(found, choice)
        ]
        lines += [
            _row(["", "", _name(each), "", "", plain(sentence(each.failure), 300)])
            for each in found.tried
            if each.failure and each.regime == choice.regime.label
        ]
        lines += [""]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _count(value: int | None) -> str:
    return "" if value is None else str(value)


def _size(value: int | None) -> str:
    return "" if value is None else units.size(value)
