"""An experiment: a project's ops beside a base revision. Each of its steps stands here once, for every kind of check.

    experiment = Experiment.find(bench, request, command)   the base, and the rules that judge
    found = experiment.describe()                           the ops, the cases and the device
    plan = experiment.plan(found)                           what will be measured
    run = experiment.begin(plan, found.device)              an empty run
    run = experiment.record(run)                            accuracy, then times
    run, judgements = experiment.settle(run)                verdicts, and more blocks until the judge is sure

`check` takes them all. Others begin, or end, at one of them: a shard, a retry, a release, a round, a bisection.
"""

import contextlib
import dataclasses
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from perfci import store
from perfci.core import extensions
from perfci.core.deadline import Timetable
from perfci.core.errors import PerfciError
from perfci.core.model import Device, Judgement, Judgements, Need, Plan, Run, Suite
from perfci.core.settings import Settings
from perfci.runs import base as base_stage
from perfci.runs.base import BaseTree, FoundBase
from perfci.runs.bench import LOGS, Bench, Listener, claim_bench, open_bench, warm_up
from perfci.runs.beside import describe_against
from perfci.runs.boards import put_sick_aside
from perfci.runs.decide import decide
from perfci.runs.describe import Described, describe_ops
from perfci.runs.effective_thresholds import alpha_of, refuse_looser
from perfci.runs.plan import Request, estimate_seconds, make_plan, refuse_unfit
from perfci.runs.record import new_run
from perfci.runs.rules import verify_rules_unchanged
from perfci.runs.schedule import Recorder
from perfci.store import launches
from perfci.worker.tasks import NOTHING_PLANTED, Plant

ROUNDS = 4  # how often the judge may ask for more at most: a duel asks twice, a screen once

SHORT = frozenset({"too_slow_suspected", "bandwidth_suspected", "compile_suspected"})  # of a target, by one look


def needs_more(judgements: Judgements) -> bool:
    """Whether the judge asks for more."""
    return bool(judgements.needs)


@dataclass(frozen=True)
class Experiment:
    """A project's ops beside a base. To make one notes the rules of both, before any kernel runs."""

    bench: Bench
    request: Request
    command: str  # as it was typed
    base: FoundBase
    plant: Plant = NOTHING_PLANTED

    def __post_init__(self) -> None:
        self.seal()

    @classmethod
    def find(cls, bench: Bench, request: Request, command: str) -> "Experiment":
        """Beside the base that git or the request names. Raises UsageError if one that was named is missing."""
        with bench.timing("base"):
            return cls(bench, request, command, base_stage.find(bench, request))

    @classmethod
    def beside(
        cls, bench: Bench, request: Request, command: str, tree: BaseTree | None, plant: Plant = NOTHING_PLANTED
    ) -> "Experiment":
        """Beside a revision that was written out, or alone."""
        return cls(bench, request, command, base_stage.take_base(tree, request, bench.settings), plant)

    @property
    def tree(self) -> BaseTree | None:
        """The base revision's project."""
        return self.base.tree

    @property
    def settings(self) -> Settings:
        """The project's."""
        return self.bench.settings

    def check(self) -> tuple[Run, Judgements]:
        """Measure every planned op, and judge until the judge needs no more. Each step saves the run."""
        return self.settle(self.measure())

    def measure(self) -> Run:
        """Plan a run, then verify and measure every planned op, each in a separate worker."""
        self.clear()
        described = self.describe()
        plan = self.plan(described)
        return self.record(self.begin(plan, described.device), self.estimate(plan, described.device))

    def seal(self) -> None:
        """Note the thresholds and baselines that count. Raises UsageError if they differ from those noted first."""
        trees = [self.tree.settings] if self.tree else []
        verify_rules_unchanged(self.bench, self.settings, self.base.rules, *trees)

    def clear(self) -> None:
        """Remove an earlier run's logs and launches from the reports folder."""
        shutil.rmtree(self.settings.reports / LOGS, ignore_errors=True)
        launches.clear_launches(self.settings.reports)

    def describe(self) -> Described:
        """Discover the ops, and import them and what differs of the base."""
        with self.bench.timing("describe"):
            return describe_against(self.bench, self.request, self.tree)

    def plan(self, described: Described) -> Plan:
        """Fix what is measured and duelled, on boards that are not sick. Raises UsageError as `make_plan` does."""
        alpha = alpha_of(self.base.rules, self.request.thresholds)
        is_timed = described.device.kind != "cpu"
        sick = put_sick_aside(self.bench, described, self.base.rules) if is_timed else ()
        plan = make_plan(
            self.request, described.ops, described.device.kind, self.base.against, alpha, described.devices
        )
        return dataclasses.replace(plan, put_aside=sick)

    def begin(self, plan: Plan, device: Device) -> Run:
        """Make a run of a plan. Raises UsageError for a --threshold that a pipeline does not allow."""
        return begin_run(self.settings, plan, device, self.command, self.base.rules)

    def estimate(self, plan: Plan, device: Device) -> Timetable:
        """The seconds of each op, as in the run that this one takes the place of."""
        last = None
        with contextlib.suppress(PerfciError, OSError):
            last = store.read_run(self.settings.reports)
        last = last if last and last.ops and last.environment.device.key == device.key else None
        return Timetable(estimate_seconds(plan, last), known=last is not None)

    def record(self, run: Run, times: Timetable | None = None, cases: tuple[str, ...] | None = None) -> Run:
        """Verify and measure a run's ops. cases: None for all planned."""
        return self._recorder(run, times).record(cases)

    def record_again(self, run: Run, needs: Sequence[Need]) -> Run:
        """Measure these cases in further processes."""
        return self._recorder(run).record_again(tuple(needs))

    def judge(self, run: Run) -> Judgements:
        """Judge a run by the rules that were noted. Raises UsageError if they were changed since."""
        self.seal()
        with self.bench.timing("judge"):
            return decide(run, self.settings, judged_by=self.base.rules)

    def settle(self, run: Run, is_open: Callable[[Judgements], bool] = needs_more) -> tuple[Run, Judgements]:
        """Judge a run after its first looks, fetch what the judge lacks, and judge again.

        is_open: whether more processes could change what the caller wants to know.
        """
        judgements = self.judge(run)
        for _ in range(ROUNDS):
            if not is_open(judgements):
                break
            recorder = self._recorder(run)
            for needs in order_needs(judgements) if self.request.deadline else [judgements.needs]:
                run = recorder.record_again(needs)
            judgements = self.judge(run)
            if recorder.idle:
                break
        return self.save(run), judgements

    def save(self, run: Run) -> Run:
        """Store a run, with the seconds that its steps took by now."""
        run = dataclasses.replace(run, spent_s=self.bench.spent_s)
        store.write_run(run, self.settings.reports)
        return run

    def _recorder(self, run: Run, times: Timetable | None = None) -> Recorder:
        return Recorder(self.bench, self.request, run, self.tree, self.plant, times)


def begin_run(settings: Settings, plan: Plan, device: Device, command: str, rules: Settings | None = None) -> Run:
    """A run in which nothing was measured yet. Raises UsageError for a --threshold that a pipeline does not allow.

    rules: None for a run that is joined of others, each of which was held to them.
    """
    run = new_run(settings, plan, device, command)
    if rules is not None:
        refuse_looser(plan, rules, run.environment, run.created)
    return run


def order_needs(judgements: Judgements) -> list[tuple[Need, ...]]:
    """Returns what the judge lacks, in the order to fetch it: cases that look slowest first, as they may fail."""

    def weigh(row: Judgement) -> float:
        """How much slower a case looks, in slow-downs that are allowed. Infinite if it falls short of its target."""
        seen = row.comparison
        if seen is None:
            return 0.0
        if any(reason.kind in SHORT for reason in row.reasons):
            return math.inf
        looks = (seen.duel, seen.duel_span, seen.duel_host, seen.duel_sustained)
        duels = [look.shift.value / look.tau for look in looks if look and look.tau > 0.0]
        screens = [
            screen.change.value / screen.margin for screen in (*seen.screens[:1], *seen.spans[:1]) if screen.margin
        ]
        return max(duels or screens, default=0.0)

    against = {(row.op, row.case): weigh(row) for row in judgements.rows if row.suite is Suite.PERFORMANCE}
    strength = {need: against.get((need.op, need.case), 0.0) for need in judgements.needs}
    suspects = sorted((need for need in strength if strength[need] > 0.0), key=lambda need: -strength[need])
    others = tuple(need for need in strength if strength[need] <= 0.0)
    return [part for part in (tuple(suspects), others) if part]


def check(settings: Settings, request: Request, command: str, listener: Listener) -> tuple[Run, Judgements]:
    """Measure the ops that were asked for, and judge them. Without an accelerator kernels are still compiled."""
    with claim_bench(settings, listener) as bench:
        warm_up(bench, request.device)  # it imports while git is asked
        experiment = Experiment.find(bench, request, command)
        run, judgements = experiment.check()
        groups = [groups.look_on for groups in extensions.provided("groups")]
        for look_on in (*extensions.provided("end_to_end"), *groups, *extensions.provided("beyond")):
            run, judgements = look_on(experiment, run, judgements)
        if run.plan.device == "cpu" and Suite.PERFORMANCE in request.suites:
            for add_compiled in extensions.provided("compile"):
                run = add_compiled(experiment, run)
            judgements = experiment.judge(run)
    return run, judgements


def describe(settings: Settings, request: Request, listener: Listener) -> Described:
    """Discover the ops, and import them once. No base is looked for. Raises UsageError if no case fits."""
    with open_bench(settings, listener) as bench:
        described = describe_ops(bench, request)
    refuse_unfit(request, described.ops)
    return described


def measure(settings: Settings, request: Request, command: str, listener: Listener) -> Run:
    """Measure every planned op, and judge nothing. Raises Stopped, with the run saved, if a signal arrived."""
    with claim_bench(settings, listener) as bench:
        experiment = Experiment.find(bench, request, command)
        return experiment.save(experiment.measure())
