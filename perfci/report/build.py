"""From a run and its judgements to the page's parts: heading, verdict table, environment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perfci.core import units
from perfci.core.environment import told
from perfci.core.model import Base, Environment, Fact, Gate, Judgements, Run, Suite
from perfci.core.wording import say
from perfci.report import compiled, means, peers, rows, sections, sources, speed, summary, words
from perfci.report.frame import Clocks
from perfci.report.reading import reading
from perfci.report.sections import Material
from perfci.report.steps import only_compiled, repeat, steps
from perfci.report.text import block, code, inline
from perfci.report.view import FOLD_ROWS, Report, Table


def report(material: Material) -> Report:
    """The page, every text in it escaped."""
    run, judgements = material.run, material.judgements
    shown = rows.rows(judgements)
    fine = tuple(row for row in shown if not row.aloud)
    grave = shown[: len(shown) - len(fine)]
    fold = len(fine) > FOLD_ROWS
    notes = rows.notes(judgements, run)
    tally = rows.tally(rows.verdicts(fine).items())
    return Report(
        gate=rows.gate_word(judgements.gate).upper(),
        first=_inlined(notes.first),
        headline=_headline(judgements),
        summary=summary.summary(run, judgements, material.clocks),
        ran=_ran(run),
        above=_inlined(notes.above),
        verdicts=_verdicts(grave if fold else shown),
        fine=_verdicts(fine) if fold else None,
        fine_title=say("{count:row that is|rows that are} fine: {tally}", count=len(fine), tally=tally),
        notes=_inlined(notes.below),
        means=means.table(judgements.rows),
        peers=peers.section(judgements.rows),
        roofline=material.roofline,
        roofline_note=_roofline_note(run) if material.roofline else "",
        ops=sections.sections(material),
        untouched="" if only_compiled(run) else _untouched(sections.untouched(material)),
        compiled=compiled.section(run.static, judgements.rows),
        thresholds=sources.part(material.sources),
        environment=_environment(run, judgements),
        clocks=_clocks(material.clocks),
        repeat=block(repeat(run)),
        reading=tuple(reading(run, judgements)),
        steps=steps(run, judgements),
    )


def _headline(judgements: Judgements) -> str:
    found = rows.counts(judgements)
    worst = rows.worst(judgements)
    facts: dict[str, Fact] = {"counted": rows.counted(found), "code": rows.EXIT_CODES[found.gate]}
    if not found.verdicts:
        return say("**Nothing was judged.** {counted} (exit code {code}).", **facts)
    if found.gate is Gate.OK:
        return say("**The gate is open: nothing failed and nothing warns.** {counted} (exit code {code}).", **facts)
    if found.gate is Gate.WARNS:
        return say("**The gate is open, with warnings: {worst}.** {counted} (exit code {code}).", worst=worst, **facts)
    return say("**The gate fails: {worst}.** {counted} (exit code {code}).", worst=worst, **facts)


def _verdicts(shown: Sequence[rows.Row]) -> Table:
    columns = (
        say("op"),
        say("case"),
        say("verdict"),
        say("change"),
        say("speedup"),
        say("kernel"),
        say("reference"),
        say("reason"),
    )
    table = Table(columns, tuple(_verdict_row(row) for row in shown), frozenset(columns[5:7]))
    return speed.without_empty(table) if all(row.suite is Suite.COMPILED for row in shown) else table


def _verdict_row(row: rows.Row) -> tuple[str, ...]:
    change, speedup = _ranged(row.change, row.change_range), _ranged(row.speedup, row.speedup_range)
    verdict = rows.verdict_word(row.verdict, row.gate)
    return (code(row.op), _where(row), verdict, change, speedup, row.kernel, row.reference, inline(row.sentence))


def _where(row: rows.Row) -> str:
    return " ".join(filter(None, (inline(row.about), code(row.case) if row.case is not None else "")))


def _inlined(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(inline, sentences))


def _ranged(value: str, interval: str) -> str:
    return say("{value} ({interval})", value=value, interval=interval) if interval else value


def _ran(run: Run) -> Table:
    where_ran, base, static = run.environment, run.plan.base, run.static
    names = [op.op for op in run.ops] or [op.op for op in run.plan.ops]
    lines = [
        (say("ops"), ", ".join(map(code, names)) or say("none")),
        (say("cases"), _planned(run)),
        (say("device"), inline(where_ran.device.name)),
        (say("commit"), _commit(where_ran)),
        *([(say("base"), _base(base))] if base else []),
        *([(say("compiled for"), ", ".join(map(inline, static.targets)))] if static else []),
        (say("started"), _started(run)),
        (say("command"), code(run.command)),
        ("perfci", inline(run.perfci)),
    ]
    if run.stopped:
        early = say("early, by {signal}: only what was measured until then is judged", signal=inline(run.stopped))
        lines.append((say("stopped"), early))
    return Table((say("what"), say("this run")), tuple(lines))


def _base(base: Base) -> str:
    where = say("{commit}, {how}", commit=code(base.commit[:12]), how=_how(base))
    return say("{base}, run by {python}", base=where, python=code(base.python)) if base.python else where


def _how(base: Base) -> str:
    """How the base was found."""
    name = code(base.name)
    known = {
        "asked": say("named {name} by --against", name=name),
        "first_parent": say("the tip of {name} that is merged into", name=name),
        "merge_base": say("where {name} was left", name=name),
        "baseline": say("the commit of the baselines"),
    }
    return known.get(base.how, inline(base.how))


def _started(run: Run) -> str:
    started = inline(run.created)
    if run.wall_s is None:
        return started
    return say("{started}, took {time}", started=started, time=speed.seconds(run.wall_s))


def _planned(run: Run) -> str:
    if only_compiled(run):
        cases = words.performance_cases(run.plan.family)
        return say("{cases}, compiled without a device", cases=cases)
    measured = sum(bool(case.blocks) for op in run.ops for case in op.performance)
    return say(
        "{cases} planned, {timed} timed; {checks}",
        cases=words.performance_cases(run.plan.family),
        timed=measured,
        checks=words.accuracy_checks(sum(len(op.accuracy) for op in run.ops)),
    )


def _commit(environment: Environment) -> str:
    if environment.commit is None:
        return say("not in a git repository")
    commit = code(environment.commit[:12])
    if environment.branch:
        commit = say("{commit} on {branch}", commit=commit, branch=code(environment.branch))
    return say("{commit}, with uncommitted changes", commit=commit) if environment.dirty else commit


def _roofline_note(run: Run) -> str:
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
    return say("{note} No matrix product was measured in {dtypes}.", note=note, dtypes=", ".join(map(inline, lacking)))


def _environment(run: Run, judgements: Judgements) -> Table:
    where_ran, device = run.environment, run.environment.device
    products = sorted(run.limits.matmul_tflops.items())
    facts = [
        (say("device"), inline(device.name)),
        (say("device key"), code(device.key)),
        (say("board"), inline(device.uuid or ", ".join(board.uuid or board.visible for board in run.plan.boards))),
        (say("driver"), inline(device.driver or "")),
        (say("runtime"), inline(device.runtime or "")),
        (say("processors"), str(device.processors or "-")),
        (say("L2 cache"), units.size(device.l2_bytes)),
        (say("memory"), units.size(device.memory_bytes)),
        (say("measured copy limit"), _limit(run.limits.copy_gbps, "GB/s")),
        *((say("measured matmul limit, {dtype}", dtype=inline(d)), _limit(v, "TFLOP/s")) for d, v in products),
        (say("timer"), inline(where_ran.timer) if where_ran.timer else say("none: nothing was timed")),
        ("Python", inline(where_ran.python)),
        (
            say("packages"),
            ", ".join(f"{inline(name)} {inline(v)}" for name, v in sorted(where_ran.packages.items())) or "-",
        ),
        (say("host"), inline(where_ran.host)),
        (say("system"), inline(where_ran.system)),
        (say("variables"), ", ".join(code(f"{name}={v}") for name, v in sorted(where_ran.variables.items())) or "-"),
        (say("seed"), str(run.plan.seed)),
        (say("budget"), _budget(run)),
        *_base_environment(run.plan.base),
        *_since(judgements),
    ]
    return Table((say("environment"), say("value")), tuple(fact for fact in facts if fact[1] not in {"", "-"}))


def _since(judgements: Judgements) -> list[tuple[str, str]]:
    """Every field that is no longer as it was when the baselines were recorded."""
    found = dict.fromkeys(each for row in judgements.rows if row.comparison for each in row.comparison.differs)
    parts = ((say("since the baselines"), True), (say("since the baselines, no matter for times"), False))
    said = ((name, [each for each in found if each.moves is moves]) for name, moves in parts)
    return [(name, inline(told(differs, len(differs)))) for name, differs in said if differs]


def _budget(run: Run) -> str:
    if only_compiled(run):
        return "-"
    return say("{seconds:n} s of device time a case for the first looks", seconds=run.plan.budget_s)


def _base_environment(base: Base | None) -> list[tuple[str, str]]:
    """The base's own packages, where another interpreter runs it."""
    if base is None or base.python is None:
        return []
    packages = ", ".join(f"{inline(name)} {inline(version)}" for name, version in sorted(base.packages.items()))
    return [(say("the base's interpreter"), code(base.python)), (say("the base's packages"), packages or "-")]


def _limit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{units.significant(value)} {unit}"


def _clocks(clocks: Clocks) -> Table:
    seen = [
        (say("SM clock"), clocks.sm_clock_mhz, "MHz"),
        (say("memory clock"), clocks.memory_clock_mhz, "MHz"),
        (say("temperature"), clocks.temperature_c, "C"),
        (say("power"), clocks.power_w, "W"),
        (say("processes of others on the device"), clocks.foreign_processes, ""),
    ]
    lines = [(name, _between(ends, unit)) for name, ends, unit in seen if ends]
    lines += [
        (
            say("clock held down by {why}", why=inline(why)),
            say("{count} of {blocks:block|blocks}", count=count, blocks=clocks.blocks),
        )
        for why, count in clocks.throttle
    ]
    return Table((say("seen beside the blocks"), say("least to greatest")), tuple(lines))


def _between(ends: tuple[float, float], unit: str) -> str:
    return say("{low} to {high} {unit}", low=f"{ends[0]:.0f}", high=f"{ends[1]:.0f}", unit=unit).strip()


def _untouched(ops: Sequence[str]) -> str:
    """What became of ops without a section."""
    if not ops:
        return ""
    named = ", ".join(map(code, ops))
    if len(ops) == 1:
        return say("Without a section, since nothing of it had to be run: {ops}.", ops=named)
    return say("Without a section, since nothing of them had to be run: {ops}.", ops=named)
