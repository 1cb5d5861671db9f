"""How often the screen cries wolf on recorded H200 launches, and what it sees.

    python benchmarks/screen_on_traces.py

Every check is a whole one: a baseline of three processes, a first look in another and, if that is suspicious, two
fresh processes more, through `perfci.judge.compare` and `perfci.judge`. Slow-downs are planted exactly, by scaling
launches.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from perfci.core.model.baseline import Baseline, BaselineBlock, BaselineCase, BaselineRun
from perfci.core.model.basics import Suite, Verdict
from perfci.core.model.decision import Judgements
from perfci.core.model.measured import ArmBlock, Block, OpRun, PerformanceCase
from perfci.core.model.place import Device, Environment
from perfci.core.model.run import Plan, PlannedOp, Run
from perfci.judge import compare as compare_module
from perfci.judge import judge
from perfci.statistics import exact
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import Thresholds

TRACES = Path(__file__).parent / "traces"
FAMILY = 30
"""Cases of the plan that each check pretends to be one of."""

LAUNCHES = 30
"""As many as in a block."""

TORCH = "2.11"


def environment(torch: str = TORCH) -> Environment:
    device = Device("cuda", "NVIDIA H200", "nvidia-h200")
    return Environment(device, "event", "3.11", {"torch": torch}, "runner", "Linux")


@dataclass(frozen=True)
class TraceBlock:
    """One recorded block."""

    case: str
    process: int
    clock_mhz: int
    """the lower of the clocks before and after"""
    kernel: ArmBlock
    twin: ArmBlock
    """the same kernel on its buffers: A/A"""
    slower: ArmBlock
    """with 2 % more work"""
    reference: ArmBlock


Look = Sequence[TraceBlock]
Check = tuple[Baseline, Sequence[Look]]


def traces() -> tuple[TraceBlock, ...]:
    """The blocks of h200-blocks.jsonl.gz, in time order."""
    return tuple(_trace_block(row) for row in sorted(rows("h200-blocks.jsonl.gz"), key=lambda row: row["t"]))


def rows(name: str) -> list[dict[str, Any]]:
    """The lines of a recording."""
    with gzip.open(TRACES / name, "rt") as lines:
        return [json.loads(line) for line in lines]


def _trace_block(row: dict[str, Any]) -> TraceBlock:
    arms = [ArmBlock(exact.summary(np.multiply(row["ev"][arm], 1000))) for arm in ("a1", "a2", "b1.02", "ref")]
    return TraceBlock(row["case"], row["proc"], min(state["sm"] for state in row["nv"]), *arms)


def baseline(groups: Sequence[Look]) -> Baseline:
    """A baseline of one run a group."""
    blocks = [
        BaselineBlock(
            str(run), _us(block.kernel), _us(block.reference), math.log(_us(block.kernel) / _us(block.reference))
        )
        for run, group in enumerate(groups)
        for block in group
    ]
    runs = tuple(BaselineRun(str(run), "2026-01-01T00:00:00Z", environment()) for run in range(len(groups)))
    return Baseline("op", "nvidia-h200", "event", runs, (BaselineCase("case", tuple(blocks)),))


DEFAULTS = Thresholds()


@dataclass(frozen=True)
class Setting:
    """What a check is made with."""

    factor: float = 1.0
    """planted slow-down"""
    arm: str = "kernel"
    """kernel, or twin for other buffers than the baseline's"""
    torch: str = TORCH
    thresholds: Thresholds = DEFAULTS


PLAIN = Setting()


def check(stored: Baseline, looks: Sequence[Look], setting: Setting = PLAIN) -> Verdict:
    """One check. The later looks are the fresh processes, used only if needed."""
    first = _judged(stored, looks[:1], setting)
    last = _judged(stored, looks, setting) if first.needs else first
    return next(row.verdict for row in last.rows if row.case == "case")


def _judged(stored: Baseline, looks: Sequence[Look], setting: Setting) -> Judgements:
    groups = [planted(look, process, setting.factor, setting.arm) for process, look in enumerate(looks)]
    others = tuple(f"other{number}" for number in range(FAMILY - 1))
    plan = Plan((PlannedOp("op", performance=("case", *others)),), 0, 1.0, "cuda", (Suite.PERFORMANCE,))
    op = OpRun("op", performance=(PerformanceCase("case", blocks=tuple(itertools.chain(*groups))),))
    run = Run("run", "2026-01-02T00:00:00Z", "0", "perfci check", environment(setting.torch), plan, (op,))
    return judge(run, {"op": stored}, setting.thresholds)


def planted(look: Look, process: int, factor: float, arm: str = "kernel") -> tuple[Block, ...]:
    """A look's blocks with every launch of the kernel made longer."""
    return tuple(_block(block, process, factor, arm) for block in look)


def _block(block: TraceBlock, process: int, factor: float, arm: str) -> Block:
    kernel = getattr(block, arm)
    planted = ArmBlock(exact.summary([_us(kernel) * factor]))
    shift = _log_ratio(planted, block.reference)
    return Block(0, process, 0.0, {"kernel": planted, "reference": block.reference}, {"kernel/reference": shift})


def _log_ratio(arm: ArmBlock, other: ArmBlock) -> float:
    return math.log(_us(arm) / _us(other))


def _us(arm: ArmBlock) -> float:
    return arm.time.median_us


# --- experiments ------------------------------------------------------------------------------------------------------


def by_process(blocks: Iterable[TraceBlock], case: str) -> list[list[TraceBlock]]:
    trace_blocks: dict[int, list[TraceBlock]] = {}
    for block in blocks:
        if block.case == case:
            trace_blocks.setdefault(block.process, []).append(block)
    return list(trace_blocks.values())


def same_regime(groups: Sequence[Look], runs: int = 3) -> Iterator[Check]:
    """Every baseline of so many processes, with three looks from the others, each taking its turn as the first."""
    for chosen in itertools.combinations(range(len(groups)), runs):
        stored = baseline([groups[number] for number in chosen])
        rest = [groups[number] for number in range(len(groups)) if number not in chosen]
        for turn in range(len(rest)):
            yield stored, [rest[(turn + step) % len(rest)] for step in range(3)]


def another_regime(groups: Sequence[Look], seed: int = 0, checks: int = 60) -> Iterator[Check]:
    """The coolest third of blocks as baseline of the hottest, and the reverse, by the reference and by the clock."""
    rng = np.random.default_rng(seed)
    blocks = [block for group in groups for block in group]
    keys: tuple[Callable[[TraceBlock], float], ...] = (lambda b: _us(b.reference), lambda b: -b.clock_mhz)
    for key in keys:
        ordered = sorted(blocks, key=key)
        third = len(ordered) // 3
        cool, hot = ordered[:third], ordered[-third:]
        for before, now in [(cool, hot), (hot, cool)] * checks:
            parts = np.array_split(rng.permutation(len(before))[:24], 3)
            looks = [[now[i] for i in rng.permutation(len(now))[:10]] for _ in range(3)]
            yield baseline([[before[i] for i in part] for part in parts]), looks


def another_board(groups: Sequence[Look], seed: int = 0, checks: int = 100) -> Iterator[Check]:
    """Runs on another board with buffers that stay, each block one process's first launches.

    That recording has no reference: its time is drawn from the baseline's, and torch is set to differ, so that nothing
    is corrected and every look counts as the same regime: the hardest that the screen can be put to.
    """
    rng = np.random.default_rng(seed)
    case = groups[0][0].case
    cells = [row for row in rows("h200-sequential.jsonl.gz") if row["case"] == case and row["factor"] == 1.0]
    arms = [ArmBlock(exact.summary(np.multiply(row["ev"][:LAUNCHES], 1000))) for row in cells]
    blocks = [block for group in groups for block in group]
    for _ in range(checks):
        stored = baseline([groups[i] for i in rng.permutation(len(groups))[:3]])
        order = rng.permutation(len(arms))
        looks = [
            [replace(blocks[rng.integers(len(blocks))], kernel=arms[i]) for i in part]
            for part in np.split(order[:30], 3)
        ]
        yield stored, looks


EXPERIMENTS: dict[str, Callable[[Sequence[Look]], Iterator[Check]]] = {
    "baseline of 3 processes, run in another": same_regime,
    "baseline of 1 process, run in another": lambda groups: same_regime(groups, 1),
    "cool baseline and hot run, and the reverse": another_regime,
}
FACTORS = (1.0, 1.03, 1.05, 1.10, 1.15, 1.20, 1.30)


WITHOUT_FLOOR = Thresholds(CaseThresholds(floor_us={"event": 0.0}))


def main() -> None:
    blocks = traces()
    groups = {case: by_process(blocks, case) for case in by_length(blocks)}
    for title, experiment in EXPERIMENTS.items():
        checks = {case: list(experiment(recordings)) for case, recordings in groups.items()}
        _report(f"{title}: A/A on other buffers", checks, Setting(arm="twin"))
        for factor in FACTORS:
            _report(f"{title}: kernel times {factor:.2f}", checks, Setting(factor))
        shortest = dict(itertools.islice(checks.items(), 1))
        for factor in FACTORS[:4]:
            setting = Setting(factor, thresholds=WITHOUT_FLOOR)
            _report(f"{title}: kernel times {factor:.2f}, without the timer's floor", shortest, setting)
    boards = {case: list(another_board(recordings)) for case, recordings in groups.items()}
    with blaming():
        _report("another board, nothing corrected: A/A", boards, Setting(torch="2.12"))
    regimes = {case: list(another_regime(recordings)) for case, recordings in groups.items()}
    with without_range():
        _report("cool baseline and hot run, and the reverse, had the range been ignored: A/A", regimes, PLAIN)


@contextlib.contextmanager
def without_range() -> Iterator[None]:
    """The screen's verdicts if every regime counted as the baseline's."""
    rule = compare_module._find_regime
    compare_module._find_regime = lambda *_: (True, 0.0)
    try:
        yield
    finally:
        compare_module._find_regime = rule


@contextlib.contextmanager
def blaming() -> Iterator[None]:
    """The screen's verdicts if another environment did not keep it from blaming a kernel."""
    rule = compare_module.differences
    compare_module.differences = lambda *_: ()
    try:
        yield
    finally:
        compare_module.differences = rule


def by_length(blocks: Sequence[TraceBlock]) -> list[str]:
    """The cases, the shortest kernel first."""
    lengths = {block.case: _us(block.kernel) for block in blocks}
    return sorted(lengths, key=lambda case: lengths[case])


def _report(title: str, checks: Mapping[str, Sequence[Check]], setting: Setting) -> None:
    print(f"\n{title}")
    total: Counter[str] = Counter()
    for case, pairs in checks.items():
        seen = Counter(check(stored, looks, setting).value for stored, looks in pairs)
        total += seen
        print(f"  {case:28}", _counts(seen))
    print(f"  {'all':28}", _counts(total))
    if setting.factor == 1.0:
        print(f"  {'false alarms':28}", _alarms(total))


def _counts(seen: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(seen.items()))


def _alarms(seen: Counter[str]) -> str:
    """Checks made, alarms seen, and Clopper and Pearson's 95 % upper bound, as if checks shared no blocks."""
    alarms, checks = seen["REGRESSED"] + seen["IMPROVED"], seen.total()
    return f"{alarms} of {checks}, 95 % upper bound {100 * upper_bound(alarms, checks):.2f} %"


def upper_bound(seen: float, checks: float) -> float:
    """Clopper and Pearson's one-sided 95 % upper bound of a rate."""
    from scipy.stats import beta  # which takes a second

    return float(beta.ppf(0.95, seen + 1, checks - seen)) if seen < checks else 1.0


if __name__ == "__main__":
    main()
