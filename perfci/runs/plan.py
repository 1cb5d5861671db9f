"""What a run will measure, fixed before anything is measured."""

import random
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from perfci.core.errors import UsageError
from perfci.core.model.basics import Reason, Suite
from perfci.core.model.place import UNTIMED
from perfci.core.model.run import DEFAULT_BUDGET_S, Base, Deadline, DuelWhat, Plan, PlannedOp, Run
from perfci.statistics import duel_rule

SEED_BITS = 31


@dataclass(frozen=True)
class Request:
    """What the user asked for."""

    ops: tuple[str, ...] = ()  # names. Empty for all
    pattern: str | None = None  # --case
    device: str = "auto"
    budget_s: float = DEFAULT_BUDGET_S
    seed: int | None = None  # None draws a fresh one
    timer: str = "auto"
    suites: tuple[Suite, ...] = (Suite.ACCURACY, Suite.PERFORMANCE)
    against: str | None = None  # --against: a git revision. None finds the base itself
    duel: DuelWhat = DuelWhat.CHANGED
    base_python: str | None = None  # --base-python
    targets: tuple[str, ...] = ()  # --target: what to compile for without a device
    devices: str | None = None  # --devices: one, all, or indexes such as 0,1. None for the project's setting
    deadline: Deadline | None = None  # --deadline: when measuring has to end
    deadline_note: Reason | None = None  # why a time limit of the job's was ignored
    thresholds: Mapping[str, str] = field(default_factory=dict)  # --threshold: key -> value, as it was typed
    changed: bool = False  # --changed: only ops with files that differ from those of the base
    peers: bool = False  # --backend all: time other backends, and what suites name as peers, side by side
    thorough: bool = False  # --thorough: all that is looked for beyond the suites, in ops that did not change too
    sanitize: bool = False  # --sanitize: probe cases under sanitizers, of ops that did not change too
    elsewhere: bool = False  # other machines run the plan: backends that this device cannot run are described too
    weight: int = 1  # of a round: how many times its cases count in the family of duels of all rounds


@dataclass(frozen=True)
class Against:
    """The base revision as it bears on a plan."""

    base: Base | None = None
    duel: DuelWhat = DuelWhat.NONE
    removed: tuple[str, ...] = ()  # ops that only the base has
    note: Reason | None = None  # why there is no base

    @property
    def skips(self) -> bool:
        """Whether what is proven unchanged is skipped. Not beside the baseline's commit, nor with another toolchain."""
        base = self.base
        if base is None or self.duel is not DuelWhat.CHANGED:
            return False
        return base.how != "baseline" and base.python is None and not base.changed_pins


NOT_AGAINST = Against()

AUDIT_SHARE = 50  # one in so many unchanged cases is duelled if any is, to control the measurement itself


def make_plan(
    request: Request,
    described: Sequence[PlannedOp],
    device: str,
    against: Against = NOT_AGAINST,
    alpha: float = 0.01,
    devices: int = 1,
) -> Plan:
    """The plan of a run. Raises UsageError if no case fits, or if alpha is too small for so many duels."""
    refuse_unfit(request, described)
    # Duels that were asked for by name and are not possible need a note.
    alone = request.duel is DuelWhat.ALL and against.base is None
    seed = draw_seed() if request.seed is None else request.seed
    timed = Suite.PERFORMANCE in request.suites and device not in UNTIMED
    planned = _audited(described, against, seed) if timed else described
    renamed = {op.base.op for op in planned if op.base}
    family = request.weight * sum(len(list_duellable(op, against.duel)) for op in planned) if timed else 0
    if family and not duel_rule.can_decide(family, alpha):
        raise UsageError("duel_cannot_fail", family=family, alpha=alpha, blocks=duel_rule.FINAL[duel_rule.PROCESSES])
    return Plan(
        ops=tuple(planned),
        seed=seed,
        budget_s=request.budget_s,
        device=device,
        suites=request.suites,
        filter=request.pattern,
        base=against.base,
        duel=against.duel,
        # Peers' figures are of every case, whatever a change touches.
        skip_unchanged=against.skips and not (request.peers or request.thorough or request.sanitize),
        duel_family=family,
        removed=tuple(op for op in against.removed if op not in renamed),
        base_note=against.note or (Reason("nothing_to_duel") if alone else None),
        devices=devices,
        deadline=request.deadline,
        deadline_note=request.deadline_note,
        thresholds=request.thresholds,
        peers=request.peers,
        seed_given=request.seed is not None,
        round=request.weight > 1,
    )


def refuse_unfit(request: Request, described: Sequence[PlannedOp]) -> None:
    """Raise UsageError if no case fits the request's pattern."""
    sound = [op for op in described if op.failure is None]
    if request.pattern is not None and sound and not any(op.accuracy or op.performance or op.stored for op in sound):
        raise UsageError("no_case_fits", pattern=request.pattern, ops=", ".join(op.op for op in sound))


def list_duellable(op: PlannedOp, duel: DuelWhat) -> tuple[str, ...]:
    """Cases of an op that may be duelled: those that the base has too, unless its files are the same."""
    base = op.base
    if base is None or base.failure or op.failure or duel is DuelWhat.NONE:
        return ()
    shared = tuple(case for case in op.performance if case in base.performance)
    return op.audit if base.same and duel is DuelWhat.CHANGED else shared


def _audited(described: Sequence[PlannedOp], against: Against, seed: int) -> list[PlannedOp]:
    """The ops with the unchanged cases that are duelled as a control. None if nothing else is duelled.

    Each case is as likely as any other, and they are of as few ops as possible: to start an op takes the longest.
    """
    ops = list(described)
    if against.duel is not DuelWhat.CHANGED or not any(list_duellable(op, against.duel) for op in ops):
        return ops
    unchanged = [(op.op, case) for op in ops if op.base and op.base.same for case in op.performance]
    count = (len(unchanged) + AUDIT_SHARE // 2) // AUDIT_SHARE
    drawn = random.Random(seed).sample(unchanged, len(unchanged))
    turns = {op: turn for turn, op in enumerate(dict.fromkeys(op for op, _ in drawn))}
    chosen = set(sorted(drawn, key=lambda case: turns[case[0]])[:count])
    return [replace(op, audit=tuple(case for case in op.performance if (op.op, case) in chosen)) for op in ops]


def cases_to_run(plan: Plan, op: PlannedOp) -> int:
    """How many cases of an op a worker runs, of both suites. 0 for one that needs no worker."""
    if op.failure:
        return 0
    if plan.skip_unchanged and op.base and op.base.same:
        # Its files are the base's, so that nothing of it is run but a control.
        return len(op.audit)
    cases = {Suite.ACCURACY: (*op.accuracy, *op.stored), Suite.PERFORMANCE: op.performance}
    return sum(len(cases[suite]) for suite in plan.suites)


def estimate_seconds(plan: Plan, last: Run | None) -> Mapping[str, float]:
    """The ops that need a worker, with the seconds that each may take."""
    rates = {}
    for op in last.ops if last else ():
        took, cases = op.wall_s or (op.verify_s or 0.0) + (op.measure_s or 0.0), {check.case for check in op.accuracy}
        if op.late is None and took > 0.0 and (op.performance or cases):
            rates[op.op] = took / (len(op.performance) + len(cases))
    usual = sum(rates.values()) / len(rates) if rates else plan.budget_s
    counts = {op.op: cases_to_run(plan, op) for op in plan.ops}
    return {op: count * rates.get(op, usual) for op, count in counts.items() if count}


def draw_seed() -> int:
    """A seed that no one could have known beforehand."""
    return secrets.randbits(SEED_BITS)
