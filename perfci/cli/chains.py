"""What `perfci check --chain` shows: a table of stages for each case, what is wrong, and what is worth knowing."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from perfci.cli.exits import Exit
from perfci.cli.output import print_json
from perfci.cli.progress import Progress
from perfci.core import units
from perfci.core.model import Reason
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.lab.chains.records import FOLDER, ChainCase, ChainResult, Error, StageResult
from perfci.report.text import BLOCK_LIMIT, NAME_LIMIT, plain
from perfci.runs.chains import ChainOptions, Chains, check_chains

_COLOURS = {"PASS": "green", "WRONG": "bold red", "ERROR": "bold red", "UNCHECKED": "dim"}
_GAP = 2


def print_chains(options: ChainOptions, where: Settings, *, json: bool) -> int:
    """Check chains and print what came of it; gives the exit code."""
    with Progress() as progress:
        found = check_chains(where, options, progress)
    if json:
        print_json(to_json(found))
        return exit_code(found)
    if not found.results:
        print(sentence(Reason("chain_none", {"folder": str(where.kernels / FOLDER)})))
        return Exit.OK
    out = Console(file=sys.stdout)
    for part in shown(found):
        out.print(part, soft_wrap=True)
    return exit_code(found)


def exit_code(found: Chains) -> Exit:
    """2 if a chain is wrong or broken, 3 if there are chains and no case could be checked here, else 0."""
    if any(result.failed for result in found.results):
        return Exit.GATE_FAILED
    cases = [case for result in found.results for case in result.cases]
    return Exit.WARNINGS if found.results and all(case.unchecked for case in cases) else Exit.OK


def shown(found: Chains) -> Iterator[Text]:
    """The answer for a terminal or a log."""
    name = plain(found.device.name) if found.device else "-"
    yield Text(say("Chains on {device}, seed {seed}; errors are relative L2 ones", device=name, seed=found.seed))
    for result in found.results:
        yield Text()
        yield Text(_summary(result), style="bold red" if result.failed else "bold")
        if result.failure:
            yield Text("  " + _said(result.failure), style="bold red")
        for case in result.cases:
            yield from _case(case)


def _summary(result: ChainResult) -> str:
    verdicts = [case.verdict for case in result.cases]
    counts = {name: verdicts.count(name) for name in ("PASS", "WRONG", "ERROR", "UNCHECKED")}
    told = ", ".join(f"{count} {name}" for name, count in counts.items() if count)
    cases = say("{count:case|cases}", count=len(verdicts))
    return f"{plain(result.name, NAME_LIMIT)}: {cases}" + (f" ({told})" if told else "")


def _case(case: ChainCase) -> Iterator[Text]:
    if case.unchecked:
        yield Text(f"  {case.verdict:<9}  {_said(case.unchecked)}", style=_COLOURS[case.verdict])
        return
    yield Text()
    yield Text(f"  {case.verdict:<5}  {plain(case.case, NAME_LIMIT)}", style=_COLOURS[case.verdict])
    if case.stages:
        yield from (Text("  " + line, style="dim" if not at else "") for at, line in enumerate(_table(case.stages)))
    if case.whole and case.limit:
        yield Text("  " + _whole(case.whole, case.limit))
    for reason in case.failures:
        yield Text("  " + _said(reason), style="red")
    for reason in case.notes:
        yield Text("  " + _said(reason), style="yellow")


def _whole(whole: Error, limit: Error) -> str:
    return say(
        "whole: {error:n}, allowed {limit:n}; at most {largest:n}, allowed {most:n}",
        error=whole.l2,
        limit=limit.l2,
        largest=whole.max_abs,
        most=limit.max_abs,
    )


def _table(stages: Sequence[StageResult]) -> list[str]:
    """A heading and a line a stage; numbers stand to the right."""
    rows = [_heading(), *(_row(stage) for stage in stages)]
    widths = [max(cell_len(row[at]) for row in rows) + _GAP for at in range(len(rows[0]))]
    return [_line(row, widths) for row in rows]


def _heading() -> list[str]:
    usual = say("PyTorch")
    return [
        say("stage"),
        say("alone"),
        usual,
        say("so far"),
        usual,
        say("growth"),
        usual,
        say("largest so far"),
        usual,
    ]


def _row(stage: StageResult) -> list[str]:
    pairs = [(stage.own, stage.usual_own, "l2"), (stage.so_far, stage.usual, "l2")]
    figures = [_figure(error, name) for *two, name in pairs for error in two]
    growths = [_times(stage.growth), _times(stage.usual_growth)]
    largest = [_figure(stage.so_far, "max_abs"), _figure(stage.usual, "max_abs")]
    return [plain(stage.stage, NAME_LIMIT), *figures, *growths, *largest]


def _figure(error: Error | None, name: str) -> str:
    value = getattr(error, name) if error else None
    return "-" if value is None else f"{value:.1e}" if value else "0"


def _times(growth: float | None) -> str:
    return "-" if growth is None else f"x {units.significant(growth)}"


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    (name, *numbers), (first, *others) = cells, widths
    padded = name + " " * (first - cell_len(name))
    return padded + "".join(" " * (wide - cell_len(cell)) + cell for cell, wide in zip(numbers, others, strict=True))


def _said(reason: Reason) -> str:
    return plain(sentence(reason), BLOCK_LIMIT)


def to_json(found: Chains) -> Mapping[str, Any]:
    """The same for programs."""
    return {
        "device": found.device,
        "seed": found.seed,
        "chains": [
            {
                "chain": result.name,
                "failed": result.failed,
                "failure": _json_reason(result.failure) if result.failure else None,
                "cases": [_json_case(case) for case in result.cases],
            }
            for result in found.results
        ],
    }


def _json_case(case: ChainCase) -> Mapping[str, Any]:
    return {
        "case": case.case,
        "seed": case.seed,
        "verdict": case.verdict,
        "whole": case.whole,
        "limit": case.limit,
        "stages": case.stages,
        "failures": [_json_reason(reason) for reason in case.failures],
        "notes": [_json_reason(reason) for reason in case.notes],
        "unchecked": _json_reason(case.unchecked) if case.unchecked else None,
    }


def _json_reason(reason: Reason) -> Mapping[str, Any]:
    return {"kind": reason.kind, "facts": reason.facts, "text": sentence(reason)}
