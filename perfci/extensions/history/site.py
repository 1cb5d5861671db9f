"""A static site over the kept history, in git or in a store: an index, and a page an op and device with its trends.

Links are relative, so that the site works from a disk and below any address. Histories are read one at a time, since
all of them would not fit into memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import re
import statistics
import tomllib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from perfci.core import units
from perfci.core.errors import StoredFileError, UsageError, require
from perfci.core.files import open_regular, read_regular
from perfci.core.model import Reason
from perfci.core.settings import MOST
from perfci.core.wording import join, say, sentence, translate
from perfci.extensions.common.accepted_runs import HistoryRun
from perfci.extensions.common.history import KEPT, History, history_devices, history_ops, read_history
from perfci.extensions.history import changepoints
from perfci.extensions.history.past import Past, Trail, list_events, list_trails, make_past, write_day
from perfci.report import words
from perfci.report.text import NAME_LIMIT, file_name, plain
from perfci.store.files import write_atomically

if TYPE_CHECKING:
    from perfci.extensions.history.database import HistoryStore

INDEX = "index.html"

MARKED = 1000  # bytes at the beginning of a page that have the mark of perfci's own
ENDS = 5  # most runs at either end of a change over all kept runs
OPEN = 40  # rows that are shown at first
LINE = (300, 48)  # width and height of a case's trend, pixels

_SAFE = re.compile(r"(?!(?:con|prn|aux|nul|com\d|lpt\d|index)$)[a-z0-9_][a-z0-9_-]{0,59}")
"""Names that every system takes. Some keep a few for themselves, and a server shows `index` in place of its folder."""


def safe_name(name: str) -> str:
    """A file's or folder's name for an op or device: the name itself if it is safe, else with digits of its hash.

    So two names that differ only by case, which some disks take for one, have two pages.

    >>> safe_name("softmax"), safe_name("SoftMax"), safe_name("con")
    ('softmax', 'SoftMax-51f52cf3', 'con-1143da2b')
    """
    if _SAFE.fullmatch(name):
        return name
    return f"{file_name(name)}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


@dataclass(frozen=True, order=True)
class OpOnDevice:
    """An op on a device model."""

    device: str  # key
    op: str

    @property
    def page(self) -> str:
        """Path of its page in the site's folder. It depends on these names alone, so that links last."""
        return f"{safe_name(self.device)}/{safe_name(self.op)}.html"


@dataclass(frozen=True)
class Kept:
    """The history of one place."""

    place: OpOnDevice
    past: Past = field(default_factory=Past)
    problems: tuple[Reason, ...] = ()  # what could not be read

    @property
    def damaged(self) -> bool:
        """Whether something of it could not be read."""
        return any(problem.kind.startswith("history_") or not self.past.runs for problem in self.problems)


class Trend(StrEnum):
    """How a case went over the kept runs, or an op: its worst case. The gravest come first."""

    DAMAGED = "damaged"
    STEPPED = "stepped"
    STEADY = "steady"
    FEW = "few"
    GONE = "gone"
    ACCURACY = "accuracy"

    @property
    def rank(self) -> int:
        """0 the gravest."""
        return list(Trend).index(self)


Cell = tuple[str, float | None]  # a number as text, and to sort by


@dataclass(frozen=True)
class CaseRow:
    """A case in the table of an op's page."""

    state: Trend
    name: str
    cells: tuple[Cell, ...]
    why: str  # sentences
    trend: str  # path of its line, see `draw_trend`
    range: str  # its least and greatest value
    marks: tuple[tuple[float, str], ...] = ()  # places of vertical lines, and what lies there


@dataclass(frozen=True)
class Entry:
    """A row of the index."""

    place: OpOnDevice
    state: Trend
    cells: tuple[Cell, ...]
    last: str  # date and commit of the newest run
    why: str
    worst: str  # the case that changed most for the worse


# --- what is kept -----------------------------------------------------------------------------------------------------


def read_kept(baselines: Path, place: OpOnDevice, root: Path, store: HistoryStore | None = None) -> Kept:
    """Returns all about one place. What cannot be read is a problem of the place, but for a store that fails."""
    try:
        names = place.device, place.op
        history = store.read_history(*names, KEPT) if store else read_history(baselines, *names)
    except StoredFileError as error:
        history = History(place.op, place.device, (), (error.reason,))
    return Kept(place, make_past(history.runs[-KEPT:]), tuple(problem.seen_from(root) for problem in history.problems))


def find_move(values: Sequence[float]) -> float | None:
    """From the median of the first runs to that of the last, ratio - 1. None for fewer than two.

    >>> round(find_move([10.0, 10.2, 11.0, 11.2]), 3)
    0.099
    """
    ends = min(ENDS, len(values) // 2)
    first = statistics.median(values[:ends]) if ends else 0.0
    return statistics.median(values[-ends:]) / first - 1 if first else None


# --- an op on a device ------------------------------------------------------------------------------------------------


def render_page(template: str, **values: object) -> str:
    """Returns a page of the site. Raises UsageError if the extension with its frame was removed."""
    page: str = require("frame", "pictures", "--to site")(template, __package__, ("site.css",), **values)
    return page


def render_op(kept: Kept, others: Sequence[OpOnDevice] = (), project: str = "perfci") -> tuple[str, Entry]:
    """The page of an op on a device, and its row of the index. others: the same op on other devices."""
    place, runs = kept.place, kept.past.runs
    trails = [replace(trail, change=find_move(trail.medians)) for trail in list_trails(kept.past).values()]
    rows = sorted((_make_row(trail, kept) for trail in trails), key=lambda row: row.state.rank)
    rows += _list_errors(runs)
    state = Trend.DAMAGED if kept.damaged else rows[0].state if rows else Trend.FEW
    page = render_page(
        "site_op.html.j2",
        title=f"{plain(project, 80)}: {plain(place.op, 80)}, {plain(place.device, 80)}",
        project=plain(project, NAME_LIMIT),
        op=plain(place.op, NAME_LIMIT),
        device=plain(place.device, NAME_LIMIT),
        state=state,
        index=f"../{INDEX}",
        others=[(plain(other.device, NAME_LIMIT), f"../{other.page}") for other in others],
        problems=[*map(plain, map(sentence, kept.problems))],
        runs=runs,
        ends=[name_run(run) for run in (*runs[:1], *runs[-1:])],
        boards=len({run.environment.device.uuid for run in runs} - {None}),
        rows=rows,
        chips=count_states([row.state for row in rows]),
        trend=LINE,
        open=OPEN,
    )
    return page, _make_entry(kept, trails, state)


def _make_row(trail: Trail, kept: Kept) -> CaseRow:
    runs = kept.past.runs
    steps = [change for change in trail.changes if change.unexplained]
    why = [sentence(changepoints.describe_change(change, kept.place.op)) for change in steps]
    count, few = len(trail.medians), len(trail.medians) < changepoints.FEWEST
    state = Trend.STEPPED if trail.unexplained else Trend.FEW if few else Trend.STEADY
    if is_gone(trail.case, runs):
        last, state = trail.newest + 1, Trend.GONE
        why = [say("The last accepted run does not have it: it was taken out or renamed after run {run}.", run=last)]
    if withheld := sum(trail.case in run.inconclusive for run in runs):
        why.append(say("{count:run|runs} could say nothing about it and were not accepted.", count=withheld))
    speedup = find_speedup(trail)
    cells = (
        (units.time(trail.last_us), trail.last_us),
        _show_change(trail.change),
        (words.write_ratio(speedup), speedup),
        (str(count), count),
    )
    events = list_events(kept.past, trail.case)
    lines = tuple((round(LINE[0] * (at - 0.5) / max(len(runs) - 1, 1), 1), translate(kind)) for at, kind in events)
    ends = words.write_range(units.time(min(trail.medians)), units.time(max(trail.medians)))
    text = join(map(plain, why))
    return CaseRow(state, plain(trail.case, 160), cells, text, draw_trend(trail.kernel), ends, lines)


def is_gone(case: str, runs: Sequence[HistoryRun]) -> bool:
    """Whether the newest run that has anything does not know the case: it was renamed, or taken out."""
    newest = next((run for run in reversed(runs) if run.known), None)
    return newest is not None and case not in newest.known


def find_speedup(trail: Trail) -> float | None:
    """Reference / kernel of the newest run that has both."""
    return next((case.speedup for case in reversed(trail.seen) if case and case.speedup), None)


def draw_trend(values: Sequence[float | None]) -> str:
    """Path of a line through the values, one a run, over at least 2 % beside the median: small noise looks small."""
    width, height = LINE
    present = [value for value in values if value is not None]
    middle = statistics.median(present)
    low, high = min(*present, 0.98 * middle), max(*present, 1.02 * middle)
    scale = high - low or 1.0
    parts, gap = list[str](), True
    for place, value in enumerate(values):
        if value is not None:
            x, y = width * place / max(len(values) - 1, 1), height * ((high - value) / scale)
            parts.append(f"M{x:.1f} {y:.1f}h0" if gap else f"L{x:.1f} {y:.1f}")
        gap = value is None
    return "".join(parts)


def _show_change(ratio: float | None) -> Cell:
    change = ratio is not None and math.isfinite(100 * ratio)
    return (words.write_change(ratio if change else None), ratio if change else None)


def _list_errors(runs: Sequence[HistoryRun]) -> Iterator[CaseRow]:
    """A row an accuracy case with its greatest error, and a tensor that is stored with the 99th percentile."""
    errors = [{one.case: one.errors.max_abs for one in run.accuracy} for run in runs]
    for run, run_errors in zip(runs, errors, strict=True):
        run_errors |= {one.case: one.errors.p99_abs for one in run.stored}
    for case in dict.fromkeys(case for run in reversed(errors) for case in run):
        values = [run.get(case) for run in errors]
        present = [value for value in values if value is not None]
        dash = ("-", None)
        cells = (dash, _show_change(find_move(present)), dash, (str(len(present)), len(present)))
        if present:
            why = say("Its error in the last kept run: {error}.", error=units.significant(present[-1]))
            ends = words.write_range(units.significant(min(present)), units.significant(max(present)))
            ends = say("error {ends}", ends=ends)
            yield CaseRow(Trend.ACCURACY, plain(case, 160), cells, why, draw_trend(values), ends)


def name_run(run: HistoryRun) -> str:
    """Its date and the beginning of its commit."""
    commit = plain(run.environment.commit or "", 60)[:10]
    return f"{write_day(run)} {commit}{'+' if run.environment.dirty else ''}".strip()


def _make_entry(kept: Kept, trails: Sequence[Trail], state: Trend) -> Entry:
    """The row of an op. Nothing else of its history is kept in memory."""
    runs = kept.past.runs
    drawn = [trail for trail in trails if not is_gone(trail.case, runs)]
    speedups = [speedup for trail in drawn if (speedup := find_speedup(trail))]
    speedup = statistics.geometric_mean(speedups) if speedups else None
    changes = {trail.case: trail.change for trail in drawn if trail.change is not None and trail.change > -1}
    worst = max(changes, key=changes.__getitem__, default="")
    mean = math.expm1(statistics.fmean(map(math.log1p, changes.values()))) if changes else None
    cells = (
        (words.write_ratio(speedup), speedup),
        _show_change(mean),
        _show_change(changes.get(worst)),
        (str(len(runs)), len(runs)),
    )
    why = plain(sentence(kept.problems[0])) if kept.damaged else ""
    return Entry(kept.place, state, cells, name_run(runs[-1]) if runs else "-", why, worst)


def count_states(trends: Sequence[Trend]) -> list[tuple[Trend, int]]:
    """How many cases or ops are in a state, the gravest first, without those that none is in."""
    return [(state, trends.count(state)) for state in Trend if state in trends]


# --- all of them ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Built:
    """The files that were written."""

    index: Path
    pages: tuple[str, ...]  # names below the folder
    gone: tuple[str, ...]  # pages that were removed, since what they showed is gone
    notes: tuple[Reason, ...]  # warnings: histories that could not be read as a whole, or that there is none


def build(baselines: Path, root: Path, folder: Path, store: HistoryStore | None = None) -> Built:
    """Write the site over the histories in the baselines folder of the project at `root`, damaged ones marked as such.

    store: read in place of the baselines. Raises UsageError if `folder` holds anything that perfci did not make,
    StoredFileError if it cannot be written.
    """
    ops = store.list_ops() if store else {key: history_ops(baselines, key) for key in history_devices(baselines)}
    places = sorted(OpOnDevice(device, op) for device in ops for op in ops[device])
    project = root.name  # unless it has a name of its own
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        project = str(tomllib.loads(read_regular(root / "pyproject.toml", MOST).decode())["project"]["name"])
    shown = baselines.relative_to(root) if baselines.is_relative_to(root) else baselines
    notes = [] if places else [Reason("site_without_history", {"folder": shown.as_posix()})]
    warnings, entries = list(notes), list[Entry]()
    names = [place.page for place in places]
    claim_folder(folder)
    for place in places:
        record = read_kept(baselines, place, root, store)
        page, entry = render_op(record, [other for other in places if other.op == place.op and other != place], project)
        write_atomically(folder / place.page, page.encode("utf-8", "replace"))
        entries.append(entry)
        warnings += record.problems if record.damaged else ()
    index = render_index(entries, project, notes)  # last, as it leads to all others
    path = write_atomically(folder / INDEX, index.encode("utf-8", "replace"))
    return Built(path, tuple(names), remove_pages(folder, names), tuple(warnings))


def render_index(entries: Sequence[Entry], project: str, notes: Sequence[Reason] = ()) -> str:
    """The index: a table of ops and devices, the gravest first."""
    return render_page(
        "site_index.html.j2",
        title=say("{project}: kernels over time", project=plain(project, 80)),
        project=plain(project, NAME_LIMIT),
        plain=plain,
        entries=sorted(entries, key=lambda one: (one.state.rank, one.place)),
        devices=[plain(device, NAME_LIMIT) for device in sorted({one.place.device for one in entries})],
        notes=[plain(sentence(note)) for note in notes],
        chips=count_states([one.state for one in entries]),
    )


# --- the folder -------------------------------------------------------------------------------------------------------


def claim_folder(folder: Path) -> None:
    """Raises UsageError for a file, and for a folder with anything in it but no page of perfci's site."""
    if folder.exists() and not folder.is_dir():
        raise UsageError("site_folder_file", path=str(folder))
    is_ours = map(is_own, (folder / INDEX, *folder.glob("*/*.html")))
    if folder.exists() and any(folder.iterdir()) and not any(is_ours):
        raise UsageError("site_folder_taken", folder=str(folder))


def is_own(path: Path) -> bool:
    """Whether a file is a page of such a site, which `frame.html.j2` marks."""
    with contextlib.suppress(OSError), open_regular(path) as file:
        return b'content="perfci site_' in file.read(MARKED)
    return False


def remove_pages(folder: Path, pages: Collection[str]) -> tuple[str, ...]:
    """Remove the pages of ops that are gone, and folders that are empty then. Returns the names of the pages."""
    found = sorted(path for path in folder.glob("*/*.html") if is_own(path))
    gone = [path for path in found if path.relative_to(folder).as_posix() not in pages]
    for path in gone:
        with contextlib.suppress(OSError):  # it is gone already, or the folder holds other pages
            path.unlink()
            path.parent.rmdir()
    return tuple(path.relative_to(folder).as_posix() for path in gone)
