"""How long 16 workers are busy with the shards that `perfci ci plan` makes of 10,000 cases, on virtual clocks.

python benchmarks/fleet.py [CASES WORKERS]

Each op has a number of cases and seconds a case of its own, drawn anew in each of 200 fleets. A worker's start takes
6 s, each time of an op is another by 5 % (standard deviation), and one case of a hundred takes later looks, which no
plan foresees. A plan knows the times of one earlier run, or none. The goal is 30 minutes with 90 % of the workers' time
used.
"""

from __future__ import annotations

import sys

import numpy as np
from speed import machine

from perfci.core.model import Device, Environment, OpRun, PerformanceCase, Plan, PlannedOp, Run
from perfci.extensions.shards.plans import share_out

CASES, WORKERS = 10_000, 16
MEAN_CASES = 20  # of an op, from a few to a hundred
CASE_S, START_S = 1.8, 6.0
SPREAD = 0.6  # of ops' cases, and of their seconds a case, standard deviation of the logarithm
NOISE = 0.05  # of an op's time from run to run
SUSPECT, LATER_S = 0.01, 12.0  # share of cases that are looked at again, and what that takes
FLEETS = 200
AIM_S, AIM_USE = 30 * 60.0, 0.9


def draw(cases: int, rng: np.random.Generator) -> tuple[Plan, np.ndarray, np.ndarray]:
    """A plan with so many cases, their number by op, and the seconds that each op takes on the average."""
    counts = rng.lognormal(np.log(MEAN_CASES), SPREAD, 2 * cases // MEAN_CASES).clip(2, 100).astype(int)
    counts = counts[: np.searchsorted(np.cumsum(counts), cases) + 1]
    counts[-1] -= counts.sum() - cases
    ops = tuple(
        PlannedOp(f"op{number}", performance=tuple(f"n={size}" for size in range(count)))
        for number, count in enumerate(counts)
    )
    return Plan(ops, 1, 1.0, "fake"), counts, START_S + counts * rng.lognormal(np.log(CASE_S), SPREAD, len(counts))


def earlier(plan: Plan, seconds: np.ndarray) -> Run:
    """A run in which the ops took that long."""
    ops = [
        OpRun(op.op, performance=tuple(map(PerformanceCase, op.performance)), wall_s=float(op_s))
        for op, op_s in zip(plan.ops, seconds, strict=True)
    ]
    nowhere = Environment(Device("fake", "fake", "fake"), "virtual", "", {}, "", "")
    return Run("earlier", "2026-01-01T00:00:00Z", "", "", nowhere, plan, ops=tuple(ops))


def simulate(cases: int, workers: int, fleets: int) -> dict[str, list[tuple[float, float]]]:
    """Of each fleet the seconds until its last worker ends, and the share of the workers' time that is used."""
    rng = np.random.default_rng(0)
    loads: dict[str, list[tuple[float, float]]] = {"no earlier run": [], "one earlier run": []}
    for _ in range(fleets):
        plan, counts, usual = draw(cases, rng)
        then, now = (usual * rng.lognormal(0.0, NOISE, len(usual)) for _ in range(2))
        now += LATER_S * rng.binomial(counts, SUSPECT)
        for name, last in zip(loads, (None, earlier(plan, then)), strict=True):
            busy = np.bincount([job.shard for job in share_out(plan, workers, last)], now, workers + 1)[1:]
            loads[name].append((busy.max(), busy.mean() / busy.max()))
    return loads


def main(cases: int = CASES, workers: int = WORKERS, fleets: int = FLEETS) -> None:
    """Draw fleets, plan them with and without an earlier run, and let their virtual clocks run."""
    print(f"{fleets} fleets of {workers} workers with {cases} cases, {machine()}")
    for name, outcomes in simulate(cases, workers, fleets).items():
        spans, use = np.array(outcomes).T
        told = f"ends after {np.median(spans) / 60:.1f} min (worst {spans.max() / 60:.1f})"
        print(f"{name}: {told}, {np.median(use):.1%} of the workers' time used (worst {use.min():.1%})")
    print(f"The aim is {AIM_S / 60:.0f} min and {AIM_USE:.0%}.")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
