"""From a run and its judgements to the page's parts: heading, verdict table, environment, what to type next."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping

from perfci import units, wording
from perfci.model import Environment, Gate, Judgement, Judgements, Run, Suite, Verdict
from perfci.report import rows, sections, speed
from perfci.report.frame import Clocks
from perfci.report.sections import Material
from perfci.report.text import block, code, inline, plain
from perfci.report.view import FOLD_ROWS, Report, Step, Table

RUN_FILE = "reports/run.json"

_VERDICT_COLUMNS = ("op", "case", "verdict", "change", "speedup", "kernel", "reference", "reason")
_VERDICT_RIGHT = frozenset({"kernel", "reference"})

_GATES = {
    Gate.OK: "The gate is open: nothing failed and nothing warns.",
    Gate.WARNS: "The gate is open, with warnings: {worst}.",
    Gate.FAILS: "The gate fails: {worst}.",
}

_SHOW = "perfci show {run} --op {op} --case {case}"
_AGAIN = "perfci check --op {op} --case {case}"
_SAME = f"{_AGAIN} --seed {{seed}}"
_QUIETER = f"perfci doctor\n{_AGAIN} --budget {{budget}}"
_ACCEPT = "perfci accept {run} --op {op}"

_STEPS: Mapping[Verdict, tuple[str, str]] = {
    Verdict.REGRESSED: ("see every look at it; after a change, `perfci check` the same case again.", _SHOW),
    Verdict.WRONG: ("its sentence names values, layout and seed; this repeats exactly those inputs.", _SAME),
    Verdict.TOO_SLOW: ("see how far its speedup is from the target in `thresholds/`.", _SHOW),
    Verdict.ERROR: ("read the message in the op's section above; this repeats it alone.", _SAME),
    Verdict.INCONCLUSIVE: ("look for throttling and other processes, then give it more time.", _QUIETER),
    Verdict.DRIFTED: ("driver, board or reference moved; if that was meant, store the new numbers.", _ACCEPT),
    Verdict.STALE: ("the stored baseline cannot speak here; this stores one that can.", _ACCEPT),
    Verdict.SUSPECT: ("read what was seen before believing the time.", _SHOW),
    Verdict.REMOVED: ("if the case went on purpose, store the run without it.", _ACCEPT),
    Verdict.NEW: ("once its numbers are what you want, store them as the baseline.", _ACCEPT),
}


def report(material: Material) -> Report:
    """The page, every text in it escaped."""
    run, judgements, language = material.run, material.judgements, material.language
    shown = rows.rows(judgements, language)
    fine = tuple(row for row in shown if row.verdict.gate is Gate.OK)
    grave = shown[: len(shown) - len(fine)]
    fold = len(fine) > FOLD_ROWS
    return Report(
        gate=rows.GATE_WORDS[judgements.gate],
        headline=_headline(judgements),
        ran=_ran(run),
        verdicts=_verdicts(grave if fold else shown),
        fine=_verdicts(fine) if fold else None,
        fine_title=f"{len(fine)} rows that are fine: {rows.tally(_verdict_counts(fine))}",
        notes=tuple(inline(wording.sentence(note, language)) for note in judgements.notes),
        ops=sections.sections(material),
        environment=_environment(run),
        clocks=_clocks(material.clocks),
        repeat=block(_repeat(run)),
        steps=_steps(run, judgements),
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


def _verdicts(shown: Iterable[rows.Row]) -> Table:
    return Table(_VERDICT_COLUMNS, tuple(_verdict_row(row) for row in shown), _VERDICT_RIGHT)


def _verdict_row(row: rows.Row) -> tuple[str, ...]:
    verdict = str(row.verdict) if row.verdict.gate is Gate.OK else f"**{row.verdict}**"
    change, speedup = _ranged(row.change, row.change_range), _ranged(row.speedup, row.speedup_range)
    return (code(row.op), _where(row), verdict, change, speedup, row.kernel, row.reference, inline(row.sentence))


def _where(row: rows.Row) -> str:
    if row.case is None:
        return row.where
    return code(row.case) if row.suite is Suite.PERFORMANCE else f"accuracy {code(row.case)}"


def _ranged(value: str, interval: str) -> str:
    return f"{value} ({interval})" if interval else value


def _ran(run: Run) -> Table:
    where_ran = run.environment
    lines = [
        ("ops", ", ".join(code(op.op) for op in run.ops) or "none"),
        ("cases", _planned(run)),
        ("device", inline(where_ran.device.name)),
        ("commit", _commit(where_ran)),
        ("started", _started(run)),
        ("command", code(run.command)),
        ("perfci", inline(run.perfci)),
    ]
    if run.stopped:
        lines.append(("stopped", f"early, by {inline(run.stopped)}: only what was measured until then is judged"))
    return Table(("what", "this run"), tuple(lines))


def _started(run: Run) -> str:
    took = f", took {speed.seconds(run.wall_s)}" if run.wall_s is not None else ""
    return f"{inline(run.created)}{took}"


def _planned(run: Run) -> str:
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
        ("board", inline(device.uuid or "-")),
        ("driver", inline(device.driver or "-")),
        ("runtime", inline(device.runtime or "-")),
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
        ("budget", f"{units.significant(run.plan.budget_s)} s of device time a case for the first looks"),
    ]
    return Table(("environment", "value"), tuple(fact for fact in facts if fact[1] != "-"))


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


def _repeat(run: Run) -> str:
    ops = " ".join(f"--op {quoted(op.op)}" for op in run.plan.ops or run.ops)
    only = f" --case {quoted(run.plan.filter)}" if run.plan.filter else ""
    return " ".join(f"perfci check {ops}{only} --seed {run.plan.seed}".split())


def quoted(text: str) -> str:
    """A name as a shell's argument."""
    return shlex.quote(plain(text))


def _steps(run: Run, judgements: Judgements) -> tuple[Step, ...]:
    """One a verdict that came up, its command filled in for the first such row, of a case if there is one."""
    first: dict[Verdict, Judgement] = {}
    for row in sorted(judgements.rows, key=lambda row: row.case is None):
        first.setdefault(row.verdict, row)
    return tuple(
        Step(str(verdict), advice, block(_filled(command, first[verdict].op, first[verdict].case, run)))
        for verdict, (advice, command) in _STEPS.items()
        if verdict in first
    )


def _filled(command: str, op: str, case: str | None, run: Run) -> str:
    """The command for this row; a row about a whole op has no case to name."""
    command = command if case is not None else command.replace(" --case {case}", "")
    return command.format(
        run=RUN_FILE,
        op=quoted(op),
        case=quoted(case or ""),
        seed=run.plan.seed,
        budget=units.significant(4 * run.plan.budget_s),
    )
