"""Peers: further implementations beside the kernel, case by case and by op. No verdict depends on them.

A ratio is the other's time / the kernel's: above 1 the kernel is the faster one. The reference stands among them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from perfci.core import units, wording
from perfci.core.model import Comparison, Interval, Judgement, PeerFigure, Reason, Suite
from perfci.core.wording import say
from perfci.report import means, words
from perfci.report.ceilings import unsound
from perfci.report.text import NAME_LIMIT, code, inline, plain
from perfci.report.view import Part, Peers, Table

LEFT_OUT = 12
"""Most sentences about peers that are left out of cases."""

Writer = Callable[[str], str]


@dataclass(frozen=True)
class Beside:
    """A kernel beside one other implementation, over the cases in which both were timed."""

    name: str
    """the peer's; empty for the reference"""
    ratio: Interval
    """geometric mean"""
    worst: Interval
    """the least"""
    worst_case: str
    faster: int
    """cases in which the other beats the kernel beyond doubt"""
    cases: int


@dataclass(frozen=True)
class Standing:
    """An op's kernel beside its reference and its peers."""

    op: str
    besides: tuple[Beside, ...]
    """the reference first; without those that have no time"""
    lacking: tuple[tuple[str, int], ...]
    """(peer, cases in which it was not timed)"""


def standings(judged: Iterable[Judgement]) -> tuple[Standing, ...]:
    """One an op whose peers were asked for; cases that are WRONG, ERROR or SUSPECT are left out."""
    return tuple(_standing(op, rows) for op, rows in _by_op(judged).items())


def lines(judged: Iterable[Judgement]) -> tuple[str, ...]:
    """Each standing in a line of plain text."""
    return tuple(_line(one, _plain, _plain) for one in standings(judged))


def section(judged: Sequence[Judgement]) -> Peers | None:
    """The report's section; None where no peer was asked for."""
    found = _by_op(judged)
    if not found:
        return None
    alike: dict[tuple[str, ...], list[Comparison]] = {}
    for comparisons in found.values():
        names = dict.fromkeys(peer.name for seen in comparisons for peer in seen.peers)
        alike.setdefault(tuple(names), []).extend(comparisons)
    return Peers(
        note=_note(),
        lines=tuple(_line(_standing(op, seen), inline, code) for op, seen in found.items()),
        parts=tuple(_part(timed, seen) for names, seen in alike.items() if (timed := _timed(names, seen))),
        left_out=tuple(map(inline, _left_out(found))),
    )


def _by_op(judged: Iterable[Judgement]) -> dict[str, list[Comparison]]:
    rows = [row for row in judged if row.suite is Suite.PERFORMANCE and row.case is not None]
    bad = unsound(rows)
    found: dict[str, list[Comparison]] = {}
    for row in rows:
        if row.comparison and row.comparison.peers and (row.op, row.case) not in bad:
            found.setdefault(row.op, []).append(row.comparison)
    return found


def _standing(op: str, comparisons: Sequence[Comparison]) -> Standing:
    names = dict.fromkeys(peer.name for seen in comparisons for peer in seen.peers)
    besides = [_beside("", [(seen.case, seen.speedup) for seen in comparisons])]
    besides += [_beside(name, [(seen.case, _ratio(seen, name)) for seen in comparisons]) for name in names]
    counts = {name: sum(_ratio(seen, name) is None for seen in comparisons) for name in names}
    lacking = tuple((name, count) for name, count in counts.items() if count)
    return Standing(op, tuple(one for one in besides if one), lacking)


def _ratio(seen: Comparison, name: str) -> Interval | None:
    """Of a peer in a case; None where it has no time, or one that no ratio can come from."""
    found = next((peer.ratio for peer in seen.peers if peer.name == name), None)
    return found if found and means.is_ratio(found) else None


def _beside(name: str, ratios: Sequence[tuple[str, Interval | None]]) -> Beside | None:
    known = [(case, one) for case, one in ratios if one is not None and means.is_ratio(one)]
    if not known:
        return None
    case, worst = min(known, key=lambda each: each[1].value)
    faster = sum(PeerFigure(name, ratio=one).faster for _, one in known)
    return Beside(name, means.geometric([one for _, one in known]), worst, case, faster, len(known))


# --- sentences --------------------------------------------------------------------------------------------------------


def _plain(text: str) -> str:
    return plain(text, NAME_LIMIT)


def _line(found: Standing, text: Writer, case: Writer) -> str:
    told = [_told(one, text, case) for one in found.besides]
    told += [
        say("{peer} not timed in {cases}", peer=text(peer), cases=words.cases(count)) for peer, count in found.lacking
    ]
    return say("{op}: {figures}", op=text(found.op), figures=", ".join(told))


def _told(found: Beside, text: Writer, case: Writer) -> str:
    name, ratio = text(found.name) if found.name else say("the reference"), words.ratio(found.ratio.value)
    if found.cases == 1:
        said = say("{ratio} {name}", ratio=ratio, name=name)
        return say("{said} (slower)", said=said) if found.faster else said
    facts = {"worst": words.ratio(found.worst.value), "case": case(found.worst_case), "ratio": ratio, "name": name}
    if not found.faster:
        return say("{ratio} {name} (worst {worst} at {case})", **facts)
    return say(
        "{ratio} {name} (worst {worst} at {case}; slower in {faster} of {count} cases)",
        **facts,
        faster=found.faster,
        count=found.cases,
    )


def _note() -> str:
    return say(
        "Each figure is the other's time / the kernel's, taken in the same blocks, so that no drift of the clock is in "
        "it: above 1 the kernel is the faster one; in brackets 95 % confidence intervals. Of an op the geometric mean "
        "over its cases is told, with the worst of them. **In bold**: the kernel is slower beyond doubt, its whole "
        "interval lies below 1. No verdict depends on peers."
    )


def _left_out(found: dict[str, list[Comparison]]) -> list[str]:
    """Why peers lack cases: what is alike but for the case once, with the number of cases."""
    failures = [peer.failure for seen in found.values() for each in seen for peer in each.peers if peer.failure]
    alike: dict[tuple[object, ...], list[Reason]] = {}
    for why in failures:
        facts = why.facts
        alike.setdefault((facts.get("op"), facts.get("peer"), why.kind, facts.get("message")), []).append(why)
    told = [_with_count(wording.sentence(same[0]), len(same)) for same in alike.values()]
    rest = len(told) - LEFT_OUT
    return [
        *told[:LEFT_OUT],
        *([say("{count:more reason stands|more reasons stand} in run.json.", count=rest)] if rest > 0 else []),
    ]


def _with_count(sentence: str, count: int) -> str:
    if count == 1:
        return sentence
    return say("{sentence} The same in {count} cases in all.", sentence=sentence, count=count)


# --- tables -----------------------------------------------------------------------------------------------------------


def _timed(names: Sequence[str], comparisons: Sequence[Comparison]) -> list[str]:
    """Peers with a time in some case; of the others it is told why they have none."""
    return [name for name in names if any(_ratio(seen, name) for seen in comparisons)]


def _part(names: Sequence[str], comparisons: Sequence[Comparison]) -> Part:
    """A row a case, of ops that have the same peers."""
    others = [say("reference"), *(inline(name) for name in names)]
    heads = [head for name in others for head in (name, say("{name} / kernel", name=name))]
    columns = (say("op"), say("case"), say("kernel"), *heads)
    shown = tuple(_row(seen, names) for seen in comparisons)
    title = say("Beside {names}", names=", ".join(map(inline, names)))
    return Part(title, "", Table(columns, shown, frozenset({columns[2], *heads[::2]})))


def _row(seen: Comparison, names: Sequence[str]) -> tuple[str, ...]:
    reference = PeerFigure("", seen.reference_us, seen.speedup)
    known = {peer.name: peer for peer in seen.peers}
    cells = [cell for one in (reference, *(known.get(name) for name in names)) for cell in _cells(one)]
    return (code(seen.op), code(seen.case), units.time(seen.kernel_us), *cells)


def _cells(found: PeerFigure | None) -> tuple[str, str]:
    if found is None or found.ratio is None or not means.is_ratio(found.ratio):
        return ("-", say("not timed") if found and found.failure else "-")
    ratio = words.speedup(found.ratio)
    return (units.time(found.us), say("**{ratio}, kernel slower**", ratio=ratio) if found.faster else ratio)
