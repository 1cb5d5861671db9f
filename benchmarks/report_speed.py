"""How long a report of 500 cases takes to render; the aim is 10 s.

Two runs, each with every launch stored: one judged against baselines, and one of a merge request whose cases were all
timed beside the base.

Run: python benchmarks/report_speed.py [OPS CASES_EACH]
"""

import importlib.util
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from perfci import report, store
from perfci.model import Judgements, Run

EXAMPLES = Path(__file__).parents[1] / "tests" / "example_runs.py"
LAUNCHES = 30
"""Of each arm in a block."""


def main(ops: int = 10, cases: int = 50) -> None:
    spec = importlib.util.spec_from_file_location("example_runs", EXAMPLES)
    examples = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(examples)
    # The first use of matplotlib writes its cache of fonts: not a report's time.
    measure("warm-up", *examples.small())
    measure("screened", *examples.large(ops, cases))
    measure("duelled", *examples.large_duelled(ops, cases))


def measure(name: str, run: Run, judgements: Judgements) -> None:
    """Render one report, and tell what it took."""
    with tempfile.TemporaryDirectory() as folder:
        count = write_launches(run, Path(folder))
        wall, cpu = time.perf_counter(), time.process_time()
        path = report.write(run, judgements, Path(folder), Path(folder))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        pictures = [file.stat().st_size for file in Path(folder).glob("*.png")]
        timed = sum(bool(case.blocks) for op in run.ops for case in op.performance)
        print(
            f"{name}: {timed} cases in {len(run.ops)} ops, {count} launches: {wall:.1f} s ({cpu:.1f} s of CPU); "
            f"{path.stat().st_size / 1024:.0f} KiB of Markdown, {len(pictures)} pictures, the largest "
            f"{max(pictures) / 1024:.0f} KiB"
        )


def write_launches(run: Run, folder: Path) -> int:
    """Launches around every block's medians; how many."""
    rng, count = random.Random(1), 0
    for op, case, block, medians in _medians(run):
        arms = {arm: [us * (1 + rng.gauss(0, 0.01)) for _ in range(LAUNCHES)] for arm, us in medians.items()}
        store.append_launches(folder, op, case, block.process, block.index, arms)
        count += LAUNCHES * len(arms)
    return count


def _medians(run: Run) -> Iterator[tuple]:
    for op in run.ops:
        for case in op.performance:
            for block in case.blocks:
                yield op.op, case.case, block, {arm: timed.time.median_us for arm, timed in block.arms.items()}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
