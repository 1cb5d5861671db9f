"""One section an op: what failed, pictures, and the tables behind its verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from perfci.core.model import Gate, Judgement, Judgements, OpRun, PlannedBase, Reason, Run, Suite, Verdict
from perfci.core.wording import say, sentence
from perfci.report import accuracy, advice, against, history, lowprec, means, rows, speed
from perfci.report.against import Noises
from perfci.report.frame import ArmSpread, Clocks
from perfci.report.past import Past, Pasts
from perfci.report.sources import SetValue
from perfci.report.text import block, code, plain
from perfci.report.view import Message, Part, Picture, Section, make_table
from perfci.report.words import name_suite, write_seconds

MESSAGES = 10
"""Most messages shown in full."""

LONG_FACT = 200
"""Characters above which a reason's fact is shown in full in a block of its own."""


@dataclass(frozen=True)
class Pictures:
    """An op's pictures, and what they leave out."""

    pictures: tuple[Picture, ...] = ()
    """one of each kind"""
    cases: tuple[Picture, ...] = ()
    """of single cases that fail or warn"""
    alone: int = 0
    """cases that fail or warn"""
    history: tuple[Picture, ...] = ()


@dataclass(frozen=True)
class Material:
    """All that a report is made of."""

    run: Run
    judgements: Judgements
    spreads: tuple[ArmSpread, ...]
    clocks: Clocks
    pictures: Mapping[str, Pictures]
    """by op"""
    noises: Noises = field(default_factory=dict)
    roofline: Picture | None = None
    """of all ops together"""
    pasts: Pasts = field(default_factory=dict)
    """what was kept before the run, by op"""
    sources: tuple[SetValue, ...] = ()
    """of thresholds in force"""


@dataclass(frozen=True)
class OpMaterial:
    """What belongs to one op."""

    op: OpRun
    run: Run
    judged: list[Judgement]
    spreads: list[ArmSpread]
    pictures: Pictures
    base: PlannedBase | None
    noises: Noises
    past: Past | None

    @property
    def untouched(self) -> bool:
        """Whether nothing of it was run: it is the base's own, is gone, or only its compiled kernels are judged."""
        complete = all(
            row.suite is Suite.COMPILED
            or row.verdict is Verdict.UNCHANGED
            or (row.verdict is Verdict.REMOVED and row.case is None)
            for row in self.judged
        )
        return complete and bool(self.judged) and self.op == OpRun(self.op.op)


def split_material(material: Material) -> Iterator[OpMaterial]:
    """What belongs to each op that ran or was judged, in the order of the run."""
    ran = {op.op: op for op in material.run.ops}
    judged: dict[str, list[Judgement]] = {}
    for row in material.judgements.rows:
        judged.setdefault(row.op, []).append(row)
    bases = {op.op: op.base for op in material.run.plan.ops}
    spreads: dict[str, list[ArmSpread]] = {}
    for spread in material.spreads:
        spreads.setdefault(spread.op, []).append(spread)
    for name in dict.fromkeys([*ran, *judged]):
        yield OpMaterial(
            op=ran.get(name, OpRun(name)),
            run=material.run,
            judged=judged.get(name, []),
            spreads=spreads.get(name, []),
            pictures=material.pictures.get(name, Pictures()),
            base=bases.get(name),
            noises=material.noises,
            past=material.pasts.get(name),
        )


def make_section(one: OpMaterial) -> Section:
    """The section of an op that is not untouched."""
    op, pictures = one.op, one.pictures
    counts = rows.count_verdicts(rows.make_rows(Judgements(tuple(one.judged))))
    tally = rows.write_tally(sorted(counts.items(), key=lambda item: rows.rank(item[0])))
    return Section(
        name=plain(op.op, 80),
        tally=say("{tally}.", tally=tally) if counts else say("Not judged."),
        speedup=means.describe_mean(one.judged),
        changed=against.describe_files(one.base),
        problems=tuple(_describe_problems(one)),
        messages=_find_messages(op, one.judged),
        pictures=(*pictures.pictures, *pictures.cases),
        pictures_note=_describe_left_out(pictures),
        parts=tuple(part for part in _make_parts(one) if part.table.rows),
        facts=tuple(_describe_work(op)),
        history=history.make_section(op, one.run, one.past, pictures.history),
    )


def _make_parts(one: OpMaterial) -> Iterator[Part]:
    op, judged = one.op, one.judged
    yield from against.make_parts(op, one.base, judged, one.noises)
    yield from advice.make_parts(one.run, op, judged, one.spreads)
    yield from speed.make_parts(op, one.spreads, one.run.limits)
    yield from accuracy.make_parts(op)
    yield from lowprec.make_parts(op, judged)
    # Reasons beside the one that decided, which stands in the verdict table. Others have tables of their own.
    known = {case.case: (case.base.failure, *case.base.changes) for case in op.performance if case.base}
    asides = (
        (code(row.case) if row.case is not None else name_suite(row.suite), str(row.verdict), plain(sentence(reason)))
        for row in judged
        if row.suite is Suite.PERFORMANCE
        for reason in row.reasons[1:]
        if reason not in known.get(row.case or "", ())
    )
    title = say("{op}: also worth knowing", op=plain(op.op, 80))
    yield Part(title, "", make_table("case | verdict | beside the reason above", asides))


def _describe_problems(one: OpMaterial) -> Iterator[str]:
    op = one.op
    for reason in (op.failure, op.unmeasured, *op.notes, one.base and one.base.failure):
        if reason:
            yield plain(sentence(reason))
    for case in op.performance:
        for reason in (case.failure, *case.suspicion):
            if reason:
                yield f"{code(case.case)}: {plain(sentence(reason))}"
    inexact = [row for row in one.judged if row.suite is Suite.ACCURACY and row.reasons[0].kind in accuracy.LIMITS]
    for row in inexact[: accuracy.FAILURES]:
        yield f"{code(row.case or '')}: {plain(sentence(row.reasons[0]))}"
    yield from accuracy.describe_failures(op)


def _find_messages(op: OpRun, judged: list[Judgement]) -> tuple[Message, ...]:
    """Long facts of failures in full, each text once."""
    failing = [reason for row in judged if row.verdict.gate is not Gate.OK for reason in row.reasons]
    cases = [*(check.failure for check in op.accuracy), *(case.failure for case in op.performance)]
    reasons: list[Reason] = [reason for reason in (op.failure, *cases, *failing) if reason]
    found: dict[str, str] = {}
    for reason in reasons:
        for name, value in reason.facts.items():
            if isinstance(value, str) and (len(value) > LONG_FACT or "\n" in value.strip()):
                found.setdefault(value, name)
    shown = list(found.items())[:MESSAGES]
    return tuple(Message(say("{name} in full", name=plain(name, 40)), block(text)) for text, name in shown)


def _describe_left_out(pictures: Pictures) -> str:
    """How many cases that fail or warn have no picture of their own."""
    if len(pictures.cases) == pictures.alone:
        return ""
    return say(
        "{drawn} of {count} cases that fail or warn have a picture of their own, the gravest of the run.",
        drawn=len(pictures.cases), count=pictures.alone,
    )  # fmt: skip


def _describe_work(op: OpRun) -> Iterator[str]:
    """What the device and the host were busy with."""
    if op.busy_share is not None:
        yield say("The device was at work for {share:%} of the measuring phase, flushes included.", share=op.busy_share)
    if op.verify_s is not None:
        yield say("Verifying took {time}.", time=write_seconds(op.verify_s))
    if op.measure_s is not None:
        yield say("Measuring took {time}.", time=write_seconds(op.measure_s))
    if first_calls := [case.compile_s for case in op.performance if case.compile_s is not None]:
        total = write_seconds(sum(first_calls))
        yield say("First calls, compilation included, took {time} in all.", time=total)
    if op.tuned is not None:
        yield say("Tuned configurations in force: {digest}.", digest=code(op.tuned))
