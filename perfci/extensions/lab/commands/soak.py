"""The output of `perfci soak`: a line for each test of a case, with its numbers, and why it did not pass."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Annotated, Any

from rich.console import RenderableType

from perfci.cli import language, options
from perfci.cli.exits import exit_code
from perfci.cli.output import Paragraph, print_parts, relative, write_json
from perfci.cli.parsing import option
from perfci.cli.progress import Progress
from perfci.core.model import Fact, Gate
from perfci.core.wording import say, sentence
from perfci.extensions.common.kept import keep_answer
from perfci.extensions.lab.soak.flow import FOLDER, Soak, soak_ops
from perfci.extensions.lab.soak.verdicts import Status
from perfci.report.data import pick
from perfci.runs.plan import Request

_STYLES = {Status.PASS: "green", Status.FAIL: "bold red", Status.ERROR: "bold red", Status.SKIPPED: "dim"}


def soak(
    ops: options.Ops = [],  # noqa: B006
    case: options.Case = None,
    calls: Annotated[
        int | None, option("--calls", "Calls of each test.", "1000; 24 without an accelerator", "N", min=2, max=10**7)
    ] = None,
    decay_limit: Annotated[
        float, option("--decay-limit", "How much slower a call may become.", metavar="PERCENT", min=0, max=1000)
    ] = 3.0,
    device: options.DeviceOption = "auto",
    seed: options.Seed = None,
    timer: options.Timer = "auto",
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Call ops a thousand times, on streams and threads, on huge arrays: leaks, decay, answers that change."""
    where, request = language.load(project), Request(tuple(ops), case, device, seed=seed, timer=timer)
    with Progress() as progress:
        soaked = soak_ops(where, request, progress, calls, decay_limit / 100)
    gate, looked = Gate.FAILS if soaked.failed else Gate.OK, {finding.op for finding in soaked.findings}
    bad = (
        (finding.op, finding.test, finding.reason)
        for finding in soaked.findings
        if finding.status in {Status.FAIL, Status.ERROR}
    )
    said = [f"{op}, {test}: {sentence(why)}" for op, test, why in bad if why] or [write_summary(soaked)]
    text, path = keep_answer(where, FOLDER, gate, looked, said, {**to_json(soaked), "case": request.pattern})
    if output == "json":
        write_json(text)
    else:
        print_parts([*show_soak(soaked), say("All numbers: {path}", path=relative(path))])
    return exit_code(gate, strict=False)


COMMANDS = {"soak": soak}


def show_soak(soak: Soak) -> Iterator[RenderableType]:
    """The answer for a terminal or a log."""
    yield say("Soaked on {device}, seed {seed}", device=soak.device.name, seed=soak.seed)
    for op, findings in groupby(soak.findings, lambda finding: finding.op):
        yield ""
        yield Paragraph(op, style="bold")
        for finding in findings:
            numbers = write_numbers(finding.test, dict(finding.numbers))
            text = f"{finding.status} {finding.test} {finding.case or say('all cases')}"
            yield Paragraph(text + (f": {numbers}" if numbers else ""), style=_STYLES[finding.status])
            if finding.reason is not None:
                yield Paragraph(finding.reason, 8)
    yield from ("", Paragraph(write_summary(soak), style="bold red" if soak.failed else "green"))


def write_summary(soak: Soak) -> str:
    """How the tests ended."""
    counts = Counter(finding.status for finding in soak.findings)
    names = zip(("passed", "failed", "skipped", "errors"), Status, strict=True)
    totals = {name: counts[status] for name, status in names}
    return say("{passed} passed, {failed} failed, {errors} errors, {skipped} skipped", **totals)


def write_numbers(test: str, facts: dict[str, Fact]) -> str:
    """The numbers of a test that came to its end, in words."""
    if not facts:
        return ""
    match test:
        case "memory":
            text = say("{calls} calls, {before:size} to {after:size}, at most {peak:size}", **facts)
            if facts.get("outside_after") is None:
                return text
            outside = say("by the driver {outside_before:size} to {outside_after:size} beside it", **facts)
            shared = "" if facts.get("alone") else say(", not judged, since others may be on the device")
            return f"{text}; {outside}{shared}"
        case "decay":
            text = say(
                "{calls} calls, {first_us:us} to {last_us:us}, {change:+%} ({low:+%} to {high:+%}; p {p:n}), allowed "
                "{limit:%}",
                **facts,
            )
            if facts.get("clock") is not None:
                text += say("; SM clock {clock:+%}", **facts)
            if facts.get("first_c") is not None:
                text += say(", {first_c} to {last_c} degrees", **facts)
            if facts.get("throttle"):
                text += say(", held down by {throttle}", **facts)
            return text
        case "determinism":
            return say("{calls} calls", **facts)
        case "streams" if facts.get("late"):
            return say("{rounds} rounds on {streams} streams, inputs filled late", **facts)
        case "streams":
            return say("{rounds} rounds on {streams} streams; inputs could not be filled late", **facts)
        case "threads":
            return say("{threads} threads, {calls} calls each, the first ones at once", **facts)
        case "large":
            return say("{elements} elements, {bytes:size} in all, {slices} slices of {rows} rows verified", **facts)
    return ""


def to_json(soak: Soak) -> Mapping[str, Any]:
    """The same for programs: bytes, microseconds, and ratios - 1."""
    return pick(soak, "seed failed findings", device=soak.device.name, device_key=soak.device.key)
