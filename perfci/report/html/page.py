"""The whole page: what the Markdown report says with its pictures, and the table of cases, in one file."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from perfci.core import environment, wording
from perfci.core.model import Baseline, Difference, Gate, Run
from perfci.core.wording import say
from perfci.report import build
from perfci.report.html import cases, table
from perfci.report.html.cases import Cells, Detail, Known
from perfci.report.html.markup import Html, grid, inline
from perfci.report.html.table import Line
from perfci.report.sections import Material
from perfci.report.text import code, plain, spell
from perfci.report.view import Picture, Report

SERVED = 24
"""Most cases whose details are written into the page as they are, for readers without JavaScript and for print: those
that fail or warn, the gravest first, and those with a picture. The page's script shows the others when they are
opened."""

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
class Case:
    """A line of the table, and what opening it shows."""

    line: Line
    place: int
    detail: Detail | None
    """None where there is nothing to open, or where the script draws it"""
    packed: bool


@dataclass(frozen=True)
class Op:
    """An op beside its section of the Markdown report."""

    place: int
    name: str
    """as the table's lines have it"""
    gate: str
    open: bool


@dataclass(frozen=True)
class Differing:
    """Fields of the environment that are no longer as they were when baselines of some ops were recorded."""

    ops: Html
    rows: tuple[Cells, ...]


def render(material: Material, baselines: Mapping[str, Baseline], notes: Sequence[str] = ()) -> str:
    """The page with the material's pictures, as SVG."""
    run = material.run
    report = build.make_report(material)
    lines = table.lines(material.judgements)
    pictures = {
        (op, one.case): one for op, found in material.pictures.items() for one in found.cases if one.case is not None
    }
    known = cases.known(run, material.spreads, pictures)
    shown, data = _cases(lines, known)
    style, script = part("style.css"), part("page.js")
    page: str = template("page.html.j2").render(
        **shell(style, script, {**data, "words": words()}),
        title=_title(run, report),
        gate=str(material.judgements.gate),
        report=report,
        notes=[plain(note) for note in notes],
        cases=shown,
        chips=table.chips(lines),
        names=table.ops(lines),
        headings=_headings(),
        folded=sum(line.folded for line in lines),
        ops=_ops(material, report, lines),
        differing=_differing(material, baselines),
        arm_columns=cases.arm_columns(),
        difference_columns=cases.difference_columns(),
    )
    return page


def _title(run: Run, report: Report) -> str:
    what = plain(run.environment.branch or run.environment.device.name, 60)
    return say("perfci: {gate}, {what}", gate=report.gate, what=what)


# --- cases ------------------------------------------------------------------------------------------------------------


def _cases(lines: Sequence[Line], known: Known) -> tuple[list[Case], dict[str, Any]]:
    """The table's lines, the gravest with their details, and the packed details of the others."""
    shown, packed, served = list[Case](), dict[str, Any](), 0
    for place, line in enumerate(lines):
        detail = cases.detail(line.judgement, known) if line.judgement else None
        grave = line.gate != str(Gate.OK) and served < SERVED
        serve = detail is not None and (grave or detail.picture is not None)
        served += serve
        if detail is not None and not serve:
            packed[str(place)] = cases.packed(detail)
        shown.append(Case(line, place, detail if serve else None, packed=str(place) in packed))
    return shown, {"cases": packed}


def _headings() -> tuple[tuple[str, str, bool], ...]:
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


def words() -> dict[str, Any]:
    """What the page's script says; braces are its own to fill."""
    return {
        "shown": say("{shown} of {count} rows", shown="{shown}", count="{count}"),
        "nothing": say("No row matches; clear the filters to see all {count}.", count="{count}"),
        "more": say("Show the other rows that are fine ({count})", count="{count}"),
        "dark": say("Dark"),
        "light": say("Light"),
        "numbers": say("Numbers of each block"),
        "arms": cases.arm_columns(),
        "launches": say("Launches of each arm"),
        "changes": cases.difference_columns(),
        "environment": say("The environment since its baseline was recorded"),
        "repeat": say("To repeat it"),
    }


def _data(found: Any) -> str:
    """As JSON that ends no script, whatever stands in it."""
    text = json.dumps(found, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# --- ops --------------------------------------------------------------------------------------------------------------


def _ops(material: Material, report: Report, lines: Sequence[Line]) -> tuple[Op, ...]:
    """One a section of the report, in its order."""
    gates = table.ops(lines)
    named = iter(dict.fromkeys((*(op.op for op in material.run.ops), *(row.op for row in material.judgements.rows))))
    names = [next(name for name in named if plain(name, 80) == section.name) for section in report.ops]
    few = len(names) <= OPEN_OPS
    ranked = [(name, gates.get(name, str(Gate.OK))) for name in names]
    return tuple(
        Op(place, plain(name, 160), gate, open=few or gate == str(Gate.FAILS))
        for place, (name, gate) in enumerate(ranked)
    )


def picture_address(picture: Picture) -> str:
    """A picture as data of the page itself."""
    return f"data:image/svg+xml;base64,{base64.b64encode(picture.svg.encode()).decode()}"


# --- environment ------------------------------------------------------------------------------------------------------


def _differing(material: Material, baselines: Mapping[str, Baseline]) -> tuple[Differing, ...]:
    """By op, from the comparisons; ops that differ alike share a table."""
    found: dict[str, dict[Difference, None]] = {}
    for row in material.judgements.rows:
        if row.comparison and row.comparison.differs:
            found.setdefault(row.op, {}).update(dict.fromkeys(row.comparison.differs))
    for op, stored in _others(material, baselines, set(found)):
        found[op] = dict.fromkeys(stored)
    alike: dict[tuple[Cells, ...], list[str]] = {}
    for op, fields in found.items():
        alike.setdefault(cases.differs(fields), []).append(op)
    return tuple(Differing(inline(", ".join(map(code, ops))), fields) for fields, ops in alike.items() if fields)


def _others(
    material: Material, baselines: Mapping[str, Baseline], told: set[str]
) -> list[tuple[str, tuple[Difference, ...]]]:
    """Of ops that nothing was compared of, as where all cases were timed beside the base: from the baselines."""
    now = material.run.environment
    ran = {op.op for op in material.run.ops} - told
    return [
        (op, environment.differences([one.environment for one in stored.runs], now))
        for op, stored in baselines.items()
        if op in ran and stored.device == now.device.key and stored.runs
    ]


# --- the file ---------------------------------------------------------------------------------------------------------


@functools.cache
def part(name: str, package: str = HERE) -> str:
    """A style or a script that pages hold."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def shell(style: str, script: str, found: Any) -> dict[str, Any]:
    """What `frame.html.j2` is filled with: a page's language, its policy, its style, its script and its data."""
    return {
        "lang": LANGUAGES[wording.spoken()],
        "policy": LOCKED.format(style=_digest(style), script=_digest(script)),
        "style": Html(style),
        "script": Html(script),
        "data": Html(_data(found)),
    }


@functools.lru_cache(8)
def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@functools.cache
def template(name: str, package: str = HERE) -> Any:
    """A template of a package; it may extend and import this one's."""
    import jinja2

    made = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(each) for each in dict.fromkeys((package, HERE))]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "told": inline, "plain_of": spell, "code_of": _code, "grid": grid, "address": picture_address,
        "across": cases.across,
    }  # fmt: skip
    made.globals["say"] = say  # before the template is got: its macros keep what they see then
    return made.get_template(name)


def _code(text: str) -> Html:
    """A plain sentence with its code, that between backticks."""
    return inline(plain(text, 4000))
