"""Measure and decide by turns, until the judge needs no more."""

from __future__ import annotations

import math
import secrets
from datetime import UTC, datetime

import perfci
from perfci.core.model import Device, Judgement, Judgements, Need, Plan, Run, Suite
from perfci.core.settings import Settings
from perfci.runs import base as base_stage
from perfci.runs.base import BaseTree
from perfci.runs.bench import Bench
from perfci.runs.decide import decide
from perfci.runs.plan import Request
from perfci.runs.record import NOTHING_PLANTED, Plant, Recorder, describe_environment

ROUNDS = 4
"""How often the judge may ask for more at most: a duel asks twice, a screen once."""


SHORT = frozenset({"too_slow_suspected", "bandwidth_suspected", "compile_suspected"})
"""Reasons of a case that falls short of a target, as far as one look tells."""


def settled(
    bench: Bench, request: Request, run: Run, tree: BaseTree | None, plant: Plant = NOTHING_PLANTED
) -> tuple[Run, Judgements]:
    """A run whose first looks were taken, with what the judge lacks fetched, and its verdicts."""
    rules = base_stage.rules(run.plan.base, tree, bench.settings)
    judgements = decide(run, bench.settings, judged_by=rules)
    for _ in range(ROUNDS):
        if not judgements.needs:
            break
        recorder = Recorder(bench, request, run, tree, plant)
        for needs in in_turn(judgements) if request.deadline else [judgements.needs]:
            run = recorder.record_again(needs)
        judgements = decide(run, bench.settings, judged_by=rules)
        if recorder.idle:
            break
    return run, judgements


def in_turn(judgements: Judgements) -> list[tuple[Need, ...]]:
    """What the judge lacks, in the order in which it is fetched while there is time.

    First the cases with evidence against them, the strongest first: those may fail a merge request.
    """
    against = {(row.op, row.case): _against(row) for row in judgements.rows if row.suite is Suite.PERFORMANCE}
    strength = {need: against.get((need.op, need.case), 0.0) for need in judgements.needs}
    suspects = sorted((need for need in strength if strength[need] > 0.0), key=lambda need: -strength[need])
    others = tuple(need for need in strength if strength[need] <= 0.0)
    return [each for each in (tuple(suspects), others) if each]


def _against(row: Judgement) -> float:
    """How much slower a case looks, in slow-downs that are allowed; most for one that falls short of its target."""
    seen = row.comparison
    if seen is None:
        return 0.0
    duels = [look.shift.value / look.tau for look in (seen.duel, seen.duel_span) if look and look.tau > 0.0]
    screens = [screen.change.value / screen.margin for screen in (*seen.screens[:1], *seen.spans[:1]) if screen.margin]
    short_of_target = any(reason.kind in SHORT for reason in row.reasons)
    return math.inf if short_of_target else max(duels or screens, default=0.0)


def new_run(settings: Settings, plan: Plan, device: Device, command: str) -> Run:
    """A run in which nothing was measured yet, with an id of its own."""
    now = datetime.now(UTC)
    return Run(
        id=f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}",
        created=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        perfci=perfci.__version__,
        command=command,
        environment=describe_environment(settings, device, None),
        plan=plan,
    )
