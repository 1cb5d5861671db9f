"""How long comparing and judging 10,000 cases takes, without device and torch. The goal is 5 s.

python benchmarks/compare_speed.py [REPEATS]
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping

import numpy as np
from startup import machine

from perfci.core.model import (
    ArmBlock,
    Baseline,
    BaselineBlock,
    BaselineCase,
    BaselineRun,
    Block,
    Device,
    Environment,
    OpRun,
    PerformanceCase,
    Plan,
    PlannedOp,
    Run,
    Suite,
)
from perfci.judge import judge
from perfci.statistics import exact
from perfci.thresholds.limits import Thresholds

OPS, CASES, BLOCKS, BASELINE_BLOCKS, RUNS = 200, 50, 8, 30, 3
AIM_S = 5


def example(rng: np.random.Generator) -> tuple[Run, dict[str, Baseline]]:
    """A run of 200 ops with 50 cases each, two kernels a launch so that spans are compared too."""
    environment = Environment(Device("cuda", "NVIDIA H200", "nvidia-h200"), "activity", "3.11", {}, "runner", "Linux")
    runs = tuple(BaselineRun(str(number), "2026-01-01T00:00:00Z", environment) for number in range(RUNS))
    names = tuple(f"rows={number}" for number in range(CASES))
    ops, planned, baselines = [], [], {}
    for number in range(OPS):
        op = f"op{number}"
        baselines[op] = Baseline(op, "nvidia-h200", "activity", runs, tuple(stored(rng, name) for name in names))
        ops.append(OpRun(op, performance=tuple(measured(rng, name) for name in names)))
        planned.append(PlannedOp(op, performance=names))
    plan = Plan(tuple(planned), 0, 1.0, "cuda", (Suite.PERFORMANCE,))
    return Run("now", "2026-02-01T00:00:00Z", "0", "perfci check", environment, plan, tuple(ops)), baselines


def stored(rng: np.random.Generator, name: str) -> BaselineCase:
    times = rng.lognormal(3, 0.01, (BASELINE_BLOCKS, 2)).tolist()
    blocks = [BaselineBlock(str(i % RUNS), k, r, math.log(k / r), k + 3.0, 2) for i, (k, r) in enumerate(times)]
    return BaselineCase(name, tuple(blocks))


def measured(rng: np.random.Generator, name: str) -> PerformanceCase:
    return PerformanceCase(name, blocks=tuple(block(i, *rng.lognormal(3, 0.01, 2).tolist()) for i in range(BLOCKS)))


def block(index: int, kernel: float, reference: float) -> Block:
    arms = {
        "kernel": ArmBlock(exact.summary([kernel]), kernel + 3.0, None, 2),
        "reference": ArmBlock(exact.summary([reference])),
    }
    return Block(index, 0, 0.0, arms, {"kernel/reference": math.log(kernel / reference)})


def main(repeats: int = 3) -> None:
    run, baselines = example(np.random.default_rng(0))
    print(f"{OPS * CASES} cases, {BLOCKS} blocks each against {BASELINE_BLOCKS} stored: {repeats} repeats, {machine()}")
    once(run, baselines, "cold")  # tables of the tests' distributions are made once a process
    steps = [once(run, baselines, "warm") for _ in range(repeats - 1)]
    if steps:
        best = min(steps, key=lambda step: step[0])
        print(f"best warm: {best[0]:.1f} s wall, {best[1]:.1f} s CPU; the aim is {AIM_S} s")


def once(run: Run, baselines: Mapping[str, Baseline], name: str) -> tuple[float, float]:
    """Seconds of comparing and judging all: wall and CPU."""
    thresholds, began, spent = Thresholds(), time.perf_counter(), time.process_time()
    rows = judge(run, baselines, thresholds).rows
    wall, cpu = time.perf_counter() - began, time.process_time() - spent
    print(f"{name}: {len(rows)} rows in {wall:.1f} s wall and {cpu:.1f} s CPU; the aim is {AIM_S} s")
    return wall, cpu


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
