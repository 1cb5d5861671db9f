"""Collect live duels from runs, for benchmarks/verdicts.py.

    perfci check --suite performance --duel all --against HEAD    # on a device, as often as you like
    python benchmarks/live_duels.py RUN...                        # run.json files; adds to traces/h200-duels.jsonl.gz
    python benchmarks/live_duels.py --planted 2 RUN...            # reports/selftest/slower/run.json

Every line is one case of one run: `op`, `case`, `timer`, `kernel_us` (median of the base arm), `processes` (for each
process the shift d of kernel against base of every block, log scale, in order of time), `run`, `board` and `factor`, by
which a self-check planted a slow-down. A planted one is written twice: as it was found, and with the factor taken out
again (`factor` 1, `restored` true), which is exact, since it was planted by scaling times. `changed` is true if the two
revisions' kernels differ.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perfci import store
from perfci.core.model import Block, PerformanceCase, Run
from perfci.thresholds.case import CaseThresholds

TARGET = Path(__file__).parent / "traces" / "h200-duels.jsonl.gz"
DUEL = "kernel/base"


def lines(run: Run, planted: float) -> Iterator[dict[str, Any]]:
    """The duels of one run; planted: times the allowed slow-down."""
    for op in run.ops:
        for case in op.performance:
            blocks = [block for block in case.blocks if DUEL in block.shifts]
            if not blocks or case.base is None:
                continue
            yield from _lines(run, op.op, case, blocks, planted)


def _lines(run: Run, op: str, case: PerformanceCase, blocks: list[Block], planted: float) -> Iterator[dict[str, Any]]:
    timer = run.environment.timer
    processes: dict[int, list[Block]] = {}
    for block in blocks:
        processes.setdefault(block.process, []).append(block)
    base_us = statistics.median(_base_us(block) for block in blocks)
    line = {
        "op": op,
        "case": case.case,
        "timer": timer,
        "kernel_us": base_us,
        "run": run.id,
        "board": run.environment.device.uuid,
        "factor": 1 + planted * CaseThresholds().allowed(base_us, timer),
        "processes": [[round(block.shifts[DUEL], 6) for block in many] for _, many in sorted(processes.items())],
    }
    yield line if case.base is not None and case.base.same else line | {"changed": True}
    if planted:
        restored = [[round(_restored(block, planted, timer), 6) for block in many] for many in processes.values()]
        yield line | {"factor": 1.0, "restored": True, "processes": restored}


def _restored(block: Block, planted: float, timer: str | None) -> float:
    """A block's shift without what was planted in it."""
    return block.shifts[DUEL] - math.log1p(planted * CaseThresholds().allowed(_base_us(block), timer))


def _base_us(block: Block) -> float:
    return block.arms["base"].time.median_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--planted", type=float, default=0.0, metavar="TAUS")
    options = parser.parse_args()
    stored = gzip.decompress(TARGET.read_bytes()).decode().splitlines() if TARGET.exists() else []
    fresh = [json.dumps(line) for path in options.runs for line in lines(store.read_run(path), options.planted)]
    together = dict.fromkeys((*stored, *fresh))
    TARGET.write_bytes(gzip.compress("".join(f"{line}\n" for line in together).encode(), mtime=0))
    print(f"{len(together) - len(stored)} duels added, {len(together)} in {TARGET.name}")


if __name__ == "__main__":
    main()
