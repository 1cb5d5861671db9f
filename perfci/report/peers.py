"""Peers: further implementations beside the kernel, case by case and by op. No verdict depends on them.

A ratio is the other's time / the kernel's: above 1 the kernel is the faster one. The reference stands among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from perfci.core import units
from perfci.core.model import Comparison, Interval, Judgement, PeerFigure, Reason, Suite
from perfci.core.wording import say, sentence
from perfci.report import means, words
from perfci.report.ceilings import find_unsound
from perfci.report.text import NAME_LIMIT, code, phrase, plain
from perfci.report.view import Part, SharedSection, Table

LEFT_OUT = 12
"""Most sentences about peers that are left out of cases."""


def describe_peers(judged: Iterable[Judgement]) -> tuple[str, ...]:
    """How each op's kernel stands beside its reference and its peers, in a line of a view's text each.

    Cases that are WRONG, ERROR or SUSPECT are left out, and ops whose peers were not asked for.
    """
    return tuple(_describe_op(op, comparisons) for op, comparisons in _group(judged).items())


def make_section(judged: Sequence[Judgement]) -> SharedSection | None:
    """The report's section. None if no peer was asked for."""
    found = _group(judged)
    if not found:
        return None
    alike: dict[tuple[str, ...], list[Comparison]] = {}
    for comparisons in found.values():
        alike.setdefault(_find_names(comparisons), []).extend(comparisons)
    parts = []
    for names, comparisons in alike.items():
        timed = [name for name in names if any(_find_ratio(seen, name) for seen in comparisons)]
        if timed:
            parts.append(
                Part(say("Beside {names}", names=", ".join(map(plain, timed))), "", _tabulate(timed, comparisons))
            )
    note = phrase(
        "Each figure is the other's time / the kernel's, taken in the same blocks, so that no drift of the clock is in "
        "it: above 1 the kernel is the faster one; in brackets 95 % confidence intervals. Of an op the geometric mean "
        "over its cases is told, with the worst of them. **In bold**: the kernel is slower beyond doubt, its whole "
        "interval lies below 1. No verdict depends on peers."
    )
    return SharedSection(note, (*describe_peers(judged), *_describe_failures(found.values())), tuple(parts))


def _group(judged: Iterable[Judgement]) -> dict[str, list[Comparison]]:
    rows = [row for row in judged if row.suite is Suite.PERFORMANCE and row.case is not None]
    bad = find_unsound(rows)
    found: dict[str, list[Comparison]] = {}
    for row in rows:
        if row.comparison and row.comparison.peers and (row.op, row.case) not in bad:
            found.setdefault(row.op, []).append(row.comparison)
    return found


def _find_names(comparisons: Iterable[Comparison]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(peer.name for seen in comparisons for peer in seen.peers))


def _find_ratio(seen: Comparison, name: str) -> Interval | None:
    """The ratio of a peer in a case. None if it has no time, or one that no ratio can come from."""
    found = next((peer.ratio for peer in seen.peers if peer.name == name), None)
    return found if found and means.is_ratio(found) else None


# --- sentences --------------------------------------------------------------------------------------------------------


def _describe_op(op: str, comparisons: Sequence[Comparison]) -> str:
    names = _find_names(comparisons)
    ratios = [(say("the reference"), [(seen.case, seen.speedup) for seen in comparisons])]
    ratios += [
        (plain(name, NAME_LIMIT), [(seen.case, _find_ratio(seen, name)) for seen in comparisons]) for name in names
    ]
    shown = [_describe_ratios(name, found) for name, found in ratios]
    for name in names:
        if lacking := sum(_find_ratio(seen, name) is None for seen in comparisons):
            cases = words.count_cases(lacking)
            shown.append(say("{peer} not timed in {cases}", peer=plain(name, NAME_LIMIT), cases=cases))
    return say("{op}: {figures}", op=plain(op, NAME_LIMIT), figures=", ".join(filter(None, shown)))


def _describe_ratios(name: str, ratios: Sequence[tuple[str, Interval | None]]) -> str:
    """The geometric mean over the cases in which both were timed, with the worst of them."""
    known = [(case, one) for case, one in ratios if one is not None and means.is_ratio(one)]
    if not known:
        return ""
    case, worst = min(known, key=lambda each: each[1].value)
    faster = sum(PeerFigure(name, ratio=one).faster for _, one in known)
    ratio = words.write_ratio(means.average_speedups([one for _, one in known]).value)
    if len(known) == 1:
        single = say("{ratio} {name}", ratio=ratio, name=name)
        return say("{said} (slower)", said=single) if faster else single
    facts = {"worst": words.write_ratio(worst.value), "case": code(case), "ratio": ratio, "name": name}
    if not faster:
        return say("{ratio} {name} (worst {worst} at {case})", **facts)
    return say(
        "{ratio} {name} (worst {worst} at {case}; slower in {faster} of {count} cases)",
        **facts, faster=faster, count=len(known),
    )  # fmt: skip


def _describe_failures(found: Iterable[Sequence[Comparison]]) -> Iterator[str]:
    """Why peers lack cases: what is alike but for the case once, with the number of cases."""
    alike: dict[tuple[object, ...], list[Reason]] = {}
    for why in (peer.failure for seen in found for each in seen for peer in each.peers if peer.failure):
        facts = why.facts
        alike.setdefault((facts.get("op"), facts.get("peer"), why.kind, facts.get("message")), []).append(why)
    for same in list(alike.values())[:LEFT_OUT]:
        text, count = plain(sentence(same[0])), len(same)
        yield say("{sentence} The same in {count} cases in all.", sentence=text, count=count) if count > 1 else text
    if len(alike) > LEFT_OUT:
        yield say("{count:more reason stands|more reasons stand} in run.json.", count=len(alike) - LEFT_OUT)


# --- tables -----------------------------------------------------------------------------------------------------------


def _tabulate(names: Sequence[str], comparisons: Sequence[Comparison]) -> Table:
    """A row a case, of ops that have the same peers."""
    others = [say("reference"), *map(plain, names)]
    heads = [head for name in others for head in (name, say("{name} / kernel", name=name))]
    rows = []
    for seen in comparisons:
        known = {peer.name: peer for peer in seen.peers}
        figures = (PeerFigure("", seen.reference_us, seen.speedup), *(known.get(name) for name in names))
        cells = [cell for one in figures for cell in _write_figure(one)]
        rows.append((code(seen.op), code(seen.case), units.time(seen.kernel_us), *cells))
    right = frozenset({2, *range(3, 3 + len(heads), 2)})
    return Table((say("op"), say("case"), say("kernel"), *heads), tuple(rows), right)


def _write_figure(found: PeerFigure | None) -> tuple[str, str]:
    if found is None or found.ratio is None or not means.is_ratio(found.ratio):
        return ("-", say("not timed") if found and found.failure else "-")
    ratio = words.write_speedup(found.ratio)
    return (units.time(found.us), phrase("**{ratio}, kernel slower**", ratio=ratio) if found.faster else ratio)
