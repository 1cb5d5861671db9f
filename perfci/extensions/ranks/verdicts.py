"""What a group's numbers mean: right or wrong by rank and over all, slower or not by rank and as a whole. Pure."""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from perfci.core.model import Fact, Look, Reason, Verdict
from perfci.extensions.ranks.records import (
    ALL,
    BASE,
    COMMUNICATE,
    COMPUTE,
    KERNEL,
    REFERENCE,
    CasePrepared,
    LinksCounted,
    LinksMeasured,
    RankError,
    RanksBlock,
    RanksChecked,
)
from perfci.extensions.ranks.series import list_shifts, times_of
from perfci.extensions.ranks.volume import Roofline, Volume, find_hidden, find_roofline, list_volumes
from perfci.statistics import duel_rule, exact
from perfci.statistics.duel_rule import Ruling
from perfci.thresholds.case import CaseThresholds

TIMER = "event"

MORE_SENT, MORE_SENT_BYTES = 0.03, 32_768
"""How much more than the base's launches a kernel's may send, as a share and in bytes: whichever is more.

Counters count whole KiB. Those of two H200s were 0.5 to 31 KB above the formula, 0.05 % at most, in 60 unchanged cases.
"""


@dataclass(frozen=True)
class CheckedCase:
    """A case of the accuracy suite, judged."""

    case: str
    verdict: Verdict  # PASS, WRONG or ERROR
    reasons: tuple[Reason, ...] = ()
    l2: tuple[float | None, ...] = ()  # by rank: ||output - exact|| / ||exact||
    whole: float | None = None  # the same of all ranks' outputs as one vector
    usual: float | None = None  # of the reference in the case's dtype


@dataclass(frozen=True)
class Series:
    """How kernel and base compare on one rank, or as a whole."""

    rank: int  # ALL: the launch as a whole
    look: Look
    ruling: Ruling
    base_us: float
    kernel_us: float


@dataclass(frozen=True)
class TimedCase:
    """A case of the performance suite, judged."""

    case: str
    verdict: Verdict
    reasons: tuple[Reason, ...] = ()
    processes: int = 0  # further processes that would decide, 0 if none is needed
    series: tuple[Series, ...] = ()
    times_us: Mapping[str, float] | None = None  # arm -> median of launches as a whole
    ranks_us: tuple[float, ...] = ()  # the kernel's median on each rank
    skew_us: float | None = None
    hidden: float | None = None  # share of the communication that is hidden behind the computation
    roofline: Roofline | None = None
    sent_bytes: int | None = None
    volumes: tuple[Volume, ...] = ()  # what a layer of this size sends by each way to divide it
    medians: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    """of kernel and reference, block by block, launches as a whole: what a baseline holds"""
    counted_bytes: float | None = None  # that counters saw, a launch: see _count_bytes


# --- accuracy ---------------------------------------------------------------------------------------------------------


def judge_check(op: str, checked: RanksChecked) -> CheckedCase:
    """Right if every rank is. Outputs of all ranks count as one vector too."""
    if checked.failure:
        return CheckedCase(checked.case, Verdict.ERROR, (checked.failure,))
    reasons = tuple(
        reason
        for rank, error in enumerate(checked.ranks)
        for reason in _find_faults(error, {"op": op, "case": checked.case, "rank": rank}, checked)
    )
    if not checked.ranks:
        reasons = (Reason("ranks_unproven", {"op": op, "case": checked.case}),)
    return CheckedCase(
        checked.case,
        Verdict.WRONG if reasons else Verdict.PASS,
        reasons,
        tuple(_ratio(error.error, error.exact) for error in checked.ranks),
        _join(checked.ranks, "error"),
        _join(checked.ranks, "usual"),
    )


def _find_faults(error: RankError, facts: Mapping[str, Fact], checked: RanksChecked) -> Iterable[Reason]:
    if error.form:
        yield Reason("ranks_form", {**facts, "forms": error.form})
    elif error.wrong:
        more: dict[str, Fact] = {
            "count": error.wrong,
            "size": error.count,
            "index": error.worst or "-",
            "share": error.share,
        }
        yield Reason("ranks_wrong", {**facts, **more, "rtol": checked.rtol, "atol": checked.atol})
    if error.outside:
        yield Reason("ranks_outside", {**facts, "count": error.outside})
    if not error.kept:
        yield Reason("ranks_inputs_changed", facts)
    if not error.repeats and checked.exact_repeats:
        yield Reason("ranks_not_repeated", facts)


def _ratio(error: float, exact_norm: float) -> float | None:
    return error / exact_norm if exact_norm else None if error else 0.0


def _join(errors: Sequence[RankError], name: str) -> float | None:
    """The relative L2 error of all ranks' outputs as one vector."""
    exact_norm = math.hypot(*(error.exact for error in errors))
    return _ratio(math.hypot(*(getattr(error, name) for error in errors)), exact_norm)


# --- times ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """All that is known of a timed case."""

    prepared: CasePrepared
    processes: tuple[tuple[RanksBlock, ...], ...] = ()  # blocks of each process
    ranks: int = 1
    same_files: bool = False  # all files of the op are the base's
    counted: LinksCounted | None = None

    @property
    def blocks(self) -> list[RanksBlock]:
        """Of all processes."""
        return [block for process in self.processes for block in process]

    @property
    def duelled(self) -> bool:
        """Whether it has blocks with both arms."""
        return any(BASE in block.times_us for block in self.blocks)


def judge_times(
    op: str, cases: Sequence[Measured], limits: Mapping[str, CaseThresholds], links: LinksMeasured | None, alpha: float
) -> list[TimedCase]:
    """Judges all timed cases of an op by the rule of a duel: each as a whole, and on each rank.

    alpha: of all questions together, which Holm's method adjusts p for.
    """
    looks = {
        (measured.prepared.case, rank): _look(measured, rank, limits)
        for measured in cases
        if measured.duelled and not measured.prepared.failure
        for rank in (ALL, *range(measured.ranks))
    }
    adjusted = dict(zip(looks, _adjust([*looks.values()]), strict=True))
    judged = []
    for measured in cases:
        case = measured.prepared.case
        series = tuple(
            _rule(measured, rank, look, alpha) for (of_case, rank), look in adjusted.items() if of_case == case
        )
        judged.append(_describe(_judge_case(op, measured, series), measured, links))
    return judged


def _look(measured: Measured, rank: int, limits: Mapping[str, CaseThresholds]) -> Look:
    processes = [shifts for blocks in measured.processes if (shifts := list_shifts(blocks, rank))]
    base_us = _median(measured.blocks, BASE, rank)
    allowed = limits.get(measured.prepared.case, CaseThresholds()).allowed(base_us, TIMER)
    return duel_rule.look(processes, allowed)


def _adjust(looks: Sequence[Look]) -> list[Look]:
    """P values adjusted over all questions that were asked."""
    p_slower, p_faster = (exact.holm([getattr(look, name) for look in looks], max(len(looks), 1)) for name in
                          ("p_slower", "p_faster"))  # fmt: skip
    return [
        replace(look, adjusted_slower=slower, adjusted_faster=faster)
        for look, slower, faster in zip(looks, p_slower, p_faster, strict=True)
    ]


def _rule(measured: Measured, rank: int, look: Look, alpha: float) -> Series:
    if look.processes == 1:
        tau = math.expm1(look.tau)
        ruling = duel_rule.early(list_shifts(measured.blocks, rank), tau)
    else:
        ruling = duel_rule.answer(look, look.adjusted_slower, look.adjusted_faster, alpha)
    medians = (_median(measured.blocks, arm, rank) for arm in (BASE, KERNEL))
    return Series(rank, look, ruling, *medians)


def _judge_case(op: str, measured: Measured, series: Sequence[Series]) -> TimedCase:
    prepared = measured.prepared
    facts: dict[str, Fact] = {"op": op, "case": prepared.case}
    if prepared.failure:
        return TimedCase(prepared.case, Verdict.ERROR, (prepared.failure,))
    if not series:
        if measured.same_files:
            return TimedCase(prepared.case, Verdict.UNCHANGED, (Reason("ranks_same_files", facts),))
        if prepared.same and all(prepared.same):
            return TimedCase(prepared.case, Verdict.UNCHANGED, (Reason("ranks_same_work", facts),))
        why = prepared.unknown or Reason("ranks_no_base")
        return TimedCase(prepared.case, Verdict.NEW, (why,))
    rulings = {one.ruling for one in series}
    slower = [one for one in series if one.ruling is Ruling.SLOWER]
    whole = next(one for one in series if one.rank == ALL)
    more = _find_more_sent(measured.counted, facts)
    wanted = duel_rule.processes_wanted(whole.look) if Ruling.OPEN in rulings else whole.look.processes
    processes = wanted - whole.look.processes
    if whole.ruling is Ruling.FASTER and not slower:
        reasons = (Reason("ranks_faster", {**facts, **_facts(whole)}), *more)
        return TimedCase(prepared.case, Verdict.IMPROVED, reasons, series=(*series,))
    if slower or more:
        if slower and len(slower) == len(series):  # one sentence for all
            reasons = (Reason("ranks_slower_all", {**facts, **_facts(whole)}), *more)
        else:
            kinds = ("ranks_slower" if one is whole else "ranks_slower_rank" for one in slower)
            pairs = zip(kinds, slower, strict=True)
            reasons = (*(Reason(kind, {**facts, **_facts(one)}) for kind, one in pairs), *more)
        return TimedCase(prepared.case, Verdict.REGRESSED, reasons, 0 if slower else processes, (*series,))
    if Ruling.OPEN in rulings:
        reason = Reason("ranks_open", {**facts, **_facts(whole), "wanted": wanted})
        return TimedCase(prepared.case, Verdict.INCONCLUSIVE, (reason,), processes, (*series,))
    if Ruling.UNDECIDED in rulings:
        undecided = next(one for one in series if one.ruling is Ruling.UNDECIDED)
        kind = "ranks_undecided" if undecided is whole else "ranks_undecided_rank"
        reason = Reason(kind, {**facts, **_facts(undecided)})
        return TimedCase(prepared.case, Verdict.INCONCLUSIVE, (reason,), 0, (*series,))
    return TimedCase(prepared.case, Verdict.PASS, (Reason("ranks_cleared", {**facts, **_facts(whole)}),), 0, (*series,))


def _find_more_sent(counted: LinksCounted | None, facts: Mapping[str, Fact]) -> tuple[Reason, ...]:
    """The rank of which the kernel sends most beyond what the base sends, if any does.

    The least of the kernel's turns against the most of the base's: what else crosses a link now and then adds to single
    turns, and blames none.
    """
    if counted is None:
        return ()
    sides = zip(zip(*counted.kernel, strict=True), zip(*counted.base, strict=True), strict=True)
    sent = [(min(kernel), max(base)) for kernel, base in sides]
    rank = max(range(len(sent)), key=lambda rank: sent[rank][0] - sent[rank][1])
    kernel, base = sent[rank]
    if kernel - base <= max(MORE_SENT * base, MORE_SENT_BYTES):
        return ()
    megabytes = {"rank": rank, "sent": kernel / 1e6, "base_sent": base / 1e6}
    return (Reason("ranks_sends_more", {**facts, **megabytes}),)


def _facts(series: Series) -> dict[str, Fact]:
    look, change = series.look, exact.to_ratio(series.look.shift)
    return {
        "rank": series.rank, "change": change.value, "low": change.low, "high": change.high,
        "tau": math.expm1(look.tau), "blocks": look.blocks, "processes": look.processes,
        "base_us": series.base_us, "kernel_us": series.kernel_us,
    }  # fmt: skip


def _median(blocks: Sequence[RanksBlock], arm: str, rank: int) -> float:
    return statistics.median(time for block in blocks for time in times_of(block, arm, rank))


def _describe(case: TimedCase, measured: Measured, links: LinksMeasured | None) -> TimedCase:
    """Adds the figures that no verdict hangs on."""
    blocks, prepared = measured.blocks, measured.prepared
    if not blocks:
        return case
    arms = dict.fromkeys(arm for block in blocks for arm in block.times_us)
    times = {arm: _median([block for block in blocks if arm in block.times_us], arm, ALL) for arm in arms}
    skews = [block.skew_us for block in blocks if block.skew_us is not None]
    return replace(
        case,
        times_us=times,
        ranks_us=tuple(_median(blocks, KERNEL, rank) for rank in range(measured.ranks)),
        skew_us=statistics.median(skews) if skews else None,
        hidden=find_hidden(times[KERNEL], times.get(COMMUNICATE), times.get(COMPUTE)),
        roofline=find_roofline(prepared, links, times[KERNEL]) if links else None,
        sent_bytes=prepared.sent_bytes,
        volumes=list_volumes(*prepared.activations, measured.ranks) if prepared.activations else (),
        counted_bytes=_count_bytes(blocks),
    )


def _count_bytes(blocks: Sequence[RanksBlock]) -> float | None:
    """Bytes that counters saw leave a board, a launch, the mean of ranks, blocks and arms. None without counters.

    Computation alone sends nothing.
    """
    sent = [
        statistics.mean(block.counted_bytes) / sum(len(of[0]) for arm, of in block.times_us.items() if arm != COMPUTE)
        for block in blocks
        if block.counted_bytes and any(block.counted_bytes)
    ]
    return statistics.mean(sent) if sent else None


def find_speedup(case: TimedCase) -> float | None:
    """The reference's time by the kernel's, launches as a whole. None if one was not timed."""
    times = case.times_us or {}
    return times[REFERENCE] / times[KERNEL] if REFERENCE in times and KERNEL in times else None
