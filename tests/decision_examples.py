"""Small runs and baselines with exact effects, for the tests of comparing and judging."""

import functools
import math
import re

import numpy as np

from perfci.core.model import (
    AccuracyCase,
    ArmBlock,
    Base,
    BaseArm,
    Baseline,
    BaselineBlock,
    BaselineCase,
    BaselineRun,
    Block,
    Device,
    DeviceState,
    Environment,
    HostArm,
    HostBlock,
    OpRun,
    PerformanceCase,
    Plan,
    PlannedBase,
    PlannedOp,
    Run,
    Suite,
)
from perfci.core.wording import catalogue
from perfci.judge import judge
from perfci.statistics import exact
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import Thresholds

CASE = "rows=4096,dtype=float16"
KERNEL_US, REFERENCE_US = 50.0, 75.0


def environment(timer="activity", key="nvidia-h200", torch="2.11", driver="580", uuid="GPU-1", **changes):
    device = Device("cuda", "NVIDIA H200", key, uuid, driver)
    told = {"python": "3.11.7", "packages": {"torch": torch}, "host": "runner", "system": "Linux"}
    return Environment(device, timer, **told | changes)


@functools.cache
def blocks(factor=1.0, *, process=0, count=10, seed=0, clock=1.0, span=None, activities=1, rsd=0.01, **state):
    """Blocks with a kernel that takes `factor` times its usual 50 us, with 0.3 % noise; a slow clock slows both."""
    rng = np.random.default_rng([seed, process])
    made = []
    for index in range(count):
        kernel, reference = np.array([KERNEL_US * factor, REFERENCE_US]) * clock * rng.lognormal(0, 0.003, 2)
        spread = 1 + rsd * np.linspace(-1.5, 1.5, 7)
        arm = ArmBlock(exact.summary(kernel * spread), span and span * kernel, None, activities)
        arms = {"kernel": arm, "reference": ArmBlock(exact.summary([reference]))}
        shifts = {"kernel/reference": math.log(kernel / reference)}
        made.append(Block(index, process, float(index), arms, shifts, DeviceState(**state)))
    return tuple(made)


def again(factor, other=None, **options):
    """A first look and two fresh processes, the last of which may see something else."""
    third = factor if other is None else other
    looks = [blocks(f, process=process, **options) for process, f in enumerate((factor, factor, third))]
    return tuple(block for look in looks for block in look)


@functools.cache
def duelled(
    *changes, count=12, level=1.0, clock=1.0, spread=0.001, us=KERNEL_US, spans=None, modes=(), slow=None, **state
):
    """Blocks of one process a change: the kernel takes that much more than the base, d spreads by 0.1 %.

    count: blocks of a process, or of each; level: slows kernel and base, clock: the reference; spans: longer than the
    time by these factors, the kernel's and the base's, where a launch is of two activities; slow: one of the kernel's
    20 launches in every second block takes so many times as long, from the first block on.
    """
    counts = count if isinstance(count, tuple) else (count,) * len(changes)
    made = []
    for process, (change, many) in enumerate(zip(changes, counts, strict=True)):
        rng = np.random.default_rng([7, process])
        for index in range(many):
            base, reference = np.array([us * level, 1.5 * us * clock]) * rng.lognormal(0, 0.003, 2)
            d = math.log1p(change) + rng.normal(0, spread)
            kernel = base * math.exp(d)
            launches = np.array([1.0] * 19 + [slow if slow and index % 2 == 0 else 1.0])
            arms = {
                "kernel": _arm(kernel * launches, spans and spans[0] * kernel, modes),
                "base": _arm([base], spans and spans[1] * base),
                "reference": ArmBlock(exact.summary([reference])),
            }
            shifts = {"kernel/reference": math.log(kernel / reference), "kernel/base": d}
            made.append(Block(index, process, float(index), arms, shifts, DeviceState(**state)))
    return tuple(made)


def _arm(launches, span=None, modes=()):
    return ArmBlock(exact.summary(launches), span, None, 2 if span else 1, modes)


@functools.cache
def hosted(*changes, count=12, us=4.0, spread=0.01, loop=0.0):
    """Host times of one process a change: a call keeps the host that much longer than the base's, by 1 % of noise."""
    made = []
    for process, change in enumerate(changes):
        rng = np.random.default_rng([8, process])
        for index in range(count):
            d = math.log1p(change) + rng.normal(0, spread)
            arms = {
                "kernel": HostArm(us * math.exp(d), max(us * math.exp(d), loop)),
                "base": HostArm(us, max(us, loop)),
            }
            made.append(HostBlock(index, process, 100, arms, d))
    return tuple(made)


CHANGED = BaseArm(same=False, duelled=True)


def against(timed=(), base=CHANGED, **options):
    """A case that the base has too."""
    return PerformanceCase(options.pop("case", CASE), blocks=timed, base=base, **options)


BASE = Base("0123456789abcdef", "merge_base", "origin/main")


def duel_plan(*performance, same=False, base=BASE, family=None, skip_unchanged=True, **options):
    """The plan of a merge request that changes the op, or leaves its files alone."""
    cases = performance or (CASE,)
    op = PlannedOp("op", (CASE,), cases, base=PlannedBase(same=same, performance=cases))
    family = len(cases) if family is None else family
    return Plan((op,), 1, 1.0, "cuda", base=base, duel_family=family, skip_unchanged=skip_unchanged, **options)


def judged(measured, stored=None, **limits):
    """The run's judgements, every reason of which has its sentence and all the numbers that it names."""
    thresholds = Thresholds(CaseThresholds(**limits))
    judgements = judge(measured, {"op": stored} if stored else {}, thresholds)
    for reason in (*judgements.notes, *(reason for row in judgements.rows for reason in row.reasons)):
        assert_worded(reason)
    return judgements


def assert_worded(reason, given=("boom",)):
    """The reason has a sentence and all numbers in it; numbers given by a test need no sentence."""
    if reason.kind not in given:
        named = set(re.findall(r"{(\w+)", catalogue()[reason.kind]))
        assert named <= set(reason.facts), reason
        assert all(reason.facts[name] is not None for name in named), reason


def row_of(judgements, case=CASE, suite=Suite.PERFORMANCE):
    """The one row about a case."""
    (row,) = [row for row in judgements.rows if row.case == case and row.suite is suite]
    return row


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
    """An accuracy check that passed, unless options change that."""
    return AccuracyCase(case, "normal", "contiguous", options.pop("seed", 3), **options)


def run(*timed, planned=None, now=None, accuracy=None, op=None, **options):
    """A run of one op, its accuracy right; `timed` are blocks of CASE or whole performance cases."""
    cases = tuple(one if isinstance(one, PerformanceCase) else PerformanceCase(CASE, blocks=one) for one in timed)
    outcome = OpRun("op", (check(fresh=True),) if accuracy is None else tuple(accuracy), cases, **(op or {}))
    return Run(
        "now",
        "2026-02-01T00:00:00Z",
        "0",
        "perfci check",
        now or environment(),
        planned or plan(),
        (outcome,),
        **options,
    )
