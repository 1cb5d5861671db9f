"""One section an op: what failed, pictures, and the tables behind its verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from perfci.core import wording
from perfci.core.model import Fact, Gate, Judgement, Judgements, Limits, OpRun, PlannedBase, Reason, Run, Suite, Verdict
from perfci.core.wording import say
from perfci.report import accuracy, advice, against, history, lowprec, means, rows, speed, words
from perfci.report.against import Noises
from perfci.report.frame import Clocks, Spread
from perfci.report.past import Past, Pasts
from perfci.report.sources import Source
from perfci.report.text import block, code, inline
from perfci.report.view import Message, Part, Picture, Section, Table

MESSAGES = 10
"""Most messages shown in full."""

UNDRAWN = 6
"""Most cases without a picture that are named."""

LONG_FACT = 200
"""Characters above which a reason's fact is shown in full in a block of its own."""


@dataclass(frozen=True)
class Pictures:
    """An op's pictures, and what they leave out."""

    duels: tuple[Picture, ...] = ()
    speedups: tuple[Picture, ...] = ()
    traces: tuple[Picture, ...] = ()
    distributions: tuple[Picture, ...] = ()
    sizes: tuple[Picture, ...] = ()
    roofline: Picture | None = None
    """its own, where not all ops share one"""
    traced: int = 0
    """cases whose blocks are drawn"""
    undrawn: tuple[str, ...] = ()
    """timed cases that are not"""
    history: tuple[Picture, ...] = ()
    lowprec: tuple[Picture, ...] = ()
    """of what is stored in low precision"""
    stored: bool = False
    """the baseline stands beside the launches"""


@dataclass(frozen=True)
class Material:
    """All that a report is made of."""

    run: Run
    judgements: Judgements
    spreads: tuple[Spread, ...]
    clocks: Clocks
    pictures: Mapping[str, Pictures]
    """by op"""
    noises: Noises = field(default_factory=dict)
    roofline: Picture | None = None
    """of all ops together"""
    pasts: Pasts = field(default_factory=dict)
    """what was kept before the run, by op"""
    sources: tuple[Source, ...] = ()
    """of thresholds in force"""


@dataclass(frozen=True)
class _Op:
    """What belongs to one op."""

    op: OpRun
    run: Run
    judged: list[Judgement]
    spreads: list[Spread]
    pictures: Pictures
    limits: Limits
    base: PlannedBase | None
    noises: Noises
    past: Past | None

    @property
    def untouched(self) -> bool:
        """Whether nothing of it was run: it is the base's own, is gone, or only its compiled kernels are judged."""
        told = all(row.suite is Suite.COMPILED or _says_all(row) for row in self.judged)
        return told and bool(self.judged) and self.op == OpRun(self.op.op)


def _says_all(row: Judgement) -> bool:
    """Whether its line in the verdict table leaves nothing to add."""
    return row.verdict is Verdict.UNCHANGED or (row.verdict is Verdict.REMOVED and row.case is None)


def sections(material: Material) -> tuple[Section, ...]:
    """A section for every op that ran or was judged, in the order of the run; none where there is nothing to tell."""
    return tuple(_section(one) for one in _ops(material) if not one.untouched)


def untouched(material: Material) -> tuple[str, ...]:
    """Ops of the run that have no section, since none of their files differ from the base's."""
    return tuple(one.op.op for one in _ops(material) if one.untouched and one.base and one.base.same)


def _ops(material: Material) -> Iterator[_Op]:
    ran = {op.op: op for op in material.run.ops}
    judged: dict[str, list[Judgement]] = {}
    for row in material.judgements.rows:
        judged.setdefault(row.op, []).append(row)
    bases = {op.op: op.base for op in material.run.plan.ops}
    spreads: dict[str, list[Spread]] = {}
    for spread in material.spreads:
        spreads.setdefault(spread.op, []).append(spread)
    for name in dict.fromkeys([*ran, *judged]):
        yield _Op(
            op=ran.get(name, OpRun(name)),
            run=material.run,
            judged=judged.get(name, []),
            spreads=spreads.get(name, []),
            pictures=material.pictures.get(name, Pictures()),
            limits=material.run.limits,
            base=bases.get(name),
            noises=material.noises,
            past=material.pasts.get(name),
        )


def _section(one: _Op) -> Section:
    return Section(
        name=inline(one.op.op, 80),
        tally=_tally(one.judged),
        speedup=means.sentence(one.judged),
        changed=against.files(one.base),
        problems=_problems(one.op, one.base, one.judged),
        messages=_messages(one.op, one.judged),
        duels=one.pictures.duels,
        speedups=one.pictures.speedups,
        traces=one.pictures.traces,
        traces_note=_traces_note(one.op, one.pictures),
        distributions=one.pictures.distributions,
        distributions_note=_distributions_note(one.pictures),
        sizes=one.pictures.sizes,
        rooflines=(one.pictures.roofline,) if one.pictures.roofline else (),
        parts=tuple(part for part in _parts(one) if part.table.rows),
        facts=_facts(one.op),
        history=history.section(one.op, one.run, one.past, one.pictures.history),
        lowprec=one.pictures.lowprec,
    )


def _parts(one: _Op) -> list[Part]:
    name, op = inline(one.op.op, 80), one.op
    return [
        *against.parts(op, one.base, one.judged, one.noises),
        *advice.parts(one.run, op, one.judged, one.spreads),
        *speed.parts(op, one.spreads, one.limits),
        *accuracy.parts(op),
        *lowprec.parts(op, one.judged),
        Part(say("{op}: also worth knowing", op=name), "", _asides(op, one.judged)),
    ]


def _asides(op: OpRun, judged: list[Judgement]) -> Table:
    """Reasons beside the one that decided, which stands in the verdict table; others have tables of their own."""
    told = {case.case: (case.base.failure, *case.base.changes) for case in op.performance if case.base}
    shown = tuple(
        (
            code(row.case) if row.case is not None else words.suite_word(row.suite),
            str(row.verdict),
            inline(wording.sentence(reason)),
        )
        for row in judged
        if row.suite is Suite.PERFORMANCE
        for reason in row.reasons[1:]
        if reason not in told.get(row.case or "", ())
    )
    return Table((say("case"), say("verdict"), say("beside the reason above")), shown)


def _tally(judged: list[Judgement]) -> str:
    counts = rows.verdicts(rows.rows(Judgements(tuple(judged))))
    if not counts:
        return say("Not judged.")
    return say("{tally}.", tally=rows.tally(sorted(counts.items(), key=lambda item: rows.rank(item[0]))))


def _problems(op: OpRun, base: PlannedBase | None, judged: list[Judgement]) -> tuple[str, ...]:
    whole = [reason for reason in (op.failure, op.unmeasured, *op.notes, base and base.failure) if reason]
    told = [inline(wording.sentence(reason)) for reason in whole]
    for case in op.performance:
        reasons = [*([case.failure] if case.failure else []), *case.suspicion]
        told += [f"{code(case.case)}: {inline(wording.sentence(reason))}" for reason in reasons]
    limits = [row for row in judged if row.suite is Suite.ACCURACY and row.reasons[0].kind in accuracy.LIMITS]
    told += [
        f"{code(row.case or '')}: {inline(wording.sentence(row.reasons[0]))}" for row in limits[: accuracy.FAILURES]
    ]
    return (*told, *accuracy.failures(op))


def _messages(op: OpRun, judged: list[Judgement]) -> tuple[Message, ...]:
    """Long facts of failures in full, each text once."""
    failing = [reason for row in judged if row.verdict.gate is not Gate.OK for reason in row.reasons]
    cases = [*(check.failure for check in op.accuracy), *(case.failure for case in op.performance)]
    reasons: list[Reason] = [reason for reason in (op.failure, *cases, *failing) if reason]
    seen: dict[str, str] = {}
    for reason in reasons:
        for name, value in reason.facts.items():
            if _is_long(value):
                seen.setdefault(str(value), name)
    shown = list(seen.items())[:MESSAGES]
    return tuple(Message(say("{name} in full", name=inline(name, 40)), block(value)) for value, name in shown)


def _is_long(value: Fact) -> bool:
    return isinstance(value, str) and (len(value) > LONG_FACT or "\n" in value.strip())


def _traces_note(op: OpRun, pictures: Pictures) -> str:
    timed = sum(bool(case.blocks) for case in op.performance)
    if not pictures.traces or pictures.traced == timed:
        return ""
    return say(
        "Blocks of {drawn} of {timed} cases are drawn, the gravest verdicts first.", drawn=pictures.traced, timed=timed
    )


def _distributions_note(pictures: Pictures) -> str:
    """What the curves are, and the cases without one."""
    told = []
    if pictures.distributions:
        told.append(say("Each curve is the share of launches that took at most so long."))
    if pictures.distributions and pictures.stored:
        told.append(say("Of the baseline only the medians of its blocks are stored: its steps are those."))
    if pictures.undrawn:
        rest = len(pictures.undrawn) - UNDRAWN
        shown = ", ".join(map(code, pictures.undrawn[:UNDRAWN]))
        told.append(
            say("Not drawn: {cases} and {count} more.", cases=shown, count=rest)
            if rest > 0
            else say("Not drawn: {cases}.", cases=shown)
        )
    return " ".join(told)


def _facts(op: OpRun) -> tuple[str, ...]:
    first_calls = [case.compile_s for case in op.performance if case.compile_s is not None]
    told = [
        (
            op.busy_share,
            say("The device was at work for {share:%} of the measuring phase, flushes included.", share=op.busy_share),
        ),
        (op.verify_s, say("Verifying took {time}.", time=speed.seconds(op.verify_s))),
        (op.measure_s, say("Measuring took {time}.", time=speed.seconds(op.measure_s))),
        (
            first_calls or None,
            say("First calls, compilation included, took {time} in all.", time=speed.seconds(sum(first_calls))),
        ),
        (op.tuned, say("Tuned configurations in force: {digest}.", digest=code(op.tuned or ""))),
    ]
    return tuple(text for value, text in told if value is not None)
