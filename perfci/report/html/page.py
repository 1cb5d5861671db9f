"""The report as one self-contained page: `report.html`, which needs no network, and no JavaScript to be read.

It renders the view of a report with its templates, and adds a table of cases that can be sorted, filtered and opened.
`perfci.report.site` shares its frame, its style and its script.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from perfci.core import wording
from perfci.core.model import Gate, Judgement, Judgements, PerformanceCase, PlannedOp, Run, Suite
from perfci.core.wording import say, sentence
from perfci.report import against, rows
from perfci.report.html.markup import Html, breaking, grid, inline
from perfci.report.rows import VerdictRow
from perfci.report.sections import Material
from perfci.report.steps import RUN_FILE, make_steps, quote, repeat
from perfci.report.text import code, plain, spell
from perfci.report.view import Picture, Report

FINE_LINES = 40
"""Lines that are fine and shown at first. The others are folded until they are asked for."""

OPEN_OPS = 3
"""Most ops whose sections stand open."""

HERE = "perfci.report.html"
"""The package that holds styles, scripts and templates."""

LANGUAGES = {"en": "en", "zh": "zh-CN"}
"""As HTML names them."""

LOCKED = (
    "default-src 'none'; img-src data:; style-src 'sha256-{style}'; script-src 'sha256-{script}'; base-uri 'none'; "
    "form-action 'none'"
)
"""Nothing is fetched, and nothing runs or styles but what this perfci put there, whatever a name may smuggle in. The
pictures are data of the page itself, and what an image holds never runs."""


@dataclass(frozen=True)
class OpenedDetail:
    """What opening a line shows. Texts are plain, words between single backticks are code."""

    why: tuple[str, ...]
    """sentences beside the one in its line"""
    commands: tuple[tuple[str, str], ...]
    """what it is for, and what to type"""
    picture: Picture | None = None


@dataclass(frozen=True)
class Line:
    """One line of the table of cases. Numbers are given beside the texts, to sort by."""

    row: VerdictRow
    key: str
    """names it in the page's address: softmax/rows=4096"""
    op: str
    rank: int
    cells: tuple[Html, ...]
    """op, case, change, speedup, kernel, reference, reason"""
    numbers: tuple[float | None, ...]
    """change, speedup, kernel and reference"""
    detail: OpenedDetail | None
    """None if it stands for several verdicts"""
    folded: bool


@dataclass(frozen=True)
class Chip:
    """A verdict that one can filter by."""

    verdict: str
    gate: str
    count: int


def render(material: Material, report: Report) -> str:
    """The page of a report with the material's pictures, as SVG."""
    run, lines = material.run, make_lines(material)
    what = run.environment.branch or run.environment.device.name
    style, script = read_part("style.css"), read_part("page.js")
    named = dict.fromkeys((*(op.op for op in run.ops), *(row.op for row in material.judgements.rows)))
    gates = {line.op: line.row.gate for line in reversed(lines)}  # the gravest lines come first
    remaining, ops = iter(named), []
    for section in report.ops:
        op = plain(next(name for name in remaining if plain(name, 80) == section.title), 160)
        gate = gates.get(op, Gate.OK)
        ops.append((section, op, str(gate), len(report.ops) <= OPEN_OPS or gate is Gate.FAILS))
    page: str = load_template("page.html.j2").render(
        **make_shell(style, script, {"words": name_controls()}),
        title=say("perfci: {gate}, {what}", gate=report.gate, what=plain(what, 60)),
        gate=str(material.judgements.gate),
        report=report,
        lines=lines,
        chips=make_chips(lines),
        names=sorted(gates),
        headings=_name_columns(),
        folded=sum(line.folded for line in lines),
        ops=ops,
    )
    return page


def _name_columns() -> tuple[tuple[str, str, bool], ...]:
    """Name to sort by, text, and whether it is a column of numbers."""
    return (
        ("verdict", say("verdict"), False),
        ("op", say("op"), False),
        ("case", say("case"), False),
        ("change", say("change"), True),
        ("speedup", say("speedup"), True),
        ("kernel", say("kernel"), True),
        ("reference", say("reference"), True),
        ("reason", say("reason"), False),
    )


def name_controls() -> dict[str, str]:
    """The texts of a page's script. Braces are its own to fill."""
    return {
        "shown": say("{shown} of {count} rows", shown="{shown}", count="{count}"),
        "nothing": say("No row matches; clear the filters to see all {count}.", count="{count}"),
        "more": say("Show the other rows that are fine ({count})", count="{count}"),
        "dark": say("Dark"),
        "light": say("Light"),
    }


# --- the table of cases -----------------------------------------------------------------------------------------------


def make_lines(material: Material) -> list[Line]:
    """Every line, the gravest first: performance case by case, so that each can be found, the others gathered."""
    judgements = material.judgements
    timed = {(op.op, case.case): case for op in material.run.ops for case in op.performance}
    pictures = {(op, one.case): one for op, found in material.pictures.items() for one in found.cases}
    fine, lines = 0, []
    for row, judgement in sorted(_pair_rows(judgements), key=lambda pair: rows.rank(pair[0].verdict, pair[0].gate)):
        fine += not row.aloud
        detail = None
        if judgement is not None:
            key = (row.op, row.case or "")
            speed = judgement.suite is Suite.PERFORMANCE
            why = tuple(_explain(judgement, timed.get(key) if speed else None))
            commands = tuple(_write_commands(judgement, material.run))
            detail = OpenedDetail(why, commands, pictures.get(key) if speed else None)
        lines.append(
            Line(
                row=row,
                key=f"{plain(row.op, 160)}/{plain(row.where, 160)}",
                op=plain(row.op, 160),
                rank=rows.rank(row.verdict, row.gate),
                cells=tuple(_write_cells(row)),
                numbers=_find_numbers(judgement),
                detail=detail if detail and (detail.why or detail.commands) else None,
                folded=fine > FINE_LINES,
            )
        )
    return lines


def _pair_rows(judgements: Judgements) -> Iterator[tuple[VerdictRow, Judgement | None]]:
    """Rows with the judgement that each is about, if it is one alone."""
    single = [row for row in judgements.rows if row.suite is Suite.PERFORMANCE and row.case is not None]
    others = [row for row in judgements.rows if row.suite is not Suite.PERFORMANCE or row.case is None]
    known: dict[object, Judgement] = {
        (row.op, row.suite, row.case, row.verdict): row for row in others if row.suite is not Suite.COMPILED
    }
    for line in rows.make_rows(replace(judgements, rows=tuple(others))):
        yield line, known.get((line.op, line.suite, line.case, line.verdict)) if line.gathered == 1 else None
    for row in single:
        yield rows.make_rows(replace(judgements, rows=(row,)))[0], row


def _write_cells(row: VerdictRow) -> Iterator[Html]:
    yield inline(code(row.op))
    yield breaking(" ".join(filter(None, (plain(row.about), code(row.case or "")))))
    for value, interval in ((row.change, row.change_range), (row.speedup, row.speedup_range)):
        small = f" <small>{inline(interval).source}</small>" if interval else ""
        yield Html(inline(value).source + small)
    yield inline(row.kernel)
    yield inline(row.reference)
    yield inline(plain(row.sentence))


def _find_numbers(row: Judgement | None) -> tuple[float | None, ...]:
    seen = row.comparison if row else None
    change = rows.find_change(row) if row else None
    speedup = seen.speedup if seen else None
    found = (
        change.value if change else None,
        speedup.value if speedup else None,
        seen.kernel_us if seen else None,
        seen.reference_us if seen else None,
    )
    return tuple(float(f"{one:.6g}") if one is not None and math.isfinite(one) else None for one in found)


def make_chips(lines: Sequence[Line]) -> list[Chip]:
    """Verdicts that occur, the gravest first, with their number as the headline counts it."""
    counts = rows.count_verdicts(line.row for line in lines)
    gates = {line.row.verdict: line.row.gate for line in reversed(lines)}
    return [Chip(str(verdict), str(gates[verdict]), count) for verdict, count in counts.items()]


def _explain(row: Judgement, timed: PerformanceCase | None) -> Iterator[str]:
    """Whatever is known beside the reason that decided, each sentence once."""
    texts = [sentence(reason) for reason in row.reasons[1:]]
    if timed:
        texts += [sentence(reason) for reason in (timed.failure, *timed.suspicion) if reason]
        texts += against.describe_base(timed.base) if timed.base else ()
    yield from map(plain, dict.fromkeys(texts))


def _write_commands(row: Judgement, run: Run) -> Iterator[tuple[str, str]]:
    """What its verdict asks for, how to run it alone, and how to read all about it."""
    found: dict[str, str] = {}
    for step in make_steps(run, Judgements((row,))) if row.gate is not Gate.OK else ():
        found.setdefault(step.command, f"{step.verdict}: {spell(step.advice)}")
    if row.suite is Suite.PERFORMANCE and row.case is not None:
        plan = replace(run.plan, ops=(PlannedOp(row.op, (), (row.case,)),), filter=row.case)
        found.setdefault(repeat(replace(run, plan=plan, static=None)), say("The same inputs again, this case alone:"))
        show = f"perfci show {RUN_FILE} --op {quote(row.op)} --case {quote(row.case)}"
        found.setdefault(show, say("Every look at it:"))
    return ((what, command) for command, what in found.items())


# --- the file ---------------------------------------------------------------------------------------------------------


@functools.cache
def read_part(name: str, package: str = HERE) -> str:
    """A style or a script that pages hold."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def make_shell(style: str, script: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """What `frame.html.j2` is filled with: a page's language, its policy, its style, its script and its data."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)  # that ends no script, whatever stands in it
    for mark in "<>&":
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    return {
        "lang": LANGUAGES[wording.spoken()],
        "policy": LOCKED.format(style=_digest(style), script=_digest(script)),
        "style": Html(style),
        "script": Html(script),
        "data": Html(text),
    }


@functools.lru_cache(8)
def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def write_address(picture: Picture) -> str:
    """A picture as data of the page itself."""
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.svg.encode()).decode()}"


@functools.cache
def load_template(name: str, package: str = HERE) -> Any:
    """A template of a package. It may extend and import this one's."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(each) for each in dict.fromkeys((package, HERE))]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "told": inline,
        "plain_of": spell,
        "code_of": lambda text: inline(plain(text, 4000)),
        "grid": grid,
        "address": write_address,
    }
    made.globals["say"] = say  # before the template is got: its macros keep what they see then
    return made.get_template(name)
