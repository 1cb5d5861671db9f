"""What `perfci check --soak` shows: a line a test of a case, with its numbers, and a sentence where it did not pass."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from perfci.cli.exits import Exit
from perfci.cli.output import relative, write_json
from perfci.cli.progress import Progress
from perfci.core.codec import encode
from perfci.core.model import Fact
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.lab.soak.findings import Finding, Status
from perfci.report.text import BLOCK_LIMIT, NAME_LIMIT, plain
from perfci.runs.soak import FOLDER, Soak, SoakOptions, soak_ops
from perfci.store.files import write_atomically

STYLES = {Status.PASS: "green", Status.FAIL: "bold red", Status.ERROR: "bold red", Status.SKIPPED: "dim"}


def print_soak(options: SoakOptions, where: Settings, *, json: bool) -> int:
    """Soak, print what came of it, and keep it as JSON; gives the exit code."""
    with Progress() as progress:
        found = soak_ops(where, options, progress)
    text = encode(to_json(found)).decode()
    path = where.reports / FOLDER / "soak.json"
    write_atomically(path, text.encode() + b"\n")
    if json:
        write_json(text)
        return exit_code(found)
    out = Console(file=sys.stdout)
    for line in shown(found):
        out.print(line, soft_wrap=True)
    out.print(Text(say("All numbers: {path}", path=relative(path))), soft_wrap=True)
    return exit_code(found)


def exit_code(found: Soak) -> Exit:
    """0 where nothing failed, 2 where something did."""
    return Exit.GATE_FAILED if found.failed else Exit.OK


def shown(found: Soak) -> Iterator[Text]:
    """The answer for a terminal or a log."""
    yield Text(say("Soaked on {device}, seed {seed}", device=plain(found.device.name), seed=found.seed))
    last = None
    for finding in found.findings:
        if finding.op != last:
            last = finding.op
            yield Text()
            yield Text(plain(finding.op, NAME_LIMIT), style="bold")
        yield from _lines(finding)
    yield Text()
    yield Text(_summary(found), style="bold red" if found.failed else "green")


def _lines(finding: Finding) -> Iterator[Text]:
    name = plain(finding.case, NAME_LIMIT) if finding.case else say("all cases")
    numbers = _numbers(finding)
    words = f"{finding.status:<8}{finding.test:<12}{name}" + (f": {numbers}" if numbers else "")
    yield Text(words, style=STYLES[finding.status])
    if finding.reason is not None:
        yield Text("        " + plain(sentence(finding.reason), BLOCK_LIMIT))


def _numbers(finding: Finding) -> str:
    """The numbers of a test that was made to its end, in words."""
    facts: dict[str, Fact] = dict(finding.numbers)
    writer = _WRITERS.get(finding.test)
    return writer(facts) if writer and facts else ""


def _memory(facts: dict[str, Fact]) -> str:
    own = say("{calls} calls, {before:size} to {after:size}, at most {peak:size}", **facts)
    if facts.get("outside_after") is None:
        return own
    outside = say("by the driver {outside_before:size} to {outside_after:size} beside it", **facts)
    if not facts.get("alone"):
        outside += say(", not judged, since others may be on the device")
    return f"{own}; {outside}"


def _decay(facts: dict[str, Fact]) -> str:
    times = say(
        "{calls} calls, {first_us:us} to {last_us:us}, {change:+%} ({low:+%} to {high:+%}; p {p:n}), allowed {limit:%}",
        **facts,
    )
    if facts.get("clock") is not None:
        times += say("; SM clock {clock:+%}", **facts)
    if facts.get("first_c") is not None:
        times += say(", {first_c} to {last_c} degrees", **facts)
    if facts.get("throttle"):
        times += say(", held down by {throttle}", **facts)
    return times


def _determinism(facts: dict[str, Fact]) -> str:
    return say("{calls} calls", **facts)


def _streams(facts: dict[str, Fact]) -> str:
    if facts.get("late"):
        return say("{rounds} rounds on {streams} streams, inputs filled late", **facts)
    return say("{rounds} rounds on {streams} streams; inputs could not be filled late", **facts)


def _threads(facts: dict[str, Fact]) -> str:
    return say("{threads} threads, {calls} calls each, the first ones at once", **facts)


def _large(facts: dict[str, Fact]) -> str:
    return say("{elements} elements, {bytes:size} in all, {slices} slices of {rows} rows verified", **facts)


_WRITERS = {
    "memory": _memory,
    "decay": _decay,
    "determinism": _determinism,
    "streams": _streams,
    "threads": _threads,
    "large": _large,
}


def _summary(found: Soak) -> str:
    counts = Counter(each.status for each in found.findings)
    return say(
        "{passed} passed, {failed} failed, {errors} errors, {skipped} skipped",
        passed=counts[Status.PASS],
        failed=counts[Status.FAIL],
        errors=counts[Status.ERROR],
        skipped=counts[Status.SKIPPED],
    )


def to_json(found: Soak) -> Mapping[str, Any]:
    """The same for programs: bytes, microseconds, and ratios - 1."""
    return {
        "device": found.device.name,
        "device_key": found.device.key,
        "seed": found.seed,
        "failed": found.failed,
        "findings": [_json(each) for each in found.findings],
    }


def _json(finding: Finding) -> Mapping[str, Any]:
    reason = finding.reason
    return {
        "op": finding.op,
        "test": finding.test,
        "case": finding.case,
        "status": finding.status,
        "reason": reason and {"kind": reason.kind, "text": sentence(reason)},
        "numbers": dict(finding.numbers),
    }
