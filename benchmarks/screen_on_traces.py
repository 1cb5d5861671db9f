"""How often the screen cries wolf, and what it sees, on recorded H200 launches: `python benchmarks/screen_on_traces.py`.

Every check is a whole one: a baseline of three processes, a first look in another and, where that is suspicious, two
fresh processes more, through `perfci.compare` and `perfci.judge`. Slow-downs are planted exactly, by scaling launches.
"""

from __future__ import annotations

import gzip
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

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
    Verdict,
)
from perfci.thresholds import Thresholds

TRACES = Path(__file__).parent / "traces"
FAMILY = 30
"""Cases of the plan that each check pretends to be one of."""

ENVIRONMENT = Environment(
    Device("cuda", "NVIDIA H200", "nvidia-h200"), "event", "3.11", {"torch": "2.11"}, "runner", "Linux"
)


@dataclass(frozen=True)
class TraceBlock:
    """One recorded block."""

    case: str
    process: int
    clock_mhz: int
    """the lower of the clocks before and after"""
    kernel: ArmBlock
    twin: ArmBlock
    """the same kernel on buffers of its own: A/A"""
    slower: ArmBlock
    """with 2 % more work"""
    reference: ArmBlock


def traces() -> tuple[TraceBlock, ...]:
    """The blocks of h200-blocks.jsonl.gz, in time order."""
    with gzip.open(TRACES / "h200-blocks.jsonl.gz", "rt") as lines:
        rows = sorted(map(json.loads, lines), key=lambda row: row["t"])
    return tuple(_trace_block(row) for row in rows)


def _trace_block(row) -> TraceBlock:
    arms = [ArmBlock(stats.summary(np.multiply(row["ev"][arm], 1000))) for arm in ("a1", "a2", "b1.02", "ref")]
    return TraceBlock(row["case"], row["proc"], min(state["sm"] for state in row["nv"]), *arms)


def baseline(groups: Sequence[Sequence[TraceBlock]]) -> Baseline:
    """A baseline of one run a group."""
    blocks = [
        BaselineBlock(str(run), _us(block.kernel), _us(block.reference), math.log(_us(block.kernel) / _us(block.reference)))
        for run, group in enumerate(groups)
        for block in group
    ]
    runs = tuple(BaselineRun(str(run), "2026-01-01T00:00:00Z", ENVIRONMENT) for run in range(len(groups)))
    return Baseline("op", "nvidia-h200", "event", runs, (BaselineCase("case", tuple(blocks)),))


def check(stored: Baseline, looks: Sequence[Sequence[TraceBlock]], factor: float = 1.0, arm: str = "twin"):
    """One check with a slow-down planted: the verdict of the first look, and after the fresh processes it asks for."""
    first = _judged(stored, looks[:1], factor, arm)
    return _judged(stored, looks, factor, arm) if first.needs else first


def _judged(stored: Baseline, looks: Sequence[Sequence[TraceBlock]], factor: float, arm: str):
    blocks = [_block(block, process, factor, arm) for process, group in enumerate(looks) for block in group]
    others = tuple(f"other{number}" for number in range(FAMILY - 1))
    plan = Plan((PlannedOp("op", performance=("case", *others)),), 0, 1.0, "cuda", (Suite.PERFORMANCE,))
    op = OpRun("op", performance=(PerformanceCase("case", blocks=tuple(blocks)),))
    run = Run("run", "2026-01-02T00:00:00Z", "0", "perfci check", ENVIRONMENT, plan, (op,))
    thresholds = Thresholds()
    return judge(run, compare(run, {"op": stored}, thresholds), thresholds)


def verdict(judgements) -> Verdict:
    return next(row.verdict for row in judgements.rows if row.case == "case")


def _block(block: TraceBlock, process: int, factor: float, arm: str) -> Block:
    kernel = getattr(block, arm)
    us = _us(kernel) * factor
    planted = ArmBlock(stats.summary([us]))
    shift = math.log(us / _us(block.reference))
    return Block(0, process, 0.0, {"kernel": planted, "reference": block.reference}, {"kernel/reference": shift})


def _us(arm: ArmBlock) -> float:
    return arm.time.median_us


# --- experiments ------------------------------------------------------------------------------------------------------


def by_process(blocks: Iterable[TraceBlock], case: str) -> list[list[TraceBlock]]:
    found: dict[int, list[TraceBlock]] = {}
    for block in blocks:
        if block.case == case:
            found.setdefault(block.process, []).append(block)
    return list(found.values())


def mixed(groups: Sequence[Sequence[TraceBlock]], runs: int = 3) -> Iterator[tuple[Baseline, list[Sequence[TraceBlock]]]]:
    """Every baseline of so many processes, with three looks from the others, each taking its turn as the first."""
    for chosen in itertools.combinations(range(len(groups)), runs):
        stored = baseline([groups[number] for number in chosen])
        rest = [groups[number] for number in range(len(groups)) if number not in chosen]
        for turn in range(len(rest)):
            yield stored, [rest[(turn + step) % len(rest)] for step in range(3)]


def regimes(groups: Sequence[Sequence[TraceBlock]], seed: int = 0, checks: int = 60):
    """Cool baselines with hot runs and the reverse, by the reference's time, by the kernel's and by the clock read."""
    rng = np.random.default_rng(seed)
    blocks = [block for group in groups for block in group]
    for key in (lambda b: _us(b.reference), lambda b: _us(b.twin), lambda b: -b.clock_mhz):
        ordered = sorted(blocks, key=key)
        third = len(ordered) // 3
        cool, hot = ordered[:third], ordered[-third:]
        for _ in range(checks):
            for before, now in ((cool, hot), (hot, cool)):
                stored = rng.permutation(len(before))[:24]
                runs = [[before[i] for i in part] for part in np.array_split(stored, 3)]
                looks = [[now[i] for i in rng.permutation(len(now))[:10]] for _ in range(3)]
                yield baseline(runs), looks


def main() -> None:
    blocks = traces()
    cases = sorted({block.case for block in blocks}, key=lambda case: _us(next(b for b in blocks if b.case == case).kernel))
    experiments = {
        "baseline of 3 processes, run in the same regime": mixed,
        "baseline of 1 process": lambda groups: mixed(groups, 1),
        "cool against hot": regimes,
    }
    for title, experiment in experiments.items():
        print(f"\n{title}")
        for case in cases:
            checks = list(experiment(by_process(blocks, case)))
            print(f"  {case}: {len(checks)} checks each")
            for factor in (1.0, 1.02, 1.03, 1.05, 1.10, 1.15, 1.20, 1.30):
                seen = Counter(verdict(check(stored, looks, factor)) for stored, looks in checks)
                print(f"    x{factor:.2f} ", ", ".join(f"{name} {count}" for name, count in seen.most_common()))


if __name__ == "__main__":
    main()
