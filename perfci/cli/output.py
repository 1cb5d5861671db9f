"""Printing: lines and tables for people, JSON for programs, and the answer of everything that judges."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from perfci.cli import tables
from perfci.cli.exits import exit_code
from perfci.core.codec import encode
from perfci.core.model import Judgements, Reason, Run
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.report import data
from perfci.runs.decide import stored_for

_UNSEEN = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]|(?<=##)\\[|(?<=##vso)\\[")
"""Characters in JSON that a terminal, a job's log or a reader's eye takes for more than text; its encoder escapes all
others. The brackets stand in strings alone."""


def print_parts(parts: Iterable[RenderableType], console: Console | None = None) -> None:
    """Print for a terminal or a log."""
    out = console or Console(highlight=False)
    for part in parts:
        # In a log a line is a line: nothing is cut to a width that nobody has.
        out.print(part, soft_wrap=not out.is_terminal)


def print_lines(*lines: str) -> None:
    """Lines as they are, also for the clipboard."""
    for line in lines:
        print(line)


def print_json(answer: Any) -> None:
    """An answer for programs."""
    write_json(encode(answer).decode())


def write_json(json: str) -> None:
    """JSON without what a terminal obeys; written in bytes, in which no line ends are changed."""
    text = _UNSEEN.sub(lambda found: f"\\u{ord(found.group()):04x}", json.rstrip("\n"))
    sys.stdout.buffer.write(text.encode() + b"\n")


def reason_data(reason: Reason) -> Mapping[str, Any]:
    """A reason for programs."""
    return {"kind": reason.kind, "facts": dict(reason.facts), "sentence": sentence(reason)}


def print_verdicts(run: Run, judgements: Judgements, *, strict: bool = False, shard: str | None = None) -> None:
    """The verdict table with its notes, and what they sum up to; a shard's decide nothing by themselves."""
    print_parts([tables.verdicts(judgements, run)])
    for text, lines in tables.pasted(judgements):
        print_parts([text])
        # Not through the console, which breaks lines that are to be copied.
        print_lines(*lines)
    print_parts([tables.peers(judgements), tables.summary(judgements, strict=strict, shard=shard)])


def print_answer(run: Run, judgements: Judgements) -> None:
    """The verdicts for programs."""
    print_json(data.to_json(judgements, run))


def conclude(run: Run, judgements: Judgements, where: Settings, *, strict: bool, json: bool, html: bool = False) -> int:
    """Print the verdicts, write the report, and give the exit code."""
    from perfci import report

    # The verdicts first: they are known even if the report cannot be written.
    if json:
        print_answer(run, judgements)
    else:
        print_verdicts(run, judgements, strict=strict)
    formats = (*report.STANDARD, *(["html"] if html else []))
    written = write_report(run, judgements, where, where.reports, formats)
    if not json:
        print_lines(*written)
    return exit_code(judgements.gate, strict=strict)


def write_report(
    run: Run,
    judgements: Judgements,
    where: Settings,
    folder: Path,
    formats: Iterable[str],
    launches: Path | None = None,
    against: Path | None = None,
) -> list[str]:
    """Write the report; lines that name its files."""
    from perfci import report

    stored, formats = stored_for(run, where, against), tuple(formats)
    path = report.write(
        run, judgements, folder, launches or folder, stored.baselines, pasts=stored.pasts, sources=stored.sources,
        formats=formats,
    )  # fmt: skip
    lines = {
        "md": say("Report: {path}", path=relative(path)),
        "html": say("Page: {path}", path=relative(path.with_suffix(".html"))),
    }
    return [line for name, line in lines.items() if name in formats]


def get_command() -> str:
    """What was typed."""
    return shlex.join(["perfci", *sys.argv[1:]])


def relative(path: Path) -> str:
    """A path as it is shown: from the current folder, if it lies there."""
    here = Path.cwd()
    shown = str(path.relative_to(here) if path.is_relative_to(here) else path)
    return "".join(mark for mark in shown if mark.isprintable())
