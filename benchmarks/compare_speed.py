"""How long comparing and judging 10,000 cases takes; no device, no torch.

python benchmarks/compare_speed.py
"""

from __future__ import annotations

import math
import time

import numpy as np

from perfci import stats
from perfci.compare import compare
from perfci.judge import judge
from perfci.model import (
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
from perfci.thresholds import Thresholds

OPS, CASES, BLOCKS, BASELINE_BLOCKS, RUNS = 200, 50, 8, 30, 3


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
        "kernel": ArmBlock(stats.summary([kernel]), kernel + 3.0, None, 2),
        "reference": ArmBlock(stats.summary([reference])),
    }
    return Block(index, 0, 0.0, arms, {"kernel/reference": math.log(kernel / reference)})


def main() -> None:
    run, baselines = example(np.random.default_rng(0))
    thresholds = Thresholds()
    started = time.perf_counter()
    comparisons = compare(run, baselines, thresholds)
    compared = time.perf_counter()
    rows = judge(run, comparisons, thresholds).rows
    judged = time.perf_counter()
    print(f"{len(rows)} cases: compared in {compared - started:.1f} s, judged in {judged - compared:.1f} s")


if __name__ == "__main__":
    main()
