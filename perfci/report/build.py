"""From a run and its judgements to the page's parts: heading, verdict table, environment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from perfci import units
from perfci.model import Base, Environment, Gate, Judgements, Run, Suite, Verdict
from perfci.report import compiled, rows, sections, speed
from perfci.report.frame import Clocks
from perfci.report.reading import reading
from perfci.report.sections import Material
from perfci.report.steps import only_compiled, repeat, steps
from perfci.report.text import block, code, inline
from perfci.report.view import FOLD_ROWS, Report, Table

_VERDICT_COLUMNS = ("op", "case", "verdict", "change", "speedup", "kernel", "reference", "reason")
_VERDICT_RIGHT = frozenset({"kernel", "reference"})

_HOW = {
    "asked": "named {} by --against",
    "first_parent": "the tip of {} that is merged into",
    "merge_base": "where {} was left",
    "baseline": "the commit of the baselines",
}

_GATES = {
    Gate.OK: "The gate is open: nothing failed and nothing warns.",
    Gate.WARNS: "The gate is open, with warnings: {worst}.",
    Gate.FAILS: "The gate fails: {worst}.",
}


def report(material: Material) -> Report:
    """The page, every text in it escaped."""
    run, judgements = material.run, material.judgements
    shown = rows.rows(judgements)
    fine = tuple(row for row in shown if row.verdict.gate is Gate.OK)
    grave = shown[: len(shown) - len(fine)]
    fold = len(fine) > FOLD_ROWS
    notes = rows.notes(judgements, run)
    return Report(
        gate=rows.GATE_WORDS[judgements.gate],
        first=_inlined(notes.first),
        headline=_headline(judgements),
        ran=_ran(run),
        above=_inlined(notes.above),
        verdicts=_verdicts(grave if fold else shown),
        fine=_verdicts(fine) if fold else None,
        fine_title=f"{len(fine)} rows that are fine: {rows.tally(_verdict_counts(fine))}",
        notes=_inlined(notes.below),
        ops=sections.sections(material),
        untouched="" if only_compiled(run) else _untouched(sections.untouched(material)),
        compiled=compiled.section(run.static, judgements.rows),
        environment=_environment(run),
        clocks=_clocks(material.clocks),
        repeat=block(repeat(run)),
        reading=tuple(reading(run, judgements)),
        steps=steps(run, judgements),
    )


def _headline(judgements: Judgements) -> str:
    found = rows.counts(judgements)
    worst = rows.tally((verdict, count) for verdict, count in found.verdicts if verdict.gate is found.gate)
    told = f"**{_GATES[found.gate].format(worst=worst)}**" if found.verdicts else "**Nothing was judged.**"
    return f"{told} {rows.counted(found)} (exit code {rows.EXIT_CODES[found.gate]})."


def _verdict_counts(shown: Iterable[rows.Row]) -> list[tuple[Verdict, int]]:
    counts: dict[Verdict, int] = {}
    for row in shown:
        counts[row.verdict] = counts.get(row.verdict, 0) + row.gathered
    return list(counts.items())


def _verdicts(shown: Sequence[rows.Row]) -> Table:
    table = Table(_VERDICT_COLUMNS, tuple(_verdict_row(row) for row in shown), _VERDICT_RIGHT)
    return speed.without_empty(table) if all(row.suite is Suite.COMPILED for row in shown) else table


def _verdict_row(row: rows.Row) -> tuple[str, ...]:
    change, speedup = _ranged(row.change, row.change_range), _ranged(row.speedup, row.speedup_range)
    verdict = rows.verdict_word(row.verdict)
    return (code(row.op), _where(row), verdict, change, speedup, row.kernel, row.reference, inline(row.sentence))


def _where(row: rows.Row) -> str:
    return " ".join(filter(None, (inline(row.about), code(row.case) if row.case is not None else "")))


def _inlined(sentences: Iterable[str]) -> tuple[str, ...]:
    return tuple(map(inline, sentences))


def _ranged(value: str, interval: str) -> str:
    return f"{value} ({interval})" if interval else value


def _ran(run: Run) -> Table:
    where_ran, base, static = run.environment, run.plan.base, run.static
    names = [op.op for op in run.ops] or [op.op for op in run.plan.ops]
    lines = [
        ("ops", ", ".join(map(code, names)) or "none"),
        ("cases", _planned(run)),
        ("device", inline(where_ran.device.name)),
        ("commit", _commit(where_ran)),
        *([("base", _base(base))] if base else []),
        *([("compiled for", ", ".join(map(inline, static.targets)))] if static else []),
        ("started", _started(run)),
        ("command", code(run.command)),
        ("perfci", inline(run.perfci)),
    ]
    if run.stopped:
        lines.append(("stopped", f"early, by {inline(run.stopped)}: only what was measured until then is judged"))
    return Table(("what", "this run"), tuple(lines))


def _base(base: Base) -> str:
    python = f", run by {code(base.python)}" if base.python else ""
    return f"{code(base.commit[:12])}, {_HOW.get(base.how, base.how).format(code(base.name))}{python}"


def _started(run: Run) -> str:
    took = f", took {speed.seconds(run.wall_s)}" if run.wall_s is not None else ""
    return f"{inline(run.created)}{took}"


def _planned(run: Run) -> str:
    if only_compiled(run):
        return f"{rows.number(run.plan.family, 'performance case')}, compiled without a device"
    accuracy = sum(len(op.accuracy) for op in run.ops)
    measured = sum(bool(case.blocks) for op in run.ops for case in op.performance)
    return (
        f"{rows.number(run.plan.family, 'performance case')} planned, {measured} timed; "
        f"{rows.number(accuracy, 'accuracy check')}"
    )


def _commit(environment: Environment) -> str:
    if environment.commit is None:
        return "not in a git repository"
    branch = f" on {code(environment.branch)}" if environment.branch else ""
    return f"{code(environment.commit[:12])}{branch}{', with uncommitted changes' if environment.dirty else ''}"


def _environment(run: Run) -> Table:
    where_ran, device = run.environment, run.environment.device
    products = sorted(run.limits.matmul_tflops.items())
    facts = [
        ("device", inline(device.name)),
        ("device key", code(device.key)),
        ("board", inline(device.uuid or "")),
        ("driver", inline(device.driver or "")),
        ("runtime", inline(device.runtime or "")),
        ("processors", str(device.processors or "-")),
        ("L2 cache", units.size(device.l2_bytes)),
        ("memory", units.size(device.memory_bytes)),
        ("measured copy limit", _limit(run.limits.copy_gbps, "GB/s")),
        *((f"measured matmul limit, {inline(d)}", _limit(v, "TFLOP/s")) for d, v in products),
        ("timer", inline(where_ran.timer or "none: nothing was timed")),
        ("Python", inline(where_ran.python)),
        ("packages", ", ".join(f"{inline(name)} {inline(v)}" for name, v in sorted(where_ran.packages.items())) or "-"),
        ("host", inline(where_ran.host)),
        ("system", inline(where_ran.system)),
        ("variables", ", ".join(code(f"{name}={v}") for name, v in sorted(where_ran.variables.items())) or "-"),
        ("seed", str(run.plan.seed)),
        ("budget", _budget(run)),
        *_base_environment(run.plan.base),
    ]
    return Table(("environment", "value"), tuple(fact for fact in facts if fact[1] not in {"", "-"}))


def _budget(run: Run) -> str:
    if only_compiled(run):
        return "-"
    return f"{units.significant(run.plan.budget_s)} s of device time a case for the first looks"


def _base_environment(base: Base | None) -> list[tuple[str, str]]:
    """The base's own packages, where another interpreter runs it."""
    if base is None or base.python is None:
        return []
    packages = ", ".join(f"{inline(name)} {inline(version)}" for name, version in sorted(base.packages.items()))
    return [("the base's interpreter", code(base.python)), ("the base's packages", packages or "-")]


def _limit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{units.significant(value)} {unit}"


def _clocks(clocks: Clocks) -> Table:
    seen = [
        ("SM clock", clocks.sm_clock_mhz, "MHz"),
        ("memory clock", clocks.memory_clock_mhz, "MHz"),
        ("temperature", clocks.temperature_c, "C"),
        ("power", clocks.power_w, "W"),
        ("processes of others on the device", clocks.foreign_processes, ""),
    ]
    lines = [(name, f"{ends[0]:.0f} to {ends[1]:.0f} {unit}".strip()) for name, ends, unit in seen if ends]
    lines += [(f"clock held down by {inline(why)}", f"{n} of {clocks.blocks} blocks") for why, n in clocks.throttle]
    return Table(("seen beside the blocks", "least to greatest"), tuple(lines))


def _untouched(ops: Sequence[str]) -> str:
    """What became of ops without a section."""
    if not ops:
        return ""
    named = ", ".join(map(code, ops))
    return f"Without a section, since nothing of {'it' if len(ops) == 1 else 'them'} had to be run: {named}."
