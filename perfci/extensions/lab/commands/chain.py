"""The output of `perfci chain`: a table of stages for each case, what is wrong, and what is worth knowing."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from rich.console import RenderableType

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import Grid, Paragraph, print_found
from perfci.cli.parsing import argument
from perfci.cli.progress import Progress
from perfci.core.model import Gate, Reason
from perfci.core.wording import say, sentence
from perfci.extensions.common.kept import keep_answer
from perfci.extensions.lab.chains.flow import FOLDER as KEPT
from perfci.extensions.lab.chains.flow import Chains, check_chains
from perfci.extensions.lab.chains.records import FOLDER, ChainCase, ChainResult, StageMeasured
from perfci.report.data import pick
from perfci.report.view import make_table
from perfci.runs.plan import Request

_COLOURS = {"PASS": "green", "WRONG": "bold red", "ERROR": "bold red", "UNCHECKED": "dim"}


def chain(
    names: Annotated[list[str], argument("NAME...", "Chains: files of kernels/_chains.", "all chains")] = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceOption = "auto",
    seed: options.Seed = None,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Check ops in a row, as a model calls them: stage by stage and as a whole."""
    where, request = language.load(project), Request(tuple(names), case, device, seed=seed)
    with Progress() as progress:
        chains = check_chains(where, request, progress)
    failed = [why for one in chains.results for case in one.cases for why in case.failures]
    failed += [one.failure for one in chains.results if one.failure]
    right = sum(case.verdict == "PASS" for one in chains.results for case in one.cases)
    said = failed or [Reason("chains_right", {"count": right})]
    answer, code = {**to_json(chains), "case": request.pattern}, get_exit_code(chains)
    gate = {Exit.OK: Gate.OK, Exit.GATE_FAILED: Gate.FAILS}.get(code)
    keep_answer(where, KEPT, gate, (one.name for one in chains.results), said, answer)
    none = [sentence(Reason("chain_none", {"folder": str(where.kernels / FOLDER)}))]
    print_found(to_json(chains), show_chains(chains) if chains.results else none, json=output == "json")
    return code


COMMANDS = {"chain": chain}


def get_exit_code(chains: Chains) -> Exit:
    """2 if a chain is wrong or broken, 3 if there are chains and no case could be checked here, else 0."""
    if any(result.failed for result in chains.results):
        return Exit.GATE_FAILED
    unchecked = all(case.unchecked for result in chains.results for case in result.cases)
    return Exit.WARNINGS if chains.results and unchecked else Exit.OK


def show_chains(chains: Chains) -> Iterator[RenderableType]:
    """The answer for a terminal or a log."""
    name = chains.device.name if chains.device else "-"
    yield say("Chains on {device}, seed {seed}; errors are relative L2 ones", device=name, seed=chains.seed)
    for result in chains.results:
        counts = Counter(case.verdict for case in result.cases)
        text = f"{result.name}: {say('{count:case|cases}', count=len(result.cases))}"
        if counts:
            text += f" ({', '.join(f'{counts[name]} {name}' for name in _COLOURS if counts[name])})"
        yield ""
        yield Paragraph(text, style="bold red" if result.failed else "bold")
        if result.failure:
            yield Paragraph(result.failure, 2, "bold red")
        for case in result.cases:
            yield from _show_case(case)


def _show_case(case: ChainCase) -> Iterator[RenderableType]:
    if case.unchecked:
        yield Paragraph(
            say("{op}: {told}", op=str(case.verdict), told=sentence(case.unchecked)), 2, _COLOURS[case.verdict]
        )
        return
    yield ""
    yield Paragraph(f"{case.verdict}  {case.case}", 2, _COLOURS[case.verdict])
    if case.stages:
        headings = "stage | so far: | PyTorch: | largest so far: | PyTorch:"
        yield Grid(make_table(headings, map(_make_row, case.stages)), indent=4)
    if case.whole and case.limit:
        whole, limit = case.whole, case.limit
        facts = {"error": whole.l2, "limit": limit.l2, "largest": whole.max_abs, "most": limit.max_abs}
        text = say("whole: {error:n}, allowed {limit:n}; at most {largest:n}, allowed {most:n}", **facts)
        yield Paragraph(text, 4)
    yield from (Paragraph(reason, 4, "red") for reason in case.failures)
    yield from (Paragraph(reason, 4, "yellow") for reason in case.notes)


def _make_row(stage: StageMeasured) -> tuple[str, ...]:
    def write(value: float | None) -> str:
        return "-" if value is None else f"{value:.1e}" if value else "0"

    errors = (stage.so_far, stage.usual)
    largest = (write(error.max_abs if error else None) for error in errors)
    return (stage.stage, *(write(error.l2 if error else None) for error in errors), *largest)


def to_json(chains: Chains) -> Mapping[str, Any]:
    """The same for programs."""

    def write_chain(result: ChainResult) -> Mapping[str, Any]:
        names = "case seed verdict whole limit failures notes unchecked"
        cases = [
            pick(case, names, stages=[pick(stage, "stage so_far usual") for stage in case.stages])
            for case in result.cases
        ]
        return pick(result, "failed failure", chain=result.name, cases=cases)

    return pick(chains, "device seed", chains=[write_chain(result) for result in chains.results])
