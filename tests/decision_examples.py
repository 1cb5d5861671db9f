"""Small runs and baselines with exact effects, for the tests of comparing and judging."""

import math

import numpy as np

from perfci import stats
from perfci.model import (
    AccuracyCase,
    ArmBlock,
    Baseline,
    BaselineBlock,
    BaselineCase,
    BaselineRun,
    Block,
    Device,
    DeviceState,
    Environment,
    OpRun,
    PerformanceCase,
    Plan,
    PlannedOp,
    Run,
)

CASE = "rows=4096,dtype=float16"
KERNEL_US, REFERENCE_US = 50.0, 75.0


def environment(timer="activity", key="nvidia-h200", torch="2.11"):
    return Environment(Device("cuda", "NVIDIA H200", key), timer, "3.11", {"torch": torch}, "runner", "Linux")


def blocks(factor=1.0, *, process=0, count=10, seed=0, clock=1.0, span=None, activities=1, rsd=0.01, **state):
    """Blocks whose kernel takes `factor` times its usual 50 us, noise 0.3 %; a slow clock holds both arms up."""
    rng = np.random.default_rng([seed, process])
    made = []
    for index in range(count):
        kernel, reference = np.array([KERNEL_US * factor, REFERENCE_US]) * clock * rng.lognormal(0, 0.003, 2)
        spread = 1 + rsd * np.linspace(-1.5, 1.5, 7)
        arm = ArmBlock(stats.summary(kernel * spread), span and span * kernel, None, activities)
        arms = {"kernel": arm, "reference": ArmBlock(stats.summary([reference]))}
        shifts = {"kernel/reference": math.log(kernel / reference)}
        made.append(Block(index, process, float(index), arms, shifts, DeviceState(**state)))
    return tuple(made)


def again(factor, other=None, **options):
    """A first look and two fresh processes, the last of which may see something else."""
    third = factor if other is None else other
    looks = [blocks(f, process=process, **options) for process, f in enumerate((factor, factor, third))]
    return tuple(block for look in looks for block in look)


def baseline(*cases, runs=3, timer="activity", key="nvidia-h200", torch="2.11", clock=1.0, span=None, activities=1):
    stored = [
        BaselineBlock(
            f"run{number}",
            block.arms["kernel"].time.median_us,
            block.arms["reference"].time.median_us,
            block.shifts["kernel/reference"],
            block.arms["kernel"].span_us,
            block.arms["kernel"].activities,
        )
        for number in range(runs)
        for block in blocks(seed=100 + number, clock=clock, span=span, activities=activities)
    ]
    made = tuple(
        BaselineRun(f"run{number}", "2026-01-01T00:00:00Z", environment(timer, key, torch)) for number in range(runs)
    )
    return Baseline("op", key, timer, made, tuple(BaselineCase(case, tuple(stored)) for case in cases or (CASE,)))


def plan(*performance, accuracy=(CASE,), **options):
    return Plan((PlannedOp("op", tuple(accuracy), performance or (CASE,)),), 1, 1.0, "cuda", **options)


def check(case=CASE, **options):
    """An accuracy check, passed unless options say otherwise."""
    return AccuracyCase(case, "normal", "contiguous", options.pop("seed", 3), **options)


def run(*timed, planned=None, now=None, accuracy=None, op=None, **options):
    """A run of one op, its accuracy right; `timed` are blocks of CASE or whole performance cases."""
    cases = tuple(one if isinstance(one, PerformanceCase) else PerformanceCase(CASE, blocks=one) for one in timed)
    found = OpRun("op", (check(fresh=True),) if accuracy is None else tuple(accuracy), cases, **(op or {}))
    return Run(
        "now", "2026-02-01T00:00:00Z", "0", "perfci check", now or environment(), planned or plan(), (found,), **options
    )
