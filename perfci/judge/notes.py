"""What is said of a run as a whole: how it was judged, and what moved all of its cases."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace

from perfci.core.environment import told
from perfci.core.model import (
    UNTIMED,
    AgainCase,
    Base,
    Comparison,
    Difference,
    Expected,
    Fact,
    Judgement,
    Plan,
    Reason,
    Run,
    Verdict,
)
from perfci.core.wording import say
from perfci.judge.expected import reason_of
from perfci.thresholds.limits import Thresholds

COMMON = 3
"""Fewest duels whose common shift says something."""

MOST_FILES = 5

DIGITS = 12
"""Of a commit that is to be named to git."""

CREPT = {
    (False, False): "release_crept",
    (False, True): "release_stepped",
    (True, False): "epoch_crept",
    (True, True): "epoch_stepped",
}
"""What is said of a slow-down since a release: whether an epoch began after it, and whether one commit did it all."""


SCREENED = frozenset(
    {"no_change"}
    | {f"{change}_{end}" for change in ("slower", "faster", "alike", "span") for end in ("confirmed", "refuted")}
)
"""Kinds of reason that rest on the screen's test."""

DUELLED = frozenset({"duel_slower", "duel_faster", "duel_span_slower"})
"""Kinds of reason that rest on the duel's test. Duels are cleared by the centre of their blocks alone."""


def notes(
    run: Run, comparisons: Sequence[Comparison], rows: Sequence[Judgement], thresholds: Thresholds
) -> Iterator[Reason]:
    """What a change does to its own judging first, then the base, then how it was judged."""
    base = run.plan.base
    if base:
        yield from _rules(base)
        yield from _caches(run.plan, base)
        yield _base(run.plan, base, comparisons)
    if run.plan.base_note:
        yield run.plan.base_note
    if run.plan.again:
        yield from run.plan.again.said
    if run.stopped:
        yield Reason("run_stopped", {"signal": run.stopped})
    yield from once(op.unmeasured for op in run.ops)
    yield from once(note for op in run.ops for note in op.notes if note.kind == "triton_unknown")
    yield from once(op.base.failure for op in run.plan.ops if op.base)
    yield from once(op.base.apart for op in run.plan.ops if op.base and not op.base.same)
    yield from _peers(run)
    if any(comparison.screens and not comparison.duel for comparison in comparisons):
        facts = {"family": run.plan.family, "alpha": thresholds.alpha, "margin": thresholds.default.margin}
        yield Reason("how_judged", facts)
    yield from _duels(run.plan, comparisons, thresholds)
    yield from _tests(rows)
    yield from _surroundings(comparisons)


def with_range(row: Judgement, again: AgainCase | None, run: Run) -> Judgement:
    """A slow-down against the case's own commit, with the commits between which it came."""
    if row.verdict is not Verdict.REGRESSED or again is None or again.commit is None:
        return row
    good, bad = again.commit[:DIGITS], (run.environment.commit or "HEAD")[:DIGITS]
    command = shlex.join(["perfci", "bisect", "--op", row.op, "--case", row.case or "", good, bad])
    release = run.plan.again.release if run.plan.again else None
    facts: dict[str, Fact] = {"good": good, "bad": bad, "command": command}
    came = _since_release(row, again, release, facts) if release else Reason("slower_since", facts)
    return replace(row, reasons=(*row.reasons, came))


def _since_release(row: Judgement, again: AgainCase, release: str, facts: dict[str, Fact]) -> Reason:
    """How much slower since a release, or an epoch after it, and by how many commits: creep, or the step of one."""
    duel = row.comparison.duel if row.comparison else None
    change = math.expm1(duel.shift.value) if duel else None
    counts = {"commits": again.commits, "touching": again.touching}
    told: dict[str, Fact] = {name: "-" if count is None else count for name, count in counts.items()}
    kind = CREPT[bool(again.since), again.touching == 1]
    told |= {"op": row.op, "change": change, "release": release, "why": again.since}
    return Reason(kind, {**facts, **told})


def identity_counts(base: Base | None) -> bool:
    """Whether the same device work proves a kernel unchanged: not where the toolchain that makes it changes.

    With an interpreter of the base's own each revision has its own toolchain, and every case is duelled.
    """
    return base is None or not base.changed_pins or base.python is not None


def once(reasons: Iterator[Reason | None]) -> list[Reason]:
    """Each reason but once; facts are mappings, so that reasons cannot be hashed."""
    seen: list[Reason] = []
    for reason in reasons:
        if reason and reason not in seen:
            seen.append(reason)
    return seen


def _peers(run: Run) -> Iterator[Reason]:
    """Ops that know no peer where they were asked for, and peers that failed, each kind once; no verdict is about it.

    That one does not support a case is no failure.
    """
    if missing := peers_missing(run.plan):
        yield missing
    failed: dict[tuple[object, ...], Reason] = {}
    for op in run.ops:
        for why in (peer.failure for case in op.performance for peer in case.peers if peer.failure):
            failed.setdefault((op.op, why.facts.get("peer"), why.kind), why)
    yield from (why for why in failed.values() if why.kind != "peer_unsupported")


def peers_missing(plan: Plan) -> Reason | None:
    """Ops of which --peers times nothing more, since their suites name no peers."""
    if not plan.peers or plan.device in UNTIMED:
        return None
    without = [op.op for op in plan.ops if not (op.failure or op.peers)]
    shown = ", ".join(without[:MOST_FILES]) + (", ..." if len(without) > MOST_FILES else "")
    return Reason("peers_none", {"ops": shown}) if without else None


def _rules(base: Base) -> Iterator[Reason]:
    if base.rules and base.changed_baselines:
        shown = ", ".join(base.changed_baselines[:MOST_FILES])
        kind = "baselines_proposed" if base.proposed_on else "baselines_edited"
        facts: dict[str, Fact] = {"count": len(base.changed_baselines), "files": shown, "branch": base.proposed_on}
        yield Reason(kind, facts)
    if base.changed_rules:
        shown = ", ".join(base.changed_rules[:MOST_FILES])
        kind = "rules_changed" if base.rules else "rules_differ"
        yield Reason(kind, {"count": len(base.changed_rules), "files": shown, "base": base.name})
    yield from (_added(entry) for entry in base.expected if entry.added)
    if not identity_counts(base):
        yield Reason("pins_changed", {"pins": "; ".join(base.changed_pins[:MOST_FILES])})


def _added(entry: Expected) -> Reason:
    facts: dict[str, Fact] = {"op": entry.op, "case": entry.case, "up_to": entry.up_to, "why": reason_of(entry)}
    return Reason("expected_added", {**facts, "until": entry.until, "file": entry.file, "line": entry.line})


def _caches(plan: Plan, base: Base) -> Iterator[Reason]:
    """Ops whose suites say otherwise than the base's with what L2 cache they are timed."""
    for op in plan.ops:
        if op.base and op.base.performance and op.base.cache != op.cache:
            yield Reason("cache_changed", {"op": op.op, "cache": op.cache, "before": op.base.cache, "base": base.name})


def _base(plan: Plan, base: Base, comparisons: Sequence[Comparison]) -> Reason:
    duelled = sum(comparison.duel is not None for comparison in comparisons)
    facts: dict[str, Fact] = {
        "name": base.name,
        "commit": base.commit[:10],
        "how": _how(base),
        "duelled": duelled,
    }
    if plan.again:
        commits = dict.fromkeys(each.commit[:10] for each in plan.again.cases if each.commit and not each.failure)
        shown = ", ".join([*commits][:MOST_FILES]) + (", ..." if len(commits) > MOST_FILES else "")
        told: dict[str, Fact] = {"run": plan.again.run, "commits": shown, "count": len(commits)}
        told |= {"family": plan.duel_family, "release": plan.again.release}
        return Reason("compared_release" if plan.again.release else "compared_again", {**facts, **told})
    kind = "compared_with_python" if base.python else "compared_with"
    if plan.device in UNTIMED:
        kind = "compared_untimed"
    return Reason(kind, {**facts, "family": plan.duel_family, "python": base.python})


def _tests(rows: Sequence[Judgement]) -> Iterator[Reason]:
    """Each statistical test that decided a row. DRIFTED beside a duel takes both: equal to the base, and moved."""
    screen = duels = False
    for row in rows:
        if row.comparison is None:
            continue
        drifted, duelled = row.verdict is Verdict.DRIFTED, row.comparison.duel is not None
        kinds = {reason.kind for reason in row.reasons}
        screen |= bool(kinds & SCREENED) and (drifted or not duelled)
        duels |= bool(kinds & DUELLED) or (drifted and duelled)
    if screen:
        yield Reason("tested_by_screen")
    if duels:
        yield Reason("tested_by_duel")


def _how(base: Base) -> str:
    known = {
        "asked": say("named by --against"),
        "first_parent": say("first parent"),
        "merge_base": say("merge base"),
        "baseline": say("commit of the baselines"),
    }
    return known.get(base.how, base.how)


def _surroundings(comparisons: Sequence[Comparison]) -> Iterator[Reason]:
    """What differs from the environments of the baselines: what may move a number, and what is only named."""
    moving: dict[Difference, int] = {}
    named: dict[Difference, int] = {}
    for comparison in comparisons:
        for each in comparison.differs:
            counts = moving if each.moves else named
            counts[each] = counts.get(each, 0) + 1
    if moving:
        yield Reason("environment_changed", {"fields": told([*moving]), "cases": max(moving.values())})
    if named:
        yield Reason("environment_named", {"fields": told([*named])})


def _duels(plan: Plan, comparisons: Sequence[Comparison], thresholds: Thresholds) -> Iterator[Reason]:
    shifts = [comparison.duel.shift.value for comparison in comparisons if comparison.duel]
    if shifts:
        yield Reason("how_duelled", {"family": plan.duel_family, "alpha": thresholds.alpha})
    if len(shifts) >= COMMON:
        yield Reason("common_shift", {"change": math.expm1(statistics.median(shifts)), "cases": len(shifts)})
