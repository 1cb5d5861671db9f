"""From a run and its judgements to the view of the whole report: head, verdict table, sections, environment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from perfci.core import units
from perfci.core.environment import list_differences
from perfci.core.model import Base, Environment, Fact, Gate, Judgements, Run, Suite, Verdict
from perfci.core.wording import say
from perfci.report import compiled, means, peers, rows, sections, sources, summary
from perfci.report.frame import Clocks
from perfci.report.sections import Material
from perfci.report.steps import is_only_compiled, make_steps, repeat
from perfci.report.text import code, phrase, plain
from perfci.report.view import FOLD_ROWS, Report, Table, make_table
from perfci.report.words import write_seconds


def make_report(material: Material) -> Report:
    """The view of a report, whatever its format."""
    run, judgements = material.run, material.judgements
    shown = rows.make_rows(judgements)
    fine = tuple(row for row in shown if not row.aloud)
    grave = shown[: len(shown) - len(fine)]
    fold = len(fine) > FOLD_ROWS
    notes = rows.split_notes(judgements, run)
    tally = rows.write_tally(rows.count_verdicts(fine).items())
    ops = list(sections.split_material(material))
    return Report(
        gate=rows.name_gate(judgements.gate).upper(),
        first=_clean(notes.first),
        headline=_write_headline(judgements),
        summary=summary.summarise(run, judgements, material.clocks),
        ran=make_table("what | this run", _describe_run(run)),
        above=_clean(notes.above),
        verdicts=_tabulate_verdicts(grave if fold else shown),
        fine=_tabulate_verdicts(fine) if fold else None,
        fine_title=say("{count:row that is|rows that are} fine: {tally}", count=len(fine), tally=tally),
        notes=_clean(notes.below),
        means=means.compare_ops(judgements.rows),
        peers=peers.make_section(judgements.rows),
        roofline=material.roofline,
        roofline_note=_describe_roofline(run) if material.roofline else "",
        ops=tuple(sections.make_section(one) for one in ops if not one.untouched),
        untouched=_describe_untouched([one.op.op for one in ops if one.untouched and one.base and one.base.same], run),
        compiled=compiled.make_section(run.static, judgements.rows),
        thresholds=sources.make_part(material.sources),
        environment=_tabulate_environment(run, judgements),
        clocks=_tabulate_clocks(material.clocks),
        repeat=repeat(run),
        reading=tuple(_explain(run, judgements)),
        steps=make_steps(run, judgements),
    )


def _clean(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(plain, sentences))


def _write_headline(judgements: Judgements) -> str:
    found = rows.count_all(judgements)
    facts: dict[str, Fact] = {"counted": rows.write_counts(found), "code": rows.EXIT_CODES[found.gate]}
    facts["worst"] = rows.write_worst(judgements)
    if not found.verdicts:
        return phrase("**Nothing was judged.** {counted} (exit code {code}).", **facts)
    if found.gate is Gate.OK:
        return phrase("**The gate is open: nothing failed and nothing warns.** {counted} (exit code {code}).", **facts)
    if found.gate is Gate.WARNS:
        return phrase("**The gate is open, with warnings: {worst}.** {counted} (exit code {code}).", **facts)
    return phrase("**The gate fails: {worst}.** {counted} (exit code {code}).", **facts)


def _tabulate_verdicts(shown: Sequence[rows.VerdictRow]) -> Table:
    cells = [
        (
            code(row.op),
            " ".join(filter(None, (plain(row.about), code(row.case or "")))),
            row.marked,
            row.ranged_change,
            row.ranged_speedup,
            row.kernel,
            row.reference,
            plain(row.sentence),
        )
        for row in shown
    ]
    table = make_table("op | case | verdict | change | speedup | kernel: | reference: | reason", cells)
    return table.without_empty() if all(row.suite is Suite.COMPILED for row in shown) else table


# --- the head ---------------------------------------------------------------------------------------------------------


def _describe_run(run: Run) -> Iterator[tuple[str, str]]:
    where_ran, base = run.environment, run.plan.base
    names = [op.op for op in run.ops] or [op.op for op in run.plan.ops]
    yield say("ops"), ", ".join(map(code, names)) or say("none")
    yield say("cases"), _count_planned(run)
    yield say("device"), plain(where_ran.device.name)
    yield say("commit"), _describe_commit(where_ran)
    if base:
        where = say("{commit}, {how}", commit=code(base.commit[:12]), how=_how(base))
        yield (
            say("base"),
            say("{base}, run by {python}", base=where, python=code(base.python)) if base.python else where,
        )
    if run.static:
        yield say("compiled for"), ", ".join(map(plain, run.static.targets))
    started = plain(run.created)
    if run.wall_s is not None:
        started = say("{started}, took {time}", started=started, time=write_seconds(run.wall_s))
    yield say("started"), started
    yield say("command"), code(run.command)
    yield "perfci", plain(run.perfci)
    if run.stopped:
        early = say("early, by {signal}: only what was measured until then is judged", signal=plain(run.stopped))
        yield say("stopped"), early


def _count_planned(run: Run) -> str:
    cases = say("{count:performance case|performance cases}", count=run.plan.family)
    if is_only_compiled(run):
        return say("{cases}, compiled without a device", cases=cases)
    timed = sum(bool(case.blocks) for op in run.ops for case in op.performance)
    checks = say("{count:accuracy check|accuracy checks}", count=sum(len(op.accuracy) for op in run.ops))
    return say("{cases} planned, {timed} timed; {checks}", cases=cases, timed=timed, checks=checks)


def _describe_commit(environment: Environment) -> str:
    if environment.commit is None:
        return say("not in a git repository")
    commit = code(environment.commit[:12])
    if environment.branch:
        commit = say("{commit} on {branch}", commit=commit, branch=code(environment.branch))
    return say("{commit}, with uncommitted changes", commit=commit) if environment.dirty else commit


def _how(base: Base) -> str:
    """How the base was found."""
    name = code(base.name)
    known = {
        "asked": say("named {name} by --against", name=name),
        "first_parent": say("the tip of {name} that is merged into", name=name),
        "merge_base": say("where {name} was left", name=name),
        "baseline": say("the commit of the baselines"),
    }
    return known.get(base.how, plain(base.how))


def _describe_roofline(run: Run) -> str:
    """What the picture's axes and lines are."""
    note = say(
        "Operations and bytes are those that the ops declare; the ceilings are a copy and a matrix product measured "
        "in this run. Left of the ridge a case is bound by memory, right of it by arithmetic; named are the cases "
        "furthest below their ceiling, with the share of it that they reach."
    )
    known = {case.dtype for op in run.ops for case in op.performance if case.flops and case.blocks and case.dtype}
    lacking = sorted(known - set(run.limits.matmul_tflops))
    if not lacking:
        return note
    return say("{note} No matrix product was measured in {dtypes}.", note=note, dtypes=", ".join(map(plain, lacking)))


def _describe_untouched(ops: Sequence[str], run: Run) -> str:
    """What became of ops without a section."""
    if not ops or is_only_compiled(run):
        return ""
    named = ", ".join(map(code, ops))
    if len(ops) == 1:
        return say("Without a section, since nothing of it had to be run: {ops}.", ops=named)
    return say("Without a section, since nothing of them had to be run: {ops}.", ops=named)


# --- the environment --------------------------------------------------------------------------------------------------


def _tabulate_environment(run: Run, judgements: Judgements) -> Table:
    facts = (*_describe_device(run), *_describe_base(run.plan.base), *_describe_differences(judgements))
    return make_table("environment | value", (fact for fact in facts if fact[1] not in {"", "-"}))


def _describe_device(run: Run) -> Iterator[tuple[str, str]]:
    where_ran, device, limits = run.environment, run.environment.device, run.limits
    yield say("device"), plain(device.name)
    yield say("device key"), code(device.key)
    yield say("board"), plain(device.uuid or ", ".join(board.uuid or board.visible for board in run.plan.boards))
    yield say("driver"), plain(device.driver or "")
    yield say("runtime"), plain(device.runtime or "")
    yield say("processors"), str(device.processors or "-")
    yield say("L2 cache"), units.size(device.l2_bytes)
    yield say("memory"), units.size(device.memory_bytes)
    if limits.copy_gbps is not None:
        yield say("measured copy limit"), f"{units.significant(limits.copy_gbps)} GB/s"
    for dtype, tflops in sorted(limits.matmul_tflops.items()):
        yield say("measured matmul limit, {dtype}", dtype=plain(dtype)), f"{units.significant(tflops)} TFLOP/s"
    yield say("timer"), plain(where_ran.timer) if where_ran.timer else say("none: nothing was timed")
    yield "Python", plain(where_ran.python)
    yield say("packages"), _list_packages(where_ran.packages)
    yield say("host"), plain(where_ran.host)
    yield say("system"), plain(where_ran.system)
    yield say("variables"), ", ".join(code(f"{name}={v}") for name, v in sorted(where_ran.variables.items()))
    yield say("seed"), str(run.plan.seed)
    if not is_only_compiled(run):
        budget = say("{seconds:n} s of device time a case for the first looks", seconds=run.plan.budget_s)
        yield say("budget"), budget


def _describe_base(base: Base | None) -> Iterator[tuple[str, str]]:
    """The base's own packages, if another interpreter runs it."""
    if base and base.python:
        yield say("the base's interpreter"), code(base.python)
        yield say("the base's packages"), _list_packages(base.packages)


def _list_packages(packages: Mapping[str, str]) -> str:
    return ", ".join(f"{plain(name)} {plain(version)}" for name, version in sorted(packages.items()))


def _describe_differences(judgements: Judgements) -> Iterator[tuple[str, str]]:
    """Every field that is no longer as it was when the baselines were recorded."""
    found = dict.fromkeys(each for row in judgements.rows if row.comparison for each in row.comparison.differs)
    parts = ((say("since the baselines"), True), (say("since the baselines, no matter for times"), False))
    for name, moves in parts:
        if differs := [each for each in found if each.moves is moves]:
            yield name, plain(list_differences(differs, len(differs)))


def _tabulate_clocks(clocks: Clocks) -> Table:
    seen = [
        (say("SM clock"), clocks.sm_clock_mhz, "MHz"),
        (say("memory clock"), clocks.memory_clock_mhz, "MHz"),
        (say("temperature"), clocks.temperature_c, "C"),
        (say("power"), clocks.power_w, "W"),
        (say("processes of others on the device"), clocks.foreign_processes, ""),
    ]
    lines = [
        (name, say("{low} to {high} {unit}", low=f"{ends[0]:.0f}", high=f"{ends[1]:.0f}", unit=unit).strip())
        for name, ends, unit in seen
        if ends
    ]
    for why, count in clocks.throttle:
        share = say("{count} of {blocks:block|blocks}", count=count, blocks=clocks.blocks)
        lines.append((say("clock held down by {why}", why=plain(why)), share))
    return make_table("seen beside the blocks | least to greatest", lines)


# --- how to read it ---------------------------------------------------------------------------------------------------


def _explain(run: Run, judgements: Judgements) -> Iterator[str]:
    """A paragraph a subject that the page has."""
    yield say(
        "Verdicts come first, the gravest on top; each names its reason with its numbers. REGRESSED, WRONG, TOO_SLOW "
        "and ERROR fail the gate, INCONCLUSIVE, DRIFTED, STALE, SUSPECT and REMOVED warn."
    )
    if not is_only_compiled(run):
        yield phrase(
            "*Change* is current time / baseline time - 1: plus is slower. *Speedup* is reference time / kernel time: "
            "above 1 is good. The ranges beside them are 95 % confidence intervals unless a sentence says otherwise. "
            "Of a case that was measured again, the change is that of the last fresh process; its sentence has the "
            "first look and all of them."
        )
        yield say(
            "One block is one observation: fresh buffers, then rounds in which every arm is launched once in random "
            "order. Kernel and reference times are medians of block medians."
        )
        yield say(
            "Percentiles, relative standard deviation (RSD) and outliers describe the launches; no verdict rests on "
            "them."
        )
        yield say('Speed of a wrong kernel means nothing, so a WRONG case is not timed and shows "-".')
    if any(len(speedups) > 1 for speedups in means.find_sound(judgements.rows).values()):
        yield phrase(
            "The *geometric mean* of speedups has the interval that follows from the cases' own, taken as independent; "
            "it is about these cases and no others."
        )
    if any(row.comparison and row.comparison.duel for row in judgements.rows):
        yield phrase(
            "Where a case was timed beside the base, as its reason says, *change* is against the base and not against "
            "the baseline. A case is cleared as soon as its blocks show no slow-down, after four of them as a rule; it "
            "fails only if several processes agree. With fewer than six blocks the range beside the change spans them "
            "all, which holds at 88 % for four."
        )
    if any(row.verdict is Verdict.UNCHANGED and row.suite is not Suite.COMPILED for row in judgements.rows):
        yield say(
            "UNCHANGED: the files are the base's own, or the call does the same device work, launch for launch, so the "
            "change cannot have made it slower. Such cases are not timed, but for a few as a control of the "
            "measurement itself."
        )
    if run.static:
        yield phrase(
            "Rows *compiled for* a target are about the code that the compiler makes. It has no noise, and says no "
            "time."
        )
