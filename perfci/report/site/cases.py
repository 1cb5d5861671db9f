"""The rows of an op's table of cases, and what opening one shows: sentences, trends, all numbers, what to type."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from perfci.core import units
from perfci.core.model import ErrorStats, HistoryRun
from perfci.core.wording import say
from perfci.report import words as counts
from perfci.report.figures.sheet import Axis
from perfci.report.html.cases import Column, Detail
from perfci.report.html.markup import Html, inline
from perfci.report.site import drawings, trend, words
from perfci.report.site.trend import Accuracy, Case, Kind, Mark, Op, State, Storage, Values
from perfci.report.steps import quoted
from perfci.report.text import code, plain
from perfci.statistics import changepoints
from perfci.statistics.changepoints import Change

_COMMIT = re.compile(r"[0-9a-f]{7,64}")

PAIR = 2
"""Commits that a bisection needs."""


@dataclass(frozen=True)
class Cell:
    """A finished cell, and the number to sort by."""

    html: Html
    number: float | None = None


@dataclass(frozen=True)
class Row(words.Stated):
    """One case of the table."""

    key: str
    """names it in the page's address"""
    state: State
    name: Html
    spark: Html
    cells: tuple[Cell, ...]
    """those of `columns`"""
    detail: Detail


def columns() -> tuple[tuple[str, str], ...]:
    """Name to sort by, and heading, of a row's cells of numbers."""
    return (
        ("kernel", say("kernel")),
        ("own", say("by itself")),
        ("change", say("over the kept runs")),
        ("speedup", say("speedup")),
        ("runs", say("runs")),
    )


def rows(op: Op, axis: Axis) -> tuple[Row, ...]:
    """Every case, those first that lost most; then accuracy, then what is stored in low precision."""
    ranked = sorted(op.cases, key=lambda case: (words.RANKS.index(case.state), -(case.own or 0)))
    shared = tuple(_runs(op))
    found = [_performance(case, op, axis, shared) for case in ranked]
    checked = (_checked(case, op, axis, shared) for case in op.accuracy)
    return (*found, *checked, *(_stored(case, op, axis, shared) for case in op.stored))


# --- performance ------------------------------------------------------------------------------------------------------


def _performance(case: Case, op: Op, axis: Axis, shared: Sequence[Column]) -> Row:
    kernel, speedup = _last(case.kernel), _last(case.speedup)
    cells = (
        Cell(Html(units.time(kernel)), kernel),
        changed(case.own),
        changed(case.move),
        Cell(Html(counts.write_ratio(speedup)), speedup),
        Cell(Html(str(_count(case.kernel))), _count(case.kernel)),
    )
    detail = Detail(
        why=tuple(_why(case, op)),
        facts=tuple(_facts(case)),
        arms=(),
        differs=(),
        commands=tuple(_commands(case, op)),
        charts=tuple(drawings.charts(case, op.kept.runs, axis)),
        blocks=(*shared, *_numbers(case), _notes(case, op)),
    )
    spark = drawings.spark(trend.relative(case.kernel), case.marks)
    return Row(plain(case.case, 160), case.state, named(case.case), spark, cells, detail)


def named(case: str) -> Html:
    """A case's id, which may go on in the next line behind a comma."""
    return Html(inline(code(case)).source.replace(",", ",<wbr>"))


def changed(ratio: float | None) -> Cell:
    """A signed change."""
    return Cell(Html(units.percent(_seen(ratio), signed=True)), None if ratio is None else float(f"{ratio:.6g}"))


def _seen(ratio: float | None) -> float | None:
    """A change as it is written: below half of the last digit it has no sign, since -0.0 % reads as one."""
    return 0.0 if ratio is not None and abs(ratio) < 0.0005 else ratio


def _last(values: Values) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _count(values: Values) -> int:
    return sum(value is not None for value in values)


def _why(case: Case, op: Op) -> Iterator[str]:
    if case.state is State.GONE:
        last = max(place for place, each in enumerate(case.seen) if each)
        yield say("The last accepted run does not have it: it was taken out or renamed after run {run}.", run=last + 1)
    if case.move is not None:
        yield say(
            "Over the kept runs the kernel's time changed by {move:+%} and the reference's by {reference:+%}.",
            move=_seen(case.move), reference=_seen(case.reference_move),
        )  # fmt: skip
    if case.own is not None and any(mark.parts for mark in case.marks):
        yield say(
            "Since run {run}, without the jumps at marks, the kernel's time changed by {own:+%} and the reference's by "
            "{reference:+%}.",
            run=case.start + 1, own=_seen(case.own), reference=_seen(case.reference_own),
        )  # fmt: skip
    if case.state is State.SLOWER:
        yield say("That is more than the {allowed:%} that one merge request may slow it down by.", allowed=case.allowed)
    if case.allowed != case.written:
        place = op.kept.place
        where = op.kept.limits.origin(place.op, case.case, "tau", place.device)
        yield say(
            "{where} allows {allowed} now, in the place of {written} that people wrote.",
            where=where, allowed=_precise(case.allowed), written=_precise(case.written),
        )  # fmt: skip
    if case.state is not State.GONE:
        steps = changepoints.changes(op.kept.runs, case.case)
        yield from (_step(each) for each in steps if each.unexplained)
    withheld = sum(case.case in run.inconclusive for run in op.kept.runs)
    if withheld:
        yield say("{runs} could say nothing about it and were not accepted.", runs=words.runs(withheld))


def _precise(ratio: float | None) -> str:
    """A threshold with the digits that tell it from its neighbours."""
    return "-" if ratio is None else f"{100 * ratio:.4g} %"


def _step(step: Change) -> str:
    return say(
        "Between {before} and {after} it became {change:+%} slower ({low:+%} to {high:+%}), and nothing that is kept "
        "explains it: perfci history --drift says what to do next.",
        before=trend.commit(step.before), after=trend.commit(step.after), change=step.size.value, low=step.size.low,
        high=step.size.high,
    )  # fmt: skip


def _facts(case: Case) -> Iterator[tuple[str, str]]:
    last = next(each for each in reversed(case.seen) if each)
    yield say("kernel"), units.time(last.kernel_us.median_us)
    if last.reference_us:
        yield say("reference"), units.time(last.reference_us.median_us)
    if case.allowed is not None:
        yield say("allowed"), units.percent(case.allowed)
    if last.bandwidth_share is not None:
        yield say("share of the copy bandwidth"), units.percent(last.bandwidth_share)
    if last.compile_s is not None:
        yield say("compile time"), units.time(last.compile_s * 1e6)
    if last.peak_bytes is not None:
        yield say("peak memory"), units.size(last.peak_bytes)
    yield from _error_facts(last.errors)


def _error_facts(errors: ErrorStats | None) -> Iterator[tuple[str, str]]:
    if errors and errors.p99_abs is not None:
        yield say("99th percentile of the error"), units.significant(errors.p99_abs)
    if errors and errors.max_abs is not None:
        yield say("greatest error"), units.significant(errors.max_abs)


def _commands(case: Case, op: Op) -> Iterator[tuple[str, str]]:
    """To see it again, to hold it against its past, and to find the change that did it."""
    what = f"--op {quoted(op.kept.place.op)} --case {quoted(case.case)}"
    yield say("This case now, on a machine with the device:"), f"perfci check {what}"
    pair = commits(case, op.kept.runs)
    if pair:
        beside = say("Side by side with the first run since its last epoch:")
        yield beside, f"perfci check {what} --against {pair[0]} --duel all"
    if pair and case.state is State.SLOWER:
        yield say("Which change slowed it down, by duels:"), f"perfci bisect {what} {' '.join(pair)}"
    yield say("The same numbers in a terminal:"), f"perfci history {what}"


def commits(case: Case, runs: Sequence[HistoryRun]) -> tuple[str, ...]:
    """The first and the last commit that measured it since its last epoch; none where they are one or unknown."""
    found = [
        run.environment.commit
        for run, each in zip(runs[case.start :], case.seen[case.start :], strict=True)
        if each and run.environment.commit and _COMMIT.fullmatch(run.environment.commit) and not run.environment.dirty
    ]
    pair = dict.fromkeys((found[0][:12], found[-1][:12])) if found else {}
    return tuple(pair) if len(pair) == PAIR else ()


# --- all numbers ------------------------------------------------------------------------------------------------------


def _runs(op: Op) -> Iterator[Column]:
    """Columns that all cases share."""
    runs = op.kept.runs
    yield Column(say("run"), tuple(float(number) for number in range(1, len(runs) + 1)))
    yield Column(say("date, UTC"), texts=tuple(map(trend.minute, runs)))
    yield Column(say("commit"), texts=tuple(map(trend.commit, runs)))


def _numbers(case: Case) -> Iterator[Column]:
    fits = drawings.fitting([us for us in (*case.kernel, *case.reference) if us is not None])
    low, high = (
        tuple(getattr(each.kernel_us, name) if each else None for each in case.seen) for name in ("p25_us", "p75_us")
    )
    errors = [each.errors if each else None for each in case.seen]
    columns = (
        (say("kernel, {unit}", unit=fits.unit), drawings.times(case.kernel, fits.factor)),
        (say("25 %"), drawings.times(low, fits.factor)),
        (say("75 %"), drawings.times(high, fits.factor)),
        (say("reference, {unit}", unit=fits.unit), drawings.times(case.reference, fits.factor)),
        (say("speedup"), case.speedup),
        (say("share of the copy bandwidth, %"), drawings.times(drawings.bandwidth(case), 100)),
        (say("TFLOP/s"), drawings.tflops(case)),
        (say("RSD, %"), drawings.times([each.rsd if each else None for each in case.seen], 100)),
        *_error_columns(errors),
        (say("compile time, s"), tuple(each.compile_s if each else None for each in case.seen)),
        (say("peak memory, MiB"), drawings.times(drawings.peaks(case), 2**-20)),
    )
    yield from (Column(name, values) for name, values in columns if any(value is not None for value in values))


def _error_columns(errors: Sequence[ErrorStats | None]) -> tuple[tuple[str, Values], ...]:
    return tuple((row.heading, row.values) for row in drawings.errors(errors))


def _notes(case: Case, op: Op) -> Column:
    """What a reader of the chart sees as marks."""
    marks: dict[int, list[str]] = {}
    for mark in case.marks:
        marks.setdefault(mark.run, []).append(say("{mark}: {kind}", mark=mark.name, kind=words.kind(mark.kind)))
    for place, run in enumerate(op.kept.runs):
        if case.case in run.inconclusive:
            marks.setdefault(place, []).append(say("not accepted"))
    texts = ("; ".join(marks.get(place, ["-"])) for place in range(len(op.kept.runs)))
    return Column(say("mark"), texts=tuple(texts))


# --- accuracy ---------------------------------------------------------------------------------------------------------


def _count_checks(count: int) -> str:
    return say("{count:accuracy check|accuracy checks}", count=count)


def _checked(case: Accuracy, op: Op, axis: Axis, shared: Sequence[Column]) -> Row:
    columns = [Column(name, values) for name, values in _error_columns(case.errors) if any(values)]
    last = next(each for each in reversed(case.seen) if each)
    checks = tuple(float(each.checks) if each else None for each in case.seen)
    detail = Detail(
        why=(
            say("The worst of its {checks} on ordinary values.", checks=_count_checks(last.checks)),
            say("Over the kept runs its greatest error changed by {move:+%}.", move=trend.move(case.greatest)),
        ),
        facts=tuple(_error_facts(last.errors)),
        arms=(),
        differs=(),
        commands=(
            (
                say("This case now:"),
                f"perfci check {quoted(op.kept.place.op)} --case {quoted(case.case)} --suite accuracy",
            ),
        ),
        charts=tuple(drawings.accuracy(case, op.marks, axis)),
        blocks=(*shared, *columns, Column(say("checks"), checks)),
    )
    empty = Cell(Html("-"))
    runs = Cell(Html(str(_count(checks))), _count(checks))
    cells = (empty, empty, changed(trend.move(case.greatest)), empty, runs)
    spark = drawings.spark(trend.relative(case.greatest))
    return Row(plain(f"accuracy/{case.case}", 160), State.ACCURACY, named(case.case), spark, cells, detail)


def _stored(case: Storage, op: Op, axis: Axis, shared: Sequence[Column]) -> Row:
    last = next(each for each in reversed(case.seen) if each)
    columns = (
        Column(say("99th percentile of the error"), case.p99),
        Column(say("clipped, %"), drawings.times(case.clip_ratio, 100)),
        Column(say("divergence, nats"), case.divergence),
    )
    what = f"--op {quoted(op.kept.place.op)} --case {quoted(case.case)}"
    detail = Detail(
        why=(
            say("What is stored in low precision against the originals, on inputs of a fixed seed."),
            say("Over the kept runs its 99th percentile changed by {move:+%}.", move=trend.move(case.p99)),
        ),
        facts=(
            *_error_facts(last.errors),
            (say("clipped"), units.percent(last.clip_ratio)),
            (say("divergence"), units.significant(last.divergence)),
        ),
        arms=(),
        differs=(),
        commands=((say("This case now:"), f"perfci check {what} --suite accuracy"),),
        charts=tuple(drawings.storage(case, op.marks, axis)),
        blocks=(*shared, *columns),
    )
    empty, count = Cell(Html("-")), _count(case.p99)
    cells = (empty, empty, changed(trend.move(case.p99)), empty, Cell(Html(str(count)), count))
    spark = drawings.spark(trend.relative(case.p99))
    return Row(plain(f"accuracy/{case.case}", 160), State.ACCURACY, named(case.case), spark, cells, detail)


# --- marks ------------------------------------------------------------------------------------------------------------


def marks(op: Op) -> tuple[tuple[str, ...], ...]:
    """The marks as rows of plain texts: those of `mark_columns`."""
    return tuple(_mark(mark, op.kept.runs) for mark in op.marks)


def mark_columns() -> tuple[str, ...]:
    """Headings of `marks`."""
    return (say("mark"), say("run"), say("date, UTC"), say("commit"), say("kind"), say("what"), say("why"))


def _mark(mark: Mark, runs: Sequence[HistoryRun]) -> tuple[str, ...]:
    run = runs[mark.run]
    why = mark.why or ("-" if mark.kind is not Kind.BOARD else say("a board that is measured on first"))
    return (
        mark.name, str(mark.run + 1), trend.minute(run), trend.commit(run), words.kind(mark.kind), mark.what or "-",
        why,
    )  # fmt: skip


def surroundings(op: Op) -> tuple[tuple[str, ...], ...]:
    """Every run as a row of plain texts: those of `run_columns`."""
    return tuple(_surrounding(place, run) for place, run in enumerate(op.kept.runs, 1))


def run_columns() -> tuple[str, ...]:
    """Headings of `surroundings`."""
    return (
        say("run"), say("date, UTC"), say("commit"), say("cases"), say("not accepted"), say("board"), say("driver"),
        "torch", "Triton",
    )  # fmt: skip


def _surrounding(number: int, run: HistoryRun) -> tuple[str, ...]:
    where = run.environment
    versions = (where.device.driver, where.packages.get("torch"), where.packages.get("triton"))
    return (
        str(number), trend.minute(run), trend.commit(run), str(len(run.cases)), str(len(run.inconclusive)),
        _end(where.device.uuid), *(plain(each, 40) if each else "-" for each in versions),
    )  # fmt: skip


def _end(uuid: str | None) -> str:
    """The last digits of a board's UUID, which tell boards apart."""
    return plain(uuid, 80)[-12:] if uuid else "-"
