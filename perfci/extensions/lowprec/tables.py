"""An op's storage in low precision as tables: ways of storing each tensor side by side, and what to do."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfci.core import units
from perfci.core.model import Extent, Judgement, OpRun, Run, StoredTensor, Suite, Verdict
from perfci.core.settings import Settings
from perfci.core.wording import join, say, sentence
from perfci.extensions.lowprec.advice import families, group_columns, way
from perfci.measure.stored import BEYOND
from perfci.ops.spec import is_stored
from perfci.report.text import code, phrase, plain
from perfci.report.view import Picture, Section, Table, make_table
from perfci.report.words import write_number

ACROSS = 4  # most ways of storing a tensor side by side in a picture
FAMILIES = 6  # most tensors of an op that are drawn: those beyond their limits, or the first one if none is


def make_parts(op: OpRun, judged: Sequence[Judgement]) -> Iterator[Section]:
    """A table of all stored tensors, and one of the likely causes. Nothing if the op declares none."""
    if not op.stored:
        return
    name = plain(op.op, 80)
    note = phrase(
        "Errors of what is stored against the originals, on inputs of a fixed seed: the same code gives the same "
        "numbers. *Clipped*: the share of values beyond the scale times the dtype's largest number. *Divergence*: "
        "Kullback-Leibler, of the errors' histogram from the newest accepted run's, nats; 0 where there is none."
    )
    title, bad = say("{op}: stored in low precision", op=name), find_beyond(judged)
    yield Section(title, (note,), table=_tabulate(op, bad))
    first = {case: row.reasons for case, row in bad.items() if row.reasons[0].kind.startswith(BEYOND)}
    told = {case: [plain(sentence(reason)) for reason in reasons] for case, reasons in first.items()}
    causes = ((code(case), why, join(advice) or "-") for case, (why, *advice) in told.items())
    table = make_table("case | what is beyond its limit, and why | advice", causes)
    yield Section(say("{op}: likely causes, and what to do", op=name), table=table)


def find_beyond(judged: Sequence[Judgement]) -> Mapping[str, Judgement]:
    """Case of each stored tensor beyond its limits -> its judgement."""
    beyond = {row.case: row for row in judged if row.suite is Suite.ACCURACY and row.case is not None}
    return {
        case: row
        for case, row in beyond.items()
        if is_stored(case) and any(reason.kind.startswith(BEYOND) for reason in row.reasons)
    }


def choose_tensors(op: OpRun, judged: Sequence[Judgement]) -> list[tuple[StoredTensor, ...]]:
    """The tensors that are drawn, each with the ways that fit side by side into a picture."""
    bad = find_beyond(judged)
    every = list(families(op.stored).values())
    beyond_limits = [ways for ways in every if any(way.case in bad for way in ways)]
    tensors = []
    for ways in beyond_limits[:FAMILIES] or every[:1]:
        columns = list(group_columns(ways).values())
        for first in range(0, len(columns), ACROSS):
            tensors.append(tuple(cell for column in columns[first : first + ACROSS] for cell in column))
    return tensors


def _tabulate(op: OpRun, bad: Mapping[str, Judgement]) -> Table:
    shown = []
    for tensor in itertools.chain.from_iterable(families(op.stored).values()):
        errors = tensor.errors
        shown.append((
            code(tensor.tensor),
            code(way(tensor) or tensor.mode),
            *map(write_number, (errors.p50_abs, errors.p90_abs, errors.p99_abs, errors.max_abs)),
            units.percent(errors.mean_rel),
            _write_share(tensor.clip_ratio),
            _write_share(tensor.lost_ratio),
            write_number(tensor.divergence),
            _write_extent(tensor.amax),
            _write_extent(tensor.scale),
            units.size(tensor.scale_bytes),
            str(Verdict.WRONG if tensor.case in bad else Verdict.PASS),
        ))  # fmt: skip
    heads = (
        "tensor | stored as | p50 abs: | p90 abs: | p99 abs: | max abs: | mean rel: | clipped: | stored as 0: | "
        "divergence: | amax: | scale: | scales: | verdict"
    )
    return make_table(heads, shown)


def _write_share(ratio: float) -> str:
    """Per cent, in which one value of many is seen too."""
    return "0 %" if not ratio else say("{percent} %", percent=units.significant(100 * ratio, 2))


def _write_extent(extent: Extent) -> str:
    """Least, median and greatest, or one number if all are the same."""
    if extent.least == extent.most:
        return units.significant(extent.most)
    ends = {"low": units.significant(extent.least), "high": units.significant(extent.most)}
    return say("{middle} ({low} to {high})", middle=units.significant(extent.median), **ends)


class ErrorPictures:
    """Pictures of the errors of an op's stored tensors."""

    def draw(self, op: OpRun, painter: Any, name: str) -> Iterator[Picture]:
        """Draw those beyond their limits, or the first one if none is."""
        from perfci.extensions.lowprec.charts import draw_errors
        from perfci.extensions.pictures.style import caption, fit

        judged = [row for row in painter.judgements.rows if row.op == op.op]
        for index, ways in enumerate(choose_tensors(op, judged), 1):
            about, alt = fit(f"{op.op} {ways[0].family}", 80), plain(f"{op.op} {ways[0].family}", 120)
            figure = draw_errors(ways, caption("{what}: errors", what=about))
            yield painter.save(figure, f"lowprec-{name}-{index}", say("Errors of storage of {what}", what=alt))

    def section(self, op: OpRun, pictures: Sequence[Picture]) -> Section | None:
        """Make a section of them, if there are any."""
        title = say("{op}: errors of what is stored", op=plain(op.op, 80))
        return Section(title, pictures=tuple(pictures)) if pictures else None


def read_sections(*_: Run | Settings) -> ErrorPictures:
    """Returns what draws the pictures of any run."""
    return ErrorPictures()
