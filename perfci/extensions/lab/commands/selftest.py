"""`perfci doctor --selftest`: perfci tried out on this machine, and the noise of its cases."""

import dataclasses
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType

from perfci.cli.exits import Exit
from perfci.cli.output import Grid, Paragraph, get_command, print_found
from perfci.cli.progress import Progress
from perfci.core import units
from perfci.core.errors import DeviceError
from perfci.core.model import UNTIMED, Base, DuelWhat, Judgement, Judgements, Run, Suite, Verdict
from perfci.core.model.measured import DUEL
from perfci.core.settings import Settings
from perfci.core.wording import say
from perfci.ops.discover import select
from perfci.report.view import make_table
from perfci.runs.base import FOLDER, BaseTree
from perfci.runs.bench import Bench, Listener, claim_bench
from perfci.runs.describe import describe_ops
from perfci.runs.effective_thresholds import of_run
from perfci.runs.experiment import Experiment
from perfci.runs.plan import Request
from perfci.runs.rules import move_settings
from perfci.statistics import duel_rule, many_duels
from perfci.worker.tasks import Plant

TRIALS = ("unchanged", "slower", "wrong")

SLOWDOWN = 2.0  # times tau: what perfci promises to see

LEFT_OUT = (".git", ".venv", "venv", "node_modules", "__pycache__", "*.pyc")

SLOWER, FASTER = "duel_slower", "duel_faster"  # kinds of reasons that leave no doubt

BROKEN = frozenset({Verdict.ERROR, Verdict.WRONG})  # verdicts of what could not be tried


@dataclass(frozen=True)
class Trial:
    """One of the three tries."""

    name: str  # unchanged, slower or wrong
    checked: int  # cases
    seen: int  # alarms, planted slow-downs found, or wrong ops found
    wanted: int  # how many there should be
    missed: tuple[str, ...] = ()  # what did not come out as it should, by name

    @property
    def passed(self) -> bool:
        """Whether it came out as it should."""
        return not self.missed and self.seen == self.wanted and self.checked > 0


@dataclass(frozen=True)
class CaseNoise:
    """A case's line in the noise table."""

    op: str
    case: str
    base_us: float
    tau: float
    noise: many_duels.Noise


@dataclass(frozen=True)
class SelfTest:
    """Results of the three tries."""

    trials: tuple[Trial, ...]
    noise: tuple[CaseNoise, ...]
    device: str

    @property
    def passed(self) -> bool:
        """Whether all came out as they should."""
        return all(trial.passed for trial in self.trials)


def selftest(settings: Settings, request: Request, command: str, listener: Listener) -> SelfTest:
    """Try perfci on the project's ops. Each try leaves a run in reports/selftest. Raises DeviceError."""
    where = [dataclasses.replace(settings, reports=settings.reports / "selftest" / name) for name in TRIALS]
    with claim_bench(where[0], listener) as bench:
        if describe_ops(bench, request).device.kind in UNTIMED:
            raise DeviceError("selftest_not_timed")
        timed = dataclasses.replace(request, suites=(Suite.PERFORMANCE,), duel=DuelWhat.ALL, against=None)
        run, judgements = Experiment.beside(bench, timed, command, copy_tree(bench)).check()
    duelled = {row.op for row in judgements.rows if row.comparison and row.comparison.duel}
    names = [op.op for op in select(settings, request.ops)]
    one = dataclasses.replace(timed, ops=(next((name for name in names if name in duelled), names[0]),))
    with claim_bench(where[1], listener) as bench:
        slower = Experiment.beside(bench, one, command, copy_tree(bench), Plant(slowdown=SLOWDOWN)).check()[1]
    one = dataclasses.replace(one, suites=(Suite.ACCURACY,), duel=DuelWhat.NONE)
    with claim_bench(where[2], listener) as bench:
        wrong = Experiment.beside(bench, one, command, None, Plant(spoiled=True)).check()[1]
    trials = tuple(judge_trial(name, judged) for name, judged in zip(TRIALS, (judgements, slower, wrong), strict=True))
    return SelfTest(trials, tuple(measure_noise(run, judgements, settings)), run.environment.device.name)


def copy_tree(bench: Bench) -> BaseTree:
    """The work tree copied, as its base."""
    settings, target = bench.settings, bench.folder / FOLDER
    ours = {settings.reports.parent, settings.reports.parent.parent, bench.folder}
    by_name = shutil.ignore_patterns(*LEFT_OUT)

    def leave_out(folder: str, names: list[str]) -> set[str]:
        return {*by_name(folder, names), *(name for name in names if Path(folder, name) in ours)}

    shutil.copytree(settings.root, target, symlinks=True, ignore=leave_out)
    return BaseTree(Base("the work tree", "asked", "itself"), move_settings(settings, target))


def judge_trial(name: str, judgements: Judgements) -> Trial:
    """A run's result. Raises DeviceError if nothing could be timed."""
    if name == "wrong":
        rows = [row for row in judgements.rows if row.suite is Suite.ACCURACY and row.case is None]
        missed = tuple(row.op for row in rows if row.verdict is not Verdict.WRONG)
        return Trial(name, len(rows), len(rows) - len(missed), len(rows), missed)
    timed = [row for row in judgements.rows if row.comparison and row.comparison.duel]
    broken = tuple(_name(row) for row in judgements.rows if row.verdict in BROKEN)
    if not timed and not broken:
        raise DeviceError("selftest_not_timed")
    wanted = {SLOWER, FASTER} if name == "unchanged" else {SLOWER}
    seen = {_name(row) for row in timed if wanted.intersection(reason.kind for reason in row.reasons)}
    astray = [own for own in map(_name, timed) if (own in seen) == (name == "unchanged")]
    return Trial(name, len(timed), len(seen), 0 if name == "unchanged" else len(timed), (*astray, *broken))


def _name(row: Judgement) -> str:
    return f"{row.op} {row.case}" if row.case else row.op


def measure_noise(run: Run, judgements: Judgements, settings: Settings) -> Iterator[CaseNoise]:
    """Every duelled case with the spread of its blocks and the smallest slow-down that would have been seen."""
    limits, rows = of_run(run, settings).limits, {(row.op, row.case): row for row in judgements.rows}
    for op, case in ((run_of_op.op, case) for run_of_op in run.ops for case in run_of_op.performance):
        row = rows.get((op, case.case))
        shifts: Sequence[float] = [block.shifts[DUEL] for block in case.blocks if DUEL in block.shifts]
        base_us = row.comparison.base_us if row and row.comparison else None
        if base_us is not None and len(shifts) >= duel_rule.FIRST:
            tau = limits.for_case(op, case.case).allowed(base_us, run.environment.timer)
            noise = many_duels.noise(shifts, tau, limits.alpha, run.plan.duel_family)
            yield CaseNoise(op, case.case, base_us, tau, noise)


MISSED = 5  # most cases of a try that are named if they came out wrong


def try_out(where: Settings, request: Request, *, json: bool) -> int:
    """Try perfci on the project's ops, and show what came of it; exit 2 if anything came out wrong."""
    with Progress() as progress:
        outcome = selftest(where, request, get_command(), progress)
    print_found(outcome, show_trials(outcome), json=json)
    return Exit.OK if outcome.passed else Exit.GATE_FAILED


def show_trials(outcome: SelfTest) -> Iterator[RenderableType]:
    """Lines for a terminal or a log."""
    for trial in outcome.trials:
        facts = {"seen": trial.seen, "checked": trial.checked}
        titles = {
            "unchanged": say("every op against itself: {seen} false alarms in {checked} cases", **facts),
            "slower": say("twice the allowed slow-down planted: found in {seen} of {checked} cases", **facts),
            "wrong": say("a wrong element planted: found in {seen} of {checked} ops", **facts),
        }
        word, style = ("ok", "green") if trial.passed else ("FAIL", "bold red")
        yield Paragraph(f"{word}: {titles.get(trial.name, titles['wrong'])}", style=style)
        yield from (Paragraph(name, 6) for name in trial.missed[:MISSED])
        if len(trial.missed) > MISSED:
            yield Paragraph(say("and {count} more", count=len(trial.missed) - MISSED), 6)
    if outcome.noise:
        yield ""
        lines = [
            (
                f"{line.op} {line.case}",
                units.percent(line.noise.spread),
                units.percent(line.tau),
                units.percent(line.noise.smallest) if line.noise.smallest is not None else say("over 12 x"),
                units.time(line.base_us),
            )
            for line in outcome.noise
        ]
        head = say(
            "Noise on {device}: spread of the shift between two equal arms, block by block", device=outcome.device
        )
        yield Grid(make_table("op and case | spread: | allowed: | seen at 95 %: | kernel:", lines), head)
    if outcome.passed:
        text = say("perfci can be trusted on this machine: nothing false was said, and what was planted was found.")
        yield Paragraph(text, style="green")
    else:
        text = say("Something did not come out as it should: run `perfci doctor`, quiet the device, and try again.")
        yield Paragraph(text, style="bold red")
