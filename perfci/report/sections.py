"""One section an op: what failed, pictures, and the tables behind its verdicts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from perfci.core import extensions
from perfci.core.model import Gate, Judgement, Judgements, OpRun, Reason, Run, Suite, Verdict
from perfci.core.wording import say, sentence
from perfci.report import accuracy, against, rows, speed
from perfci.report.frame import ArmSpread, Clocks
from perfci.report.text import block, code, plain
from perfci.report.view import Message, Picture, Section

MESSAGES = 10  # most messages shown in full
LONG_FACT = 200  # characters above which a reason's fact is shown in full in a separate block


class OpExtra(Protocol):
    """What an extension adds to the section of each op of a run."""

    def draw(self, op: OpRun, painter: Any, name: str) -> Iterator[Picture]:
        """Draw pictures with the `Painter` of the extension pictures. name: of the op in file names."""

    def section(self, op: OpRun, pictures: Sequence[Picture]) -> Section | None:
        """Make a section with these pictures."""


@dataclass(frozen=True)
class Pictures:
    """An op's pictures, and what they leave out."""

    pictures: tuple[Picture, ...] = ()  # one of each kind
    cases: tuple[Picture, ...] = ()  # of single cases that fail or warn
    alone: int = 0  # cases that fail or warn
    extras: tuple[tuple[Picture, ...], ...] = ()  # those of each extra


@dataclass(frozen=True)
class Gallery:
    """All pictures of a report."""

    ops: Mapping[str, Pictures] = field(default_factory=dict)
    overview: tuple[Section, ...] = ()  # about the ops together


@dataclass(frozen=True)
class Material:
    """All that a report is made of."""

    run: Run
    judgements: Judgements
    spreads: tuple[ArmSpread, ...]
    clocks: Clocks
    gallery: Gallery = field(default_factory=Gallery)
    extras: Sequence[OpExtra] = ()  # of extensions

    def group_judgements(self) -> dict[str, list[Judgement]]:
        """Returns the judgements of each op that ran or was judged, in the order of the run."""
        rows: dict[str, list[Judgement]] = {op.op: [] for op in self.run.ops}
        for row in self.judgements.rows:
            rows.setdefault(row.op, []).append(row)
        return rows


def list_tables(op: OpRun, judged: Sequence[Judgement]) -> Iterator[Section]:
    """Yields the tables that extensions add to those of an op."""
    for make_parts in extensions.provided("tables"):
        yield from make_parts(op, judged)


def is_untouched(op: OpRun, judged: list[Judgement]) -> bool:
    """Returns whether nothing of an op was run: it is the base's, is gone, or was only compiled."""
    return (
        op == OpRun(op.op)
        and bool(judged)
        and all(
            row.suite is Suite.COMPILED
            or row.verdict is Verdict.UNCHANGED
            or (row.verdict is Verdict.REMOVED and row.case is None)
            for row in judged
        )
    )


def make_section(material: Material, op: OpRun, judged: list[Judgement]) -> Section:
    """Returns the section of an op. Its first text counts the verdicts."""
    run, pictures = material.run, material.gallery.ops.get(op.op, Pictures())
    base = next((planned.base for planned in run.plan.ops if planned.op == op.op), None)
    spreads = [spread for spread in material.spreads if spread.op == op.op]
    counts = rows.count_verdicts(rows.make_rows(Judgements(tuple(judged))))
    tally = rows.write_tally(sorted(counts.items(), key=lambda item: rows.rank(item[0])))
    drawn = say(
        "{drawn} of {count} cases that fail or warn have a separate picture, the gravest of the run.",
        drawn=len(pictures.cases), count=pictures.alone,
    )  # fmt: skip
    extra_pictures = iter(pictures.extras)
    parts = (
        *against.make_parts(op, base, judged),
        *speed.make_parts(op, spreads, run.limits),
        *accuracy.make_parts(op),
        *list_tables(op, judged),
        *(extra.section(op, next(extra_pictures, ())) for extra in material.extras),
    )
    return Section(
        title=plain(op.op, 80),
        texts=tuple(
            filter(None, (say("{tally}.", tally=tally) if counts else say("Not judged."), against.describe_files(base)))
        ),
        lines=tuple(_describe_problems(op, base.failure if base else None, judged)),
        messages=_find_messages(op, judged),
        pictures=(*pictures.pictures, *pictures.cases),
        pictures_note="" if len(pictures.cases) == pictures.alone else drawn,
        parts=tuple(part for part in parts if part),
    )


def _describe_problems(op: OpRun, base_failure: Reason | None, judged: list[Judgement]) -> Iterator[str]:
    """Returns sentences about what failed or could not be measured."""
    yield from (plain(sentence(why)) for why in (op.failure, op.unmeasured, *op.notes, base_failure) if why)
    for case in op.performance:
        for why in filter(None, (case.failure, *case.suspicion)):
            yield say("{op}: {told}", op=code(case.case), told=plain(sentence(why)))
    inexact = [row for row in judged if row.suite is Suite.ACCURACY and row.reasons[0].kind in accuracy.LIMITS]
    for row in inexact[: accuracy.FAILURES]:
        yield say("{op}: {told}", op=code(row.case or ""), told=plain(sentence(row.reasons[0])))
    yield from accuracy.describe_failures(op)
    yield from accuracy.compare_with_base(op)


def _find_messages(op: OpRun, judged: list[Judgement]) -> tuple[Message, ...]:
    """Returns long facts of failures in full, each text once."""
    failing = [reason for row in judged if row.verdict.gate is not Gate.OK for reason in row.reasons]
    cases = [*(check.failure for check in op.accuracy), *(case.failure for case in op.performance)]
    texts: dict[str, str] = {}
    for reason in filter(None, (op.failure, *cases, *failing)):
        for name, value in reason.facts.items():
            if isinstance(value, str) and (len(value) > LONG_FACT or "\n" in value.strip()):
                texts.setdefault(value, name)
    shown = list(texts.items())[:MESSAGES]
    return tuple(Message(say("{name} in full", name=plain(name, 40)), block(text)) for text, name in shown)
