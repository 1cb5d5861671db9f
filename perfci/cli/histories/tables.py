"""Histories for people: tables, and small pictures in letters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TypeVar

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from perfci.cli.histories.kept import HistoryOptions, Told, shown_of
from perfci.cli.tables import STYLES, Shown, wrapped
from perfci.core import units
from perfci.core.model import Difference, Fact, Gate, Reason
from perfci.core.wording import say, sentence
from perfci.ops.spec import STORED
from perfci.report.text import NAME_LIMIT, plain, shorten
from perfci.store.history import History
from perfci.store.past.series import Point, Series, StoredPoint, StoredSeries

_Each = TypeVar("_Each")

SHOWN = 20
"""Runs of a case that are shown unless more are asked for."""

EACH = 4
"""Most cases that are shown run by run; of more there is one line each."""

WIDTH = 100
"""Columns of everything that is printed."""

_LINE_WIDTHS = (10, 10, 9, 8, 9, 12, 8, 9)
_NAME, _RUNS, _TIME, _CHANGE, _FIRST, _SPEEDUP = 38, 5, 9, 9, 9, 8
_STORED_WIDTHS = (10, 10, 9, 9, 8, 10, 9, 12, 9)
_TENSOR, _STORED_RUNS, _P99, _CLIPPED, _DIVERGENCE, _GREW = 37, 4, 8, 8, 10, 7
_BOARD = 8
"""Last characters of a board's UUID."""

_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK = 15
"""Runs of a case in its line's small picture."""

_LEAST_SPARK = 3
"""Letters of a small picture however little room there is."""


def shown(found: Sequence[Told], options: HistoryOptions) -> Iterator[RenderableType]:
    """Each op on a device, and where a picture was drawn."""
    yield from apart(found, lambda one: _one(one, options))
    if options.plot and found:
        yield Text(say("Drawn: {path}", path=plain(str(options.plot))))


def apart(found: Sequence[_Each], told: Callable[[_Each], Iterable[RenderableType]]) -> Iterator[RenderableType]:
    """What is told of each with an empty line between two; a sentence where no history has anything."""
    if not found:
        yield text_of(say("No run was accepted yet: perfci accept stores the first ones, and each run leaves a line."))
    for at, one in enumerate(found):
        if at:
            yield Text("")
        yield from told(one)


def _one(one: Told, options: HistoryOptions) -> Iterator[RenderableType]:
    yield Text(head(one.history), style="bold")
    yield from _problems(one)
    if len(one.cases) <= EACH or options.pattern is not None:
        for case in one.cases:
            yield from _each_run(case, options.last or SHOWN)
    elif one.cases:
        yield from _each_case(one.cases)
    if len(one.stored) <= EACH or options.pattern is not None:
        for stored in one.stored:
            yield from _each_stored_run(stored, options.last or SHOWN)
    elif one.stored:
        yield from _each_stored(one.stored)


def head(found: History) -> str:
    """Which history it is, and from when to when."""
    runs = found.runs
    facts = {"op": plain(found.op, NAME_LIMIT), "device": plain(found.device, NAME_LIMIT)}
    if not runs:
        return say("{op} on {device}: no accepted run", **facts)
    facts |= {"first": plain(runs[0].created[:10], 10), "last": plain(runs[-1].created[:10], 10)}
    if len(runs) == 1:
        return say("{op} on {device}: 1 accepted run, {last}", **facts)
    return say("{op} on {device}: {count:accepted run|accepted runs}, {first} to {last}", count=len(runs), **facts)


def _problems(one: Told) -> Iterator[RenderableType]:
    for reason in one.history.problems:
        yield text_of(sentence(reason), "  ", STYLES[Gate.WARNS])
    if isinstance(one.unknown, Reason):
        if one.unknown.kind == "history_shallow":
            yield text_of(sentence(one.unknown), "  ", "dim")
    elif one.unknown:
        facts: dict[str, Fact] = {"count": len(one.unknown), "commit": plain(one.unknown[0][:10])}
        yield text_of(sentence(Reason("history_unknown_commits", facts)), "  ", "dim")


def _each_run(case: Series, most: int) -> Iterator[RenderableType]:
    heads = (
        say("date"), say("commit"), say("kernel"), say("spread"), say("change"), say("since first"), say("speedup"),
        say("board"),
    )  # fmt: skip
    yield from _runs_head(case, heads, _LINE_WIDTHS, most)
    for point in case.points[-most:]:
        yield from (text_of(told, "    ", style) for told, style in _marks(point))
        yield Text("  " + columns(_run_cells(point), _LINE_WIDTHS, left=2))


def _runs_head(
    case: Series | StoredSeries, heads: Sequence[str], widths: Sequence[int], most: int
) -> Iterator[RenderableType]:
    """The case's id, the heads of its columns, and how many runs are not shown."""
    yield Text("")
    yield from (Text(line) for line in wrapped(plain(case.case, NAME_LIMIT), "  ", WIDTH))
    yield Text("  " + columns(heads, widths, left=2), style="dim")
    whole = len(case.points)
    if most < whole:
        earlier = say("... {count:earlier run|earlier runs}: --last {all}", count=whole - most, all=whole)
        yield Text(f"  {earlier}", style="dim")


def _run_cells(point: Point) -> tuple[str, ...]:
    return (
        *_when(point),
        units.time(point.figures.kernel_us.median_us),
        units.percent(point.spread),
        _signed(point.since_last),
        _signed(point.since_first),
        "-" if point.speedup is None else f"{point.speedup:.2f}x",
        _board(point),
    )


def _when(point: Point | StoredPoint) -> tuple[str, str]:
    """Date and commit."""
    commit = plain(point.run.environment.commit or "-", NAME_LIMIT)[:10]
    return plain(point.run.created[:10], 10), commit


def _board(point: Point | StoredPoint) -> str:
    return plain(point.run.environment.device.uuid or "-", NAME_LIMIT)[-_BOARD:]


def _signed(change: float | None) -> str:
    """Without a sign of nothing: -0.0 %."""
    return units.percent(None if change is None else round(change, 3) + 0.0, signed=True)


def _marks(point: Point | StoredPoint) -> Iterator[tuple[str, str]]:
    if point.steps:
        yield say("environment: {fields}", fields=plain(_fields(point.steps))), "magenta"
    if point.why is not None:
        yield say("a loss was accepted: {why}", why=plain(point.why)), STYLES[Gate.WARNS]


def _fields(moved: Sequence[Difference]) -> str:
    return "; ".join(f"{each.field} {each.before or '-'} -> {each.after or '-'}" for each in moved)


def _each_case(cases: Sequence[Series]) -> Iterator[RenderableType]:
    """A line a case, with its newest run and a small picture of the last ones.

    Where ids are longer than their column, what all of them share stands above.
    """
    widths = (_NAME, _RUNS, _TIME, _CHANGE, _FIRST, _SPEEDUP)
    heads = (say("case"), say("runs"), say("kernel"), say("change"), say("first"), say("speedup"))
    shared, names = "", [plain(case.case, NAME_LIMIT) for case in cases]
    if max(map(len, names)) > _NAME:
        shared, names = told_apart([case.case for case in cases])
    if shared:
        yield text_of(say("All of them: {shared}", shared=shared), "  ")
    yield Text("  " + columns(heads, widths, left=1) + f"  {say('last runs')}", style="dim")
    for case, name in zip(cases, names, strict=True):
        yield _fitted(name, _NAME, partial(_case_line, case, widths))
    yield text_of(say("Every run of a case: --case, with its id or a glob."), "  ", "dim")


def _case_line(case: Series, widths: Sequence[int], name: str) -> str:
    _, _, time, _, change, first, speedup, _ = _run_cells(case.points[-1])
    cells = (name, str(len(case.points)), time, change, first, speedup)
    return "  " + columns(cells, widths, left=1) + f"  {spark(case.points[-_SPARK:])}"


def _fitted(name: str, room: int, line: Callable[[str], str]) -> RenderableType:
    """The line of a name, which is shortened on a terminal alone."""
    return Shown(lambda _: [Text(line(shorten(name, room)))], lambda: [line(name)])


def _each_stored_run(case: StoredSeries, most: int) -> Iterator[RenderableType]:
    """Every run of a tensor that is stored in low precision."""
    heads = (
        say("date"), say("commit"), say("p99 abs"), say("mean rel"), say("clipped"), say("divergence"), say("change"),
        say("since first"), say("board"),
    )  # fmt: skip
    yield from _runs_head(case, heads, _STORED_WIDTHS, most)
    for point in case.points[-most:]:
        yield from (text_of(told, "    ", style) for told, style in _marks(point))
        yield Text("  " + columns(_stored_cells(point), _STORED_WIDTHS, left=2))


def _stored_cells(point: StoredPoint) -> tuple[str, ...]:
    figures = point.figures
    return (
        *_when(point),
        _error(figures.errors.p99_abs),
        units.percent(figures.errors.mean_rel),
        _clipped(figures.clip_ratio),
        units.significant(figures.divergence),
        _signed(point.since_last),
        _signed(point.since_first),
        _board(point),
    )


def _error(value: float | None) -> str:
    return "-" if value is None else units.significant(value)


def _clipped(ratio: float) -> str:
    """Per cent, in which one value of many is seen too."""
    return say("{percent} %", percent=units.significant(100 * ratio, 2)) if ratio else "0 %"


def _each_stored(cases: Sequence[StoredSeries]) -> Iterator[RenderableType]:
    """A line a tensor that is stored in low precision; what all their ids share stands above."""
    shared, names = told_apart([case.case.removeprefix(f"{STORED}=") for case in cases], 1)
    widths = (min(max(map(cell_len, names)), _TENSOR), _STORED_RUNS, _P99, _CLIPPED, _DIVERGENCE, _GREW, _GREW)
    heads = (
        say("tensor"), say("runs"), say("p99 abs"), say("clipped"), say("divergence"), say("change"), say("first"),
    )  # fmt: skip
    yield Text("")
    above = say("Stored in low precision, {shared}:", shared=shared) if shared else say("Stored in low precision:")
    yield text_of(above, "  ")
    top = "  " + columns(heads, widths, left=1)
    yield Text(f"{top}  {say('last runs')}", style="dim")
    for case, name in zip(cases, names, strict=True):
        yield _fitted(name, _TENSOR, partial(_stored_line, case, widths, cell_len(top)))
    yield text_of(say("Every run of these: --case 'stored=*'; of one tensor: --case 'stored=NAME,*'."), "  ", "dim")


def _stored_line(case: StoredSeries, widths: Sequence[int], least: int, name: str) -> str:
    _, _, p99, _, clipped, divergence, change, first, _ = _stored_cells(case.points[-1])
    cells = (name, str(len(case.points)), p99, clipped, divergence, change, first)
    line = "  " + columns(cells, widths, left=1)
    room = WIDTH - max(cell_len(line), least) - 2
    return f"{line}  {_stored_spark(case.points, max(room, _LEAST_SPARK))}"


def told_apart(cases: Sequence[str], kept: int = 0) -> tuple[str, list[str]]:
    """The parts that all of several different ids share, and the rest of each; so many first parts are never shared.

    >>> told_apart(["m=8,scaling=row", "m=8,scaling=tensor"])
    ('m=8', ['scaling=row', 'scaling=tensor'])
    >>> told_apart(["x,m=8,scaling=row", "x,m=8,scaling=tensor"], 1)
    ('m=8', ['x,scaling=row', 'x,scaling=tensor'])
    """
    every = [plain(case, NAME_LIMIT).split(",") for case in cases]
    shared = [part for part in every[0][kept:] if len(every) > 1 and all(part in parts[kept:] for parts in every)]
    rest = [[*parts[:kept], *(part for part in parts[kept:] if part not in shared)] for parts in every]
    return ",".join(shared), [",".join(own or whole) for own, whole in zip(rest, every, strict=True)]


def _stored_spark(points: Sequence[StoredPoint], room: int) -> str:
    """As `spark`, of p99, with as many of the newest runs as there is room for."""
    newest = points[-min(_SPARK, room) :]
    while len(found := _picture([shown_of(point) for point in newest], newest)) > room:
        newest = newest[1:]
    return found


def spark(points: Sequence[Point]) -> str:
    """A letter a run, the higher the slower; | where the environment changed, ! where a loss was accepted.

    A spread of less than 3 % fills no more than its part of the height, so that small noise looks small.
    """
    return _picture([shown_of(point) for point in points], points)


def _picture(values: Sequence[float], points: Sequence[Point | StoredPoint]) -> str:
    low = min(values)
    span = max(max(values) - low, 0.03 * low) or 1.0  # all may be 0
    shown = []
    for at, (value, point) in enumerate(zip(values, points, strict=True)):
        mark = "!" if point.why is not None else "|" if point.steps and at else ""
        level = (value - low) / span
        shown.append(mark + _SPARKS[min(int(level * len(_SPARKS)), len(_SPARKS) - 1)])
    return "".join(shown)


def columns(cells: Sequence[str], widths: Sequence[int], *, left: int) -> str:
    """Cells beside each other, the first `left` of them to the left."""
    padded = []
    for at, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        room = " " * max(width - cell_len(cell), 0)
        padded.append(cell + room if at < left else room + cell)
    return " ".join(padded).rstrip()


def text_of(text: str, indent: str = "", style: str = "") -> RenderableType:
    """A text that is broken where the terminal ends, at 100 columns at the latest."""

    def lines(width: int = WIDTH) -> list[str]:
        return wrapped(plain(text), indent, min(width, WIDTH))

    return Shown(lambda width: [Text(line, style=style) for line in lines(width)], lines)
