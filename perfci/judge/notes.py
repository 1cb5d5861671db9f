"""Notes about a run as a whole: how it was judged, what moved all of its cases, what time left undone."""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from perfci.core import commands
from perfci.core.environment import list_differences
from perfci.core.model.basics import Fact, Reason, Suite, Verdict, as_fact, because
from perfci.core.model.compiled import Coverage, Feature
from perfci.core.model.decision import Comparison, Judgement
from perfci.core.model.measured import OpRun
from perfci.core.model.place import UNTIMED, Difference
from perfci.core.model.run import AgainCase, Base, Plan, PlannedOp, Run
from perfci.core.units import name_some
from perfci.judge.accuracy import is_complete, take_once
from perfci.judge.change import find_kind, list_weaker
from perfci.judge.expected import why_of
from perfci.judge.speed import identity_counts
from perfci.ops.backends import MARK
from perfci.statistics import duel_rule
from perfci.thresholds.limits import Thresholds

COMMON = 3  # fewest duels with a common shift that means something

MOST_FILES = 5

DIGITS = 12  # of a commit that git is asked about

_BROKEN = frozenset({Verdict.WRONG, Verdict.ERROR})

SCREENED = frozenset(
    {"no_change"}
    | {f"{change}_{end}" for change in ("slower", "faster", "alike", "span") for end in ("confirmed", "refuted")}
)
"""Kinds of reason that rest on the screen's test."""

DUELLED = frozenset(
    {"duel_slower", "duel_faster", "duel_slower_limited", "duel_faster_limited", "tail_slower"}
    | {f"duel_{what}_slower" for what in ("span", "host", "sustained")}
)
"""Kinds of reason that rest on the duel's test. Duels are cleared without that test."""


_OF_ALL = frozenset({"triton_unknown", "lock_displaced"})
"""Kinds of an op's notes that are about all ops."""


def note_run(
    run: Run, comparisons: Sequence[Comparison], rows: Sequence[Judgement], thresholds: Thresholds
) -> Iterator[Reason]:
    """Changes to the judging, the base, how it was judged, and what time left undone. In this order."""
    plan, base = run.plan, run.plan.base
    here = [op for op in plan.ops if not op.unchecked]
    if base:
        outcomes = {op.op: op for op in run.ops}
        yield from (weaker for op in plan.ops for weaker in list_weaker(run, op, outcomes.get(op.op)))
        yield from _note_base(plan, base, comparisons)
        others = [(op.op, op.base) for op in here if op.base and op.base.op]
        for name, other in others:
            kind = "backend_added" if other.lent else "op_renamed"
            yield Reason(kind, {"op": name, "old": other.op, "base": base.name})
        yield from _note_kinds(run, rows, outcomes)
    if plan.base_note:
        yield plan.base_note
    if plan.again:
        yield from plan.again.said
    if run.stopped:
        yield Reason("run_stopped", {"signal": run.stopped})
    yield from _note_unchecked(plan.ops)
    yield from take_once(op.unmeasured for op in run.ops)
    yield from take_once(note for op in run.ops for note in op.notes if note.kind in _OF_ALL)
    yield from note_uncovered(run.coverage)
    yield from take_once(op.base.failure or op.base.unjudged for op in here if op.base)
    yield from take_once(op.base.apart for op in here if op.base and not op.base.same)
    for op in run.ops:
        reported = [case.self_reported for case in op.performance if case.self_reported]
        for why in (reason for reason in take_once(reported) if reason.kind != "case_is_new"):
            yield because("self_reported", why, op=op.op, cases=reported.count(why))
    # No verdict is about peers. Each failure is named once. That a peer does not support a case is no failure.
    if missing := note_missing_peers(plan):
        yield missing
    failed: dict[tuple[object, ...], Reason] = {}
    for op in run.ops:
        for why in (peer.failure for case in op.performance for peer in case.peers if peer.failure):
            failed.setdefault((op.op, why.facts.get("peer"), why.kind), why)
    yield from (why for why in failed.values() if why.kind != "peer_unsupported")

    if any(comparison.screens and not comparison.duel for comparison in comparisons):
        yield Reason(
            "how_judged", {"family": plan.family, "alpha": thresholds.alpha, "margin": thresholds.default.margin}
        )
    shifts = [comparison.duel.shift.value for comparison in comparisons if comparison.duel]
    if shifts:
        yield Reason("how_duelled", {"family": plan.duel_family, "alpha": thresholds.alpha})
    yield from _note_steps(run, comparisons, thresholds)
    if len(shifts) >= COMMON:
        yield Reason("common_shift", {"change": math.expm1(statistics.median(shifts)), "cases": len(shifts)})
    yield from _note_tests(rows)
    # What differs from the environments of the baselines: what may move a number, and what is only named.
    differs: dict[Difference, int] = {}
    for difference in (differ for comparison in comparisons for differ in comparison.differs):
        differs[difference] = differs.get(difference, 0) + 1
    if moving := [differ for differ in differs if differ.moves]:
        cases = max(differs[name] for name in moving)
        yield Reason("environment_changed", {"fields": list_differences(moving), "cases": cases})
    if named := [differ for differ in differs if not differ.moves]:
        yield Reason("environment_named", {"fields": list_differences(named)})
    if plan.deadline_note:
        yield plan.deadline_note
    late = [op.late for op in run.ops if op.late]
    cases_late = [case.late for op in run.ops for case in op.performance if case.late]
    if late or cases_late:
        unreached = sum(not is_reached(op) for op in run.ops)
        counts = {"unreached": unreached, "cut": len(late) - unreached, "cases": len(cases_late)}
        facts = {**(*late, *cases_late)[0].facts, **counts, "ops": len(plan.ops)}
        yield Reason("run_late_reserve" if facts.get("reserve_s") else "run_late", facts)


def _note_steps(run: Run, comparisons: Iterable[Comparison], thresholds: Thresholds) -> Iterator[Reason]:
    """Yields what the timer's ticks hide in the shortest kernel, if they hide more than is allowed without them."""
    fine, timer = replace(thresholds, step_us=0.0), run.environment.timer
    duelled = [comparison for comparison in comparisons if comparison.duel and comparison.base_us]
    if not thresholds.step_us or not duelled:
        return
    shortest = min(duelled, key=lambda comparison: comparison.base_us or 0.0)
    at, us = (shortest.op, shortest.case), shortest.base_us or 0.0
    allowed = thresholds.for_case(*at).allowed(us, timer)
    if allowed > fine.for_case(*at).allowed(us, timer):
        facts: dict[str, Fact] = {"step_us": thresholds.step_us, "kernel_us": us, "least": duel_rule.PROMISE * allowed}
        yield Reason("timer_steps", facts)


def _note_kinds(run: Run, rows: Iterable[Judgement], ops: Mapping[str, OpRun]) -> Iterator[Reason]:
    """The kind of each op's change, alike ones in one: of what passed, so answers as its base, and is not the same."""
    broken = {row.op for row in rows if row.verdict in _BROKEN and row.suite is not Suite.COMPILED}
    differing = {row.op for row in rows if row.verdict is not Verdict.UNCHANGED}
    alike = defaultdict[tuple[str, str], dict[str, Reason]](dict)
    for op in run.plan.ops:
        whole = op.op in differing - broken and is_complete(run, op, ops.get(op.op))
        kind = find_kind(op, ops.get(op.op)) if whole and op.base and op.base.changed else None
        if kind and kind.name in {"tuning", "suites", "shared"}:
            alike[kind.name, kind.proof.kind][op.op] = kind.proof
        elif kind:
            yield because(f"change_{kind.name}", kind.proof, op=op.op)
    for (name, kind_of_proof), proofs in alike.items():
        checks = sum(count for proof in proofs.values() if isinstance(count := proof.facts.get("checks"), int))
        proof = Reason(kind_of_proof, {"checks": checks} if checks else {})
        yield because(f"change_{name}", proof, op=name_some(tuple(proofs)))


def note_uncovered(coverage: Iterable[Coverage]) -> Iterator[Reason]:
    """Gaps in what accuracy exercises of what performance times, once an op."""
    for covered in coverage:
        features = [(gap.case, feature) for gap in covered.gaps for feature in gap.features]
        for case, feature in features[:1]:
            yield because("accuracy_uncovered", explain_feature(feature), op=covered.op, case=case, count=len(features))


def explain_feature(feature: Feature) -> Reason:
    """Returns what a launch exercises."""
    facts: dict[str, Fact] = {"kernel": feature.kernel, "constants": feature.constants or "-"}
    if feature.what == "program":
        return Reason("exercises_program", {**facts, "axis": feature.place})
    if feature.what == "turn":
        return Reason("exercises_turn", {**facts, "place": feature.place})
    return Reason("exercises_dtypes", {**facts, "dtypes": feature.dtypes or "-"})


def add_range(row: Judgement, again: AgainCase | None, run: Run) -> Judgement:
    """A slow-down with the commits between which it came. Since a release it is creep, or the step of one commit."""
    if row.verdict is not Verdict.REGRESSED or again is None or again.commit is None:
        return row
    good, bad = again.commit[:DIGITS], (run.environment.commit or "HEAD")[:DIGITS]
    command = commands.write("bisect", row.op, "--case", row.case or "", "--against", good, "--bad", bad)
    facts: dict[str, Fact] = {"good": good, "bad": bad, "command": command}
    release, kind = run.plan.again.release if run.plan.again else None, "slower_since"
    if release and not again.stepped:
        end = "stepped" if again.touching == 1 else "crept"
        kind = f"epoch_{end}" if again.since else f"release_{end}"
        counts = {"commits": again.commits, "touching": again.touching}
        facts |= {name: "-" if count is None else count for name, count in counts.items()}
        duel = row.comparison.duel if row.comparison else None
        change = math.expm1(duel.shift.value) if duel else None
        facts |= {"op": row.op, "change": change, "release": release, "why": again.since}
    return replace(row, reasons=(*row.reasons, Reason(kind, facts)))


def note_missing_peers(plan: Plan) -> Reason | None:
    """Ops of which `--backend all` times nothing more, as they have one backend and no peers."""
    if not plan.peers or plan.device in UNTIMED:
        return None
    without = [op.op for op in plan.ops if not (op.failure or op.peers or MARK in op.op)]
    return Reason("peers_none", {"ops": _name_some(without)}) if without else None


def is_reached(op: OpRun | None) -> bool:
    """Whether anything is known of an op. One that the run does not know at all was not missed for lack of time."""
    return op is None or op.late is None or bool(op.accuracy or op.performance)


def _name_some(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_FILES]) + (", ..." if len(names) > MOST_FILES else "")


def _note_unchecked(ops: Iterable[PlannedOp]) -> Iterator[Reason]:
    """Backends that cannot run here, once for each reason."""
    alike: dict[tuple[object, ...], list[Reason]] = {}
    for why in (op.failure for op in ops if op.failure and op.unchecked):
        alike.setdefault((why.kind, why.facts.get("device"), why.facts.get("package")), []).append(why)
    for whys in alike.values():
        names: dict[str, Fact] = {
            name: _name_some(list(dict.fromkeys(str(why.facts[name]) for why in whys))) for name in ("op", "backend")
        }
        yield because("backend_unchecked", whys[0], **names)


def _note_base(plan: Plan, base: Base, comparisons: Sequence[Comparison]) -> Iterator[Reason]:
    """Changes to the rules, then what the change was compared with."""
    if base.rules and base.changed_baselines:
        kind, files = "baselines_proposed" if base.proposed_on else "baselines_edited", base.changed_baselines
        facts: dict[str, Fact] = {"count": len(files), "files": ", ".join(files[:MOST_FILES])}
        yield Reason(kind, {**facts, "branch": base.proposed_on})
    if files := base.changed_rules:
        facts = {"count": len(files), "files": ", ".join(files[:MOST_FILES]), "base": base.name}
        yield Reason("rules_changed" if base.rules else "rules_differ", facts)
    for entry in (entry for entry in base.expected if entry.added):
        facts = {"op": entry.op, "case": entry.case, "up_to": entry.up_to, "why": why_of(entry)}
        facts |= {"until": entry.until, "file": entry.file, "line": entry.line}
        yield (
            Reason("weaker_added", {**facts, "what": entry.weaker}) if entry.weaker else Reason("expected_added", facts)
        )
    if not identity_counts(base):
        yield Reason("pins_changed", {"pins": "; ".join(base.changed_pins[:MOST_FILES])})
    for op in plan.ops:
        if op.base and op.base.performance and op.base.cache != op.cache:
            facts = {"op": op.op, "cache": op.cache, "before": op.base.cache, "base": base.name}
            yield Reason("cache_changed", facts)

    how = {
        "asked": as_fact("named by --against"),
        "first_parent": as_fact("first parent"),
        "merge_base": as_fact("merge base"),
        "baseline": as_fact("commit of the baselines"),
    }
    commit = base.commit[:10]
    revision = commit if base.commit.startswith(base.name) else f"{base.name} {commit}"
    facts = {"name": base.name, "commit": commit, "revision": revision, "how": how.get(base.how, base.how)}
    facts["duelled"] = sum(comparison.duel is not None for comparison in comparisons)
    if plan.again:
        commits = dict.fromkeys(case.commit[:10] for case in plan.again.cases if case.commit and not case.failure)
        facts |= {"run": plan.again.run, "commits": _name_some([*commits]), "count": len(commits)}
        facts |= {"family": plan.duel_family, "release": plan.again.release}
        yield Reason("compared_release" if plan.again.release else "compared_again", facts)
        return
    kind = "compared_with_python" if base.python else "compared_with"
    if plan.device in UNTIMED:
        kind = "compared_untimed"
    yield Reason(kind, {**facts, "family": plan.duel_family, "python": base.python})


def _note_tests(rows: Sequence[Judgement]) -> Iterator[Reason]:
    """Each statistical test that decided a row. DRIFTED beside a duel takes both: equal to the base, and moved."""
    screen = duels = False
    for row in rows:
        if row.comparison is not None:
            drifted, duelled = row.verdict is Verdict.DRIFTED, row.comparison.duel is not None
            kinds = {reason.kind for reason in row.reasons}
            screen |= bool(kinds & SCREENED) and (drifted or not duelled)
            duels |= bool(kinds & DUELLED) or (drifted and duelled)
    if screen:
        yield Reason("tested_by_screen")
    if duels:
        yield Reason("tested_by_duel")
