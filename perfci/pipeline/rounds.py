"""Measure and decide by turns, until the judge needs no more."""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

import perfci
from perfci.model import Device, Judgements, Plan, Run
from perfci.pipeline import base as base_stage
from perfci.pipeline.base import BaseTree
from perfci.pipeline.bench import Bench
from perfci.pipeline.decide import decide
from perfci.pipeline.record import NOTHING_PLANTED, Plant, Recorder, describe_environment
from perfci.plan import Request
from perfci.settings import Settings

ROUNDS = 4
"""How often the judge may ask for more at most: a duel asks twice, a screen once."""


def settled(
    bench: Bench, request: Request, run: Run, tree: BaseTree | None, plant: Plant = NOTHING_PLANTED
) -> tuple[Run, Judgements]:
    """A run whose first looks were taken, with what the judge lacks fetched, and its verdicts."""
    rules = base_stage.rules(run.plan.base, tree, bench.settings)
    judgements = decide(run, bench.settings, judged_by=rules)
    for _ in range(ROUNDS):
        if not judgements.needs:
            break
        run = Recorder(bench, request, run, tree, plant).record_again(judgements.needs)
        judgements = decide(run, bench.settings, judged_by=rules)
    return run, judgements


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
