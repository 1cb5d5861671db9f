"""The report as one self-contained page: `report.html`, which needs no network, and no JavaScript to be read.

The site of the extension history shares its frame, its style and its script.
"""

import base64
import functools
import hashlib
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib import resources
from typing import Any

from markupsafe import Markup

from perfci.core import wording
from perfci.core.model import Gate, Judgement, Judgements, PerformanceCase, PlannedOp, Run, Suite
from perfci.core.wording import say, sentence
from perfci.report import against, rows
from perfci.report.markdown import load_templates
from perfci.report.rows import VerdictRow
from perfci.report.sections import Material
from perfci.report.steps import make_steps, repeat, show
from perfci.report.text import block, code, plain, spell, split_marks
from perfci.report.view import Picture, Report

FINE_LINES = 40  # Lines that are fine and shown at first. The others are folded until they are asked for.
OPEN_OPS = 3  # most ops with sections that stand open
HERE = "perfci.extensions.pictures"  # the package that holds styles, scripts and templates
LANGUAGES = {"en": "en", "zh": "zh-CN"}  # as HTML names them

LOCKED = (
    "default-src 'none'; img-src data:; style-src 'sha256-{style}'; script-src 'sha256-{script}'; base-uri 'none'; "
    "form-action 'none'"
)
"""Nothing is fetched, and nothing runs or styles but what this perfci put there, whatever a name may smuggle in. The
pictures are data of the page itself, and what an image holds never runs."""


@dataclass(frozen=True)
class Line:
    """One line of the table of cases, and what opening it shows."""

    row: VerdictRow
    key: str  # names it in the page's address: softmax/rows=4096
    op: str
    case: str  # with marks, after what it is about in words
    numbers: tuple[tuple[str, str, float | None], ...]
    """change, speedup, kernel and reference: text, interval, and the number to sort by"""
    why: tuple[str, ...] = ()  # plain sentences beside the one in its line, words between single backticks are code
    commands: tuple[tuple[str, str], ...] = ()  # what it is for, and what to type
    picture: Picture | None = None
    folded: bool = False


def render(material: Material, report: Report) -> str:
    """The page of a report with the material's pictures."""
    run, lines = material.run, make_lines(material)
    what = run.environment.branch or run.environment.device.name
    named = dict.fromkeys((*(op.op for op in run.ops), *(row.op for row in material.judgements.rows)))
    gates = {line.op: line.row.gate for line in reversed(lines)}  # the gravest lines come first
    remaining, ops = iter(named), []
    for section in report.ops:
        op = plain(next(name for name in remaining if plain(name, 80) == section.title), 160)
        gate = gates.get(op, Gate.OK)
        ops.append((section, op, str(gate), len(report.ops) <= OPEN_OPS or gate is Gate.FAILS))
    counts = rows.count_verdicts(line.row for line in lines)
    verdicts = {line.row.verdict: line.row.gate for line in reversed(lines)}
    return render_page(
        "page.html.j2",
        title=say("perfci: {gate}, {what}", gate=report.gate, what=plain(what, 60)),
        gate=str(material.judgements.gate),
        report=report,
        lines=lines,
        chips=[(verdict, verdicts[verdict], count) for verdict, count in counts.items()],
        names=sorted(gates),
        numbers=(
            ("change", say("change")),
            ("speedup", say("speedup")),
            ("kernel", say("kernel")),
            ("reference", say("reference")),
        ),
        folded=sum(line.folded for line in lines),
        ops=ops,
    )


# --- the table of cases -----------------------------------------------------------------------------------------------


def make_lines(material: Material) -> list[Line]:
    """Every line, the gravest first: performance case by case, so that each can be found, the others gathered."""
    timed = {(op.op, case.case): case for op in material.run.ops for case in op.performance}
    pictures = {(op, one.case): one for op, pictured in material.gallery.ops.items() for one in pictured.cases}
    lines = list[Line]()
    for row, judgement in _pair_rows(material.judgements):
        place = (row.op, row.case or "") if judgement and judgement.suite is Suite.PERFORMANCE else ("", "")
        lines.append(
            Line(
                row=row,
                key=f"{plain(row.op, 160)}/{plain(row.where, 160)}",
                op=plain(row.op, 160),
                case=" ".join(filter(None, (plain(row.about), code(row.case or "")))),
                numbers=_find_numbers(row, judgement),
                why=tuple(_explain(judgement, timed.get(place))) if judgement else (),
                commands=tuple(_write_commands(judgement, material.run)) if judgement else (),
                picture=pictures.get(place),
            )
        )
    lines.sort(key=lambda line: line.row.rank)
    fine = [line for line in lines if not line.row.aloud]
    folded = {id(line) for line in fine[FINE_LINES:]}
    return [replace(line, folded=id(line) in folded) for line in lines]


def _pair_rows(judgements: Judgements) -> Iterator[tuple[VerdictRow, Judgement | None]]:
    """Rows with the judgement that each is about, if it is one alone."""
    single = [row for row in judgements.rows if row.suite is Suite.PERFORMANCE and row.case is not None]
    others = [row for row in judgements.rows if row.suite is not Suite.PERFORMANCE or row.case is None]
    for line in rows.make_rows(replace(judgements, rows=tuple(others))):
        yield line, line.first if line.gathered == 1 and line.suite is not Suite.COMPILED else None
    for row in single:
        yield rows.make_rows(replace(judgements, rows=(row,)))[0], row


def _find_numbers(row: VerdictRow, judgement: Judgement | None) -> tuple[tuple[str, str, float | None], ...]:
    seen = judgement.comparison if judgement else None
    change = rows.find_change(judgement) if judgement else None
    speedup = seen.speedup if seen else None
    numbers = (
        (row.change, row.change_range, change.value if change else None),
        (row.speedup, row.speedup_range, speedup.value if speedup else None),
        (row.kernel, "", seen.kernel_us if seen else None),
        (row.reference, "", seen.reference_us if seen else None),
    )
    return tuple((text, interval, number if math.isfinite(number or 0) else None) for text, interval, number in numbers)


def _explain(row: Judgement, timed: PerformanceCase | None) -> Iterator[str]:
    """Whatever is known beside the reason that decided, each sentence once."""
    texts = [sentence(reason) for reason in row.reasons[1:]]
    if timed:
        texts += [sentence(reason) for reason in (timed.failure, *timed.suspicion) if reason]
        texts += against.describe_base(timed.base) if timed.base else ()
    yield from map(plain, dict.fromkeys(texts))


def _write_commands(row: Judgement, run: Run) -> Iterator[tuple[str, str]]:
    """The next step by its verdict, how to run it alone, and how to read all about it."""
    commands: dict[str, str] = {}
    for step in make_steps(run, Judgements((row,))) if row.gate is not Gate.OK else ():
        commands.setdefault(step.command, f"{step.verdict}: {spell(step.advice)}")
    if row.suite is Suite.PERFORMANCE and row.case is not None:
        plan = replace(run.plan, ops=(PlannedOp(row.op, (), (row.case,)),), filter=row.case)
        commands.setdefault(
            repeat(replace(run, plan=plan, static=None)), say("The same inputs again, this case alone:")
        )
        commands.setdefault(show(run, row.op, row.case), say("Every look at it:"))
    return ((what, command) for command, what in commands.items())


# --- the file ---------------------------------------------------------------------------------------------------------


def render_page(template: str, package: str = HERE, styles: Sequence[str] = (), **values: object) -> str:
    """A page of a template that extends `frame.html.j2`, with its policy, its style, its script and its texts.

    package: that holds the template, and further styles.
    """
    style = _read_part(HERE, "style.css") + "".join(_read_part(package, name) for name in styles)
    script = _read_part(HERE, "page.js")
    # The texts of the script. Braces are its to fill.
    controls = {
        "shown": say("{shown} of {count} rows", shown="{shown}", count="{count}"),
        "nothing": say("No row matches; clear the filters to see all {count}.", count="{count}"),
        "more": say("Show the other rows that are fine ({count})", count="{count}"),
        "dark": say("Dark"),
        "light": say("Light"),
    }
    page: str = _load_template(package, template).render(
        kind=template.removesuffix(".html.j2"),
        lang=LANGUAGES[wording.spoken()],
        policy=LOCKED.format(style=_digest(style), script=_digest(script)),
        style=Markup(style),
        script=Markup(script),
        data=Markup(json.dumps({"words": controls}, separators=(",", ":")).replace("<", "\\u003c")),
        **values,
    )
    return page


@functools.cache
def _read_part(package: str, name: str) -> str:
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@functools.cache
def _load_template(package: str, name: str) -> Any:
    made = load_templates(*dict.fromkeys((package, HERE)))
    made.filters |= {
        "told": write_marked,
        "cell": functools.partial(write_marked, breaks=True),
        "case": lambda name: write_marked(code(name), breaks=True),
        "plain_of": spell,
        "block": block,
        "code_of": lambda text: write_marked(plain(text, 4000)),
        "encode": lambda picture: base64.b64encode(picture.png).decode(),
    }
    return made.get_template(name)


def write_marked(text: str, *, breaks: bool = False) -> Markup:
    """A view's text in a paragraph, list item or cell. Whatever is opened is closed again, in the right order.

    breaks: code, such as a case's id, may go on in the next line behind a comma.

    >>> write_marked("`a<b` <i>")
    Markup('<code>a&lt;b</code> &lt;i&gt;')
    >>> write_marked("`rows=1,cols=2`, slower", breaks=True)
    Markup('<code>rows=1,<wbr>cols=2</code>, slower')
    """
    parts, opened = list[str](), list[str]()
    for kind, part in split_marks(text):
        if kind == "code":
            name = escape(part)
            parts.append(f"<code>{name.replace(',', ',<wbr>') if breaks else name}</code>")
        elif not kind:
            parts.append(escape(part))
        elif kind in opened:
            while opened:
                parts.append(f"</{(last := opened.pop())}>")
                if last == kind:
                    break
        else:
            opened.append(kind)
            parts.append(f"<{kind}>")
    return Markup("".join((*parts, *(f"</{kind}>" for kind in reversed(opened)))))
