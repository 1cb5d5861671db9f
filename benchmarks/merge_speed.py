"""How long joining 100 shards of 100 cases takes, as in `perfci ci merge`, without device and torch. The goal is 5 s.

python benchmarks/merge_speed.py [SHARDS CASES]

Every case was duelled over 4 blocks, with 30 launches an arm and block. Timed are reading run.json and the launches of
every shard, joining, writing both, and judging. benchmarks/report_speed.py has the report's rendering.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from startup import machine

import perfci
from perfci import store
from perfci.core.model import (
    ArmBlock,
    Base,
    BaseArm,
    Block,
    Device,
    DuelWhat,
    Environment,
    OpRun,
    PerformanceCase,
    Plan,
    PlannedBase,
    PlannedOp,
    Run,
    Shard,
    ShardedOp,
    ShardPlan,
    Suite,
)
from perfci.core.settings import load
from perfci.runs.joined import merge_shards
from perfci.runs.rules import hash_rules
from perfci.statistics.exact import summary
from perfci.store.launches import append_launches

BLOCKS, LAUNCHES = 4, 30
AIM_S = 5
ARMS = ("kernel", "reference", "base")


def planned(shards: int, cases: int, rules: str) -> ShardPlan:
    """One op a shard, each changed since the base."""
    ids = tuple(f"rows={number}" for number in range(cases))
    ops = tuple(
        PlannedOp(f"op{number}", performance=ids, base=PlannedBase(performance=ids)) for number in range(shards)
    )
    whole = Plan(
        ops,
        7,
        1.0,
        "cuda",
        (Suite.PERFORMANCE,),
        base=Base("0" * 40, "merge_base", "main"),
        duel=DuelWhat.CHANGED,
        skip_unchanged=True,
        duel_family=shards * cases,
    )
    return ShardPlan(
        perfci=perfci.__version__,
        created="2026-01-01T00:00:00Z",
        commit=None,
        rules=rules,
        alpha=0.01,
        shards=shards,
        timer="auto",
        plan=whole,
        ops=tuple(ShardedOp(op.op, number) for number, op in enumerate(ops, start=1)),
        family=whole.family,
    )


def measure(sharded: ShardPlan, plan: str, index: int, folder: Path, rng: np.random.Generator) -> None:
    """A shard's run and launches, as it would have stored them."""
    op = sharded.plan.ops[index - 1]
    us = rng.lognormal(3, 0.01, (len(op.performance), BLOCKS, len(ARMS), LAUNCHES)).round(3)
    found = [case(name, times) for name, times in zip(op.performance, us, strict=True)]
    device = Device("cuda", "NVIDIA H200", "nvidia-h200", f"GPU-{index}")
    run = Run(
        id=f"run-{index}",
        created="2026-01-01T00:00:00Z",
        perfci=perfci.__version__,
        command="perfci check",
        environment=Environment(device, "activity", "3.11", {}, f"runner-{index}", "Linux"),
        plan=replace(sharded.plan, ops=(op,), shard_family=sharded.family),
        ops=(OpRun(op.op, performance=tuple(found)),),
        shard=Shard(plan, index, sharded.shards, done=True),
    )
    store.write_run(run, folder)
    for times, name in zip(us, op.performance, strict=True):
        for block, arms in enumerate(times):
            append_launches(folder, op.op, name, 0, block, dict(zip(ARMS, arms.tolist(), strict=True)))


def case(name: str, us: np.ndarray) -> PerformanceCase:
    blocks = []
    for index, arms in enumerate(us):
        found = {arm: ArmBlock(summary(times)) for arm, times in zip(ARMS, arms, strict=True)}
        median = {arm: one.time.median_us for arm, one in found.items()}
        shifts = {f"kernel/{other}": math.log(median["kernel"] / median[other]) for other in ARMS[1:]}
        blocks.append(Block(index, 0, 0.5, found, shifts))
    return PerformanceCase(name, blocks=tuple(blocks), base=BaseArm(same=False, duelled=True))


def main(shards: int = 100, cases: int = 100) -> None:
    """Store the shards, and time what joins them."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "kernels").mkdir()
        settings = load(root)
        rng = np.random.default_rng(0)
        path = store.write_plan(planned(shards, cases, hash_rules(settings)), root / "plan.json")
        sharded, plan = store.read_plan(path)
        folders = [settings.reports / "shards" / str(index) for index in range(1, shards + 1)]
        for index, folder in enumerate(folders, start=1):
            measure(sharded, plan, index, folder, rng)
        size = sum(path.stat().st_size for folder in folders for path in folder.iterdir())
        print(f"{shards} shards of {cases} cases, {size / 1e6:.1f} MB, {machine()}")
        began, spent = time.perf_counter(), time.process_time()
        sharded, plan = store.read_plan(path)
        found = [(store.read_run(folder), folder) for folder in folders]
        read = time.perf_counter() - began
        run, judgements = merge_shards(settings, sharded, plan, found, "perfci ci merge")
        wall, cpu = time.perf_counter() - began, time.process_time() - spent
    assert len(judgements.rows) == sum(len(op.performance) for op in run.ops) == shards * cases
    told = f"{len(judgements.rows)} verdicts in {wall:.1f} s, {read:.1f} s of it reading"
    print(f"{told}; {cpu:.1f} s of CPU; the aim is {AIM_S} s for 100 shards of 100 cases")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
