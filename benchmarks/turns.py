"""Revisions that have a process each: what a duel sees if they hand over the device after each block, or each round.

    python benchmarks/turns.py [--quick] [--out docs/how-good-is-perfci.md]    # on recorded launches, no device
    python benchmarks/turns.py --live [OP...]                                  # on a device, ops of this project

Recorded launches: of two arms with buffers of their own, the kernel of one block and the base of the next one of the
same case stand for processes that change places after each block, and both arms of one block, of which head has the
even rounds and base the odd ones, for processes that change places after each round. Live, every op is duelled with
itself in two processes, unchanged and with twice tau planted, by round and by block.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import resampling
import screen_on_traces as recorded
from duels import FAMILY, LIMITS, TIMER, Tally, play, tally
from resampling import Floats, Pair, Recording
from tables import Marks, percent, table

from perfci.core.model import DuelWhat, Suite
from perfci.core.settings import load
from perfci.extensions.lab.commands.selftest import copy_tree
from perfci.measure.prepare import rounds
from perfci.runs import tasks
from perfci.runs.bench import claim_bench
from perfci.runs.experiment import Experiment
from perfci.runs.plan import Request
from perfci.statistics.duel_rule import Ruling
from perfci.worker.tasks import Plant

MARKS = Marks("benchmarks/turns.py")
CHECKS, QUICK = 600, 60  # of a case and effect

Arms = tuple[Floats, Floats]


def by_round(row: dict, _: dict) -> Arms:
    """Both arms of a block: head's even rounds and the base's odd ones."""
    return np.array(row["ev"]["a1"])[0::2], np.array(row["ev"]["a2"])[1::2]


def by_block(row: dict, after: dict) -> Arms:
    """The kernel of a block and the base of the next one."""
    return np.array(row["ev"]["a1"]), np.array(after["ev"]["a2"])


def by_block_controlled(row: dict, after: dict) -> Arms:
    """The same, each divided by the reference of its rounds."""
    return by_block(row, after)[0] / row["ev"]["ref"], by_block(row, after)[1] / after["ev"]["ref"]


WAYS = {
    "by block, cleared early": (by_block, False),
    "by block": (by_block, True),
    "by block, with the reference": (by_block_controlled, True),
    "by round": (by_round, True),
}
"""How two processes take turns -> the two arms of a block, and whether only the final looks clear a case."""


def record_cases(take: Callable[[dict, dict], Arms]) -> Iterator[Recording]:
    """The recorded cases as two processes would have timed them, the shortest kernel first."""
    rows = sorted(recorded.rows("h200-blocks.jsonl.gz"), key=lambda row: row["t"])
    recordings = []
    for case in sorted({row["case"] for row in rows}):
        processes = []
        for process in sorted({row["proc"] for row in rows}):
            mine = [row for row in rows if (row["case"], row["proc"]) == (case, process)]
            pairs = itertools.pairwise(mine)
            # Anyone who comes first changes from block to block.
            turns = [take(*pair)[:: 1 if at % 2 else -1] for at, pair in enumerate(pairs)]
            processes.append([Pair(*arms, 0.0) for arms in turns])
        base_us = 1000 * statistics.median(np.median(row["ev"]["a1"]) for row in rows if row["case"] == case)
        recordings.append(Recording(case, base_us, rounds(base_us), processes))
    return iter(sorted(recordings, key=lambda recording: recording.base_us))


def simulate(checks: int) -> Iterator[tuple[str, ...]]:
    """Rows of the table: how two processes take turns, case by case."""
    for way, (take, apart) in WAYS.items():
        for number, recording in enumerate(record_cases(take)):
            rng = np.random.default_rng([number, 1])
            tau = LIMITS.allowed(recording.base_us, TIMER)
            spread = statistics.stdev(pair.shift for process in recording.processes for pair in process)
            tallies = [_try(recording, rng, effect, checks, apart=apart) for effect in (0.0, 2 * tau)]
            yield way, recording.case, percent(spread), *_write(*tallies)


def _try(recording: Recording, rng: np.random.Generator, effect: float, checks: int, *, apart: bool) -> Tally:
    duels = [resampling.draw(recording, rng, effect) for _ in range(checks)]
    return tally(ended for duel in duels for ended in play([duel], LIMITS, FAMILY, apart=apart))


def _write(unchanged: Tally, slower: Tally) -> tuple[str, ...]:
    seen, passed = (slower.answers[ruling] / slower.checks for ruling in (Ruling.SLOWER, Ruling.CLEARED))
    cleared = unchanged.answers[Ruling.CLEARED] / unchanged.checks
    return str(unchanged.alarms), percent(cleared), percent(seen), percent(passed)


HEAD = ("turns", "case", "spread of d", "false alarms", "unchanged: PASS", "2 tau: REGRESSED", "2 tau: PASS")


# --- on a device ------------------------------------------------------------------------------------------------------


def measure(request: Request, ways: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Rows of the same table from live duels of ops with themselves, in two processes each."""
    tasks.Tasks.can_judge_apart = lambda *_: False
    settings = load(Path())
    kinds = {"block": frozenset(), "round": tasks.SPLIT}
    for way in ways:
        tasks.SPLIT = kinds[way]
        rows_of = {}
        for planted in (0.0, 2.0):
            with tempfile.TemporaryDirectory() as folder:
                where = dataclasses.replace(settings, reports=Path(folder))
                with claim_bench(where, lambda _: None) as bench:
                    tree = copy_tree(bench)
                    tree = dataclasses.replace(tree, base=dataclasses.replace(tree.base, python=sys.executable))
                    plant = Plant(slowdown=planted)
                    run, judgements = Experiment.beside(bench, request, "turns", tree, plant).check()
            rows_of[planted] = {(row.op, row.case): row for row in judgements.rows if row.comparison}
        cases = {(op.op, case.case): case for op in run.ops for case in op.performance}
        for at, row in rows_of[0.0].items():
            shifts = [block.shifts["kernel/base"] for block in cases[at].blocks if "kernel/base" in block.shifts]
            if len(shifts) > 1:
                verdicts = [str(rows_of[planted][at].verdict) for planted in (0.0, 2.0)]
                least = row.reasons[-1].facts.get("least")
                yield (
                    f"by {way}",
                    " ".join(at),
                    percent(statistics.stdev(shifts)),
                    *verdicts,
                    percent(least) if least else "-",
                )


LIVE_HEAD = ("turns", "case", "spread of d", "unchanged", "2 tau planted", "could have seen")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the checks")
    parser.add_argument("--out", type=Path, metavar="PAGE", help="put the table between the marks of this page")
    parser.add_argument("--live", nargs="*", metavar="OP", help="duel ops with themselves on the device")
    parser.add_argument("--by", nargs="*", choices=("block", "round"), default=("block", "round"), help="of --live")
    parser.add_argument("--case", metavar="GLOB", help="of --live, as of perfci check")
    parser.add_argument("--device", default="auto", help="of --live, as of perfci check")
    options = parser.parse_args()
    if options.live is not None:
        request = Request(
            tuple(options.live), options.case, options.device, suites=(Suite.PERFORMANCE,), duel=DuelWhat.ALL
        )
        print(table(LIVE_HEAD, ()), flush=True)
        for row in measure(request, options.by):
            print("|", " | ".join(row), "|", flush=True)
        return
    result = table(HEAD, simulate(QUICK if options.quick else CHECKS))
    if options.out:
        MARKS.written(options.out, result)
    else:
        print(result)


if __name__ == "__main__":
    main()
