"""From a run and its judgements to the view of the whole report: head, verdict table, sections, environment."""

from collections.abc import Iterator, Mapping, Sequence

from perfci.core import units
from perfci.core.environment import list_differences
from perfci.core.errors import require
from perfci.core.model import Base, Environment, Judgements, OpRun, Run
from perfci.core.wording import say
from perfci.report import against, means, peers, rows, summary
from perfci.report.frame import Clocks
from perfci.report.sections import Material, is_untouched, make_section
from perfci.report.steps import is_only_compiled, make_steps, repeat
from perfci.report.text import code, list_some, phrase, plain
from perfci.report.view import Head, Report, Section, Table, make_table
from perfci.report.words import write_range, write_seconds


def make_report(material: Material, further_note: str = "") -> Report:
    """Returns the view of a report, whatever its format."""
    run, judgements = material.run, material.judgements
    shown, head = rows.make_rows(judgements), summary.make_head(run, judgements)
    why = tuple(filter(None, [Section(say("Why"), lines=tuple(_list_reasons(shown, head)))]))
    first, above, below = rows.split_notes(judgements, run)
    below += [further_note] if further_note else []
    ran = {op.op: op for op in run.ops}
    ops, untouched = [], []
    for name, judged in material.group_judgements().items():
        op = ran.get(name, OpRun(name))
        if is_untouched(op, judged):
            untouched.append(name)
        else:
            ops.append(make_section(material, op, judged))
    same = [op.op for op in run.plan.ops if op.op in untouched and op.base and op.base.same]
    overview = (
        Section(say("Notes"), lines=tuple(map(plain, below))),
        means.compare_ops(judgements.rows),
        peers.make_section(judgements.rows, run.ops),
        *material.gallery.overview,
        Section(say("Where the time went"), table=tabulate_seconds(run), folded=True),
    )
    return Report(
        gate=rows.name_gate(judgements.gate).upper(),
        first=tuple(map(plain, first)),
        head=head,
        summary=summary.summarise(run, judgements, material.clocks, material.spreads),
        ran=make_table("what | this run", _describe_run(run)),
        verdicts=Section(say("Verdicts"), tuple(map(plain, above)), table=tabulate_verdicts(shown), parts=why),
        overview=tuple(section for section in overview if section),
        ops=tuple(ops),
        untouched=say("Without a section, since nothing had to be run: {ops}.", ops=", ".join(map(code, same)))
        if same and not is_only_compiled(run)
        else "",
        compiled=require("compiled", "static", "perfci static").make_section(run.static) if run.static else None,
        environment=make_table("environment | value", _describe_environment(run, judgements)),
        clocks=_tabulate_clocks(material.clocks),
        repeat=repeat(run),
        reading=tuple(_explain(run, judgements)),
        steps=make_steps(run, judgements),
    )


def tabulate_verdicts(shown: Sequence[rows.VerdictRow]) -> Table:
    """Returns the table of cases: five columns, which a phone has room for."""
    cells = (
        (
            row.marked,
            " ".join(filter(None, (code(row.op), plain(row.about), code(row.case or "")))),
            row.change,
            row.speedup,
            row.kernel,
        )
        for row in shown
    )
    return make_table("verdict | case | change: | speedup: | time:", cells)


def _list_reasons(shown: Sequence[rows.VerdictRow], head: Head) -> Iterator[str]:
    """Yields why, a line a sentence. What passed needs none, and the head has the gravest."""
    known = " ".join(head.reasons)
    alike: dict[tuple[str, str, str], list[str]] = {}
    for row in shown:
        if row.sentence and not row.quiet and plain(row.sentence) not in known:
            where = " ".join(filter(None, (plain(row.about), code(row.case or ""))))
            alike.setdefault((row.marked, code(row.op), plain(row.sentence)), []).append(where)
    for (verdict, op, why), places in alike.items():
        where = " ".join(filter(None, (op, list_some(places, against.CASES))))
        yield say("{verdict} {where}: {why}", verdict=verdict, where=where, why=why)


def _describe_run(run: Run) -> Iterator[tuple[str, str]]:
    where_ran = run.environment
    names = [op.op for op in run.ops] or [op.op for op in run.plan.ops]
    yield say("ops"), ", ".join(map(code, names)) or say("none")
    yield say("cases"), _count_planned(run)
    yield say("device"), plain(where_ran.device.name)
    yield say("commit"), _describe_commit(where_ran)
    if run.plan.base:
        yield say("base"), _describe_base(run.plan.base)
    if run.static:
        yield say("compiled for"), ", ".join(map(plain, run.static.targets))
    started = plain(run.created)
    if run.took_s is not None:
        started = say("{started}, took {time}", started=started, time=write_seconds(run.took_s))
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


def _describe_base(base: Base) -> str:
    """Returns the base, how it was found, and the interpreter that ran it if that is another one."""
    name = code(base.name)
    known = {
        "asked": say("named {name} by --against", name=name),
        "first_parent": say("the tip of {name} that is merged into", name=name),
        "merge_base": say("where {name} was left", name=name),
        "baseline": say("the commit of the baselines"),
    }
    base_text = say("{commit}, {how}", commit=code(base.commit[:12]), how=known.get(base.how, plain(base.how)))
    return say("{base}, run by {python}", base=base_text, python=code(base.python)) if base.python else base_text


def _describe_environment(run: Run, judgements: Judgements) -> Iterator[tuple[str, str]]:
    where_ran, device, limits, base = run.environment, run.environment.device, run.limits, run.plan.base
    facts = {
        say("device"): plain(device.name),
        say("device key"): code(device.key),
        say("board"): plain(device.uuid or ", ".join(board.uuid or board.visible for board in run.plan.boards)),
        say("driver"): plain(device.driver or ""),
        say("runtime"): plain(device.runtime or ""),
        say("processors"): str(device.processors or ""),
        say("L2 cache"): units.size(device.l2_bytes),
        say("memory"): units.size(device.memory_bytes),
        say("measured copy limit"): f"{units.significant(limits.copy_gbps)} GB/s" if limits.copy_gbps else "",
        say("measured matmul limits"): ", ".join(
            f"{code(dtype)} {units.significant(tflops)} TFLOP/s"
            for dtype, tflops in sorted(limits.matmul_tflops.items())
        ),
        say("timer"): plain(where_ran.timer) if where_ran.timer else say("none: nothing was timed"),
        "Python": plain(where_ran.python),
        say("packages"): _list_packages(where_ran.packages),
        say("host"): plain(where_ran.host),
        say("system"): plain(where_ran.system),
        say("variables"): ", ".join(code(f"{name}={value}") for name, value in sorted(where_ran.variables.items())),
        say("seed"): list_some(_list_seeds(run), against.FILES) if run.seed is None else str(run.seed),
        say("the base's interpreter"): code(base.python) if base and base.python else "",
        say("the base's packages"): _list_packages(base.packages) if base and base.python else "",
    }
    if not is_only_compiled(run):
        facts[say("budget")] = say("{seconds:n} s of device time a case for the first looks", seconds=run.plan.budget_s)
    # Every field that is no longer as it was when the baselines were recorded.
    differs = dict.fromkeys(differ for row in judgements.rows if row.comparison for differ in row.comparison.differs)
    for name, moves in ((say("since the baselines"), True), (say("since the baselines, no matter for times"), False)):
        differing = [differ for differ in differs if differ.moves is moves]
        facts[name] = plain(list_differences(differing, len(differing))) if differing else ""
    return (fact for fact in facts.items() if fact[1] not in {"", "-"})


def _list_seeds(run: Run) -> list[str]:
    return [f"{code(op.op)} {run.plan.seed if op.seed is None else op.seed}" for op in run.ops]


def _list_packages(packages: Mapping[str, str]) -> str:
    return ", ".join(f"{plain(name)} {plain(version)}" for name, version in sorted(packages.items()))


def _tabulate_clocks(clocks: Clocks) -> Table:
    seen = (
        (say("SM clock, MHz"), clocks.sm_clock_mhz),
        (say("memory clock, MHz"), clocks.memory_clock_mhz),
        (say("temperature, C"), clocks.temperature_c),
        (say("power, W"), clocks.power_w),
        (say("processes of others on the device"), clocks.foreign_processes),
    )
    lines = [(name, write_range(f"{ends[0]:.0f}", f"{ends[1]:.0f}")) for name, ends in seen if ends]
    for why, count in clocks.throttle:
        share = say("{count} of {blocks:block|blocks}", count=count, blocks=clocks.blocks)
        lines.append((say("clock held down by {why}", why=plain(why)), share))
    return make_table("seen beside the blocks | least to greatest", lines)


def _explain(run: Run, judgements: Judgements) -> Iterator[str]:
    """Returns a paragraph a subject that the page has."""
    yield say(
        "REGRESSED, WRONG, TOO_SLOW, WEAKENED, ERROR and what is SUSPECT by proof fail the gate. INCONCLUSIVE, "
        "TAIL, DRIFTED, STALE, SUSPECT and REMOVED warn."
    )
    if not is_only_compiled(run):
        yield phrase(
            "*Change* is current time / baseline time - 1: plus is slower. *Speedup* is reference time / kernel time: "
            "above 1 is good. The ranges beside them are 95 % confidence intervals unless a sentence says otherwise."
        )
    if any(row.comparison and row.comparison.duel for row in judgements.rows):
        yield phrase(
            "If a case was timed beside the base, as its reason says, *change* is against the base and not against the "
            "baseline. A case is cleared as soon as its blocks show no slow-down; it fails only if several processes "
            "agree."
        )


STEPS = ("start", "accuracy", "prepare", "measure", "later")  # of an op's workers
HEADINGS = "step or op | in all: | start and import: | accuracy: | prepare: | measure: | later looks:"


def tabulate_seconds(run: Run, report_s: float = 0.0) -> Table:
    """Returns a row for each step of the run and each op, in their order. report_s: of the report, if it is known."""
    before = {
        "base": say("finding the base"),
        "describe": say("describing the ops"),
        "compile": say("compiling, nothing beside it"),
    }
    after = {"judge": say("judging"), "report": say("report")}
    spent = {**run.spent_s, "report": report_s}
    rows: list[tuple[str, Mapping[str, float]]] = [(name, {"": spent.get(step, 0.0)}) for step, name in before.items()]
    rows += [(plain(op.op), op.spent_s) for op in run.ops]
    rows += [(name, {"": spent.get(step, 0.0)}) for step, name in after.items()]
    cells = ((name, sum(parts.values()), [write_seconds(parts.get(step)) for step in STEPS]) for name, parts in rows)
    return make_table(HEADINGS, ((name, write_seconds(seconds), *steps) for name, seconds, steps in cells if seconds))
