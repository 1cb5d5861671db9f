"""`perfci history`: the accepted runs of ops on a device, as tables, for programs, and drawn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.text import Text

from perfci import store, units
from perfci.cli import answers, language
from perfci.cli.exits import Exit
from perfci.cli.tables import STYLES, Shown, wrapped
from perfci.codec import encode
from perfci.errors import UsageError
from perfci.history import Point, Series, series
from perfci.model import Difference, Fact, Gate, Reason
from perfci.report.text import NAME_LIMIT, plain, shorten
from perfci.revision.known import unknown_commits
from perfci.settings import Settings
from perfci.spec import matches
from perfci.store import History
from perfci.wording import say, sentence

_Each = TypeVar("_Each")

SHOWN = 20
"""Runs of a case that are shown unless more are asked for."""

EACH = 4
"""Most cases that are shown run by run; of more there is one line each."""

WIDTH = 100
"""Columns of everything that is printed."""

_LINE_WIDTHS = (10, 10, 9, 8, 9, 12, 8, 9)
_NAME, _RUNS, _TIME, _CHANGE, _FIRST, _SPEEDUP = 38, 5, 9, 9, 9, 8
_BOARD = 8
"""Last characters of a board's UUID."""

_SPARKS = "▁▂▃▄▅▆▇█"
_SPARK = 15
"""Runs of a case in its line's small picture."""


@dataclass(frozen=True)
class Wishes:
    """What is to be shown."""

    ops: tuple[str, ...] = ()
    """names; empty for all"""
    pattern: str | None = None
    device: str | None = None
    last: int | None = None
    """newest runs of each case; None for all where programs read it, else for some"""
    plot: Path | None = None


@dataclass(frozen=True)
class _Told:
    """An op on a device, with what is shown of it."""

    history: History
    cases: tuple[Series, ...]
    unknown: tuple[str, ...] | Reason
    """commits that the repository lacks"""


def history(wishes: Wishes, project: Path, *, json: bool) -> int:
    """Print, and draw, what is kept of accepted runs; exit 3 where a file of it is to be mended."""
    where = language.load(project)
    found = _told(wishes, where)
    if wishes.plot:
        _plot(wishes.plot, found, wishes)
    if json:
        answers.write_json(encode([_as_data(one, wishes) for one in found]).decode())
    else:
        console = Console(highlight=False)
        for part in _shown(found, wishes):
            console.print(part, soft_wrap=not console.is_terminal)
    return Exit.WARNINGS if any(one.history.problems for one in found) else Exit.OK


# --- what there is ----------------------------------------------------------------------------------------------------


def kept(wishes: Wishes, where: Settings) -> list[History]:
    """The histories of these ops and devices. Raises UsageError for a device or an op that none has."""
    devices = _devices(wishes, where)
    there = {device: store.history_ops(where.baselines, device) for device in devices}
    known = sorted({op for ops in there.values() for op in ops})
    for op in wishes.ops:
        if op not in known and devices:
            raise UsageError("history_no_op", op=op, known=", ".join(known))
    return [
        store.read_history(where.baselines, device, op)
        for device in devices
        for op in there[device]
        if not wishes.ops or op in wishes.ops
    ]


def _told(wishes: Wishes, where: Settings) -> list[_Told]:
    """Raises UsageError for a device, an op or a case that no history has."""
    found = [_of(each, wishes, where) for each in kept(wishes, where)]
    if found and wishes.pattern is not None and not any(one.cases for one in found):
        raise UsageError("no_case_fits", pattern=wishes.pattern, ops=", ".join(one.history.op for one in found))
    return [one for one in found if one.cases or wishes.pattern is None]


def _devices(wishes: Wishes, where: Settings) -> list[str]:
    known = store.history_devices(where.baselines)
    if wishes.device is None:
        return known
    if wishes.device not in known:
        raise UsageError("history_no_device", device=wishes.device, known=", ".join(known) or "-")
    return [wishes.device]


def _of(found: History, wishes: Wishes, where: Settings) -> _Told:
    cases = tuple(one for one in series(found.runs) if matches(one.case, wishes.pattern))
    commits = [run.environment.commit for run in found.runs if run.environment.commit]
    return _Told(found, cases, unknown_commits(where.root, commits) if commits else ())


# --- for programs -----------------------------------------------------------------------------------------------------


def _as_data(one: _Told, wishes: Wishes) -> Mapping[str, Any]:
    """Times are microseconds, changes ratios - 1, plus is slower; the newest run is the last."""
    unknown = one.unknown if isinstance(one.unknown, tuple) else ()
    return {
        "op": one.history.op,
        "device": one.history.device,
        "runs": len(one.history.runs),
        "problems": [reason_data(reason) for reason in one.history.problems],
        "unknown_commits": unknown,
        "cases": [
            {"case": case.case, "points": [_point(point) for point in case.points[-(wishes.last or 0) :]]}
            for case in one.cases
        ],
    }


def _point(point: Point) -> Mapping[str, Any]:
    figures = point.figures
    return {
        "run": point.run.run,
        "created": point.run.created,
        "commit": point.run.environment.commit,
        "board": point.run.environment.device.uuid,
        "kernel_us": figures.kernel_us,
        "reference_us": figures.reference_us,
        "since_last": point.since_last,
        "since_first": point.since_first,
        "speedup": point.speedup,
        "blocks": figures.blocks,
        "compile_s": figures.compile_s,
        "peak_bytes": figures.peak_bytes,
        "moved": [{"field": each.field, "before": each.before, "after": each.after} for each in point.moved],
        "epoch": point.why,
    }


def reason_data(reason: Reason) -> Mapping[str, Any]:
    """A reason for programs."""
    return {"kind": reason.kind, "facts": dict(reason.facts), "sentence": sentence(reason)}


# --- for people -------------------------------------------------------------------------------------------------------


def _shown(found: Sequence[_Told], wishes: Wishes) -> Iterator[RenderableType]:
    yield from apart(found, lambda one: _one(one, wishes))
    if wishes.plot and found:
        yield Text(say("Drawn: {path}", path=plain(str(wishes.plot))))


def apart(found: Sequence[_Each], told: Callable[[_Each], Iterable[RenderableType]]) -> Iterator[RenderableType]:
    """What is told of each with an empty line between two; a sentence where no history has anything."""
    if not found:
        yield text_of(say("No run was accepted yet: perfci accept stores the first ones, and each run leaves a line."))
    for at, one in enumerate(found):
        if at:
            yield Text("")
        yield from told(one)


def _one(one: _Told, wishes: Wishes) -> Iterator[RenderableType]:
    yield Text(head(one.history), style="bold")
    yield from _problems(one)
    if len(one.cases) <= EACH or wishes.pattern is not None:
        for case in one.cases:
            yield from _each_run(case, wishes.last or SHOWN)
    elif one.cases:
        yield from _each_case(one.cases)


def head(found: History) -> str:
    """Which history it is, and from when to when."""
    runs = found.runs
    facts = {"op": plain(found.op, NAME_LIMIT), "device": plain(found.device, NAME_LIMIT)}
    if not runs:
        return say("{op} on {device}: no accepted run", **facts)
    facts |= {"first": plain(runs[0].created[:10], 10), "last": plain(runs[-1].created[:10], 10)}
    if len(runs) == 1:
        return say("{op} on {device}: 1 accepted run, {last}", **facts)
    return say("{op} on {device}: {count} accepted runs, {first} to {last}", count=len(runs), **facts)


def _problems(one: _Told) -> Iterator[RenderableType]:
    for reason in one.history.problems:
        yield text_of(sentence(reason), "  ", STYLES[Gate.WARNS])
    if isinstance(one.unknown, Reason):
        if one.unknown.kind == "history_shallow":
            yield text_of(sentence(one.unknown), "  ", "dim")
    elif one.unknown:
        facts: dict[str, Fact] = {"count": len(one.unknown), "commit": plain(one.unknown[0][:10])}
        yield text_of(sentence(Reason("history_unknown_commits", facts)), "  ", "dim")


def _each_run(case: Series, most: int) -> Iterator[RenderableType]:
    points = case.points[-most:]
    yield Text("")
    yield from (Text(line) for line in wrapped(plain(case.case, NAME_LIMIT), "  ", WIDTH))
    heads = (
        say("date"), say("commit"), say("kernel"), say("spread"), say("change"), say("since first"), say("speedup"),
        say("board"),
    )  # fmt: skip
    yield Text("  " + columns(heads, _LINE_WIDTHS, left=2), style="dim")
    if len(points) < len(case.points):
        whole = len(case.points)
        earlier = say("... {count} earlier runs: --last {all}", count=whole - len(points), all=whole)
        yield Text(f"  {earlier}", style="dim")
    for point in points:
        yield from (text_of(told, "    ", style) for told, style in _marks(point))
        yield Text("  " + columns(_run_cells(point), _LINE_WIDTHS, left=2))


def _run_cells(point: Point) -> tuple[str, ...]:
    return (
        plain(point.run.created[:10], 10),
        plain(point.run.environment.commit or "-", NAME_LIMIT)[:10],
        units.time(point.figures.kernel_us.median_us),
        units.percent(point.spread),
        _signed(point.since_last),
        _signed(point.since_first),
        "-" if point.speedup is None else f"{point.speedup:.2f}x",
        plain(point.run.environment.device.uuid or "-", NAME_LIMIT)[-_BOARD:],
    )


def _signed(change: float | None) -> str:
    """Without a sign of nothing: -0.0 %."""
    return units.percent(None if change is None else round(change, 3) + 0.0, signed=True)


def _marks(point: Point) -> Iterator[tuple[str, str]]:
    if point.steps:
        yield say("environment: {fields}", fields=plain(_fields(point.steps))), "magenta"
    if point.why is not None:
        yield say("a loss was accepted: {why}", why=plain(point.why)), STYLES[Gate.WARNS]


def _fields(moved: Sequence[Difference]) -> str:
    return "; ".join(f"{each.field} {each.before or '-'} -> {each.after or '-'}" for each in moved)


def _each_case(cases: Sequence[Series]) -> Iterator[RenderableType]:
    """A line a case, with its newest run and a small picture of the last ones."""
    widths = (_NAME, _RUNS, _TIME, _CHANGE, _FIRST, _SPEEDUP)
    heads = (say("case"), say("runs"), say("kernel"), say("change"), say("first"), say("speedup"))
    yield Text("  " + columns(heads, widths, left=1) + f"  {say('last runs')}", style="dim")
    for case in cases:
        newest = case.points[-1]
        _, _, time, _, change, first, speedup, _ = _run_cells(newest)
        cells = (shorten(plain(case.case, NAME_LIMIT), _NAME), str(len(case.points)), time, change, first, speedup)
        yield Text("  " + columns(cells, widths, left=1) + f"  {spark(case.points[-_SPARK:])}")
    yield text_of(say("Every run of a case: --case, with its id or a glob."), "  ", "dim")


def spark(points: Sequence[Point]) -> str:
    """A letter a run, the higher the slower; | where the environment changed, ! where a loss was accepted.

    A spread of less than 3 % fills no more than its part of the height, so that small noise looks small.
    """
    medians = [point.figures.kernel_us.median_us for point in points]
    low = min(medians)
    span = max(max(medians) - low, 0.03 * low)
    shown = []
    for at, point in enumerate(points):
        mark = "!" if point.why is not None else "|" if point.steps and at else ""
        level = (point.figures.kernel_us.median_us - low) / span
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


# --- drawn ------------------------------------------------------------------------------------------------------------


def _plot(path: Path, found: Sequence[_Told], wishes: Wishes) -> None:
    """The cases that moved most, where they are more than a picture holds. Raises UsageError for several histories."""
    from perfci.report import figures
    from perfci.report.figures.trends import MOST_CASES

    drawable = [one for one in found if one.cases]
    if len(drawable) != 1:
        names = ", ".join(f"{one.history.op} ({one.history.device})" for one in drawable) or "-"
        raise UsageError("history_plot_one", count=len(drawable), names=names)
    if path.suffix.lower() != ".png":
        raise UsageError("history_plot_png", path=str(path))
    one = drawable[0]
    cut = [Series(case.case, case.points[-(wishes.last or 0) :]) for case in one.cases]
    chosen = {case.case for case in sorted(cut, key=_moved_most, reverse=True)[:MOST_CASES]}
    shown = [figures.Trend(figures.label(case.case).replace("\n", ""), case) for case in cut if case.case in chosen]
    name = f"{plain(one.history.op, 60)} on {plain(one.history.device, 60)}"
    rest = f", the {len(shown)} of {len(cut)} cases that moved most" if len(shown) < len(cut) else ""
    with figures.style():
        figures.save(figures.trends(shown, figures.drawn(f"{name}: accepted runs{rest}", 100)), path)


def _moved_most(case: Series) -> float:
    medians = [point.figures.kernel_us.median_us for point in case.points]
    return max(medians) / min(medians)
