"""Other backends and peers beside a kernel. No verdict depends on them. A ratio is the other's time / the kernel's."""

from collections.abc import Iterable, Iterator, Sequence

from perfci.core import units
from perfci.core.model import Comparison, Interval, Judgement, OpRun, PeerFigure, Suite
from perfci.core.model.basics import worst
from perfci.core.model.measured import find_worst_errors
from perfci.core.wording import say, sentence
from perfci.ops.backends import name_of
from perfci.report import means, words
from perfci.report.ceilings import find_unsound
from perfci.report.text import NAME_LIMIT, code, phrase, plain
from perfci.report.view import Section, Table
from perfci.statistics.exact import average_ratios

REASONS = 12  # most sentences on why peers lack cases


def describe_peers(judged: Iterable[Judgement]) -> tuple[str, ...]:
    """Returns a line for each op with peers, in which cases that are WRONG, ERROR or SUSPECT are left out."""
    return tuple(_describe_op(op, comparisons) for op, comparisons in _group_by_op(judged).items())


def make_section(judged: Sequence[Judgement], ran: Sequence[OpRun] = ()) -> Section | None:
    """Returns the report's section. None if no peer was asked for. ran: ops, with the errors of each backend."""
    by_op = _group_by_op(judged)
    if not by_op:
        return None
    note = phrase(
        "Each figure is the other's time / the kernel's, taken in the same blocks: above 1 the kernel is faster; in "
        "brackets 95 % confidence intervals. For an op it is the geometric mean over its cases. **In bold**: the "
        "kernel is slower, since the whole interval is below 1. *best*: the fastest of those, else the kernel. No "
        "verdict depends on peers."
    )
    peers = [peer for comparisons in by_op.values() for seen in comparisons for peer in seen.peers]
    reasons = dict.fromkeys(plain(sentence(peer.failure)) for peer in peers if peer.failure)
    parts = list[Section]()
    for op, comparisons in by_op.items():
        backends = [one for one in ran if name_of(one.op) == op and find_worst_errors(one.accuracy)]
        errors = (Section(say("{op}: errors by backend", op=plain(op, NAME_LIMIT)), table=_tabulate_errors(backends)),)
        timed = Section(plain(op, NAME_LIMIT), table=_tabulate(comparisons))
        parts += [timed, *(errors if len(backends) > 1 else ())]
    lines = (*describe_peers(judged), *list(reasons)[:REASONS])
    return Section(say("Side by side"), (note,), lines, parts=tuple(parts))


def _group_by_op(judged: Iterable[Judgement]) -> dict[str, list[Comparison]]:
    rows = [row for row in judged if row.suite is Suite.PERFORMANCE and row.case is not None]
    bad = find_unsound(rows)
    comparisons: dict[str, list[Comparison]] = {}
    for row in rows:
        if row.comparison and row.comparison.peers and (row.op, row.case) not in bad:
            comparisons.setdefault(row.op, []).append(row.comparison)
    return comparisons


def _list_arms(seen: Comparison) -> Iterator[tuple[str, PeerFigure]]:
    """Returns the reference, then the peers. A figure that cannot be a ratio is left out."""
    yield say("the reference"), PeerFigure("", seen.reference_us, seen.speedup)
    for peer in seen.peers:
        yield plain(peer.name, NAME_LIMIT), peer


def _find_ratios(comparisons: Iterable[Comparison]) -> dict[str, list[tuple[str, Interval]]]:
    """Returns case and ratio of all that can be a ratio, by arm."""
    ratios: dict[str, list[tuple[str, Interval]]] = {}
    for seen in comparisons:
        for name, one in _list_arms(seen):
            ratios_of_arm = ratios.setdefault(name, [])
            if one.ratio and means.is_ratio(one.ratio):
                ratios_of_arm.append((seen.case, one.ratio))
    return ratios


def _describe_op(op: str, comparisons: Sequence[Comparison]) -> str:
    """Returns the geometric mean over the cases, with the worst of them, beside each arm."""
    shown = []
    for name, ratios in _find_ratios(comparisons).items():
        if ratios:
            mean = words.write_ratio(average_ratios([one for _, one in ratios]).value)
            shown.append(say("{ratio} {name}", ratio=mean, name=name))
        if len(ratios) > 1:
            case, worst = min(ratios, key=lambda pair: pair[1].value)
            ratio = words.write_ratio(worst.value)
            shown[-1] = say("{ratios} (worst {worst} at {case})", ratios=shown[-1], worst=ratio, case=code(case))
        if lacking := len(comparisons) - len(ratios):
            shown.append(say("{peer} not timed in {cases}", peer=name, cases=words.count_cases(lacking)))
    return say("{op}: {figures}", op=plain(op, NAME_LIMIT), figures=", ".join(shown))


def _tabulate(comparisons: Sequence[Comparison]) -> Table:
    """Returns a row a case, with the time and the ratio of each arm that has any."""
    names = [name for name, ratios in _find_ratios(comparisons).items() if ratios]
    rows = []
    for seen in comparisons:
        arms, cells = dict(_list_arms(seen)), [code(seen.case), units.time(seen.kernel_us)]
        for one in (arms.get(name) for name in names):
            if one is None or one.ratio is None or not means.is_ratio(one.ratio):
                cells += ["-", say("not timed") if one and one.failure else "-"]
                continue
            ratio = words.write_speedup(one.ratio)
            cells += [units.time(one.us), phrase("**{ratio}, kernel slower**", ratio=ratio) if one.faster else ratio]
        faster = [(peer.ratio.value, peer.name) for peer in seen.peers if peer.faster and peer.ratio]
        rows.append((*cells, plain(min(faster)[1], NAME_LIMIT) if faster else say("the kernel")))
    heads = (head for name in names for head in (name, say("{name} / kernel", name=name)))
    right = frozenset({1, *range(2, 2 + 2 * len(names), 2)})
    return Table((say("case"), say("kernel"), *heads, say("best")), tuple(rows), right)


def _tabulate_errors(backends: Iterable[OpRun]) -> Table:
    """Returns a row a backend: the worst errors against float64, of checks with ordinary values that passed."""
    rows = []
    for op in backends:
        errors = worst([case.errors for case in find_worst_errors(op.accuracy)])
        figures = errors.max_abs, errors.max_rel, errors.l2
        rows.append((code(op.op), *("-" if one is None else units.significant(one) for one in figures)))
    heads = (say("backend"), say("largest error"), say("largest relative error"), say("L2 error"))
    return Table(heads, tuple(rows), frozenset({1, 2, 3}))
