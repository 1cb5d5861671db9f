"""`perfci history`: accepted runs over time; where they drifted and how boards differ is in `drift`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from rich.console import RenderableType

from perfci.cli import language, options
from perfci.cli.exits import Exit
from perfci.cli.output import STYLES, Grid, Paragraph, print_found, print_lines
from perfci.cli.parsing import flag, option
from perfci.core import units
from perfci.core.errors import MissingPackageError, UsageError
from perfci.core.model import Gate
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.extensions.common.accepted_runs import HistoryStored
from perfci.extensions.common.history import KEPT, History
from perfci.extensions.history import tables
from perfci.extensions.history.commands import drift as drifts
from perfci.extensions.history.series import HistoryPoint, list_points
from perfci.ops.spec import STORED, matches
from perfci.report.data import pick
from perfci.report.view import make_table
from perfci.store import RUN_FILE

SHOWN = 20  # runs of a case that are shown unless more are asked for
EACH = 4  # most cases that are shown run by run; of more there is one line each
_BOARD = 8  # last characters of a board's UUID

_RUN_HEADINGS = "date | commit | kernel: | spread: | change: | since first: | speedup: | board:"
_STORED_HEADINGS = "date | commit | p99 abs: | mean rel: | clipped: | divergence: | change: | since first: | board:"


@dataclass(frozen=True)
class OpHistory:
    """An op on a device, with what is shown of it."""

    history: History
    cases: Mapping[str, Sequence[HistoryPoint]]
    stored: Mapping[str, Sequence[HistoryPoint]]  # what the op stores in low precision


@options.takes(
    "ops case device last store run blocks",
    {"drift": "ops case device strict store run blocks", "boards": "device store run blocks"},
)
def history(
    ops: options.Ops = [],  # noqa: B006
    case: options.Case = None,
    device: options.DeviceKey = None,
    last: Annotated[int | None, option("--last", "Newest runs of each case that are shown.", "20", "N", min=1)] = None,
    drift: Annotated[bool, flag("--drift", "Steps of cases, between which commits, and why.")] = False,
    boards: Annotated[bool, flag("--boards", "Compare the boards of a device with each other.")] = False,
    store: options.Store = None,
    run: Annotated[
        list[Path], option("--run", "--store: runs copied too; repeat for several.", "the project's reports/", "RUN")
    ] = [],  # noqa: B006
    blocks: Annotated[
        int, option("--blocks", "--store: newest runs of an op with blocks that stay there.", metavar="N", min=0)
    ] = KEPT,
    strict: options.Strict = False,
    output: options.Output = "text",
    project: options.Project = options.HERE,
) -> int:
    """Show accepted runs: each case over time, with epochs and changes of the environment."""
    where, json = language.load(project), output == "json"
    if store:
        histories = _copy(where, store, run, blocks, ops, device, quiet=json)
    else:
        histories = drifts.read_histories(where, ops, device)
    if drift:
        return drifts.show_drift(histories, case, where, strict=strict, json=json)
    if boards:
        return drifts.show_boards(histories, device, where, json=json)
    every = [
        OpHistory(
            history,
            {name: points for name, points in list_points(history.runs).items() if matches(name, case)},
            {name: points for name, points in list_points(history.runs, stored=True).items() if matches(name, case)},
        )
        for history in histories
    ]
    found = [one for one in every if one.cases or one.stored or case is None]
    if histories and not found:
        raise UsageError("no_case_fits", pattern=case, ops=", ".join(one.op for one in histories))
    shown = drifts.separate([_show(one, last or SHOWN, whole=case is not None) for one in found])
    print_found([_to_json(one, last) for one in found], shown, json=json)
    return Exit.WARNINGS if any(one.history.problems for one in found) else Exit.OK


COMMANDS = {"history": history}


def load_stores() -> Any:
    """Returns `database.open_store`. Raises MissingPackageError without the packages that it needs."""
    try:
        from perfci.extensions.history.database import open_store
    except ImportError as error:
        raise MissingPackageError("store_needs_packages") from error
    return open_store


def _copy(
    where: Settings, url: str, runs: Sequence[Path], kept: int, ops: Sequence[str], device: str | None, *, quiet: bool
) -> list[History]:
    """Copies the project's runs to a store. Returns the histories there, with what was wrong with the copied ones."""
    open_store = load_stores()
    from perfci.extensions.history.database import import_project

    paths = runs or [where.reports] * (where.reports / RUN_FILE).exists()
    with open_store(url) as store:
        done = import_project(store, where, [tables.read(path, where.root) for path in paths], kept)
        histories = drifts.read_histories(where, ops, device, store)
    if not quiet:
        print_lines(say("Copied: {new}; there before: {there}. Verdicts: {verdicts}; blocks: {blocks}.", **vars(done)))
    by_place = {(one.device, one.op): one for one in histories}
    for (device_key, name), problems in done.problems.items():
        one = by_place.get((device_key, name), History(name, device_key))
        by_place[device_key, name] = replace(one, problems=(*problems, *one.problems))
    return list(by_place.values())


def _to_json(one: OpHistory, last: int | None) -> Mapping[str, Any]:
    """Times are microseconds, changes ratios - 1, plus is slower."""
    cases, stored = (
        [
            {"case": case, "points": [_write_point(point) for point in points[-(last or 0) :]]}
            for case, points in series.items()
        ]
        for series in (one.cases, one.stored)
    )
    return pick(one.history, "op device problems", runs=len(one.history.runs), cases=cases, stored=stored)


def _write_point(point: HistoryPoint) -> Mapping[str, Any]:
    """A run of a case. The histogram of a stored tensor's errors stays in the file."""
    where = point.run.environment
    facts = pick(point.run, "run created", commit=where.commit, board=where.device.uuid)
    facts |= pick(point, "since_last since_first moved")
    if isinstance(point.figures, HistoryStored):
        return facts | pick(point.figures, "errors clip_ratio divergence amax scale extreme")
    figures = pick(point.figures, "kernel_us reference_us blocks compile_s peak_bytes")
    return facts | figures | {"speedup": point.speedup, "epoch": point.why}


def _show(one: OpHistory, most: int, *, whole: bool) -> Iterator[RenderableType]:
    yield Paragraph(drifts.write_head(one.history), style="bold")
    yield from (Paragraph(reason, 2, STYLES[Gate.WARNS]) for reason in one.history.problems)
    cases = "case | runs: | kernel: | change: | first: | speedup:", (2, 4, 5, 6), ""
    tensors = "tensor | runs: | p99 abs: | clipped: | divergence: | change: | first:", (2, 4, 5, 6, 7)
    for_cases = say("Every run of a case: --case, with its id or a glob.")
    for_tensors = say("Every run of these: --case 'stored=*'; of one tensor: --case 'stored=NAME,*'.")
    for series, (headings, places, title), hint in (
        (one.cases, cases, for_cases),
        (one.stored, (*tensors, say("Stored in low precision:")), for_tensors),
    ):
        if len(series) <= EACH or whole:
            for case, points in series.items():
                yield from _show_runs(case, points, most)
            continue
        if title:
            yield ""
        lines = []
        for case, points in series.items():
            cells = _write_cells(points[-1])
            lines.append((case.removeprefix(f"{STORED}="), str(len(points)), *(cells[at] for at in places)))
        yield Grid(make_table(headings, lines), title)
        yield Paragraph(hint, 2, "dim")


def _show_runs(case: str, points: Sequence[HistoryPoint], most: int) -> Iterator[RenderableType]:
    """Every run of a case, each with what changed below it."""
    yield ""
    yield Paragraph(case, 2)
    if most < len(points):
        text = say("... {count:earlier run|earlier runs}: --last {all}", count=len(points) - most, all=len(points))
        yield Paragraph(text, 2, "dim")
    newest = points[-most:]
    headings = _STORED_HEADINGS if isinstance(newest[0].figures, HistoryStored) else _RUN_HEADINGS
    first, *later = [list(_show_marks(point)) for point in newest]
    yield from first
    yield Grid(make_table(headings, map(_write_cells, newest)), below=[*later, []])


def _show_marks(point: HistoryPoint) -> Iterator[Paragraph]:
    if point.steps:
        fields = "; ".join(f"{step.field} {step.before or '-'} -> {step.after or '-'}" for step in point.steps)
        yield Paragraph(say("environment: {fields}", fields=fields), 4, "magenta")
    if point.why is not None:
        yield Paragraph(say("a loss was accepted: {why}", why=point.why), 4, STYLES[Gate.WARNS])


def _write_cells(point: HistoryPoint) -> tuple[str, ...]:
    where, figures = point.run.environment, point.figures
    # Without a sign of nothing: -0.0 %.
    last, first = (
        units.percent(None if change is None else round(change, 3) + 0.0, signed=True)
        for change in (point.since_last, point.since_first)
    )
    when, board = (point.run.created[:10], (where.commit or "-")[:10]), (where.device.uuid or "-")[-_BOARD:]
    if isinstance(figures, HistoryStored):
        p99, ratio = figures.errors.p99_abs, figures.clip_ratio
        cells = (
            "-" if p99 is None else units.significant(p99),
            units.percent(figures.errors.mean_rel),
            # Per cent, in which one value of many is seen too.
            say("{percent} %", percent=units.significant(100 * ratio, 2)) if ratio else "0 %",
            units.significant(figures.divergence),
        )
        return (*when, *cells, last, first, board)
    time = figures.kernel_us
    spread = (time.p75_us - time.p25_us) / time.median_us
    speedup = "-" if point.speedup is None else f"{point.speedup:.2f}x"
    return (*when, units.time(time.median_us), units.percent(spread), last, first, speedup, board)
