"""The whole page: what the Markdown report says, the table of cases, and every case's charts, in one file."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from perfci.core import environment, wording
from perfci.core.model import Baseline, Difference, Gate, Run
from perfci.core.wording import say
from perfci.report import build, ceilings, figures
from perfci.report.ceilings import Place
from perfci.report.figures.style import SERIES
from perfci.report.html import cases, charts, drawings, lowprec, table, trails
from perfci.report.html.cases import Cells, Detail, Known
from perfci.report.html.charts import Store
from perfci.report.html.markup import Html, grid, inline
from perfci.report.html.table import Line
from perfci.report.html.trails import Drawn
from perfci.report.scaling import Scaling, scaling
from perfci.report.sections import Material
from perfci.report.text import code, plain, spell
from perfci.report.view import Picture, Report
from perfci.store.launches import LaunchRow

SERVED = 24
"""Most cases whose charts are written into the page as they are, for readers without JavaScript and for print: those
that fail or warn, the gravest first. The page's script draws the others when they are opened."""

OPEN_OPS = 3
"""Most ops whose sections stand open."""

HERE = "perfci.report.html"
"""The package that holds styles, scripts and templates."""

Places = Mapping[str, Sequence[Place]]
"""Where an op's cases stand below the ceilings, by op."""

LANGUAGES = {"en": "en", "zh": "zh-CN"}
"""As HTML names them."""

LOCKED = (
    "default-src 'none'; style-src 'sha256-{style}'; script-src 'sha256-{script}'; base-uri 'none'; form-action 'none'"
)
"""Nothing is fetched, and nothing runs or styles but what this perfci put there, whatever a name may smuggle in."""


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
    """An op's own charts, beside its section of the Markdown report."""

    place: int
    name: str
    """as the table's lines have it"""
    gate: str
    charts: tuple[Html, ...]
    wide: tuple[Html, ...]
    open: bool
    trails: Drawn | None = None
    """of its history"""
    stored: tuple[lowprec.Drawing, ...] = ()
    """of what it stores in low precision"""


@dataclass(frozen=True)
class Differing:
    """Fields of the environment that are no longer as they were when baselines of some ops were recorded."""

    ops: Html
    rows: tuple[Cells, ...]


def render(
    material: Material, launches: Sequence[LaunchRow], baselines: Mapping[str, Baseline], notes: Sequence[str] = ()
) -> str:
    """The page. The material's pictures are left out: the page has charts of its own."""
    run, places = material.run, _places(material)
    # With a roofline that all ops share comes a note that explains it.
    material = replace(material, pictures={}, roofline=Picture("", "") if _shared(places) else None)
    report = build.make_report(material)
    lines = table.lines(material.judgements)
    known = cases.known(run, material.spreads, launches, baselines)
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
        ops=_ops(material, report, lines, places),
        roofline=_roofline([one for each in places.values() for one in each], material, "op")
        if _shared(places)
        else "",
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
    store, shown, packed, served = Store(), list[Case](), dict[str, Any](), 0
    for place, line in enumerate(lines):
        detail = cases.detail(line.judgement, known) if line.judgement else None
        serve = detail is not None and line.gate != str(Gate.OK) and served < SERVED
        served += serve
        if detail is not None and not serve:
            packed[str(place)] = cases.packed(detail, store)
        shown.append(Case(line, place, detail if serve else None, packed=str(place) in packed))
    return shown, {"cases": packed, "series": store.series, "axes": store.axes, "styles": store.styles}


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


def _ops(material: Material, report: Report, lines: Sequence[Line], places: Places) -> tuple[Op, ...]:
    """One a section of the report, in its order."""
    gates = table.ops(lines)
    named = iter(dict.fromkeys((*(op.op for op in material.run.ops), *(row.op for row in material.judgements.rows))))
    names = [next(name for name in named if plain(name, 80) == section.name) for section in report.ops]
    made = [_op(material, place, name, places.get(name, [])) for place, name in enumerate(names)]
    few = len(made) <= OPEN_OPS
    told = [(one, gates.get(one.name, str(Gate.OK))) for one in made]
    return tuple(replace(one, gate=gate, open=few or gate == str(Gate.FAILS)) for one, gate in told)


def _op(material: Material, place: int, name: str, places: Sequence[Place]) -> Op:
    drawn = []
    if found := _scaling(material, name):
        drawn.append(charts.svg(drawings.sizes(found)))
    wide = [_roofline(places, material, "case")] if places else []
    return Op(
        place, plain(name, 160), str(Gate.OK), tuple(drawn), tuple(wide), open=False, trails=_trails(material, name),
        stored=_stored(material, name),
    )  # fmt: skip


def _stored(material: Material, name: str) -> tuple[lowprec.Drawing, ...]:
    judged = [row for row in material.judgements.rows if row.op == name]
    return tuple(each for op in material.run.ops if op.op == name for each in lowprec.drawings(op, judged))


def _trails(material: Material, name: str) -> Drawn | None:
    op = next((op for op in material.run.ops if op.op == name), None)
    found = material.pasts.get(name)
    return trails.drawn(op, material.run, found) if op and found and not found.damage else None


def _scaling(material: Material, name: str) -> Scaling | None:
    op = next((op for op in material.run.ops if op.op == name), None)
    bad = ceilings.unsound(row for row in material.judgements.rows if row.op == name)
    mine = [one for one in material.spreads if one.op == name and (name, one.case) not in bad]
    return scaling(op, mine, material.run.limits) if op else None


def _places(material: Material) -> Places:
    run = material.run
    return ceilings.by_op(ceilings.places(run.ops, material.spreads, material.judgements.rows, run.limits))


def _roofline(places: Sequence[Place], material: Material, colours: str) -> Html:
    sheet = figures.roofline(places, material.run.limits, say("Roofline"), colours=colours)
    return charts.svg(drawings.whole(sheet, drawings.reached(places)))


def _shared(found: Places) -> bool:
    """Whether one roofline tells all ops apart by their colours."""
    return 1 < len(found) <= len(SERIES)


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
        "told": inline, "plain_of": spell, "code_of": _code, "grid": grid, "svg": charts.svg,
        "across": cases.across,
    }  # fmt: skip
    made.globals["say"] = say  # before the template is got: its macros keep what they see then
    return made.get_template(name)


def _code(text: str) -> Html:
    """A plain sentence with its code, that between backticks."""
    return inline(plain(text, 4000))
