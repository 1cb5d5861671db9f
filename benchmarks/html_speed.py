"""How long the page of 500 cases takes to render, and how large it is. The goals are 2 s and 5 MB.

Two runs, each with every launch stored: one judged against baselines, and one of a merge request whose cases were all
timed beside the base, and the latter again with a history of 100 accepted runs of each op.

Run: python benchmarks/html_speed.py [OPS CASES_EACH]
"""

import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from perfci import report
from perfci.core.model import Judgements, Run
from perfci.extensions.history.histories import PastSections
from perfci.extensions.history.past import Past

HERE = Path(__file__).parent


def main(ops: int = 10, cases: int = 50) -> None:
    examples = load("example_runs", HERE.parent / "tests" / "example_runs.py")
    beside = load("report_speed", HERE / "report_speed.py")
    write_launches = beside.write_launches
    measure("warm-up", *examples.small(), write_launches)
    measure("screened", *examples.large(ops, cases), write_launches)
    measure("duelled", *examples.large_duelled(ops, cases), write_launches)
    run, judgements = examples.large_duelled(ops, cases)
    measure("duelled, with histories", run, judgements, write_launches, beside.histories(run))


def load(name: str, path: Path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def measure(
    name: str, run: Run, judgements: Judgements, write_launches: Callable, histories: dict[str, Past] | None = None
) -> None:
    """Renders one page both ways and prints times and sizes."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_launches(run, folder)
        wall, cpu = timed(
            lambda: report.write(
                run, judgements, folder, folder, extras=[PastSections(run, histories)], formats=["html"]
            )
        )
        size = (folder / report.PAGE).stat().st_size
    count = sum(bool(case.blocks) for op in run.ops for case in op.performance)
    ops = len(run.ops)
    print(f"{name}: {count} cases in {ops} ops: {wall:.1f} s ({cpu:.1f} s of CPU); {size / 1e6:.2f} MB")


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
