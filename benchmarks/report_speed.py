"""How long a report of 500 cases takes to render. The goal is 10 s.

Two runs, each with every launch stored: one judged against baselines, and one of a merge request whose cases were all
timed beside the base, and the latter again with a history of 100 accepted runs of each op, which is read first.

Run: python benchmarks/report_speed.py [OPS CASES_EACH]
"""

import importlib.util
import json
import math
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from perfci import report
from perfci.core import settings
from perfci.core.codec import encode
from perfci.core.model import FORMAT, Judgements, OpRun, Run
from perfci.extensions.history.histories import PastSections, read_histories
from perfci.extensions.history.past import Past
from perfci.store.launches import append_launches

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
    run, judgements = examples.large_duelled(ops, cases)
    measure("duelled, with histories", run, judgements, histories(run))


def histories(run: Run, count: int = 100) -> dict[str, Past]:
    """Reads the accepted runs of the run's cases like the pipeline, and prints the time."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / "kernels").mkdir()
        folder = root / "baselines" / run.environment.device.key
        folder.mkdir(parents=True)
        for op in run.ops:
            lines = "".join(json.dumps(_line(run, op, number, count)) + "\n" for number in range(count))
            (folder / f"{op.op}.history.jsonl").write_text(lines, encoding="utf-8")
        where = settings.load(root)
        wall, cpu = time.perf_counter(), time.process_time()
        found = dict(read_histories(run, where))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        print(f"histories: {len(run.ops)} of {count} runs read and looked at: {wall:.1f} s ({cpu:.1f} s of CPU)")
        return found


def _line(run: Run, op: OpRun, number: int, count: int) -> dict:
    """An accepted run of an op: a new driver in the middle, and one of its cases creeps."""
    rng = random.Random(f"{op.op} {number}")
    where = json.loads(encode(run.environment))
    where["device"]["driver"] = "590.12" if number >= count // 2 else "580.65"
    where["commit"] = f"{rng.getrandbits(160):040x}"
    cases = []
    for place, case in enumerate(op.performance):
        known = case.blocks[0].arms
        slower = 1 + 0.001 * number * (place == 7)
        arms = {f"{arm}_us": known[arm].time.median_us * rng.gauss(slower, 0.003) for arm in ("kernel", "reference")}
        spreads = {arm: {"median_us": us, "p25_us": 0.997 * us, "p75_us": 1.003 * us} for arm, us in arms.items()}
        shift = math.log(arms["kernel_us"] / arms["reference_us"])
        cases.append({"case": case.case, "blocks": 8, "shift": shift, "cache": case.cache, **spreads})
    created = f"{datetime(2025, 9, 20, tzinfo=UTC) + timedelta(days=number):%Y-%m-%dT%H:%M:%SZ}"
    return {"run": f"night-{number}", "created": created, "environment": where, "cases": cases, "format": FORMAT}


def measure(name: str, run: Run, judgements: Judgements, histories: dict[str, Past] | None = None) -> None:
    """Renders one report and prints the time."""
    with tempfile.TemporaryDirectory() as folder:
        count = write_launches(run, Path(folder))
        wall, cpu = time.perf_counter(), time.process_time()
        path = report.write(run, judgements, Path(folder), Path(folder), extras=[PastSections(run, histories or {})])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        pictures = [file.stat().st_size for file in Path(folder).glob("*.png")]
        timed = sum(bool(case.blocks) for op in run.ops for case in op.performance)
        print(
            f"{name}: {timed} cases in {len(run.ops)} ops, {count} launches: {wall:.1f} s ({cpu:.1f} s of CPU); "
            f"{path.stat().st_size / 1024:.0f} KiB of Markdown, {len(pictures)} pictures, the largest "
            f"{max(pictures) / 1024:.0f} KiB"
        )


def write_launches(run: Run, folder: Path) -> int:
    """Writes launches around every block's medians. Returns their number."""
    rng, count = random.Random(1), 0
    for op, case, block, medians in _medians(run):
        arms = {arm: [us * (1 + rng.gauss(0, 0.01)) for _ in range(LAUNCHES)] for arm, us in medians.items()}
        append_launches(folder, op, case, block.process, block.index, arms)
        count += LAUNCHES * len(arms)
    return count


def _medians(run: Run) -> Iterator[tuple]:
    for op in run.ops:
        for case in op.performance:
            for block in case.blocks:
                yield op.op, case.case, block, {arm: timed.time.median_us for arm, timed in block.arms.items()}


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
